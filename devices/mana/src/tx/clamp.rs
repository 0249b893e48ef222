//! Limiting the bandwidth of a vPort (`MANA_SET_BW_CLAMP`): packets stay in their send queues until it is their time.

use std::collections::VecDeque;

use nicvisor_core::{Duration, Time};
use serde::{Deserialize, Serialize};

/// Where a vPort stands with its limit. Each packet leaves in one burst; the next one waits for as long as it takes
/// at the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Clamp {
    /// When everything that was sent will have left at the limit.
    clear: Time,
    /// Send queues with packets that wait for it, each once, in the order of their turns.
    waiting: VecDeque<u32>,
}

impl Clamp {
    /// Whether send queue `queue` has to wait. If so, its turn comes.
    pub(super) fn holds(&mut self, now: Time, queue: u32) -> bool {
        if self.clear <= now {
            return false;
        }
        if !self.waiting.contains(&queue) {
            self.waiting.push_back(queue);
        }
        true
    }

    /// `bytes` leave, where `limit` Mb/s are allowed.
    pub(super) fn spend(&mut self, now: Time, bytes: u64, limit: u32) {
        let nanoseconds = bytes.saturating_mul(8_000) / u64::from(limit.max(1));
        self.clear = self.clear.max(now) + Duration::from_nanos(nanoseconds);
    }

    /// What waits may leave now.
    pub(crate) fn lift(&mut self) {
        self.clear = Time::ZERO;
    }

    /// When [`Self::turn`] next has something to say.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.waiting.front().map(|_| self.clear)
    }

    /// The send queue whose turn it is.
    pub(crate) fn turn(&mut self, now: Time) -> Option<u32> {
        match self.clear <= now {
            true => self.waiting.pop_front(),
            false => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_at_the_limit_and_queues_take_turns() {
        let mut clamp = Clamp::default();
        let mut now = Time::from_nanos(5);
        assert!(!clamp.holds(now, 1));
        clamp.spend(now, 1250, 1000);
        assert!(clamp.holds(now, 1) && clamp.holds(now, 2) && clamp.holds(now, 1));
        assert_eq!(clamp.turn(now), None);
        now = Time::from_nanos(5 + 10_000);
        assert_eq!((clamp.next_deadline(), clamp.turn(now)), (Some(now), Some(1)));
        clamp.spend(now, 125, 1000);
        assert!(clamp.holds(now, 1));
        assert_eq!(clamp.turn(now + Duration::from_nanos(1000)), Some(2));
        clamp.lift();
        assert_eq!((clamp.turn(now), clamp.turn(now), clamp.next_deadline()), (Some(1), None, None));
    }
}
