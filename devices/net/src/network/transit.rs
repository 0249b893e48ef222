//! The frames under way, in order of arrival.

use std::collections::VecDeque;

use nicvisor_core::{Frame, Time};
use serde::{Deserialize, Serialize};

use super::PortId;

/// All frames under way. Nearly all arrive in the order in which they were sent, so a sorted queue that is
/// searched from its end serves better than a heap, and keeps frames with equal times in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Transit {
    frames: VecDeque<InTransit>,
}

/// One frame under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InTransit {
    due: Time,
    pub(super) receiver: PortId,
    pub(super) frame: Frame,
}

impl Transit {
    pub(super) fn insert(&mut self, due: Time, receiver: PortId, frame: Frame) {
        let behind = match self.frames.back() {
            Some(last) if last.due > due => self.frames.partition_point(|other| other.due <= due),
            _ => self.frames.len(),
        };
        self.frames.insert(behind, InTransit { due, receiver, frame });
    }

    pub(super) fn take_due(&mut self, now: Time) -> Option<InTransit> {
        if self.frames.front()?.due > now {
            return None;
        }
        self.frames.pop_front()
    }

    pub(super) fn take_all(&mut self) -> VecDeque<InTransit> {
        std::mem::take(&mut self.frames)
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        Some(self.frames.front()?.due)
    }
}
