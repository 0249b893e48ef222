//! What the driver keeps about an open vPort: its queues and what it knows of their entries.

use std::collections::VecDeque;

use nicvisor_core::Dma;
use zerocopy::IntoBytes;

use super::rings::{EntryRing, WorkRing};
use super::setup::Setup;
use crate::wire::completion::{MAX_PACKETS, RxCompletion, RxFlags, RxPacket};
use crate::wire::wqe::{RawSge, WqeHeader};

/// An open vPort.
#[derive(Debug)]
pub struct Port {
    /// Its handle.
    pub handle: u64,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Handle of the filter that leads frames for its address to it, on a physical function.
    pub filter: Option<u64>,
    pub(super) vp_offset: u16,
    /// Event queues, one for each pair of queues.
    pub events: Vec<EntryRing>,
    /// Send queues.
    pub send: Vec<SendQueue>,
    /// Receive queues.
    pub receive: Vec<ReceiveQueue>,
}

/// A send queue.
#[derive(Debug)]
pub struct SendQueue {
    /// Handle of the object.
    pub object: u64,
    /// Entries.
    pub work: WorkRing,
    /// Completions.
    pub completions: EntryRing,
    /// Bytes of the entries that are not completed; those without completion count for the next.
    pub(super) pending: VecDeque<u32>,
    pub(super) suppressed: u32,
}

/// A receive queue.
#[derive(Debug)]
pub struct ReceiveQueue {
    /// Handle of the object.
    pub object: u64,
    /// Entries.
    pub work: WorkRing,
    /// Completions.
    pub completions: EntryRing,
    /// Address of the first buffer.
    pub(crate) buffers: u64,
    pub(super) setup: Setup,
    /// Buffers ever posted and ever completed.
    pub(super) posted: u32,
    pub(super) taken: u32,
    /// Fences that were completed.
    pub fences: u32,
}

/// A packet that the device delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// A number of [`crate::wire::completion::CqeType`].
    pub kind: u8,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its hash.
    pub hash: u32,
    /// What else the completion says.
    pub flags: RxFlags,
}

impl ReceiveQueue {
    /// The entry for the next buffer.
    pub(super) fn entry(&self, memory_key: u32) -> Vec<u8> {
        let Setup { buffers, buffer_size, pieces, .. } = self.setup;
        let header = WqeHeader { num_sge: pieces as u8, inline_oob_size: 8, ..WqeHeader::default() };
        let mut entry = [&header.encode()[..], &[0; 8]].concat();
        let start = self.buffers + u64::from(self.posted % buffers) * u64::from(buffer_size);
        let size = buffer_size.div_ceil(pieces);
        for piece in 0..pieces {
            let offset = (piece * size).min(buffer_size);
            let sge = RawSge {
                address: (start + u64::from(offset)).into(),
                mem_key: memory_key.into(),
                size: size.min(buffer_size - offset).into(),
            };
            entry.extend_from_slice(sge.as_bytes());
        }
        entry.resize(header.size(), 0);
        entry
    }

    /// The packets of a completion, each in the next buffer.
    pub(super) fn take(&mut self, dma: &Dma<'_>, completion: &RxCompletion, all: &mut Vec<Received>) {
        let count = completion.packets.iter().take_while(|packet| packet.length != 0).count();
        for RxPacket { length, hash } in completion.packets.into_iter().take(count.clamp(1, MAX_PACKETS)) {
            let buffer = self.taken % self.setup.buffers;
            let address = self.buffers + u64::from(buffer) * u64::from(self.setup.buffer_size);
            let mut bytes = vec![0; length.into()];
            dma.read(address, &mut bytes).expect("buffer in memory");
            self.taken += 1;
            self.work.tail = self.work.tail.wrapping_add(receive_entry_size(self.setup.pieces));
            all.push(Received { kind: completion.kind, bytes, hash, flags: completion.flags });
        }
    }
}

/// Bytes of an entry with that many elements.
pub(super) fn receive_entry_size(pieces: u32) -> u32 {
    (16 + pieces * 16).next_multiple_of(32)
}
