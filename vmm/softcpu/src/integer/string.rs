//! String instructions.
//!
//! A repeated instruction does at most a page of work, then gives the loop a chance to look at pending events
//! ([`Stop::Repeat`]). Moves and fills within pages of RAM go in blocks, everything else element by element.

use iced_x86::{Code, Instruction};

use super::operand::long_mode;
use crate::access::Access;
use crate::cpu::{RAX, RCX, RDI, RSI};
use crate::flags::{DF, TF};
use crate::op::{FLAT, Handler, Op, Repeat};
use crate::{Cpu, Env, Stop, Width};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    Some(match instruction.code() {
        Code::Movsb_m8_m8 => string::<Move, u8>(instruction),
        Code::Movsw_m16_m16 => string::<Move, u16>(instruction),
        Code::Movsd_m32_m32 => string::<Move, u32>(instruction),
        Code::Movsq_m64_m64 => string::<Move, u64>(instruction),
        Code::Stosb_m8_AL => string::<Store, u8>(instruction),
        Code::Stosw_m16_AX => string::<Store, u16>(instruction),
        Code::Stosd_m32_EAX => string::<Store, u32>(instruction),
        Code::Stosq_m64_RAX => string::<Store, u64>(instruction),
        Code::Lodsb_AL_m8 => string::<Load, u8>(instruction),
        Code::Lodsw_AX_m16 => string::<Load, u16>(instruction),
        Code::Lodsd_EAX_m32 => string::<Load, u32>(instruction),
        Code::Lodsq_RAX_m64 => string::<Load, u64>(instruction),
        Code::Cmpsb_m8_m8 => string::<Compare, u8>(instruction),
        Code::Cmpsw_m16_m16 => string::<Compare, u16>(instruction),
        Code::Cmpsd_m32_m32 => string::<Compare, u32>(instruction),
        Code::Cmpsq_m64_m64 => string::<Compare, u64>(instruction),
        Code::Scasb_AL_m8 => string::<Scan, u8>(instruction),
        Code::Scasw_AX_m16 => string::<Scan, u16>(instruction),
        Code::Scasd_EAX_m32 => string::<Scan, u32>(instruction),
        Code::Scasq_RAX_m64 => string::<Scan, u64>(instruction),
        _ => return None,
    })
}

fn string<I: StringInstruction, T: Width>(instruction: &Instruction) -> Handler {
    let repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    match (repeated, long_mode(instruction)) {
        (false, false) => once::<I, T, ES>,
        (false, true) => once::<I, T, FLAT>,
        (true, false) => repeat::<I, T, ES>,
        (true, true) => repeat::<I, T, FLAT>,
    }
}

/// `TO` is the segment of the destination.
fn once<I: StringInstruction, T: Width, const TO: u8>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    I::step::<T, TO>(cpu, env, op)
}

fn repeat<I: StringInstruction, T: Width, const TO: u8>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    let count = cpu.registers[RCX as usize] & mask(op);
    if count == 0 {
        return Ok(());
    }
    // When single-stepping, each element traps.
    let limit = if cpu.system_flags & TF != 0 { 1 } else { (PAGE / T::BYTES) as u64 };
    let limit = limit.min(count);
    let mut done =
        if cpu.system_flags & DF == 0 { I::block::<T, TO>(cpu, env, op, limit as usize)? } else { 0 };
    if done == 0 {
        while done < limit {
            I::step::<T, TO>(cpu, env, op)?;
            done += 1;
            advance(cpu, op, RCX, u64::MAX);
            if !I::goes_on(cpu, op.repeat) {
                return Ok(());
            }
        }
    }
    if done == count { Ok(()) } else { Err(Stop::Repeat) }
}

/// What is different about each string instruction.
trait StringInstruction {
    /// Does one element and advances RSI and RDI as the instruction does.
    fn step<T: Width, const TO: u8>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop>;

    /// Does up to `limit` elements at once, upwards, if it can; advances the index registers and RCX. Returns
    /// how many.
    fn block<T: Width, const TO: u8>(
        _cpu: &mut Cpu,
        _env: &mut Env<'_>,
        _op: &Op,
        _limit: usize,
    ) -> Result<u64, Stop> {
        Ok(0)
    }

