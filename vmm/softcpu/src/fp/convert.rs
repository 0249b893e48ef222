//! Conversions between XMM and general-purpose or MMX registers, and comparisons that set RFLAGS.

use iced_x86::{Code, Instruction, OpKind};

use super::host::sse::{self, Comparison, Operation};
use super::operand::{Memory32, Memory64, Memory128, Mm, Source, Xmm};
use crate::flags::{ARITHMETIC, CF, PF, ZF};
use crate::op::{Handler, Op};
use crate::{Cpu, Env, Stop, Width};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    let register = instruction.op1_kind() == OpKind::Register;
    Some(match instruction.code() {
        Code::Comiss_xmm_xmmm32 if register => compare::<sse::Comiss, Xmm>,
        Code::Comiss_xmm_xmmm32 => compare::<sse::Comiss, Memory32>,
        Code::Comisd_xmm_xmmm64 if register => compare::<sse::Comisd, Xmm>,
        Code::Comisd_xmm_xmmm64 => compare::<sse::Comisd, Memory64>,
        Code::Ucomiss_xmm_xmmm32 if register => compare::<sse::Ucomiss, Xmm>,
        Code::Ucomiss_xmm_xmmm32 => compare::<sse::Ucomiss, Memory32>,
        Code::Ucomisd_xmm_xmmm64 if register => compare::<sse::Ucomisd, Xmm>,
        Code::Ucomisd_xmm_xmmm64 => compare::<sse::Ucomisd, Memory64>,
        Code::Cvtsi2ss_xmm_rm32 if register => from_register::<ToSingle, i32>,
        Code::Cvtsi2ss_xmm_rm32 => from_memory::<ToSingle, i32>,
        Code::Cvtsi2ss_xmm_rm64 if register => from_register::<ToSingle, i64>,
        Code::Cvtsi2ss_xmm_rm64 => from_memory::<ToSingle, i64>,
        Code::Cvtsi2sd_xmm_rm32 if register => from_register::<ToDouble, i32>,
        Code::Cvtsi2sd_xmm_rm32 => from_memory::<ToDouble, i32>,
        Code::Cvtsi2sd_xmm_rm64 if register => from_register::<ToDouble, i64>,
        Code::Cvtsi2sd_xmm_rm64 => from_memory::<ToDouble, i64>,
        Code::Cvtpi2ps_xmm_mmm64 if register => singles_from_mmx,
        Code::Cvtpi2pd_xmm_mmm64 if register => doubles_from_mmx,
        Code::Cvtpi2ps_xmm_mmm64 => singles_from_memory,
        Code::Cvtpi2pd_xmm_mmm64 => doubles_from_memory,
        Code::Cvtps2pi_mm_xmmm64 if register => packed_to_mmx::<sse::Cvtps2dq, LowHalf>,
        Code::Cvtps2pi_mm_xmmm64 => packed_to_mmx::<sse::Cvtps2dq, Memory64>,
        Code::Cvttps2pi_mm_xmmm64 if register => packed_to_mmx::<sse::Cvttps2dq, LowHalf>,
        Code::Cvttps2pi_mm_xmmm64 => packed_to_mmx::<sse::Cvttps2dq, Memory64>,
        Code::Cvtpd2pi_mm_xmmm128 if register => packed_to_mmx::<sse::Cvtpd2dq, Xmm>,
        Code::Cvtpd2pi_mm_xmmm128 => packed_to_mmx::<sse::Cvtpd2dq, Memory128>,
        Code::Cvttpd2pi_mm_xmmm128 if register => packed_to_mmx::<sse::Cvttpd2dq, Xmm>,
        Code::Cvttpd2pi_mm_xmmm128 => packed_to_mmx::<sse::Cvttpd2dq, Memory128>,
        _ => return lookup_to_integer(instruction),
    })
}

macro_rules! to_integer {
    ($($code:ident $operation:ident $width:ident $memory:ident;)*) => {
        fn lookup_to_integer(instruction: &Instruction) -> Option<Handler> {
            Some(match instruction.code() {
                $(Code::$code => {
                    struct Conversion;
                    impl ToInteger for Conversion {
                        type Result = $width;
                        #[inline(always)]
                        fn run(mxcsr: u32, source: u128) -> (u64, u32) {
                            sse::$operation(mxcsr, source)
                        }
                    }
                    match instruction.op1_kind() {
                        OpKind::Register => to_general::<Conversion, Xmm>,
                        _ => to_general::<Conversion, $memory>,
                    }
                })*
                _ => return None,
            })
        }
    };
}

to_integer! {
    Cvtss2si_r32_xmmm32 cvtss2si_32 u32 Memory32;
    Cvtss2si_r64_xmmm32 cvtss2si_64 u64 Memory32;
    Cvttss2si_r32_xmmm32 cvttss2si_32 u32 Memory32;
    Cvttss2si_r64_xmmm32 cvttss2si_64 u64 Memory32;
    Cvtsd2si_r32_xmmm64 cvtsd2si_32 u32 Memory64;
    Cvtsd2si_r64_xmmm64 cvtsd2si_64 u64 Memory64;
    Cvttsd2si_r32_xmmm64 cvttsd2si_32 u32 Memory64;
    Cvttsd2si_r64_xmmm64 cvttsd2si_64 u64 Memory64;
}

