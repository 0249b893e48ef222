//! Operand widths of integer instructions, for handlers that are generic over them.

use std::fmt::Debug;

/// An unsigned integer that an instruction can work on: 8, 16, 32 or 64 bits (and 128 for SSE moves).
pub trait Width: Copy + Eq + Ord + Debug + Default + 'static {
    /// Number of bits.
    const BITS: u32;
    /// Number of bytes.
    const BYTES: usize = (Self::BITS / 8) as usize;
    /// The low bits of `value`.
    fn truncate(value: u64) -> Self;
    /// Zero-extended.
    fn zero_extend(self) -> u64;
    /// Sign-extended to 64 bits, as unsigned.
    fn sign_extend(self) -> u64;
    /// The most significant bit.
    fn sign(self) -> bool {
        (self.sign_extend() as i64) < 0
    }
}

macro_rules! width {
    ($($unsigned:ty, $signed:ty;)*) => {$(
        impl Width for $unsigned {
            const BITS: u32 = <$unsigned>::BITS;
            #[inline(always)]
            fn truncate(value: u64) -> Self {
                value as $unsigned
            }
            #[inline(always)]
            fn zero_extend(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn sign_extend(self) -> u64 {
                self as $signed as i64 as u64
            }
        }
    )*};
}

width! {
    u8, i8;
    u16, i16;
    u32, i32;
    u64, i64;
}
