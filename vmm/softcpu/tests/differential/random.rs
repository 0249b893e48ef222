//! Random choices.

use crate::state::*;

/// A small generator, seeded by proptest (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Less than `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True once in `times`.
    pub(crate) fn chance(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// An address in the data area, sometimes at its edge or in the read-only page.
    pub(crate) fn place(&mut self) -> u64 {
        match self.below(32) {
            0 => DATA - 10 + self.below(20),
            1 => READ_ONLY - self.below(20),
            2 => READ_ONLY + self.below(READ_ONLY_BYTES as u64),
            3 => READ_ONLY + READ_ONLY_BYTES as u64 - self.below(20),
            _ => CENTER + self.below(64),
        }
    }

    /// A number that is more likely than others to be at the edge of something.
    pub(crate) fn number(&mut self) -> u64 {
        let value = self.next();
        match self.below(8) {
            0 => value & 0x3f,
            1 => (value & 0x3f).wrapping_neg(),
            2 => 1u64.rotate_left(value as u32),
            3 => (1u64 << (value & 63)).wrapping_sub(1),
            4 => value >> (value & 63),
            5 => (value as i64 >> (value & 63)) as u64,
            _ => value,
        }
    }
}