/// A conversion of the lowest lane to a general-purpose register.
trait ToInteger {
    type Result: Width;
    fn run(mxcsr: u32, source: u128) -> (u64, u32);
}

fn to_general<C: ToInteger, S: Source>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    let source = S::fetch(cpu, env, op)?;
    let result = cpu.guarded(|mxcsr| C::run(mxcsr, source), |_| false)?;
    cpu.set(op.destination, C::Result::truncate(result));
    Ok(())
}

/// A conversion of an integer to the lowest lane.
trait FromInteger {
    fn run(mxcsr: u32, destination: u128, source: i64) -> (u128, u32);
}

struct ToSingle;
struct ToDouble;

impl FromInteger for ToSingle {
    #[inline(always)]
    fn run(mxcsr: u32, destination: u128, source: i64) -> (u128, u32) {
        sse::cvtsi2ss(mxcsr, destination, source)
    }
}

impl FromInteger for ToDouble {
    #[inline(always)]
    fn run(mxcsr: u32, destination: u128, source: i64) -> (u128, u32) {
        sse::cvtsi2sd(mxcsr, destination, source)
    }
}

/// The width of an integer to convert. A 32-bit one converts like its 64-bit extension.
trait IntegerSource {
    type Bits: Width;
}

impl IntegerSource for i32 {
    type Bits = u32;
}

impl IntegerSource for i64 {
    type Bits = u64;
}

fn from_register<C: FromInteger, I: IntegerSource>(
    cpu: &mut Cpu,
    _env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    cpu.enter_sse()?;
    let source = cpu.get::<I::Bits>(op.source).sign_extend();
    convert_integer::<C>(cpu, op, source)
}

fn from_memory<C: FromInteger, I: IntegerSource>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    cpu.enter_sse()?;
    let source = cpu.load_operand::<I::Bits>(env, op)?.sign_extend();
    convert_integer::<C>(cpu, op, source)
}

#[inline(always)]
fn convert_integer<C: FromInteger>(cpu: &mut Cpu, op: &Op, source: u64) -> Result<(), Stop> {
    let destination = cpu.xmm(op.destination);
    let result = cpu.guarded(|mxcsr| C::run(mxcsr, destination, source as i64), |_| false)?;
    cpu.set_xmm(op.destination, result);
    Ok(())
}

fn compare<C: Comparison, S: Source>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    let second = S::fetch(cpu, env, op)?;
    let first = cpu.xmm(op.destination);
    let order = cpu.guarded(|mxcsr| C::run(mxcsr, first, second), |_| false)?;
    let flags = (u64::from(order.zero) * ZF) | (u64::from(order.parity) * PF) | (u64::from(order.carry) * CF);
    cpu.set_rflags(cpu.rflags() & !ARITHMETIC | flags);
    Ok(())
}

/// The low half of an XMM register, so that lanes that do not take part hold zeros and raise nothing.
struct LowHalf;

impl Source for LowHalf {
    #[inline(always)]
    fn fetch(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<u128, Stop> {
        Ok(u128::from(cpu.xmm(op.source) as u64))
    }
}

/// Conversions to MMX registers. Like the others here they turn the x87 registers into MMX registers even when
/// the conversion itself ends in an exception.
fn packed_to_mmx<O: Operation, S: Source>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse_with_mmx()?;
    let source = S::fetch(cpu, env, op)?;
    cpu.fpu.use_as_mmx();
    let result = cpu.compute::<O>(0, source)?;
    cpu.set_mm(op.destination, result as u64);
    Ok(())
}

/// `CVTPI2PS` with a register.
fn singles_from_mmx(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse_with_mmx()?;
    let source = Mm::fetch(cpu, env, op)?;
    cpu.fpu.use_as_mmx();
    let result = cpu.compute::<sse::Cvtdq2ps>(0, source)?;
    cpu.set_xmm_low(op.destination, result as u64);
    Ok(())
}

/// `CVTPI2PS` with memory: does not touch the MMX state (on AMD processors; Intel's manual has it do so).
fn singles_from_memory(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    let source = Memory64::fetch(cpu, env, op)?;
    let result = cpu.compute::<sse::Cvtdq2ps>(0, source)?;
    cpu.set_xmm_low(op.destination, result as u64);
    Ok(())
}

/// `CVTPI2PD` with a register.
fn doubles_from_mmx(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse_with_mmx()?;
    let source = Mm::fetch(cpu, env, op)?;
    cpu.fpu.use_as_mmx();
    let result = cpu.compute::<sse::Cvtdq2pd>(0, source)?;
    cpu.set_xmm(op.destination, result);
    Ok(())
}

/// `CVTPI2PD` with memory: does not touch the MMX state.
fn doubles_from_memory(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    let source = Memory64::fetch(cpu, env, op)?;
    let result = cpu.compute::<sse::Cvtdq2pd>(0, source)?;
    cpu.set_xmm(op.destination, result);
    Ok(())
}
