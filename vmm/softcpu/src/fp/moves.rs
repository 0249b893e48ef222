//! Moves between XMM, MMX, general-purpose registers and memory.

use iced_x86::{Code, Instruction, OpKind};

use super::operand::{
    Memory32, Memory64, Memory128, Memory128Unaligned, Mm, RegisterFile, Source, Xmm, has_short_way,
};
use crate::cpu::RDI;
use crate::integer::memory::{Address, Indexed, Other};
use crate::op::{Handler, Op};
use crate::{Access, Cpu, Env, Stop, Width};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    let to_register = instruction.op0_kind() == OpKind::Register;
    let from_register = instruction.op1_kind() == OpKind::Register;
    Some(match instruction.code() {
        Code::Movaps_xmm_xmmm128
        | Code::Movapd_xmm_xmmm128
        | Code::Movdqa_xmm_xmmm128
        | Code::Movups_xmm_xmmm128
        | Code::Movupd_xmm_xmmm128
        | Code::Movdqu_xmm_xmmm128
        | Code::Movaps_xmmm128_xmm
        | Code::Movapd_xmmm128_xmm
        | Code::Movdqa_xmmm128_xmm
        | Code::Movups_xmmm128_xmm
        | Code::Movupd_xmmm128_xmm
        | Code::Movdqu_xmmm128_xmm
            if to_register && from_register =>
        {
            load::<Xmm>
        }
        Code::Movaps_xmm_xmmm128 | Code::Movapd_xmm_xmmm128 | Code::Movdqa_xmm_xmmm128 => {
            if has_short_way(instruction) { load::<Memory128<Indexed>> } else { load::<Memory128> }
        }
        Code::Movups_xmm_xmmm128
        | Code::Movupd_xmm_xmmm128
        | Code::Movdqu_xmm_xmmm128
        | Code::Lddqu_xmm_m128 => {
            if has_short_way(instruction) {
                load::<Memory128Unaligned<Indexed>>
            } else {
                load::<Memory128Unaligned>
            }
        }
        Code::Movaps_xmmm128_xmm
        | Code::Movapd_xmmm128_xmm
        | Code::Movdqa_xmmm128_xmm
        | Code::Movntps_m128_xmm
        | Code::Movntpd_m128_xmm
        | Code::Movntdq_m128_xmm => {
            if has_short_way(instruction) {
                store_128::<Indexed, true>
            } else {
                store_128::<Other, true>
            }
        }
        Code::Movups_xmmm128_xmm | Code::Movupd_xmmm128_xmm | Code::Movdqu_xmmm128_xmm => {
            if has_short_way(instruction) { store_128::<Indexed, false> } else { store_128::<Other, false> }
        }
        Code::Movss_xmm_xmmm32 | Code::Movss_xmmm32_xmm if to_register && from_register => merge_32,
        Code::Movss_xmm_xmmm32 => load::<Memory32>,
        Code::Movss_xmmm32_xmm => store_32,
        Code::Movsd_xmm_xmmm64 | Code::Movsd_xmmm64_xmm if to_register && from_register => merge_64,
        Code::Movsd_xmm_xmmm64 => load::<Memory64>,
        Code::Movsd_xmmm64_xmm => store_64,
        Code::Movq_xmm_xmmm64 if !from_register => load::<Memory64>,
        Code::Movq_xmmm64_xmm if !to_register => store_64,
        Code::Movq_xmm_xmmm64 | Code::Movq_xmmm64_xmm => move_low_64,
        Code::Movlps_xmm_m64 | Code::Movlpd_xmm_m64 => load_low,
        Code::Movhps_xmm_m64 | Code::Movhpd_xmm_m64 => load_high,
        Code::Movlps_m64_xmm | Code::Movlpd_m64_xmm => store_64,
        Code::Movhps_m64_xmm | Code::Movhpd_m64_xmm => store_high,
        Code::Movhlps_xmm_xmm => high_to_low,
        Code::Movlhps_xmm_xmm => low_to_high,
        Code::Movd_xmm_rm32 if from_register => general_to_xmm::<u32>,
        Code::Movq_xmm_rm64 if from_register => general_to_xmm::<u64>,
        Code::Movd_xmm_rm32 => load::<Memory32>,
        Code::Movq_xmm_rm64 => load::<Memory64>,
        Code::Movd_rm32_xmm if to_register => xmm_to_general::<u32>,
        Code::Movq_rm64_xmm if to_register => xmm_to_general::<u64>,
        Code::Movd_rm32_xmm => store_32,
        Code::Movq_rm64_xmm => store_64,
        Code::Movd_mm_rm32 if from_register => general_to_mm::<u32>,
        Code::Movq_mm_rm64 if from_register => general_to_mm::<u64>,
        Code::Movd_mm_rm32 => load_mm::<Memory32>,
        Code::Movq_mm_rm64 => load_mm::<Memory64>,
        Code::Movd_rm32_mm if to_register => mm_to_general::<u32>,
        Code::Movq_rm64_mm if to_register => mm_to_general::<u64>,
        Code::Movd_rm32_mm => store_mm::<u32>,
        Code::Movq_rm64_mm => store_mm::<u64>,
        Code::Movq_mm_mmm64 if from_register => mm_to_mm,
        Code::Movq_mm_mmm64 => load_mm::<Memory64>,
        Code::Movq_mmm64_mm if to_register => mm_to_mm,
        Code::Movq_mmm64_mm | Code::Movntq_m64_mm => store_mm::<u64>,
        Code::Movq2dq_xmm_mm => mm_to_xmm,
        Code::Movdq2q_mm_xmm => xmm_to_mm,
        Code::Maskmovdqu_rDI_xmm_xmm => masked_store::<Xmm, 16>,
        Code::Maskmovq_rDI_mm_mm => masked_store::<Mm, 8>,
        Code::Movddup_xmm_xmmm64 if from_register => duplicate_64::<Xmm>,
        Code::Movddup_xmm_xmmm64 => duplicate_64::<Memory64>,
        Code::Movsldup_xmm_xmmm128 if from_register => duplicate_even::<Xmm>,
        Code::Movsldup_xmm_xmmm128 => duplicate_even::<Memory128>,
        Code::Movshdup_xmm_xmmm128 if from_register => duplicate_odd::<Xmm>,
        Code::Movshdup_xmm_xmmm128 => duplicate_odd::<Memory128>,
        _ => return None,
    })
}