    /// Whether a repetition continues after a step, as far as flags are concerned.
    fn goes_on(_cpu: &Cpu, _repeat: Repeat) -> bool {
        true
    }
}

struct Move;
struct Store;
struct Load;
struct Compare;
struct Scan;

impl StringInstruction for Move {
    #[inline(always)]
    fn step<T: Width, const TO: u8>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
        let value = load::<T>(cpu, env, op, op.segment, RSI)?;
        store(cpu, env, op, TO, value)?;
        advance_element::<T>(cpu, op, RSI);
        advance_element::<T>(cpu, op, RDI);
        Ok(())
    }

    fn block<T: Width, const TO: u8>(
        cpu: &mut Cpu,
        env: &mut Env<'_>,
        op: &Op,
        limit: usize,
    ) -> Result<u64, Stop> {
        let bytes = limit * T::BYTES;
        let Some((from, readable)) = run(cpu, env, op, op.segment, RSI, bytes, Access::Read) else {
            return Ok(0);
        };
        let Some((to, writable)) = run(cpu, env, op, TO, RDI, bytes, Access::Write) else { return Ok(0) };
        let mut buffer = [0; BLOCK];
        // Bytes that the instruction itself has written further back are read again where the destination is
        // shortly ahead of the source: no block may reach that far.
        let distance = usize::try_from(to.wrapping_sub(from)).unwrap_or(usize::MAX);
        let reach = if distance == 0 { BLOCK } else { distance.min(BLOCK) };
        let (total, piece) = (whole::<T>(readable.min(writable)), whole::<T>(reach));
        let mut done = 0;
        while done < total && piece > 0 {
            let bytes = piece.min(total - done);
            cpu.load_bytes(env, from + done as u64, &mut buffer[..bytes])?;
            cpu.store_bytes(env, to + done as u64, &buffer[..bytes])?;
            done += bytes;
            advance(cpu, op, RSI, bytes as u64);
            advance(cpu, op, RDI, bytes as u64);
            advance(cpu, op, RCX, ((bytes / T::BYTES) as u64).wrapping_neg());
        }
        Ok((done / T::BYTES) as u64)
    }
}

impl StringInstruction for Store {
    #[inline(always)]
    fn step<T: Width, const TO: u8>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
        let value = cpu.get::<T>(RAX);
        store(cpu, env, op, TO, value)?;
        advance_element::<T>(cpu, op, RDI);
        Ok(())
    }

    fn block<T: Width, const TO: u8>(
        cpu: &mut Cpu,
        env: &mut Env<'_>,
        op: &Op,
        limit: usize,
    ) -> Result<u64, Stop> {
        let bytes = limit * T::BYTES;
        let Some((to, writable)) = run(cpu, env, op, TO, RDI, bytes, Access::Write) else { return Ok(0) };
        let total = whole::<T>(writable);
        let element = cpu.registers[RAX as usize].to_le_bytes();
        let mut buffer = [0; BLOCK];
        for (index, byte) in buffer[..total.min(BLOCK)].iter_mut().enumerate() {
            *byte = element[index % T::BYTES];
        }
        let mut done = 0;
        while done < total {
            let bytes = BLOCK.min(total - done);
            cpu.store_bytes(env, to + done as u64, &buffer[..bytes])?;
            done += bytes;
            advance(cpu, op, RDI, bytes as u64);
            advance(cpu, op, RCX, ((bytes / T::BYTES) as u64).wrapping_neg());
        }
        Ok((done / T::BYTES) as u64)
    }
}

impl StringInstruction for Load {
    #[inline(always)]
    fn step<T: Width, const TO: u8>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
        let value = load::<T>(cpu, env, op, op.segment, RSI)?;
        cpu.set(RAX, value);
        advance_element::<T>(cpu, op, RSI);
        Ok(())
    }
}

