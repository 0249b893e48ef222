//! Helpers for registers that are narrower than the accesses to them.

/// Serves a read byte by byte, for devices whose registers are one byte each.
pub(crate) fn read_bytes(offset: u64, data: &mut [u8], mut read: impl FnMut(u64) -> u8) {
    for (position, byte) in (offset..).zip(data) {
        *byte = read(position);
    }
}

/// Serves a write byte by byte.
pub(crate) fn write_bytes(offset: u64, data: &[u8], mut write: impl FnMut(u64, u8)) {
    for (position, &byte) in (offset..).zip(data) {
        write(position, byte);
    }
}

/// The part of a 32-bit register, aligned to 4, that a read covers.
pub(crate) fn read_word(offset: u64, data: &mut [u8], word: u32) {
    let bytes = word.to_le_bytes();
    read_bytes(offset % 4, data, |position| bytes.get(position as usize).copied().unwrap_or(0));
}

/// The value of a write of up to 8 bytes.
pub(crate) fn value(data: &[u8]) -> u64 {
    data.iter().take(8).rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}
