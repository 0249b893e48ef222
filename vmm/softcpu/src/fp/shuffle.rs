//! MMX and SSE instructions that an immediate steers (shuffles, shifts by a constant, word insertion), and
//! those that move sign bits to general-purpose registers.

use std::arch::x86_64::*;

use iced_x86::{Code, Instruction, OpKind};

use super::host::{self, sse2};
use super::operand::{Memory64, Memory128, Mm, RegisterFile, Source, Xmm};
use crate::op::{Handler, Op};
use crate::{Cpu, Env, Stop};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    lookup_steered(instruction).or_else(|| {
        let from_register = instruction.op1_kind() == OpKind::Register;
        Some(match instruction.code() {
            Code::Pinsrw_xmm_r32m16_imm8 | Code::Pinsrw_xmm_r64m16_imm8 if from_register => {
                insert_word_register::<Xmm, 8>
            }
            Code::Pinsrw_xmm_r32m16_imm8 | Code::Pinsrw_xmm_r64m16_imm8 => insert_word_memory::<Xmm, 8>,
            Code::Pinsrw_mm_r32m16_imm8 | Code::Pinsrw_mm_r64m16_imm8 if from_register => {
                insert_word_register::<Mm, 4>
            }
            Code::Pinsrw_mm_r32m16_imm8 | Code::Pinsrw_mm_r64m16_imm8 => insert_word_memory::<Mm, 4>,
            Code::Pextrw_r32_xmm_imm8 | Code::Pextrw_r64_xmm_imm8 => extract_word::<Xmm, 8>,
            Code::Pextrw_r32_mm_imm8 | Code::Pextrw_r64_mm_imm8 => extract_word::<Mm, 4>,
            Code::Pmovmskb_r32_xmm | Code::Pmovmskb_r64_xmm => byte_signs::<Xmm>,
            Code::Pmovmskb_r32_mm | Code::Pmovmskb_r64_mm => byte_signs::<Mm>,
            Code::Movmskps_r32_xmm | Code::Movmskps_r64_xmm => single_signs,
            Code::Movmskpd_r32_xmm | Code::Movmskpd_r64_xmm => double_signs,
            _ => return None,
        })
    })
}

/// An operation on two vectors steered by an immediate.
trait Steered {
    fn apply(destination: u128, source: u128, immediate: u8) -> u128;
}

fn steered<O: Steered, F: RegisterFile, S: Source>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    F::enter(cpu)?;
    let source = S::fetch(cpu, env, op)?;
    let destination = F::read(cpu, op.destination);
    F::write(cpu, op.destination, O::apply(destination, source, op.immediate as u8));
    Ok(())
}

macro_rules! operations {
    ($($($code:ident)+ => $apply:expr;)*) => {
        fn lookup_steered(instruction: &Instruction) -> Option<Handler> {
            Some(match instruction.code() {
                $($(Code::$code)|+ => {
                    struct Operation;
                    impl Steered for Operation {
                        #[inline(always)]
                        fn apply(destination: u128, source: u128, immediate: u8) -> u128 {
                            ($apply)(destination, source, immediate)
                        }
                    }
                    match (instruction.op0_register().is_mm(), instruction.op1_kind() == OpKind::Memory) {
                        (false, false) => steered::<Operation, Xmm, Xmm>,
                        (false, true) => steered::<Operation, Xmm, Memory128>,
                        (true, false) => steered::<Operation, Mm, Mm>,
                        (true, true) => steered::<Operation, Mm, Memory64>,
                    }
                })*
                _ => return None,
            })
        }
    };
}

macro_rules! shift {
    ($by:ident, $value:expr, $count:expr) => {
        host::scalar(sse2!($by(host::vector($value), host::vector(u128::from($count)))))
    };
}

