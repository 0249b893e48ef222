//! Completions that announce several packets at once.

use nicvisor_core::{FrameId, Time};
use serde::{Deserialize, Serialize};

use crate::vport::Coalescing;
use crate::wire::completion::{CqeType, MAX_PACKETS, RxCompletion, RxFlags, RxPacket};

/// Packets that are in the driver's buffers and not announced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Unannounced {
    pub(super) flags: RxFlags,
    /// At least one, and at most as many as the kind allows.
    pub(super) packets: Vec<RxPacket>,
    /// The frames that they came as.
    pub(super) frames: Vec<FrameId>,
    /// Where the first one's entry is, in bytes.
    wqe_offset: u32,
    coalescing: Coalescing,
    /// When they are announced at the latest.
    pub(super) deadline: Time,
}

impl Unannounced {
    pub(super) fn new(
        coalescing: Coalescing,
        flags: RxFlags,
        wqe_offset: u32,
        deadline: Time,
    ) -> Unannounced {
        Unannounced { flags, packets: Vec::new(), frames: Vec::new(), wqe_offset, coalescing, deadline }
    }

    /// Whether another packet with these flags can be announced along with them. What is said about one is said
    /// about all.
    pub(super) fn takes(&self, coalescing: Coalescing, flags: RxFlags) -> bool {
        self.flags == flags && self.coalescing == coalescing && !self.is_full()
    }

    pub(super) fn push(&mut self, frame: FrameId, packet: RxPacket) {
        self.packets.push(packet);
        self.frames.push(frame);
    }

    pub(super) fn is_full(&self) -> bool {
        let most = match self.coalescing {
            Coalescing::Off => 1,
            Coalescing::Four => 4,
            Coalescing::Eight => MAX_PACKETS,
        };
        self.packets.len() >= most
    }

    /// The completion that announces them.
    pub(super) fn completion(&self) -> RxCompletion {
        let kind = match self.coalescing {
            _ if self.packets.len() == 1 => CqeType::RxOkay,
            Coalescing::Eight => CqeType::RxCoalesced8,
            Coalescing::Four | Coalescing::Off => CqeType::RxCoalesced4,
        };
        let mut packets = [RxPacket::default(); MAX_PACKETS];
        for (place, packet) in packets.iter_mut().zip(&self.packets) {
            *place = *packet;
        }
        RxCompletion {
            kind: kind as u8,
            vendor_err: 0,
            flags: self.flags,
            packets,
            rx_wqe_offset: self.wqe_offset,
        }
    }
}
