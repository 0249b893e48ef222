//! The driver's side of descriptor and completion rings.

use nicvisor_core::Dma;

use crate::wire::rx::{BUFFER_DESCRIPTOR_SIZE, BufferDescriptor, COMPLETION_SIZE, Completion};
use crate::wire::tx::{self, DESCRIPTOR_SIZE, RawDescriptor};

/// A TX ring with its completion ring.
#[derive(Clone, Debug)]
pub struct TxRing {
    /// Doorbell index.
    pub doorbell: u32,
    /// Address of the descriptor ring.
    pub ring: u64,
    /// Address of the completion ring.
    pub completions: u64,
    /// Entries of each.
    pub size: u16,
    /// Where the next descriptor goes.
    pub tail: u16,
    head: u16,
    generation: bool,
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
    /// Rings of `size` entries, cleared by the caller.
    pub fn new(doorbell: u32, ring: u64, completions: u64, size: u16) -> TxRing {
        TxRing { doorbell, ring, completions, size, tail: 0, head: 0, generation: true }
    }

    /// Puts a descriptor behind the last.
    ///
    /// # Panics
    /// When the ring is not in memory.
    pub fn push(&mut self, dma: &Dma<'_>, descriptor: &RawDescriptor) {
        let address = self.ring + u64::from(self.tail) * DESCRIPTOR_SIZE as u64;
        dma.write(address, descriptor).expect("ring in memory");
        self.tail = (self.tail + 1) & (self.size - 1);
    }

    /// Takes the next completion, if the device has written one.
    ///
    /// # Panics
    /// When the ring is not in memory or the completion is of an unknown type.
    pub fn pop(&mut self, dma: &Dma<'_>) -> Option<Completed> {
        let address = self.completions + u64::from(self.head) * tx::COMPLETION_SIZE as u64;
        let completion: tx::Completion = dma.read_object(address).expect("ring in memory");
        if completion.generation() != self.generation {
            return None;
        }
        self.head = (self.head + 1) & (self.size - 1);
        self.generation ^= self.head == 0;
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
    /// Address of the buffer ring.
    pub ring: u64,
    /// Address of the completion ring.
    pub completions: u64,
    /// Entries of each.
    pub size: u16,
    /// Address of the first buffer.
    pub buffers: u64,
    /// Bytes of each.
    pub buffer_size: u16,
    /// Where the next buffer goes.
    pub tail: u16,
    head: u16,
    generation: bool,
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
            ring,
            completions,
            size,
            buffers,
            buffer_size,
            tail: 0,
            head: 0,
            generation: true,
            posted: vec![false; size.into()],
        }
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
            let address = self.ring + u64::from(self.tail) * BUFFER_DESCRIPTOR_SIZE as u64;
            dma.write_object(address, &descriptor).expect("ring in memory");
            self.posted[usize::from(*id)] = true;
            self.tail = (self.tail + 1) & (self.size - 1);
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
            let address = self.completions + u64::from(self.head) * COMPLETION_SIZE as u64;
            let mut raw = [0; COMPLETION_SIZE];
            dma.read(address, &mut raw).expect("ring in memory");
            let completion = Completion::decode(&raw);
            if completion.generation != self.generation {
                assert!(bytes.is_empty(), "the last completions are of half a packet");
                return None;
            }
            self.head = (self.head + 1) & (self.size - 1);
            self.generation ^= self.head == 0;
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
