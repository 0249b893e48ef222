//! The bytes of a configuration space and which of their bits software may change.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::RestoreError;

/// A configuration space of 4 KiB.
#[derive(Clone, Debug)]
pub(super) struct Registers {
    bytes: Vec<u8>,
    writable: Vec<u8>,
    initial: Vec<u8>,
}

/// The registers that software may change, as 32-bit words by offset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedRegisters(BTreeMap<u16, u32>);

impl Registers {
    /// All zero and read-only.
    pub(super) fn new() -> Registers {
        Registers { bytes: vec![0; SIZE], writable: vec![0; SIZE], initial: vec![0; SIZE] }
    }

    /// Gives the register at `offset` its power-on `value`.
    pub(super) fn define<const N: usize>(&mut self, offset: usize, value: [u8; N]) {
        self.define_slice(offset, &value);
    }

    /// [`Self::define`] for a length known at run time.
    pub(super) fn define_slice(&mut self, offset: usize, value: &[u8]) {
        self.bytes[offset..offset + value.len()].copy_from_slice(value);
        self.initial[offset..offset + value.len()].copy_from_slice(value);
    }

    /// Lets software change the bits `mask` of the register at `offset`.
    pub(super) fn allow<const N: usize>(&mut self, offset: usize, mask: [u8; N]) {
        self.writable[offset..offset + N].copy_from_slice(&mask);
    }

    /// Back to the power-on values.
    pub(super) fn reset(&mut self) {
        self.bytes.copy_from_slice(&self.initial);
    }

    pub(super) fn u16(&self, offset: usize) -> u16 {
        u16::from_le_bytes([self.bytes[offset], self.bytes[offset + 1]])
    }

    pub(super) fn u32(&self, offset: usize) -> u32 {
        u32::from(self.u16(offset)) | u32::from(self.u16(offset + 2)) << 16
    }

    /// A read by software. Bytes beyond the space are left alone.
    pub(super) fn read(&self, offset: usize, data: &mut [u8]) {
        if let Some(tail) = self.bytes.get(offset..) {
            let length = tail.len().min(data.len());
            data[..length].copy_from_slice(&tail[..length]);
        }
    }

    /// A write by software. Bits that it may not change keep their value.
    pub(super) fn write(&mut self, offset: usize, data: &[u8]) {
        for (position, &new) in (offset..SIZE).zip(data) {
            let mask = self.writable[position];
            self.bytes[position] = self.bytes[position] & !mask | new & mask;
        }
    }

    pub(super) fn save(&self) -> SavedRegisters {
        SavedRegisters(self.writable_words().map(|offset| (offset as u16, self.u32(offset))).collect())
    }

    pub(super) fn restore(&mut self, saved: &SavedRegisters) -> Result<(), RestoreError> {
        if !self.writable_words().eq(saved.0.keys().map(|&offset| usize::from(offset))) {
            return Err(RestoreError("the configuration spaces have different registers".into()));
        }
        for (&offset, value) in &saved.0 {
            self.write(usize::from(offset), &value.to_le_bytes());
        }
        Ok(())
    }

    fn writable_words(&self) -> impl Iterator<Item = usize> {
        (0..SIZE).step_by(4).filter(|&offset| self.writable[offset..offset + 4] != [0; 4])
    }
}

/// Size of a function's configuration space with the extended part.
pub(super) const SIZE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allowed_bits_change() {
        let mut registers = Registers::new();
        registers.define(4, 0x1234_5678_u32.to_le_bytes());
        registers.allow(4, 0x0000_ff00_u32.to_le_bytes());
        registers.write(0, &[0xff; 16]);
        assert_eq!(registers.u32(4), 0x1234_ff78);
        registers.reset();
        assert_eq!(registers.u32(4), 0x1234_5678);
    }

    #[test]
    fn accesses_past_the_end_are_cut() {
        let mut registers = Registers::new();
        let mut data = [0xff; 4];
        registers.read(SIZE - 2, &mut data);
        assert_eq!(data, [0, 0, 0xff, 0xff]);
        registers.write(SIZE - 2, &data);
        registers.read(SIZE + 7, &mut data);
    }

    #[test]
    fn a_foreign_state_is_refused() {
        let mut one = Registers::new();
        one.allow(4, [0xff]);
        let mut other = Registers::new();
        other.allow(8, [0xff]);
        one.write(4, &[7]);
        assert!(other.restore(&one.save()).is_err());
        let mut same = one.clone();
        same.reset();
        same.restore(&one.save()).unwrap();
        assert_eq!(same.u16(4), 7);
    }
}
