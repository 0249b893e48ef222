//! The driver's side of rings in guest memory, for the drivers that devices are tested with.
//!
//! Whatever a NIC's entries look like, there are two kinds of ring. In one the driver writes entries and tells by a
//! doorbell how far it has got ([`PostedRing`]). In the other the device writes them, each with a mark that changes
//! from round to round (a generation bit, owner bits), by which the driver sees what is new ([`WrittenRing`]).

use crate::{Dma, DmaError};

/// Guest memory that is used as a ring of bytes. Offsets count on past the ring's end.
pub trait RingMemory {
    /// Bytes of the ring.
    fn length(&self) -> u32;

    /// Fills `bytes` from the ring at `offset`.
    ///
    /// # Errors
    /// When that is not guest memory.
    fn read(&self, dma: &Dma<'_>, offset: u32, bytes: &mut [u8]) -> Result<(), DmaError>;

    /// Writes `bytes` to the ring at `offset`.
    ///
    /// # Errors
    /// When that is not guest memory.
    fn write(&self, dma: &Dma<'_>, offset: u32, bytes: &[u8]) -> Result<(), DmaError>;
}

/// Memory in one piece, for entries whose size divides its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it starts.
    pub address: u64,
    /// Bytes.
    pub length: u32,
}

impl Piece {
    fn place(&self, offset: u32) -> u64 {
        self.address + u64::from(offset % self.length)
    }
}

impl RingMemory for Piece {
    fn length(&self) -> u32 {
        self.length
    }

    fn read(&self, dma: &Dma<'_>, offset: u32, bytes: &mut [u8]) -> Result<(), DmaError> {
        dma.read(self.place(offset), bytes)
    }

    fn write(&self, dma: &Dma<'_>, offset: u32, bytes: &[u8]) -> Result<(), DmaError> {
        dma.write(self.place(offset), bytes)
    }
}

/// A ring that the driver writes.
#[derive(Clone, Debug)]
pub struct PostedRing<M> {
    memory: M,
    /// Bytes of what its doorbell counts.
    unit: u32,
    /// Units ever posted, modulo 2^32.
    posted: u32,
}

impl<M: RingMemory> PostedRing<M> {
    /// An empty ring whose doorbell counts units of `unit` bytes: entries, or single bytes.
    pub fn new(memory: M, unit: u32) -> PostedRing<M> {
        PostedRing { memory, unit, posted: 0 }
    }

    /// Where it is.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Puts an entry behind the last. The device does not know of it before its doorbell is rung.
    ///
    /// # Panics
    /// When the entry is no multiple of the unit, or the ring is not in memory.
    pub fn push(&mut self, dma: &Dma<'_>, entry: &[u8]) {
        let length = entry.len() as u32;
        assert!(length.is_multiple_of(self.unit), "{length} bytes in units of {}", self.unit);
        self.memory.write(dma, self.posted.wrapping_mul(self.unit), entry).expect("ring in memory");
        self.posted = self.posted.wrapping_add(length / self.unit);
    }

    /// Units ever posted, modulo 2^32.
    pub fn posted(&self) -> u32 {
        self.posted
    }

    /// Where the next entry goes, in units from the ring's start.
    pub fn tail(&self) -> u32 {
        self.posted % (self.memory.length() / self.unit)
    }
}

/// A ring that the device writes.
#[derive(Clone, Debug)]
pub struct WrittenRing<M> {
    memory: M,
    /// Entries ever taken.
    taken: u32,
}

impl<M: RingMemory> WrittenRing<M> {
    /// A ring of which nothing was taken.
    pub fn new(memory: M) -> WrittenRing<M> {
        WrittenRing { memory, taken: 0 }
    }

    /// Takes the next entry if it is new, which `is_new` tells from its bytes and the number of the round, from 0.
    ///
    /// # Panics
    /// When the ring is not in memory.
    pub fn next<const SIZE: usize>(
        &mut self,
        dma: &Dma<'_>,
        is_new: impl FnOnce(&[u8; SIZE], u32) -> bool,
    ) -> Option<[u8; SIZE]> {
        let entries = self.memory.length() / SIZE as u32;
        let mut entry = [0; SIZE];
        let offset = self.taken % entries * SIZE as u32;
        self.memory.read(dma, offset, &mut entry).expect("ring in memory");
        if !is_new(&entry, self.taken / entries) {
            return None;
        }
        self.taken += 1;
        Some(entry)
    }

    /// Entries ever taken.
    pub fn taken(&self) -> u32 {
        self.taken
    }

    /// Where it is.
    pub fn memory(&self) -> &M {
        &self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use proptest::prelude::*;

    const PLACE: Piece = Piece { address: 0x3000, length: 64 };

    proptest! {
        /// The device's side is written out here: entry `n` is at `n` modulo the entries, with the round's parity.
        #[test]
        fn what_one_side_writes_the_other_takes_once_and_in_order(
            steps in proptest::collection::vec((0..5_u8, 0..6_u8), 1..60),
        ) {
            let bench = Bench::with_memory(1 << 20);
            let dma = bench.dma();
            let mut posted = PostedRing::new(PLACE, 16);
            let mut written = WrittenRing::new(Piece { address: 0x5000, length: 32 });
            let (mut pushed, mut completed, mut taken) = (0_u32, 0_u32, 0_u32);
            for (push, take) in steps {
                for _ in 0..push {
                    posted.push(&dma, &[pushed as u8; 16]);
                    pushed += 1;
                    prop_assert_eq!((posted.posted(), posted.tail()), (pushed, pushed % 4));
                    let back: [u8; 16] = dma.read_object(0x3000 + u64::from((pushed - 1) % 4) * 16).unwrap();
                    prop_assert_eq!(back, [(pushed - 1) as u8; 16]);
                }
                while completed < pushed && completed - taken < 4 {
                    let mark = 1 - (completed / 4 % 2) as u8;
                    let entry = [completed as u8, 0, 0, 0, 0, 0, 0, mark];
                    dma.write(0x5000 + u64::from(completed % 4) * 8, &entry).unwrap();
                    completed += 1;
                }
                for _ in 0..take {
                    let is_new = |entry: &[u8; 8], round: u32| entry[7] == 1 - (round % 2) as u8;
                    let entry = written.next(&dma, is_new);
                    prop_assert_eq!(entry.map(|entry| entry[0]), (taken < completed).then_some(taken as u8));
                    taken += u32::from(entry.is_some());
                    prop_assert_eq!(written.taken(), taken);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "20 bytes in units of 16")]
    fn entries_are_whole() {
        PostedRing::new(PLACE, 16).push(&Bench::with_memory(1 << 20).dma(), &[0; 20]);
    }
}
