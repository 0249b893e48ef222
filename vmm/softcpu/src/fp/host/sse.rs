//! SSE arithmetic. The host must have SSE3, as all have had since 2005.
//!
//! Every function takes MXCSR to compute under (all exceptions masked) and returns the result together with
//! MXCSR afterwards: the given one with the exception flags raised added.

use std::arch::asm;

use super::{scalar, vector};

/// An operation `destination = destination op source` on XMM registers.
pub(in crate::fp) trait Operation {
    /// Which lanes of the result can be tiny, for unmasked underflow.
    const TINY: Tiny;
    /// The result, and MXCSR with the raised flags added.
    fn run(mxcsr: u32, destination: u128, source: u128) -> (u128, u32);
}

/// Format and number of results that can underflow.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::fp) enum Tiny {
    /// The operation never underflows.
    Never,
    /// So many lanes of 32 bits.
    Single(u32),
    /// So many lanes of 64 bits.
    Double(u32),
}

impl Tiny {
    /// Whether a lane of `result` is denormal.
    pub(in crate::fp) fn found_in(self, result: u128) -> bool {
        match self {
            Tiny::Never => false,
            Tiny::Single(lanes) => {
                (0..lanes).any(|lane| f32::from_bits((result >> (32 * lane)) as u32).is_subnormal())
            }
            Tiny::Double(lanes) => {
                (0..lanes).any(|lane| f64::from_bits((result >> (64 * lane)) as u64).is_subnormal())
            }
        }
    }
}

macro_rules! operations {
    ($($name:ident $mnemonic:literal $tiny:expr;)*) => {$(
        #[doc = concat!("`", $mnemonic, "`")]
        pub(in crate::fp) struct $name;

        impl Operation for $name {
            const TINY: Tiny = $tiny;

            #[inline(always)]
            fn run(mut mxcsr: u32, destination: u128, source: u128) -> (u128, u32) {
                let mut result = vector(destination);
                // SAFETY: an unmasked exception would trap, but callers mask all; the slot is ours; MXCSR's
                // control bits are back at Rust's before the block ends.
                unsafe {
                    asm!(
                        "ldmxcsr dword ptr [{slot}]",
                        concat!($mnemonic, " {result}, {source}"),
                        "stmxcsr dword ptr [{slot}]",
                        "ldmxcsr dword ptr [{rust}]",
                        slot = in(reg) &mut mxcsr,
                        rust = in(reg) &RUST_MXCSR,
                        result = inout(xmm_reg) result,
                        source = in(xmm_reg) vector(source),
                        options(nostack),
                    );
                }
                (scalar(result), mxcsr)
            }
        }
    )*};
}

operations! {
    Addps "addps" Tiny::Single(4);
    Addss "addss" Tiny::Single(1);
    Addpd "addpd" Tiny::Double(2);
    Addsd "addsd" Tiny::Double(1);
    Subps "subps" Tiny::Single(4);
    Subss "subss" Tiny::Single(1);
    Subpd "subpd" Tiny::Double(2);
    Subsd "subsd" Tiny::Double(1);
    Mulps "mulps" Tiny::Single(4);
    Mulss "mulss" Tiny::Single(1);
    Mulpd "mulpd" Tiny::Double(2);
    Mulsd "mulsd" Tiny::Double(1);
    Divps "divps" Tiny::Single(4);
    Divss "divss" Tiny::Single(1);
    Divpd "divpd" Tiny::Double(2);
    Divsd "divsd" Tiny::Double(1);
    Sqrtps "sqrtps" Tiny::Never;
    Sqrtss "sqrtss" Tiny::Never;
    Sqrtpd "sqrtpd" Tiny::Never;
    Sqrtsd "sqrtsd" Tiny::Never;
    Minps "minps" Tiny::Never;
    Minss "minss" Tiny::Never;
    Minpd "minpd" Tiny::Never;
    Minsd "minsd" Tiny::Never;
    Maxps "maxps" Tiny::Never;
    Maxss "maxss" Tiny::Never;
    Maxpd "maxpd" Tiny::Never;
    Maxsd "maxsd" Tiny::Never;
    Haddps "haddps" Tiny::Single(4);
    Hsubps "hsubps" Tiny::Single(4);
    Haddpd "haddpd" Tiny::Double(2);
    Hsubpd "hsubpd" Tiny::Double(2);
    Addsubps "addsubps" Tiny::Single(4);
    Addsubpd "addsubpd" Tiny::Double(2);
    Cvtps2pd "cvtps2pd" Tiny::Never;
    Cvtss2sd "cvtss2sd" Tiny::Never;
    Cvtpd2ps "cvtpd2ps" Tiny::Single(2);
    Cvtsd2ss "cvtsd2ss" Tiny::Single(1);
    Cvtdq2ps "cvtdq2ps" Tiny::Never;
    Cvtdq2pd "cvtdq2pd" Tiny::Never;
    Cvtps2dq "cvtps2dq" Tiny::Never;
    Cvttps2dq "cvttps2dq" Tiny::Never;
    Cvtpd2dq "cvtpd2dq" Tiny::Never;
    Cvttpd2dq "cvttpd2dq" Tiny::Never;
}