operations! {
    Pshufd_xmm_xmmm128_imm8 => |_, source, immediate| pick_dwords(source, source, immediate);
    Shufps_xmm_xmmm128_imm8 => pick_dwords;
    Shufpd_xmm_xmmm128_imm8 => pick_quadwords;
    Pshuflw_xmm_xmmm128_imm8 Pshufw_mm_mmm64_imm8 => |_, source, immediate| {
        source >> 64 << 64 | u128::from(pick_words(source as u64, immediate))
    };
    Pshufhw_xmm_xmmm128_imm8 => |_, source, immediate| {
        u128::from(source as u64) | u128::from(pick_words((source >> 64) as u64, immediate)) << 64
    };
    Psllw_xmm_imm8 Psllw_mm_imm8 => |value, _, count| shift!(_mm_sll_epi16, value, count);
    Pslld_xmm_imm8 Pslld_mm_imm8 => |value, _, count| shift!(_mm_sll_epi32, value, count);
    Psllq_xmm_imm8 Psllq_mm_imm8 => |value, _, count| shift!(_mm_sll_epi64, value, count);
    Psrlw_xmm_imm8 Psrlw_mm_imm8 => |value, _, count| shift!(_mm_srl_epi16, value, count);
    Psrld_xmm_imm8 Psrld_mm_imm8 => |value, _, count| shift!(_mm_srl_epi32, value, count);
    Psrlq_xmm_imm8 Psrlq_mm_imm8 => |value, _, count| shift!(_mm_srl_epi64, value, count);
    Psraw_xmm_imm8 Psraw_mm_imm8 => |value, _, count| shift!(_mm_sra_epi16, value, count);
    Psrad_xmm_imm8 Psrad_mm_imm8 => |value, _, count| shift!(_mm_sra_epi32, value, count);
    Pslldq_xmm_imm8 => |value: u128, _, bytes| value.checked_shl(u32::from(bytes) * 8).unwrap_or(0);
    Psrldq_xmm_imm8 => |value: u128, _, bytes| value.checked_shr(u32::from(bytes) * 8).unwrap_or(0);
}

/// The two lower results from `low`, the two upper ones from `high`.
#[inline(always)]
fn pick_dwords(low: u128, high: u128, selector: u8) -> u128 {
    let pick = |from: u128, field: u32| from >> (32 * u32::from(selector >> field & 3)) & 0xffff_ffff;
    pick(low, 0) | pick(low, 2) << 32 | pick(high, 4) << 64 | pick(high, 6) << 96
}

#[inline(always)]
fn pick_quadwords(low: u128, high: u128, selector: u8) -> u128 {
    let pick = |from: u128, field: u32| u128::from((from >> (64 * u32::from(selector >> field & 1))) as u64);
    pick(low, 0) | pick(high, 1) << 64
}

#[inline(always)]
fn pick_words(words: u64, selector: u8) -> u64 {
    let pick = |field: u32| words >> (16 * u32::from(selector >> field & 3)) & 0xffff;
    pick(0) | pick(2) << 16 | pick(4) << 32 | pick(6) << 48
}

fn insert_word_register<F: RegisterFile, const WORDS: u32>(
    cpu: &mut Cpu,
    _env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    F::enter(cpu)?;
    insert_word::<F, WORDS>(cpu, op, cpu.get(op.source));
    Ok(())
}

fn insert_word_memory<F: RegisterFile, const WORDS: u32>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    F::enter(cpu)?;
    let word = cpu.load_operand(env, op)?;
    insert_word::<F, WORDS>(cpu, op, word);
    Ok(())
}

#[inline(always)]
fn insert_word<F: RegisterFile, const WORDS: u32>(cpu: &mut Cpu, op: &Op, word: u16) {
    let position = 16 * (op.immediate as u32 % WORDS);
    let rest = F::read(cpu, op.destination) & !(0xffff << position);
    F::write(cpu, op.destination, rest | u128::from(word) << position);
}

fn extract_word<F: RegisterFile, const WORDS: u32>(
    cpu: &mut Cpu,
    _env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    F::enter(cpu)?;
    F::used(cpu);
    let word = F::read(cpu, op.source) >> (16 * (op.immediate as u32 % WORDS));
    cpu.set::<u32>(op.destination, u32::from(word as u16));
    Ok(())
}

fn byte_signs<F: RegisterFile>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    F::enter(cpu)?;
    F::used(cpu);
    let signs = sse2!(_mm_movemask_epi8(host::vector(F::read(cpu, op.source))));
    cpu.set::<u32>(op.destination, signs as u32);
    Ok(())
}

fn single_signs(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    let signs = sse2!(_mm_movemask_ps(_mm_castsi128_ps(host::vector(cpu.xmm(op.source)))));
    cpu.set::<u32>(op.destination, signs as u32);
    Ok(())
}

fn double_signs(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    let signs = sse2!(_mm_movemask_pd(_mm_castsi128_pd(host::vector(cpu.xmm(op.source)))));
    cpu.set::<u32>(op.destination, signs as u32);
    Ok(())
}
