//! The host's own floating-point units, used for arithmetic.
//!
//! What an addition, a conversion or a comparison returns for every operand, rounding mode and flush setting,
//! and which exception flags it raises, is the same on every x86-64 processor. So the host computes it, under
//! the guest's control bits with all exceptions masked, and reports result and flags. All of the crate's
//! floating-point `unsafe` is in this module. Each function brings the host's control registers back to the
//! state that Rust code relies on before it returns.

pub(super) mod sse;
pub(super) mod x87;

/// Calls SSE2 intrinsics, which the compiler takes for unsafe wherever SSE2 is not named.
macro_rules! sse2 {
    ($intrinsics:expr) => {
        // SAFETY: SSE2 is part of the x86-64 baseline; the intrinsics used work on values only.
        unsafe { $intrinsics }
    };
}

use std::arch::x86_64::__m128i;
use std::mem::transmute;

pub(super) use sse2;

/// A register's contents as the vector type that intrinsics take.
#[inline(always)]
pub(super) fn vector(value: u128) -> __m128i {
    // SAFETY: both types are 16 bytes without padding, and every bit pattern is valid for both.
    unsafe { transmute(value) }
}

/// The inverse of [`vector`].
#[inline(always)]
pub(super) fn scalar(value: __m128i) -> u128 {
    // SAFETY: as in `vector`.
    unsafe { transmute(value) }
}
