//! x87, MMX and SSE instructions.

use iced_x86::Mnemonic::*;
use iced_x86::{Code, CpuidFeature, Instruction, MemorySize, OpKind};
use softcpu::flags::{CF, PF, ZF};

use crate::compare::{Tolerance, check_arranged};
use crate::forms::memory_address;
use crate::random::Random;
use crate::state::{DATA, FxImage, State};

#[test]
fn mmx() {
    check(CASES, |code| has(code, CpuidFeature::MMX));
}

#[test]
fn sse() {
    check(CASES, |code| has(code, CpuidFeature::SSE) && !is_approximate(code));
}

#[test]
fn sse2() {
    check(CASES, |code| has(code, CpuidFeature::SSE2));
}

#[test]
fn sse3() {
    check(CASES, |code| has(code, CpuidFeature::SSE3) && !matches!(code.mnemonic(), Monitor | Mwait));
}

#[test]
fn x87_arithmetic() {
    check(2 * CASES, |code| is_x87(code) && is_x87_arithmetic(code));
}

#[test]
fn x87_others() {
    check(2 * CASES, |code| is_x87(code) && !is_x87_arithmetic(code));
}

#[test]
fn restoring() {
    check(4 * CASES, |code| matches!(code.mnemonic(), Fxrstor | Fxrstor64));
}

/// Executes the forms from states full of interesting numbers, in which almost everything is defined.
fn check(cases: u32, select: impl Fn(Code) -> bool) {
    check_arranged(cases, select, arrange, undefined);
}

/// What the manuals leave undefined or processors do in different ways.
fn undefined(instruction: &Instruction, state: &State) -> Tolerance {
    // Whether a result whose overflow or underflow traps is inexact.
    let traps = state.fx.mxcsr() & (OVERFLOW_MASK | UNDERFLOW_MASK) != OVERFLOW_MASK | UNDERFLOW_MASK;
    let mxcsr = if traps { INEXACT } else { 0 };
    let name = format!("{:?}", instruction.mnemonic());
    let untouched = name.starts_with("Fcmov") || name.ends_with("comi") || name.ends_with("comip");
    let status = if untouched || matches!(instruction.mnemonic(), Ffree | Ffreep | Fstpnce) { C1 } else { 0 };
    // Whether a comparison that traps sets RFLAGS.
    let traps = untouched && state.fx.control() & INVALID != INVALID;
    let flags = if traps { CF | PF | ZF } else { 0 };
    // Processors access large operands in parts, in an order of their own.
    let fault_address = !matches!(instruction.memory_size().size(), 0..=10 | 16);
    Tolerance { flags, mxcsr, status, fault_address, ..Tolerance::default() }
}

fn has(code: Code, feature: CpuidFeature) -> bool {
    code.cpuid_features().contains(&feature) && !code.cpuid_features().contains(&CpuidFeature::FPU)
}

/// Whether it belongs to the x87 and the encoder does not put an `FWAIT` in front.
fn is_x87(code: Code) -> bool {
    let features = code.cpuid_features();
    let x87 = [CpuidFeature::FPU, CpuidFeature::FPU287, CpuidFeature::FPU387];
    x87.iter().any(|feature| features.contains(feature))
        && !matches!(
            code.mnemonic(),
            Fclex | Finit | Fstcw | Fstenv | Fsave | Fstsw | Feni | Fdisi | Fsetpm | Fstdw | Fstsg
        )
}

fn is_x87_arithmetic(code: Code) -> bool {
    matches!(
        code.mnemonic(),
        Fadd | Faddp
            | Fiadd
            | Fsub
            | Fsubp
            | Fisub
            | Fsubr
            | Fsubrp
            | Fisubr
            | Fmul
            | Fmulp
            | Fimul
            | Fdiv
            | Fdivp
            | Fidiv
            | Fdivr
            | Fdivrp
            | Fidivr
            | Fsqrt
            | Frndint
            | Fscale
            | Fprem
            | Fprem1
            | Fxtract
            | F2xm1
            | Fyl2x
            | Fyl2xp1
            | Fptan
            | Fpatan
            | Fsin
            | Fcos
            | Fsincos
    )
}

/// Whether processors may return slightly different results.
fn is_approximate(code: Code) -> bool {
    matches!(code.mnemonic(), Rcpps | Rcpss | Rsqrtps | Rsqrtss)
}

/// Fills registers and the memory operand with numbers that are worth computing with.
fn arrange(instruction: &Instruction, state: &mut State, random: &mut Random) {
    fill(&mut state.fx, random);
    if (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory) {
        let bytes = operand(instruction, &state.fx, random);
        let offset = memory_address(instruction, state).wrapping_sub(DATA) as usize;
        // Some operands are out of reach, to fault.
        if let Some(place) = state.memory.get_mut(offset..offset.saturating_add(bytes.len())) {
            place.copy_from_slice(&bytes);
        }
    }
}

