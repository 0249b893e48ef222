//! The MSI-X table and its pending bits (PCI Express base specification, 6.1.4 and 7.7.2).

use serde::{Deserialize, Serialize};

use crate::MsiMessage;

/// The table, the pending bits, and whether messages may leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Msix {
    entries: Vec<Entry>,
    pending: Vec<u64>,
    /// MSI-X Enable: without it, interrupts are lost.
    enabled: bool,
    /// Function Mask is clear and the function may write to memory: without it, interrupts stay pending.
    open: bool,
}

/// One vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    address: u64,
    data: u32,
    masked: bool,
}

impl Msix {
    pub(super) fn new(vectors: u16) -> Msix {
        let vectors = usize::from(vectors);
        Msix {
            entries: vec![Entry::POWER_ON; vectors],
            pending: vec![0; vectors.div_ceil(64)],
            enabled: false,
            open: false,
        }
    }

    /// Number of vectors.
    pub(super) fn vectors(&self) -> usize {
        self.entries.len()
    }

    /// Where the pending bits start in the BAR: right behind the table.
    pub(super) fn pending_offset(vectors: u16) -> u64 {
        (u64::from(vectors) * ENTRY_SIZE).next_multiple_of(8)
    }

    /// Bytes of BAR that the table and the pending bits take.
    pub(super) fn length(vectors: u16) -> u64 {
        Self::pending_offset(vectors) + u64::from(vectors).div_ceil(64) * 8
    }

    /// The device raises `vector`. A vector outside the table is ignored.
    pub(super) fn raise(&mut self, vector: u16, messages: &mut Vec<MsiMessage>) {
        let index = usize::from(vector);
        if !self.enabled {
            return;
        }
        match self.entries.get(index) {
            Some(entry) if self.open && !entry.masked => messages.push(entry.message()),
            Some(_) => self.pending[index / 64] |= 1 << (index % 64),
            None => {}
        }
    }

    /// The function's enable and mask bits (or its right to write memory) may have changed.
    pub(super) fn gate(&mut self, enabled: bool, open: bool, messages: &mut Vec<MsiMessage>) {
        if !enabled {
            self.pending.fill(0);
        }
        self.enabled = enabled;
        self.open = open;
        self.release(0..self.entries.len(), messages);
    }

    /// A read at `offset` of the BAR.
    pub(super) fn read(&self, offset: u64, data: &mut [u8]) {
        for (offset, byte) in (offset..).zip(data) {
            *byte = self.byte(offset);
        }
    }

    /// A write at `offset` of the BAR. The pending bits are read-only.
    pub(super) fn write(&mut self, offset: u64, data: &[u8], messages: &mut Vec<MsiMessage>) {
        for (offset, &byte) in (offset..).zip(data) {
            if let Some(entry) = self.entries.get_mut((offset / ENTRY_SIZE) as usize) {
                let mut bytes = entry.to_bytes();
                bytes[(offset % ENTRY_SIZE) as usize] = byte;
                *entry = Entry::from_bytes(bytes);
            }
        }
        let first = (offset / ENTRY_SIZE) as usize;
        let last = ((offset + data.len() as u64) / ENTRY_SIZE) as usize;
        self.release(first..(last + 1).min(self.entries.len()), messages);
    }

    /// Whether a state can be taken over by a table of this size.
    pub(super) fn fits(&self, other: &Msix) -> bool {
        self.entries.len() == other.entries.len() && self.pending.len() == other.pending.len()
    }

    /// Sends what is pending and no longer masked.
    fn release(&mut self, entries: std::ops::Range<usize>, messages: &mut Vec<MsiMessage>) {
        if !self.enabled || !self.open || self.pending.iter().all(|&word| word == 0) {
            return;
        }
        for index in entries {
            let bit = 1 << (index % 64);
            if self.pending[index / 64] & bit != 0 && !self.entries[index].masked {
                self.pending[index / 64] &= !bit;
                messages.push(self.entries[index].message());
            }
        }
    }

    fn byte(&self, offset: u64) -> u8 {
        let table = self.entries.len() as u64 * ENTRY_SIZE;
        if offset < table {
            return self.entries[(offset / ENTRY_SIZE) as usize].to_bytes()[(offset % ENTRY_SIZE) as usize];
        }
        let pending = offset - table;
        let word = self.pending.get((pending / 8) as usize).copied().unwrap_or(0);
        word.to_le_bytes()[(pending % 8) as usize]
    }
}

impl Entry {
    const POWER_ON: Entry = Entry { address: 0, data: 0, masked: true };

    fn message(&self) -> MsiMessage {
        MsiMessage { address: self.address, data: self.data }
    }

    fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.data.to_le_bytes());
        bytes[12] = u8::from(self.masked);
        bytes
    }

    fn from_bytes(bytes: [u8; 16]) -> Entry {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Entry {
            // The two low bits of an address are hardwired to zero.
            address: u64::from(word(0) & !3) | u64::from(word(4)) << 32,
            data: word(8),
            masked: word(12) & 1 != 0,
        }
    }
}

/// Bytes of one table entry.
const ENTRY_SIZE: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unmasked(vectors: u16) -> Msix {
        let mut msix = Msix::new(vectors);
        let mut messages = Vec::new();
        for vector in 0..u64::from(vectors) {
            msix.write(vector * 16, &(0xfee0_0000 + (vector << 12)).to_le_bytes(), &mut messages);
            msix.write(vector * 16 + 8, &(0x30 + vector).to_le_bytes(), &mut messages);
        }
        msix
    }

    #[test]
    fn a_masked_vector_is_sent_when_unmasked_and_only_once() {
        let mut msix = unmasked(3);
        let mut messages = Vec::new();
        msix.gate(true, true, &mut messages);
        msix.write(16 + 12, &1_u32.to_le_bytes(), &mut messages);
        msix.raise(1, &mut messages);
        msix.raise(1, &mut messages);
        assert_eq!(messages, []);
        let mut pending = [0; 8];
        msix.read(48, &mut pending);
        assert_eq!(u64::from_le_bytes(pending), 0b10);
        msix.write(16 + 12, &0_u32.to_le_bytes(), &mut messages);
        assert_eq!(messages, [MsiMessage { address: 0xfee0_1000, data: 0x31 }]);
        msix.write(16 + 12, &0_u32.to_le_bytes(), &mut messages);
        assert_eq!(messages.len(), 1);
    }

    #[test]
    fn the_function_mask_holds_and_disabling_loses() {
        let mut msix = unmasked(1);
        let mut messages = Vec::new();
        msix.raise(0, &mut messages);
        msix.gate(true, false, &mut messages);
        assert_eq!(messages, [], "raised while disabled: lost");
        msix.raise(0, &mut messages);
        msix.gate(true, true, &mut messages);
        assert_eq!(messages.len(), 1, "raised under the function mask: kept");
    }

    proptest! {
        #[test]
        fn no_access_panics(
            vectors in 0_u16..=2048,
            accesses in prop::collection::vec((0_u64..0x1_0000, prop::collection::vec(any::<u8>(), 1..9)), 0..50),
        ) {
            let mut msix = Msix::new(vectors);
            let mut messages = Vec::new();
            msix.gate(true, true, &mut messages);
            for (offset, mut data) in accesses {
                msix.write(offset, &data, &mut messages);
                msix.raise(offset as u16, &mut messages);
                msix.read(offset, &mut data);
            }
        }
    }
}
