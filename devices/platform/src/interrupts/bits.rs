//! A set of interrupt vectors.

use serde::{Deserialize, Serialize};

/// One bit for each of the 256 vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Vectors([u64; 4]);

impl Vectors {
    pub(super) fn contains(&self, vector: u8) -> bool {
        self.0[usize::from(vector >> 6)] >> (vector & 63) & 1 != 0
    }

    pub(super) fn set(&mut self, vector: u8, present: bool) {
        let bit = 1 << (vector & 63);
        let word = &mut self.0[usize::from(vector >> 6)];
        *word = if present { *word | bit } else { *word & !bit };
    }

    /// The vector of highest priority.
    pub(super) fn highest(&self) -> Option<u8> {
        let (index, word) = self.0.iter().enumerate().rev().find(|(_, word)| **word != 0)?;
        Some((index as u32 * 64 + 63 - word.leading_zeros()) as u8)
    }

    /// Vectors `32 * index` and up, as an APIC register shows them.
    pub(super) fn word(&self, index: u32) -> u32 {
        (self.0[(index as usize / 2) & 3] >> (index % 2 * 32)) as u32
    }
}