/// `MASKMOVDQU` and `MASKMOVQ`: those of `N` bytes at RDI that have a set sign bit in the mask.
fn masked_store<F: RegisterFile, const N: usize>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    F::enter(cpu)?;
    let linear = cpu.linear(&Op { base: RDI, ..*op }, N, Access::Write)?;
    let (value, mask) = (F::read(cpu, op.source).to_le_bytes(), F::read(cpu, op.destination).to_le_bytes());
    F::used(cpu);
    cpu.check_writable(env, linear, N)?;
    for byte in (0..N).filter(|&byte| mask[byte] >= 0x80) {
        cpu.store(env, linear.wrapping_add(byte as u64), value[byte])?;
    }
    Ok(())
}

/// The whole destination from the source, zero-extended.
fn load<S: Source>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    if cpu.sse_is_available()
        && let Some(value) = S::fetch_cached(cpu, op)
    {
        cpu.set_xmm(op.destination, value);
        return Ok(());
    }
    load_slow::<S>(cpu, env, op)
}

#[inline(never)]
fn load_slow<S: Source>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    let value = S::fetch(cpu, env, op)?;
    cpu.set_xmm(op.destination, value);
    Ok(())
}

/// Stores all of a register, to where it must be aligned if `ALIGNED`.
fn store_128<A: Address, const ALIGNED: bool>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    if cpu.sse_is_available()
        && let Some(linear) = A::linear(cpu, op)
        && !(ALIGNED && linear & 15 != 0)
        && cpu.store_128_cached(linear, cpu.xmm(op.source))
    {
        return Ok(());
    }
    store_128_slow::<ALIGNED>(cpu, env, op)
}

