//! The driver's side of rings.

use nicvisor_core::Dma;

use crate::queue::QueueMemory;
use crate::wire::OWNER_MASK;
use crate::wire::cqe::{self, Cqe};
use crate::wire::doorbell::Doorbell;
use crate::wire::eqe::{self, Eqe};
use crate::wire::wqe::BASIC_UNIT;

/// A ring that the device writes: completions or events.
#[derive(Clone, Debug)]
pub struct EntryRing {
    /// The queue's number.
    pub id: u32,
    /// Whether it is an event queue.
    pub event: bool,
    memory: QueueMemory,
    entries: u32,
    /// Entries ever consumed, from one round on.
    head: u32,
}

impl EntryRing {
    /// A ring over memory that holds zeroes.
    pub fn new(id: u32, event: bool, memory: QueueMemory) -> EntryRing {
        let size = if event { eqe::SIZE } else { cqe::SIZE };
        let entries = memory.length() / size as u32;
        EntryRing { id, event, memory, entries, head: entries }
    }

    /// Takes the next completion, if the device has written one.
    ///
    /// # Panics
    /// When the ring is not in memory or has overflowed.
    pub fn completion(&mut self, dma: &Dma<'_>) -> Option<Cqe> {
        let mut raw = [0; cqe::SIZE];
        self.read(dma, &mut raw);
        let cqe = Cqe::decode(&raw);
        self.take(cqe.owner).then_some(cqe)
    }

    /// Takes the next event, if the device has written one.
    ///
    /// # Panics
    /// As [`Self::completion`].
    pub fn event(&mut self, dma: &Dma<'_>) -> Option<Eqe> {
        let mut raw = [0; eqe::SIZE];
        self.read(dma, &mut raw);
        let eqe = Eqe::decode(&raw);
        self.take(eqe.owner).then_some(eqe)
    }

    fn read(&self, dma: &Dma<'_>, raw: &mut [u8]) {
        let offset = self.head % self.entries * raw.len() as u32;
        self.memory.read(dma, offset, raw).expect("ring in memory");
    }

    /// Whether an entry with these owner bits is new.
    fn take(&mut self, owner: u8) -> bool {
        let round = self.head / self.entries;
        if owner == round.wrapping_sub(1) as u8 & OWNER_MASK {
            return false;
        }
        assert_eq!(owner, round as u8 & OWNER_MASK, "overflow of queue {}", self.id);
        self.head += 1;
        true
    }

    /// The doorbell that says what was consumed.
    pub fn doorbell(&self, arm: bool) -> Doorbell {
        let tail = self.head % (self.entries << OWNER_MASK.count_ones());
        Doorbell::Consumed { event: self.event, id: self.id, tail, arm }
    }
}

/// A ring that the driver writes: a work queue.
#[derive(Clone, Debug)]
pub struct WorkRing {
    /// The queue's number.
    pub id: u32,
    /// Whether it is a send queue.
    pub send: bool,
    memory: QueueMemory,
    /// Bytes ever posted.
    pub head: u32,
    /// Bytes ever completed.
    pub tail: u32,
}

impl WorkRing {
    /// An empty ring.
    pub fn new(id: u32, send: bool, memory: QueueMemory) -> WorkRing {
        WorkRing { id, send, memory, head: 0, tail: 0 }
    }

    /// Bytes that can be posted.
    pub fn room(&self) -> u32 {
        self.memory.length() - self.head.wrapping_sub(self.tail)
    }

    /// Posts an entry.
    ///
    /// # Panics
    /// When there is no room, the entry is no multiple of the basic unit, or the ring is not in memory.
    pub fn push(&mut self, dma: &Dma<'_>, entry: &[u8]) {
        assert!(entry.len() as u32 <= self.room() && entry.len().is_multiple_of(BASIC_UNIT));
        self.memory.write(dma, self.head, entry).expect("ring in memory");
        self.head = self.head.wrapping_add(entry.len() as u32);
    }

    /// The doorbell that says what was posted.
    pub fn doorbell(&self) -> Doorbell {
        Doorbell::Work { send: self.send, id: self.id, wqe_count: 0, tail: self.head }
    }
}
