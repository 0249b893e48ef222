//! Completion rings: the device writes, and tells new entries from old by a bit that flips with every round.

use nicvisor_core::{Context, DmaError};
use serde::{Deserialize, Serialize};

/// A ring that the device writes completions to. The driver clears it first and expects the bit to be set in
/// the first round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CompletionRing {
    address: u64,
    size: u16,
    next: u16,
    /// The generation bit of the entry to be written next.
    generation: bool,
}

impl CompletionRing {
    /// A ring of `size` entries, a power of two.
    pub(crate) fn new(address: u64, size: u16) -> CompletionRing {
        CompletionRing { address, size, next: 0, generation: true }
    }

    /// Where the next entry belongs.
    pub(crate) fn place(&self) -> u16 {
        self.next
    }

    /// The generation bit of an entry at index `place`, which counts on past the ring's end: what is before the next
    /// entry's place belongs to the next round.
    pub(crate) fn generation(&self, place: u16) -> bool {
        self.generation ^ (place & (self.size - 1) < self.next)
    }

    /// Writes the next entry. It belongs at [`Self::place`]; a fault may have it written elsewhere.
    ///
    /// The generation bit is among the first eight bytes of every kind of entry, so they
    /// are written last: a driver on another CPU that sees the bit sees the rest too.
    pub(crate) fn push(&mut self, context: &Context<'_>, place: u16, entry: &[u8]) -> Result<(), DmaError> {
        let address = self.address + u64::from(place & (self.size - 1)) * entry.len() as u64;
        let Some((head, rest)) = entry.split_first_chunk::<8>() else { return Ok(()) };
        context.dma.write(address + head.len() as u64, rest)?;
        context.dma.store_release(address, u64::from_ne_bytes(*head))?;
        self.next = (self.next + 1) & (self.size - 1);
        self.generation ^= self.next == 0;
        Ok(())
    }

    /// Whether a state from outside is one that the code can go on from.
    pub(crate) fn is_sound(&self) -> bool {
        self.size.is_power_of_two() && self.next < self.size
    }
}