#[inline(never)]
fn store_128_slow<const ALIGNED: bool>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    let linear =
        if ALIGNED { cpu.linear_aligned(op, Access::Write)? } else { cpu.linear(op, 16, Access::Write)? };
    cpu.store_128(env, linear, cpu.xmm(op.source))
}

fn store_64(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    cpu.store_operand(env, op, cpu.xmm(op.source) as u64)
}

fn store_32(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    cpu.store_operand(env, op, cpu.xmm(op.source) as u32)
}

fn store_high(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    cpu.store_operand(env, op, (cpu.xmm(op.source) >> 64) as u64)
}

fn load_low(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    let low = cpu.load_operand::<u64>(env, op)?;
    cpu.set_xmm_low(op.destination, low);
    Ok(())
}

fn load_high(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    let high = cpu.load_operand::<u64>(env, op)?;
    let low = cpu.xmm(op.destination) as u64;
    cpu.set_xmm(op.destination, join_64(low, high));
    Ok(())
}

fn merge_32(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    let value = cpu.xmm(op.destination) >> 32 << 32 | u128::from(cpu.xmm(op.source) as u32);
    cpu.set_xmm(op.destination, value);
    Ok(())
}

fn merge_64(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    cpu.set_xmm_low(op.destination, cpu.xmm(op.source) as u64);
    Ok(())
}

fn move_low_64(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    cpu.set_xmm(op.destination, u128::from(cpu.xmm(op.source) as u64));
    Ok(())
}

fn high_to_low(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    cpu.set_xmm_low(op.destination, (cpu.xmm(op.source) >> 64) as u64);
    Ok(())
}

fn low_to_high(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    let low = cpu.xmm(op.destination) as u64;
    cpu.set_xmm(op.destination, join_64(low, cpu.xmm(op.source) as u64));
    Ok(())
}

fn general_to_xmm<T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    cpu.set_xmm(op.destination, u128::from(cpu.get::<T>(op.source).zero_extend()));
    Ok(())
}

fn xmm_to_general<T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    cpu.set::<T>(op.destination, T::truncate(cpu.xmm(op.source) as u64));
    Ok(())
}

fn general_to_mm<T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_mmx()?;
    cpu.set_mm(op.destination, cpu.get::<T>(op.source).zero_extend());
    Ok(())
}

fn mm_to_general<T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_mmx()?;
    cpu.fpu.use_as_mmx();
    cpu.set::<T>(op.destination, T::truncate(cpu.mm(op.source)));
    Ok(())
}

fn load_mm<S: Source>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_mmx()?;
    let value = S::fetch(cpu, env, op)? as u64;
    cpu.set_mm(op.destination, value);
    Ok(())
}

fn store_mm<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_mmx()?;
    cpu.store_operand(env, op, T::truncate(cpu.mm(op.source)))?;
    cpu.fpu.use_as_mmx();
    Ok(())
}

fn mm_to_mm(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_mmx()?;
    cpu.set_mm(op.destination, cpu.mm(op.source));
    Ok(())
}

fn mm_to_xmm(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse_with_mmx()?;
    cpu.fpu.use_as_mmx();
    cpu.set_xmm(op.destination, u128::from(cpu.mm(op.source)));
    Ok(())
}

fn xmm_to_mm(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse_with_mmx()?;
    cpu.set_mm(op.destination, cpu.xmm(op.source) as u64);
    Ok(())
}

fn duplicate_64<S: Source>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    let low = S::fetch(cpu, env, op)? as u64;
    cpu.set_xmm(op.destination, join_64(low, low));
    Ok(())
}

fn duplicate_even<S: Source>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    let even = S::fetch(cpu, env, op)? & EVEN_LANES;
    cpu.set_xmm(op.destination, even | even << 32);
    Ok(())
}

fn duplicate_odd<S: Source>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    let odd = S::fetch(cpu, env, op)? >> 32 & EVEN_LANES;
    cpu.set_xmm(op.destination, odd | odd << 32);
    Ok(())
}

#[inline(always)]
fn join_64(low: u64, high: u64) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

const EVEN_LANES: u128 = 0xffff_ffff_0000_0000_ffff_ffff;
