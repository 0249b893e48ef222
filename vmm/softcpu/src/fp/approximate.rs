//! `RCPPS`, `RSQRTPS` and their scalar forms.
//!
//! Processors agree only on an error bound for these (1.5 * 2^-12, relative) and on the special cases. Here the
//! result is the exact one rounded to 12 bits of significand, so that it does not depend on the host. MXCSR
//! plays no part: denormals count as zero, and no exception is raised.

use iced_x86::{Code, Instruction, OpKind};

use super::operand::{Memory32, Memory128, Source, Xmm};
use crate::op::{Handler, Op};
use crate::{Cpu, Env, Stop};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    let register = instruction.op1_kind() == OpKind::Register;
    Some(match instruction.code() {
        Code::Rcpps_xmm_xmmm128 if register => packed::<Reciprocal, Xmm>,
        Code::Rcpps_xmm_xmmm128 => packed::<Reciprocal, Memory128>,
        Code::Rcpss_xmm_xmmm32 if register => scalar::<Reciprocal, Xmm>,
        Code::Rcpss_xmm_xmmm32 => scalar::<Reciprocal, Memory32>,
        Code::Rsqrtps_xmm_xmmm128 if register => packed::<ReciprocalRoot, Xmm>,
        Code::Rsqrtps_xmm_xmmm128 => packed::<ReciprocalRoot, Memory128>,
        Code::Rsqrtss_xmm_xmmm32 if register => scalar::<ReciprocalRoot, Xmm>,
        Code::Rsqrtss_xmm_xmmm32 => scalar::<ReciprocalRoot, Memory32>,
        _ => return None,
    })
}

trait Approximation {
    fn of(bits: u32) -> u32;
}

fn packed<A: Approximation, S: Source>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    let source = S::fetch(cpu, env, op)?;
    let lane = |i: u32| u128::from(A::of((source >> (32 * i)) as u32)) << (32 * i);
    cpu.set_xmm(op.destination, lane(0) | lane(1) | lane(2) | lane(3));
    Ok(())
}

fn scalar<A: Approximation, S: Source>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    let source = S::fetch(cpu, env, op)?;
    let upper = cpu.xmm(op.destination) >> 32 << 32;
    cpu.set_xmm(op.destination, upper | u128::from(A::of(source as u32)));
    Ok(())
}

struct Reciprocal;

impl Approximation for Reciprocal {
    fn of(bits: u32) -> u32 {
        let sign = bits & SIGN;
        match bits & !SIGN {
            0..MIN_NORMAL => sign | INFINITY,
            INFINITY => sign,
            magnitude if magnitude > INFINITY => bits | QUIET,
            magnitude => sign | round(1.0 / f64::from(f32::from_bits(magnitude))),
        }
    }
}

struct ReciprocalRoot;

impl Approximation for ReciprocalRoot {
    fn of(bits: u32) -> u32 {
        let sign = bits & SIGN;
        match bits & !SIGN {
            0..MIN_NORMAL => sign | INFINITY,
            magnitude if magnitude > INFINITY => bits | QUIET,
            _ if sign != 0 => DEFAULT_NAN,
            INFINITY => 0,
            magnitude => round(1.0 / f64::from(f32::from_bits(magnitude)).sqrt()),
        }
    }
}

/// A positive number to 12 bits of significand after the leading one; tiny results become zero.
fn round(value: f64) -> u32 {
    let kept = (value as f32).to_bits();
    let rounded = (kept + (1 << (DROPPED_BITS - 1))) >> DROPPED_BITS << DROPPED_BITS;
    if rounded < MIN_NORMAL { 0 } else { rounded }
}

const SIGN: u32 = 1 << 31;
const INFINITY: u32 = 0x7f80_0000;
const MIN_NORMAL: u32 = 0x0080_0000;
const QUIET: u32 = 1 << 22;
const DEFAULT_NAN: u32 = 0xffc0_0000;
const DROPPED_BITS: u32 = 11;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn special_cases_of_the_reciprocal() {
        let negative_denormal = SIGN | 1;
        assert_eq!(Reciprocal::of(0), INFINITY);
        assert_eq!(Reciprocal::of(negative_denormal), SIGN | INFINITY);
        assert_eq!(Reciprocal::of(SIGN | INFINITY), SIGN);
        assert_eq!(Reciprocal::of(0x7f80_0001), 0x7fc0_0001);
        assert_eq!(Reciprocal::of(2f32.powi(126).to_bits()), MIN_NORMAL);
        assert_eq!(Reciprocal::of(2f32.powi(127).to_bits()), 0);
        assert_eq!(Reciprocal::of((-4f32).to_bits()), (-0.25f32).to_bits());
    }

    #[test]
    fn special_cases_of_the_reciprocal_root() {
        assert_eq!(ReciprocalRoot::of(SIGN), SIGN | INFINITY);
        assert_eq!(ReciprocalRoot::of((-1f32).to_bits()), DEFAULT_NAN);
        assert_eq!(ReciprocalRoot::of(SIGN | INFINITY), DEFAULT_NAN);
        assert_eq!(ReciprocalRoot::of(INFINITY), 0);
        assert_eq!(ReciprocalRoot::of(0xff80_0001), 0xffc0_0001);
        assert_eq!(ReciprocalRoot::of(4f32.to_bits()), 0.5f32.to_bits());
    }

    proptest! {
        #[test]
        fn errors_stay_within_the_architectural_bound(bits in MIN_NORMAL..=0x7e80_0000) {
            let value = f64::from(f32::from_bits(bits));
            let bound = 1.5 / 4096.0;
            let reciprocal = f64::from(f32::from_bits(Reciprocal::of(bits)));
            prop_assert!((reciprocal * value - 1.0).abs() <= bound);
            let root = f64::from(f32::from_bits(ReciprocalRoot::of(bits)));
            prop_assert!((root * value.sqrt() - 1.0).abs() <= bound);
        }
    }
}
