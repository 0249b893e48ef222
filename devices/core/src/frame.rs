//! A frame on a link and what became of it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An Ethernet frame without preamble and frame check sequence, as it crosses a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Assigned when the frame enters the network; [`FrameId::UNASSIGNED`] until then.
    pub id: FrameId,
    /// From the destination MAC address to the end of the payload.
    pub bytes: Vec<u8>,
}

impl Frame {
    /// A frame that has not yet entered a network.
    pub fn new(bytes: Vec<u8>) -> Frame {
        Frame { id: FrameId::UNASSIGNED, bytes }
    }
}

/// Names one copy of one frame for the ledger (a frame flooded to three ports has three ids).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FrameId(pub u64);

impl FrameId {
    /// The id of a frame that no network has seen.
    pub const UNASSIGNED: FrameId = FrameId(0);

    /// Stands for the frame at place `index` of the effects of one call, until the network has given it an id.
    pub(crate) fn provisional(index: usize) -> FrameId {
        FrameId(PROVISIONAL | index as u64)
    }

    /// The id proper, where `ids` are those that the frames of the call got, in order. `None` for a frame that
    /// got none.
    #[must_use]
    pub fn resolve(self, ids: &[FrameId]) -> Option<FrameId> {
        match self.0 & PROVISIONAL {
            0 => Some(self),
            _ => ids.get((self.0 & !PROVISIONAL) as usize).copied(),
        }
    }
}

/// Marks ids that stand for frames without one. No network hands out as many.
const PROVISIONAL: u64 = 1 << 63;

/// How a frame's way ended. Each frame that a network hands to a device has exactly one fate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// The device wrote it to guest memory and told the guest.
    Delivered,
    /// It was dropped, and why.
    Dropped(DropReason),
}

/// Why a frame was dropped. Kept as text so that devices can say precisely what happened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DropReason(pub std::borrow::Cow<'static, str>);

impl DropReason {
    /// The receiver's link is down or its queues are not set up.
    pub const NOT_READY: DropReason = DropReason(std::borrow::Cow::Borrowed("receiver not ready"));
    /// The receiver ran out of posted buffers and its own buffer is full.
    pub const NO_BUFFER: DropReason = DropReason(std::borrow::Cow::Borrowed("no receive buffer"));
    /// Longer than the receiver's or the link's MTU allows.
    pub const TOO_LONG: DropReason = DropReason(std::borrow::Cow::Borrowed("frame above MTU"));
    /// Shorter than an Ethernet header, or cut short inside a header.
    pub const MALFORMED: DropReason = DropReason(std::borrow::Cow::Borrowed("malformed frame"));
    /// The receiver filters it out (not its address).
    pub const FILTERED: DropReason = DropReason(std::borrow::Cow::Borrowed("filtered by address"));
    /// No other port is on the link.
    pub const NO_RECEIVER: DropReason = DropReason(std::borrow::Cow::Borrowed("no receiver on the link"));
    /// The device was reset or removed with the frame still inside.
    pub const RESET: DropReason = DropReason(std::borrow::Cow::Borrowed("device reset"));
    /// A fault lost the completion that would have told the guest of it.
    pub const INJECTED: DropReason = DropReason(std::borrow::Cow::Borrowed("completion lost by a fault"));
    /// The guest's descriptor pointed outside its memory.
    pub const DMA_FAULT: DropReason = DropReason(std::borrow::Cow::Borrowed("DMA fault"));
}

impl fmt::Display for DropReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}