impl StringInstruction for Compare {
    #[inline(always)]
    fn step<T: Width, const TO: u8>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
        // Where both fault, AMD's CPUs report the destination.
        let right = load::<T>(cpu, env, op, TO, RDI)?;
        let left = load::<T>(cpu, env, op, op.segment, RSI)?;
        compare(cpu, left, right);
        advance_element::<T>(cpu, op, RSI);
        advance_element::<T>(cpu, op, RDI);
        Ok(())
    }

    fn goes_on(cpu: &Cpu, repeat: Repeat) -> bool {
        cpu.flags.zero() == (repeat == Repeat::WhileEqual)
    }
}

impl StringInstruction for Scan {
    #[inline(always)]
    fn step<T: Width, const TO: u8>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
        let right = load::<T>(cpu, env, op, TO, RDI)?;
        let left = cpu.get::<T>(RAX);
        compare(cpu, left, right);
        advance_element::<T>(cpu, op, RDI);
        Ok(())
    }

    fn goes_on(cpu: &Cpu, repeat: Repeat) -> bool {
        cpu.flags.zero() == (repeat == Repeat::WhileEqual)
    }
}

#[inline(always)]
fn compare<T: Width>(cpu: &mut Cpu, left: T, right: T) {
    let difference = T::truncate(left.zero_extend().wrapping_sub(right.zero_extend()));
    cpu.set_flags_subtract(left, right, difference);
}

#[inline(always)]
fn load<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op, segment: u8, register: u8) -> Result<T, Stop> {
    let offset = cpu.registers[register as usize] & mask(op);
    let linear = cpu.linear_in(segment, offset, T::BYTES, Access::Read)?;
    cpu.load(env, linear)
}

#[inline(always)]
fn store<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op, segment: u8, value: T) -> Result<(), Stop> {
    let offset = cpu.registers[RDI as usize] & mask(op);
    let linear = cpu.linear_in(segment, offset, T::BYTES, Access::Write)?;
    cpu.store(env, linear, value)
}

/// The linear address that `register` points to, and how many of `bytes` bytes from there lie in the same page
/// of RAM and do not wrap around; `None` when blocks are out of the question.
fn run(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
    segment: u8,
    register: u8,
    bytes: usize,
    access: Access,
) -> Option<(u64, usize)> {
    let offset = cpu.registers[register as usize] & mask(op);
    let linear = cpu.linear_in(segment, offset, 1, access).ok()?;
    let in_page = PAGE - (linear as usize & (PAGE - 1));
    let to_wrap = usize::try_from(mask(op) - offset).ok()?.saturating_add(1);
    let bytes = bytes.min(in_page).min(to_wrap);
    cpu.linear_in(segment, offset, bytes, access).ok()?;
    cpu.is_plain_ram(env, linear, access).then_some((linear, bytes))
}

/// `bytes` rounded down to whole elements.
fn whole<T: Width>(bytes: usize) -> usize {
    bytes - bytes % T::BYTES
}

/// Moves an index register on by an element, up or down.
#[inline(always)]
fn advance_element<T: Width>(cpu: &mut Cpu, op: &Op, register: u8) {
    let down = cpu.system_flags & DF != 0;
    let step = if down { (T::BYTES as u64).wrapping_neg() } else { T::BYTES as u64 };
    advance(cpu, op, register, step);
}

/// Adds `step` to the part of `register` that the address size selects.
#[inline(always)]
fn advance(cpu: &mut Cpu, op: &Op, register: u8, step: u64) {
    let value = cpu.registers[register as usize].wrapping_add(step);
    match op.address_size {
        8 => cpu.set(register, value),
        4 => cpu.set(register, value as u32),
        _ => cpu.set(register, value as u16),
    }
}

#[inline(always)]
fn mask(op: &Op) -> u64 {
    u64::MAX >> (64 - 8 * u32::from(op.address_size))
}

/// ES as [`Op::segment`] numbers it.
const ES: u8 = 0;
/// Blocks do not cross pages.
const PAGE: usize = 4096;
/// The most that [`Cpu::load_bytes`] and [`Cpu::store_bytes`] take.
const BLOCK: usize = 512;
