//! Noticing a guest that does nothing any more.

use nicvisor_core::Time;
use serde::{Deserialize, Serialize};

use crate::accel::{Patience, Stuck};

/// When each kind of progress was last seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Watchdog {
    last_progress: Time,
    last_activity: u64,
    /// Since when each CPU has had an interrupt pending that it does not take.
    blocked_since: Vec<Option<Time>>,
}

impl Watchdog {
    pub(super) fn new(cpus: usize) -> Watchdog {
        Watchdog { last_progress: Time::ZERO, last_activity: 0, blocked_since: vec![None; cpus] }
    }

    /// Something happened that a stuck guest does not do.
    pub(super) fn progress(&mut self, now: Time) {
        self.last_progress = now;
    }

    /// To be called after each turn of `cpu`: `blocked` says whether an interrupt is pending that it did not
    /// take, `activity` is the machine's.
    pub(super) fn check(
        &mut self,
        now: Time,
        cpu: usize,
        blocked: bool,
        activity: u64,
        patience: &Patience,
    ) -> Option<Stuck> {
        if activity != self.last_activity {
            self.last_activity = activity;
            self.last_progress = now;
        }
        if now.since(self.last_progress) > patience.no_progress {
            return Some(Stuck::NoProgress { time: patience.no_progress });
        }
        if !blocked {
            self.blocked_since[cpu] = None;
            return None;
        }
        let since = *self.blocked_since[cpu].get_or_insert(now);
        (now.since(since) > patience.interrupts_blocked)
            .then_some(Stuck::InterruptsBlocked { cpu, time: patience.interrupts_blocked })
    }
}

#[cfg(test)]
mod tests {
    use nicvisor_core::Duration;

    use super::*;

    const PATIENCE: Patience =
        Patience { interrupts_blocked: Duration::from_secs(2), no_progress: Duration::from_secs(10) };

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_cpu_that_ignores_interrupts_is_found_but_not_one_that_takes_them_late() {
        let mut watchdog = Watchdog::new(2);
        for (second, blocked) in [(1, true), (3, true), (4, false), (5, true), (7, true)] {
            assert_eq!(watchdog.check(at(second), 1, blocked, 0, &PATIENCE), None);
        }
        let stuck = watchdog.check(at(8), 1, true, 0, &PATIENCE);
        assert_eq!(stuck, Some(Stuck::InterruptsBlocked { cpu: 1, time: PATIENCE.interrupts_blocked }));
    }

    #[test]
    fn activity_and_idleness_are_progress() {
        let mut watchdog = Watchdog::new(1);
        assert_eq!(watchdog.check(at(9), 0, false, 1, &PATIENCE), None);
        assert_eq!(watchdog.check(at(19), 0, false, 1, &PATIENCE), None);
        watchdog.progress(at(19));
        assert_eq!(watchdog.check(at(29), 0, false, 1, &PATIENCE), None);
        assert_eq!(
            watchdog.check(at(30), 0, false, 1, &PATIENCE),
            Some(Stuck::NoProgress { time: PATIENCE.no_progress })
        );
    }
}
