//! Following the log of a guest's kernel while somebody waits for a text in it.
//!
//! A console shows what its log level lets through; the log itself has all. A program in the guest reads it as it
//! grows, from power-on.

use std::collections::VecDeque;

use crate::lab::GuestCommand;

/// What one who waits has read of a log.
pub(super) struct KernelLog {
    wanted: String,
    found: bool,
    ended: bool,
    /// The beginning of a line whose rest has not come yet.
    begun: Vec<u8>,
    /// The last lines, as `dmesg` shows them.
    last: VecDeque<String>,
}

impl KernelLog {
    /// Nothing read yet; `wanted` is looked for in each line.
    pub(super) fn new(wanted: &str) -> KernelLog {
        KernelLog {
            wanted: wanted.to_owned(),
            found: false,
            ended: false,
            begun: Vec::new(),
            last: VecDeque::new(),
        }
    }

    /// What reads the log in the guest.
    pub(super) fn command() -> GuestCommand {
        GuestCommand { argv: ["cat", "/dev/kmsg"].map(str::to_owned).to_vec(), namespace: None }
    }

    /// Takes what came of the log.
    pub(super) fn take(&mut self, data: &[u8]) {
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let record = std::mem::take(&mut self.begun);
                self.take_line(String::from_utf8_lossy(&record).trim_end());
            }
        }
    }

    fn take_line(&mut self, record: &str) {
        let Some(line) = show(record) else { return };
        self.found |= line.contains(&self.wanted);
        if self.last.len() == LAST_LINES {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    /// The program does not read any more: the kernel overwrote what it was to read next.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Whether the log has what was wanted.
    pub(super) fn has_it(&self) -> bool {
        self.found
    }

    /// Whether nothing more will come.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// The last lines.
    pub(super) fn last_lines(&self) -> String {
        self.last.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

/// A record of `/dev/kmsg` (`priority,sequence,microseconds,flags;text`) as `dmesg` shows it; `None` for a line of
/// properties, which starts with a blank.
fn show(record: &str) -> Option<String> {
    let (header, text) = record.split_once(';').filter(|_| !record.starts_with(' '))?;
    let microseconds: u64 = header.split(',').nth(2)?.parse().ok()?;
    Some(format!("[{:5}.{:06}] {text}", microseconds / 1_000_000, microseconds % 1_000_000))
}

const LAST_LINES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_however_they_come() {
        let text = b"6,1,1000000,-;gve 0000:00:02.0: up\n SUBSYSTEM=pci\n DEVICE=+pci:0000:00:02.0\n7,2,1000001,-;x; y\n";
        for cut in 0..text.len() {
            let mut log = KernelLog::new("02.0: up");
            log.take(&text[..cut]);
            log.take(&text[cut..]);
            assert!(log.has_it(), "{cut}");
            assert_eq!(log.last_lines(), "[    1.000000] gve 0000:00:02.0: up\n[    1.000001] x; y");
        }
        let mut log = KernelLog::new("SUBSYSTEM");
        log.take(text);
        assert!(!log.has_it());
    }

    #[test]
    fn only_the_end_is_kept() {
        let mut log = KernelLog::new("never");
        (0..100).for_each(|number| log.take(format!("6,{number},{number},-;line {number}\n").as_bytes()));
        assert_eq!(log.last_lines().lines().count(), LAST_LINES);
        assert!(log.last_lines().ends_with("[    0.000099] line 99"));
    }
}
