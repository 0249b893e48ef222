//! The driver's side of rings.

use nicvisor_core::testing::{PostedRing, RingMemory, WrittenRing};
use nicvisor_core::{Dma, DmaError};

use crate::queue::QueueMemory;
use crate::wire::OWNER_MASK;
use crate::wire::cqe::{self, Cqe};
use crate::wire::doorbell::Doorbell;
use crate::wire::eqe::{self, Eqe};
use crate::wire::wqe::BASIC_UNIT;

impl RingMemory for QueueMemory {
    fn length(&self) -> u32 {
        self.length()
    }

    fn read(&self, dma: &Dma<'_>, offset: u32, bytes: &mut [u8]) -> Result<(), DmaError> {
        self.read(dma, offset, bytes)
    }

    fn write(&self, dma: &Dma<'_>, offset: u32, bytes: &[u8]) -> Result<(), DmaError> {
        self.write(dma, offset, bytes)
    }
}

/// A ring that the device writes: completions or events.
#[derive(Clone, Debug)]
pub struct EntryRing {
    /// The queue's number.
    pub id: u32,
    /// Whether it is an event queue.
    pub event: bool,
    ring: WrittenRing<QueueMemory>,
}

impl EntryRing {
    /// A ring over memory that holds zeroes.
    pub fn new(id: u32, event: bool, memory: QueueMemory) -> EntryRing {
        EntryRing { id, event, ring: WrittenRing::new(memory) }
    }

    /// Takes the next completion, if the device has written one.
    ///
    /// # Panics
    /// When the ring is not in memory or has overflowed.
    pub fn completion(&mut self, dma: &Dma<'_>) -> Option<Cqe> {
        let id = self.id;
        let raw: [u8; cqe::SIZE] =
            self.ring.next(dma, |raw, round| is_new(id, Cqe::decode(raw).owner, round))?;
        Some(Cqe::decode(&raw))
    }

    /// Takes the next event, if the device has written one.
    ///
    /// # Panics
    /// As [`Self::completion`].
    pub fn event(&mut self, dma: &Dma<'_>) -> Option<Eqe> {
        let id = self.id;
        let raw: [u8; eqe::SIZE] =
            self.ring.next(dma, |raw, round| is_new(id, Eqe::decode(raw).owner, round))?;
        Some(Eqe::decode(&raw))
    }

    /// The doorbell that says what was consumed.
    pub fn doorbell(&self, arm: bool) -> Doorbell {
        let size = if self.event { eqe::SIZE } else { cqe::SIZE };
        let entries = self.ring.memory().length() / size as u32;
        // Linux counts from one round on.
        let tail = (self.ring.taken() + entries) % (entries << OWNER_MASK.count_ones());
        Doorbell::Consumed { event: self.event, id: self.id, tail, arm }
    }
}

/// Whether an entry of queue `id` with these owner bits is new in that round; the zeroes of new memory are round 0's.
fn is_new(id: u32, owner: u8, round: u32) -> bool {
    if owner == round as u8 & OWNER_MASK {
        return false;
    }
    assert_eq!(owner, round.wrapping_add(1) as u8 & OWNER_MASK, "overflow of queue {id}");
    true
}

/// A ring that the driver writes: a work queue.
#[derive(Clone, Debug)]
pub struct WorkRing {
    /// The queue's number.
    pub id: u32,
    /// Whether it is a send queue.
    pub send: bool,
    ring: PostedRing<QueueMemory>,
    /// Bytes ever completed.
    pub tail: u32,
}

impl WorkRing {
    /// An empty ring.
    pub fn new(id: u32, send: bool, memory: QueueMemory) -> WorkRing {
        WorkRing { id, send, ring: PostedRing::new(memory, 1), tail: 0 }
    }

    /// Bytes ever posted.
    pub fn head(&self) -> u32 {
        self.ring.posted()
    }

    /// Bytes that can be posted.
    pub fn room(&self) -> u32 {
        self.ring.memory().length() - self.head().wrapping_sub(self.tail)
    }

    /// Posts an entry.
    ///
    /// # Panics
    /// When there is no room, the entry is no multiple of the basic unit, or the ring is not in memory.
    pub fn push(&mut self, dma: &Dma<'_>, entry: &[u8]) {
        assert!(entry.len() as u32 <= self.room() && entry.len().is_multiple_of(BASIC_UNIT));
        self.ring.push(dma, entry);
    }

    /// The doorbell that says what was posted.
    pub fn doorbell(&self) -> Doorbell {
        Doorbell::Work { send: self.send, id: self.id, wqe_count: 0, tail: self.head() }
    }
}
