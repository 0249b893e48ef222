//! Rings that the device writes and the driver reads: completion and event queues.
//!
//! Both sides count the entries that they ever wrote or read, from one round on. The owner bits of an entry are
//! the round in which it was written, modulo eight; memory that starts as zeroes is so empty. The driver's
//! doorbell tells its counter modulo eight rounds.

use nicvisor_core::{Context, DmaError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::QueueMemory;

/// One such ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ring {
    memory: QueueMemory,
    entries: u32,
    produced: u64,
    /// By the driver's last doorbell.
    consumed: u64,
    /// The next entry is to be announced.
    pub(crate) armed: bool,
}

/// A doorbell that cannot be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum BadTail {
    /// Not a counter modulo eight rounds.
    #[error("not below eight rounds through the ring")]
    OutOfRange,
    /// More entries than were written, or fewer than before.
    #[error("{consumed} entries consumed where {outstanding} were")]
    Unwritten {
        /// Entries that are written and not consumed.
        outstanding: u64,
        /// Entries that the doorbell says were consumed since the last.
        consumed: u64,
    },
}

impl Ring {
    /// A ring of as many entries of `entry_size` bytes as fit in `memory`, all of them empty; the first entry is
    /// announced.
    pub(crate) fn new(memory: QueueMemory, entry_size: usize) -> Ring {
        let entries = (memory.length() / entry_size as u32).max(1);
        Ring { memory, entries, produced: entries.into(), consumed: entries.into(), armed: true }
    }

    /// Whether a state from outside is one that the code can go on from.
    pub(crate) fn is_sound(&self) -> bool {
        self.memory.is_sound() && self.entries != 0 && self.consumed <= self.produced
    }

    /// Entries of the ring.
    pub(crate) fn entries(&self) -> u32 {
        self.entries
    }

    /// Entries that were written and, as far as the driver's doorbells say, not consumed.
    pub(crate) fn outstanding(&self) -> u64 {
        self.produced - self.consumed
    }

    /// Where the next entry belongs: a counter modulo eight rounds, as the driver's doorbells have it.
    pub(crate) fn place(&self) -> u32 {
        (self.produced % (u64::from(self.entries) * ROUNDS)) as u32
    }

    /// The owner bits of an entry at `place`.
    pub(crate) fn owner(&self, place: u32) -> u8 {
        (place / self.entries) as u8 & crate::wire::OWNER_MASK
    }

    /// Writes the next entry, its last four bytes (which hold the owner bits) last: a driver on another CPU that
    /// sees them sees the rest too. It belongs at [`Self::place`]; a fault may have it written elsewhere.
    pub(crate) fn push(&mut self, context: &Context<'_>, place: u32, entry: &[u8]) -> Result<(), DmaError> {
        let offset = place % self.entries * entry.len() as u32;
        let (body, info) = entry.split_at(entry.len().saturating_sub(4));
        self.memory.write(&context.dma, offset, body)?;
        self.memory.write(&context.dma, offset + body.len() as u32, info)?;
        self.produced += 1;
        Ok(())
    }

    /// The driver says that it consumed all entries before `tail`.
    pub(crate) fn consume(&mut self, tail: u32) -> Result<(), BadTail> {
        let span = u64::from(self.entries) * ROUNDS;
        if u64::from(tail) >= span {
            return Err(BadTail::OutOfRange);
        }
        let consumed = (u64::from(tail) + span - self.consumed % span) % span;
        let outstanding = self.outstanding();
        if consumed > outstanding {
            return Err(BadTail::Unwritten { outstanding, consumed });
        }
        self.consumed += consumed;
        Ok(())
    }
}

/// Rounds that owner bits and doorbells tell apart.
pub(crate) const ROUNDS: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use nicvisor_core::testing::Bench;
    use proptest::prelude::*;

    const ENTRY: usize = 16;

    fn ring(entries: u32) -> Ring {
        Ring::new(QueueMemory::new(vec![0x1000, 0x2000], 4096, 0, entries * ENTRY as u32).unwrap(), ENTRY)
    }

    #[test]
    fn the_first_round_has_owner_bits_of_one() {
        let mut bench = Bench::with_memory(1 << 20);
        let mut ring = ring(4);
        let owners: Vec<u8> = (0..36)
            .map(|_| {
                bench.call(|context| ring.push(context, ring.place(), &[0; ENTRY]).unwrap());
                ring.owner(ring.place())
            })
            .collect();
        assert_eq!(owners[..5], [1, 1, 1, 2, 2]);
        assert_eq!(owners[26..29], [7, 0, 0]);
    }

    #[test]
    fn owner_bits_are_those_of_the_place() {
        let ring = ring(4);
        assert_eq!(ring.place(), 4);
        let owners = [0, 3, 4, 9, 31, 32, u32::MAX].map(|place| ring.owner(place));
        assert_eq!(owners, [0, 0, 1, 2, 7, 0, 7]);
    }

    #[test]
    fn tails_that_cannot_be_are_refused() {
        let mut bench = Bench::with_memory(1 << 20);
        let mut ring = ring(4);
        bench.call(|context| (0..2).for_each(|_| ring.push(context, ring.place(), &[0; ENTRY]).unwrap()));
        assert_eq!(ring.consume(32), Err(BadTail::OutOfRange));
        assert_eq!(ring.consume(7), Err(BadTail::Unwritten { outstanding: 2, consumed: 3 }));
        assert_eq!(ring.consume(6), Ok(()));
        assert_eq!(ring.consume(5), Err(BadTail::Unwritten { outstanding: 0, consumed: 31 }));
        assert_eq!(ring.consume(6), Ok(()));
    }

    proptest! {
        /// The driver's algorithm, as `gdma_main.c` describes it: an entry is old if its owner bits are those of
        /// the round before.
        #[test]
        fn a_driver_reads_what_was_written(steps in proptest::collection::vec((0..7_u32, any::<bool>()), 1..200)) {
            let mut bench = Bench::with_memory(1 << 20);
            let mut ring = ring(8);
            let (mut head, mut written, mut read) = (8_u32, 0_u32, 0_u32);
            for (count, poll) in steps {
                for _ in 0..count.min(8 - (written - read)) {
                    let mut entry = [0; ENTRY];
                    entry[..4].copy_from_slice(&written.to_le_bytes());
                    entry[15] = ring.owner(ring.place()) << 5;
                    bench.call(|context| ring.push(context, ring.place(), &entry).unwrap());
                    written += 1;
                }
                if !poll {
                    continue;
                }
                loop {
                    let entry: [u8; ENTRY] =
                        bench.dma().read_object(0x1000 + u64::from(head % 8) * 16).unwrap();
                    if u32::from(entry[15] >> 5) == (head / 8 - 1) % 8 {
                        break;
                    }
                    prop_assert_eq!(u32::from(entry[15] >> 5), head / 8 % 8, "overflow");
                    prop_assert_eq!(u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]), read);
                    read += 1;
                    head += 1;
                }
                prop_assert_eq!(read, written);
                prop_assert_eq!(ring.consume(head % 64), Ok(()));
                prop_assert_eq!(ring.outstanding(), 0);
            }
        }
    }
}
