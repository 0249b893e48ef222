//! How often CPUs left the guest, and why.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::run_page::Exit;

/// A counter for each kind of exit.
#[derive(Debug, Default)]
pub(super) struct Counts {
    kinds: [AtomicU64; KINDS.len()],
}

impl Counts {
    /// A CPU came back with `exit`.
    pub(super) fn exit(&self, exit: &Exit) {
        let kind = match exit {
            Exit::PortRead { .. } => 0,
            Exit::PortWrite { .. } => 1,
            Exit::MemoryRead { .. } => 2,
            Exit::MemoryWrite { .. } => 3,
            Exit::MsrRead { .. } => 4,
            Exit::MsrWrite { .. } => 5,
            Exit::Interrupted => 6,
            Exit::Shutdown => 7,
            Exit::Emulation => 8,
            Exit::Breakpoint => 9,
            Exit::Internal { .. } | Exit::FailedEntry { .. } | Exit::Unexpected { .. } => 10,
        };
        self.kinds[kind].fetch_add(1, Ordering::Relaxed);
    }

    /// A doorbell rang without an exit.
    pub(super) fn doorbell(&self) {
        self.kinds[DOORBELL].fetch_add(1, Ordering::Relaxed);
    }

    /// All that are not zero, by name.
    pub(super) fn by_name(&self) -> BTreeMap<String, u64> {
        let counts = KINDS
            .iter()
            .zip(&self.kinds)
            .map(|(name, count)| ((*name).into(), count.load(Ordering::Relaxed)));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

/// Names as reports have them.
const KINDS: [&str; 12] = [
    "port_read",
    "port_write",
    "memory_read",
    "memory_write",
    "msr_read",
    "msr_write",
    "interrupted",
    "shutdown",
    "emulation",
    "breakpoint",
    "failure",
    "doorbell",
];
const DOORBELL: usize = 11;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_under_their_names() {
        let counts = Counts::default();
        counts.exit(&Exit::MsrRead { index: 1 });
        counts.exit(&Exit::MsrRead { index: 2 });
        counts.exit(&Exit::Emulation);
        counts.doorbell();
        let expected = [("doorbell", 1), ("emulation", 1), ("msr_read", 2)];
        assert_eq!(counts.by_name(), expected.map(|(name, count)| (name.to_owned(), count)).into());
    }
}
