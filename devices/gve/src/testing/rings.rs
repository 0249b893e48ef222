//! The driver's side of descriptor and completion rings.

use nicvisor_core::Dma;
use nicvisor_core::testing::{Piece, PostedRing, WrittenRing};
use zerocopy::{FromBytes, IntoBytes};

use crate::wire::rx::{BUFFER_DESCRIPTOR_SIZE, BufferDescriptor, COMPLETION_SIZE, Completion};
use crate::wire::tx::{self, DESCRIPTOR_SIZE, RawDescriptor};

/// A TX ring with its completion ring.
#[derive(Clone, Debug)]
pub struct TxRing {
    /// Doorbell index.
    pub doorbell: u32,
    /// Entries of each.
    pub size: u16,
    descriptors: PostedRing<Piece>,
    completions: WrittenRing<Piece>,
}

/// What a TX completion says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// The packet with this tag was sent.
    Packet(u16),
    /// Descriptors before this one were fetched.
    Descriptors(u16),
    /// The packet with this tag took the miss path.
    Miss(u16),
    /// The packet with this tag, which took the miss path, was sent.
    Reinjection(u16),
}

impl TxRing {
    /// Rings of `size` entries at these addresses, cleared by the caller.
    pub fn new(doorbell: u32, ring: u64, completions: u64, size: u16) -> TxRing {
        TxRing {
            doorbell,
            size,
            descriptors: PostedRing::new(piece(ring, size, DESCRIPTOR_SIZE), DESCRIPTOR_SIZE as u32),
            completions: WrittenRing::new(piece(completions, size, tx::COMPLETION_SIZE)),
        }
    }

    /// Address of the descriptor ring.
    pub fn ring(&self) -> u64 {
        self.descriptors.memory().address
    }

    /// Where the next descriptor goes.
    pub fn tail(&self) -> u16 {
        self.descriptors.tail() as u16
    }

    /// Puts a descriptor behind the last.
    ///
    /// # Panics
    /// When the ring is not in memory.
    pub fn push(&mut self, dma: &Dma<'_>, descriptor: &RawDescriptor) {
        self.descriptors.push(dma, descriptor);
    }

    /// Takes the next completion, if the device has written one.
    ///
    /// # Panics
    /// When the ring is not in memory or the completion is of an unknown type.
    pub fn pop(&mut self, dma: &Dma<'_>) -> Option<Completed> {
        let decode =
            |raw: &[u8; tx::COMPLETION_SIZE]| tx::Completion::read_from_bytes(raw).expect("as many bytes");
        let is_new = |raw: &_, round| decode(raw).generation() == generation(round);
        let completion = decode(&self.completions.next(dma, is_new)?);
        match completion.kind() {
            1 => Some(Completed::Miss(completion.value())),
            2 => Some(Completed::Packet(completion.value())),
            3 => Some(Completed::Reinjection(completion.value())),
            4 => Some(Completed::Descriptors(completion.value())),
            kind => panic!("TX completion of type {kind}"),
        }
    }
}

/// An RX buffer ring with its completion ring and buffers.
#[derive(Clone, Debug)]
pub struct RxRing {
    /// Doorbell index.
    pub doorbell: u32,
    /// Entries of each.
    pub size: u16,
    /// Address of the first buffer.
    pub buffers: u64,
    /// Bytes of each.
    pub buffer_size: u16,
    descriptors: PostedRing<Piece>,
    completions: WrittenRing<Piece>,
    /// Which buffers the device has.
    posted: Vec<bool>,
}

/// A packet that the device delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The last completion.
    pub completion: Completion,
    /// How many buffers it took.
    pub buffers: usize,
}

impl RxRing {
    /// Rings of `size` entries, cleared by the caller, with as many buffers one behind the other.
    pub fn new(
        doorbell: u32,
        ring: u64,
        completions: u64,
        size: u16,
        buffers: u64,
        buffer_size: u16,
    ) -> RxRing {
        RxRing {
            doorbell,
            size,
            buffers,
            buffer_size,
            descriptors: PostedRing::new(
                piece(ring, size, BUFFER_DESCRIPTOR_SIZE),
                BUFFER_DESCRIPTOR_SIZE as u32,
            ),
            completions: WrittenRing::new(piece(completions, size, COMPLETION_SIZE)),
            posted: vec![false; size.into()],
        }
    }

    /// Address of the buffer ring.
    pub fn ring(&self) -> u64 {
        self.descriptors.memory().address
    }

    /// Where the next buffer goes.
    pub fn tail(&self) -> u16 {
        self.descriptors.tail() as u16
    }

    fn buffer(&self, id: u16) -> u64 {
        self.buffers + u64::from(id) * u64::from(self.buffer_size)
    }

    /// Posts up to `count` buffers that the device does not have, and says how many.
    ///
    /// # Panics
    /// When the ring is not in memory.
    pub fn post(&mut self, dma: &Dma<'_>, count: u16) -> u16 {
        let room = usize::from(self.size - 1) - self.posted.iter().filter(|posted| **posted).count();
        let ids: Vec<u16> =
            (0..self.size).filter(|id| !self.posted[usize::from(*id)]).take(room.min(count.into())).collect();
        for id in &ids {
            let descriptor = BufferDescriptor {
                buf_id: (*id).into(),
                reserved0: 0.into(),
                reserved1: 0.into(),
                buf_addr: self.buffer(*id).into(),
                header_buf_addr: 0.into(),
                reserved2: 0.into(),
            };
            self.descriptors.push(dma, descriptor.as_bytes());
            self.posted[usize::from(*id)] = true;
        }
        ids.len() as u16
    }

    /// Takes the next packet, if the device has delivered one.
    ///
    /// # Panics
    /// When the ring is not in memory, or the device completes a buffer that it was not given.
    pub fn pop(&mut self, dma: &Dma<'_>) -> Option<Received> {
        let mut bytes = Vec::new();
        for buffers in 1.. {
            let is_new = |raw: &_, round| Completion::decode(raw).generation == generation(round);
            let Some(raw) = self.completions.next(dma, is_new) else {
                assert!(bytes.is_empty(), "the last completions are of half a packet");
                return None;
            };
            let completion = Completion::decode(&raw);
            let posted = &mut self.posted[usize::from(completion.buf_id)];
            assert!(std::mem::replace(posted, false), "buffer {} completed twice", completion.buf_id);
            let mut part = vec![0; completion.packet_len.into()];
            dma.read(self.buffer(completion.buf_id), &mut part).expect("buffer in memory");
            bytes.extend(part);
            if completion.status.contains(crate::wire::rx::CompletionStatus::END_OF_PACKET) {
                return Some(Received { bytes, completion, buffers });
            }
        }
        None
    }
}

fn piece(address: u64, entries: u16, size: usize) -> Piece {
    Piece { address, length: u32::from(entries) * size as u32 }
}

/// The generation bit of what the device writes in that round.
fn generation(round: u32) -> bool {
    round.is_multiple_of(2)
}