fn operand(instruction: &Instruction, fx: &FxImage, random: &mut Random) -> Vec<u8> {
    if instruction.mnemonic() == Ldmxcsr {
        return (mxcsr(random) | reserved(random)).to_le_bytes().to_vec();
    }
    let size = instruction.memory_size();
    match size.element_type() {
        MemorySize::Fxsave_512Byte | MemorySize::Fxsave64_512Byte => {
            let mut image = FxImage::default();
            fill(&mut image, random);
            image.set_mxcsr(image.mxcsr() | reserved(random));
            image.0.to_vec()
        }
        MemorySize::Float32 => (0..4).flat_map(|_| single(random).to_le_bytes()).collect(),
        // An operand that equals a register makes comparisons interesting.
        MemorySize::Float64 if random.chance(8) => fx.xmm(random.below(16) as usize).to_le_bytes().to_vec(),
        MemorySize::Float64 => (0..2).flat_map(|_| double(random).to_le_bytes()).collect(),
        MemorySize::Float80 => extended(random).to_vec(),
        MemorySize::Bcd => decimal(random).to_vec(),
        _ => (0..size.size().div_ceil(8)).flat_map(|_| random.number().to_le_bytes()).collect(),
    }
}

/// A whole register state.
fn fill(fx: &mut FxImage, random: &mut Random) {
    fx.set_mxcsr(mxcsr(random));
    for number in 0..16 {
        let value = match random.below(3) {
            0 => u128::from(double(random)) | u128::from(double(random)) << 64,
            1 => (0..4).fold(0, |value, _| value << 32 | u128::from(single(random))),
            _ => u128::from(random.number()) | u128::from(random.number()) << 64,
        };
        fx.set_xmm(number, value);
    }
    if random.chance(4) {
        let copy = fx.xmm(random.below(16) as usize);
        fx.set_xmm(random.below(16) as usize, copy);
    }
    let masks = if random.chance(3) { random.below(64) as u16 } else { 0x3f };
    fx.set_control(masks | 0x40 | (random.below(16) as u16) << 8);
    // Flags that are already set, but mostly none that would raise #MF at once.
    let flags = random.below(64) as u16 & if random.chance(8) { 0x3f } else { masks };
    fx.set_status(flags | random.number() as u16 & 0x7f40);
    fx.set_occupied(match random.below(4) {
        0 => random.number() as u8,
        // All but ST(7), so that there is room for a push.
        1 | 2 => !(1 << (((fx.status() >> 11) + 7) & 7)),
        _ => 0xff,
    });
    for number in 0..8 {
        let value = extended(random);
        fx.set_st(number, value);
    }
    if random.chance(8) {
        let copy = fx.st(random.below(8) as usize);
        fx.set_st(0, copy);
    }
}

fn mxcsr(random: &mut Random) -> u32 {
    let masks = if random.chance(3) { random.below(64) as u32 } else { 0x3f };
    masks << 7 | random.number() as u32 & 0xe07f
}

/// Sometimes one of the bits that no processor has in MXCSR.
fn reserved(random: &mut Random) -> u32 {
    if random.chance(8) { 1 << (18 + random.below(14)) } else { 0 }
}

fn single(random: &mut Random) -> u32 {
    float(random, 8, 23) as u32
}

fn double(random: &mut Random) -> u64 {
    float(random, 11, 52)
}

/// A number with many of its kind at the edges of the format.
fn float(random: &mut Random, exponent_bits: u32, mantissa_bits: u32) -> u64 {
    let sign = random.below(2) << (exponent_bits + mantissa_bits);
    sign | exponent(random, exponent_bits) << mantissa_bits | mantissa(random, mantissa_bits)
}

fn exponent(random: &mut Random, bits: u32) -> u64 {
    let (max, bias) = ((1 << bits) - 1, (1 << (bits - 1)) - 1);
    match random.below(8) {
        0 => 0,
        1 => max,
        2 => 1 + random.below(3),
        3 => max - 1 - random.below(3),
        4 => random.below(max + 1),
        _ => bias - 4 + random.below(70).min(max - bias),
    }
}

fn mantissa(random: &mut Random, bits: u32) -> u64 {
    let mask = (1 << bits) - 1;
    match random.below(6) {
        0 => 0,
        1 => 1,
        2 => mask,
        3 => 1 << random.below(bits.into()),
        _ => (random.number() | random.number()) & mask,
    }
}

fn extended(random: &mut Random) -> [u8; 10] {
    let (exponent, mantissa) = (exponent(random, 15), mantissa(random, 63));
    // The integer bit is mostly what it should be.
    let integer = u64::from((exponent != 0) ^ random.chance(16));
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&(integer << 63 | mantissa).to_le_bytes());
    bytes[8..].copy_from_slice(&(exponent as u16 | (random.below(2) as u16) << 15).to_le_bytes());
    bytes
}

/// 18 valid digits and a sign.
fn decimal(random: &mut Random) -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes.fill_with(|| (random.below(10) << 4 | random.below(10)) as u8);
    bytes[9] = if random.chance(2) { 0x80 } else { 0 };
    bytes
}

const OVERFLOW_MASK: u32 = 1 << 10;
const UNDERFLOW_MASK: u32 = 1 << 11;
const INEXACT: u32 = 1 << 5;
/// Mask and flag of invalid operations, x87.
const INVALID: u16 = 1 << 0;
/// Condition code 1.
const C1: u16 = 1 << 9;
const CASES: u32 = 128;