/// `CMPPS` and its siblings, with the predicate as a constant.
macro_rules! comparisons {
    ($($name:ident $mnemonic:literal;)*) => {$(
        #[doc = concat!("`", $mnemonic, "` with predicate `P`")]
        pub(in crate::fp) struct $name<const P: u8>;

        impl<const P: u8> Operation for $name<P> {
            const TINY: Tiny = Tiny::Never;

            #[inline(always)]
            fn run(mut mxcsr: u32, destination: u128, source: u128) -> (u128, u32) {
                let mut result = vector(destination);
                // SAFETY: as for `operations`.
                unsafe {
                    asm!(
                        "ldmxcsr dword ptr [{slot}]",
                        concat!($mnemonic, " {result}, {source}, {predicate}"),
                        "stmxcsr dword ptr [{slot}]",
                        "ldmxcsr dword ptr [{rust}]",
                        slot = in(reg) &mut mxcsr,
                        rust = in(reg) &RUST_MXCSR,
                        result = inout(xmm_reg) result,
                        source = in(xmm_reg) vector(source),
                        predicate = const P,
                        options(nostack),
                    );
                }
                (scalar(result), mxcsr)
            }
        }
    )*};
}

comparisons! {
    Cmpps "cmpps";
    Cmpss "cmpss";
    Cmppd "cmppd";
    Cmpsd "cmpsd";
}

/// What `COMISS` and its siblings find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fp) struct Ordering {
    /// ZF: equal or unordered.
    pub(in crate::fp) zero: bool,
    /// PF: unordered.
    pub(in crate::fp) parity: bool,
    /// CF: less or unordered.
    pub(in crate::fp) carry: bool,
}

/// A comparison of the lowest lanes that sets flags.
pub(in crate::fp) trait Comparison {
    /// What it finds, and MXCSR with the raised flags added.
    fn run(mxcsr: u32, first: u128, second: u128) -> (Ordering, u32);
}

macro_rules! flag_comparisons {
    ($($name:ident $mnemonic:literal;)*) => {$(
        #[doc = concat!("`", $mnemonic, "`")]
        pub(in crate::fp) struct $name;

        impl Comparison for $name {
            #[inline(always)]
            fn run(mut mxcsr: u32, first: u128, second: u128) -> (Ordering, u32) {
                let (zero, parity, carry): (u8, u8, u8);
                // SAFETY: as for `operations`.
                unsafe {
                    asm!(
                        "ldmxcsr dword ptr [{slot}]",
                        concat!($mnemonic, " {first}, {second}"),
                        "setz {zero}",
                        "setp {parity}",
                        "setc {carry}",
                        "stmxcsr dword ptr [{slot}]",
                        "ldmxcsr dword ptr [{rust}]",
                        slot = in(reg) &mut mxcsr,
                        rust = in(reg) &RUST_MXCSR,
                        first = in(xmm_reg) vector(first),
                        second = in(xmm_reg) vector(second),
                        zero = out(reg_byte) zero,
                        parity = out(reg_byte) parity,
                        carry = out(reg_byte) carry,
                        options(nostack),
                    );
                }
                (Ordering { zero: zero != 0, parity: parity != 0, carry: carry != 0 }, mxcsr)
            }
        }
    )*};
}

flag_comparisons! {
    Comiss "comiss";
    Comisd "comisd";
    Ucomiss "ucomiss";
    Ucomisd "ucomisd";
}

/// A conversion between a general-purpose register and the lowest lane of an XMM register.
macro_rules! to_integer {
    ($($name:ident $mnemonic:literal $register:literal;)*) => {$(
        #[doc = concat!("`", $mnemonic, "`")]
        #[inline(always)]
        pub(in crate::fp) fn $name(mut mxcsr: u32, source: u128) -> (u64, u32) {
            let result: u64;
            // SAFETY: as for `operations`.
            unsafe {
                asm!(
                    "ldmxcsr dword ptr [{slot}]",
                    concat!($mnemonic, " {result", $register, "}, {source}"),
                    "stmxcsr dword ptr [{slot}]",
                    "ldmxcsr dword ptr [{rust}]",
                    slot = in(reg) &mut mxcsr,
                    rust = in(reg) &RUST_MXCSR,
                    result = out(reg) result,
                    source = in(xmm_reg) vector(source),
                    options(nostack),
                );
            }
            (result, mxcsr)
        }
    )*};
}

to_integer! {
    cvtss2si_32 "cvtss2si" ":e";
    cvtss2si_64 "cvtss2si" "";
    cvttss2si_32 "cvttss2si" ":e";
    cvttss2si_64 "cvttss2si" "";
    cvtsd2si_32 "cvtsd2si" ":e";
    cvtsd2si_64 "cvtsd2si" "";
    cvttsd2si_32 "cvttsd2si" ":e";
    cvttsd2si_64 "cvttsd2si" "";
}

macro_rules! from_integer {
    ($($name:ident $mnemonic:literal;)*) => {$(
        #[doc = concat!("`", $mnemonic, "` from 64 bits")]
        #[inline(always)]
        pub(in crate::fp) fn $name(mut mxcsr: u32, destination: u128, source: i64) -> (u128, u32) {
            let mut result = vector(destination);
            // SAFETY: as for `operations`.
            unsafe {
                asm!(
                    "ldmxcsr dword ptr [{slot}]",
                    concat!($mnemonic, " {result}, {source}"),
                    "stmxcsr dword ptr [{slot}]",
                    "ldmxcsr dword ptr [{rust}]",
                    slot = in(reg) &mut mxcsr,
                    rust = in(reg) &RUST_MXCSR,
                    result = inout(xmm_reg) result,
                    source = in(reg) source,
                    options(nostack),
                );
            }
            (scalar(result), mxcsr)
        }
    )*};
}

from_integer! {
    cvtsi2ss "cvtsi2ss";
    cvtsi2sd "cvtsi2sd";
}

/// MXCSR as Rust code expects it: everything masked, nearest rounding, no flushing.
const RUST_MXCSR: u32 = 0x1f80;
