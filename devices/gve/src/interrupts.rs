//! Notification blocks: one MSI-X vector each, with the interrupt throttling of the DQO doorbells.
//!
//! An interrupt masks its block by itself. The driver unmasks it by the block's doorbell when it has caught up;
//! an event that came in between is remembered and raises the next interrupt then. Two interrupts of a block
//! are never closer than its interval.

use nicvisor_core::{Duration, Time};
use serde::{Deserialize, Serialize};

use crate::wire::gqi::IRQ_MASK;

/// One notification block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NotifyBlock {
    enabled: bool,
    pending: bool,
    interval_ns: u32,
    raised: Option<Time>,
}

impl NotifyBlock {
    /// Something happened on a queue of the block. Whether to raise the interrupt now.
    pub(crate) fn event(&mut self, now: Time) -> bool {
        self.pending = true;
        self.poll(now)
    }

    /// The driver wrote `value` to the block's doorbell. Whether to raise the interrupt now.
    pub(crate) fn doorbell(&mut self, now: Time, value: u32) -> bool {
        if value & CLEAR_PENDING != 0 {
            self.pending = false;
        }
        if value & ITR_INDEX_MASK != ITR_NO_UPDATE {
            self.interval_ns = (value >> INTERVAL_SHIFT & INTERVAL_MASK) * INTERVAL_UNIT_NS;
        }
        self.enabled = value & ENABLE != 0;
        self.poll(now)
    }

    /// The same with the doorbell of GQI, which only masks and unmasks.
    pub(crate) fn gqi_doorbell(&mut self, now: Time, value: u32) -> bool {
        self.enabled = value & IRQ_MASK == 0;
        self.poll(now)
    }

    /// When [`Self::poll`] will next want to raise the interrupt.
    pub(crate) fn deadline(&self) -> Option<Time> {
        (self.enabled && self.pending).then(|| self.earliest())
    }

    /// Whether to raise the interrupt now.
    pub(crate) fn poll(&mut self, now: Time) -> bool {
        if !self.enabled || !self.pending || now < self.earliest() {
            return false;
        }
        self.enabled = false;
        self.pending = false;
        self.raised = Some(now);
        true
    }

    fn earliest(&self) -> Time {
        self.raised.map_or(Time::ZERO, |raised| raised + Duration::from_nanos(self.interval_ns.into()))
    }
}

/// `GVE_ITR_ENABLE_BIT_DQO`.
pub(crate) const ENABLE: u32 = 1 << 0;
/// `GVE_ITR_CLEAR_PBA_BIT_DQO`.
pub(crate) const CLEAR_PENDING: u32 = 1 << 1;
/// Which of the throttling intervals is written.
const ITR_INDEX_MASK: u32 = 3 << 3;
/// `GVE_ITR_NO_UPDATE_DQO`: none.
pub(crate) const ITR_NO_UPDATE: u32 = 3 << 3;
/// `GVE_ITR_INTERVAL_DQO_SHIFT`.
pub(crate) const INTERVAL_SHIFT: u32 = 5;
/// `GVE_ITR_INTERVAL_DQO_MASK`.
const INTERVAL_MASK: u32 = (1 << 12) - 1;
/// Intervals count in 2 us.
const INTERVAL_UNIT_NS: u32 = 2000;

#[cfg(test)]
mod tests {
    use super::*;

    const TWENTY_MICROSECONDS: u32 = ENABLE | 10 << INTERVAL_SHIFT;

    #[test]
    fn an_interrupt_masks_itself_until_the_doorbell() {
        let mut block = NotifyBlock::default();
        assert!(!block.event(Time::ZERO), "disabled at first");
        assert!(block.doorbell(Time::ZERO, ENABLE), "remembered");
        assert!(!block.event(Time::from_nanos(1)));
        assert_eq!(block.deadline(), None);
        assert!(block.doorbell(Time::from_nanos(2), ENABLE | ITR_NO_UPDATE));
        assert!(!block.doorbell(Time::from_nanos(3), ENABLE | ITR_NO_UPDATE), "nothing new");
    }

    #[test]
    fn the_doorbell_of_gqi_masks_and_unmasks() {
        let mut block = NotifyBlock::default();
        assert!(!block.gqi_doorbell(Time::ZERO, 0));
        assert!(block.event(Time::ZERO));
        assert!(!block.gqi_doorbell(Time::ZERO, IRQ_MASK));
        assert!(!block.event(Time::ZERO));
        assert!(block.gqi_doorbell(Time::ZERO, 1 << 31 | 1 << 29), "acknowledge and look for events");
    }

    #[test]
    fn interrupts_keep_their_distance() {
        let mut block = NotifyBlock::default();
        block.doorbell(Time::ZERO, TWENTY_MICROSECONDS);
        assert!(block.event(Time::from_nanos(100)));
        block.doorbell(Time::from_nanos(200), ENABLE | ITR_NO_UPDATE);
        assert!(!block.event(Time::from_nanos(300)));
        assert_eq!(block.deadline(), Some(Time::from_nanos(20_100)));
        assert!(!block.poll(Time::from_nanos(20_099)));
        assert!(block.poll(Time::from_nanos(20_100)));
    }

    #[test]
    fn a_pending_event_can_be_cleared() {
        let mut block = NotifyBlock::default();
        block.event(Time::ZERO);
        assert!(!block.doorbell(Time::ZERO, ENABLE | CLEAR_PENDING | ITR_NO_UPDATE));
    }
}
