//! Shifts and rotates.
//!
//! OF is defined for a count of 1 only; for others it is computed by the same formula. AF is not defined at
//! all: shifts set it.

use iced_x86::{Instruction, Mnemonic, OpKind};

use super::operand::{Form, by_width, by_width_16_up, form, operand_bytes};
use crate::access::Access;
use crate::cpu::RCX;
use crate::op::{Handler, Op};
use crate::{Cpu, Env, Stop, Width};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    match instruction.mnemonic() {
        Mnemonic::Shl | Mnemonic::Sal => shift::<ShiftLeft>(instruction),
        Mnemonic::Shr => shift::<ShiftRight>(instruction),
        Mnemonic::Sar => shift::<ShiftArithmetic>(instruction),
        Mnemonic::Rol => shift::<RotateLeft>(instruction),
        Mnemonic::Ror => shift::<RotateRight>(instruction),
        Mnemonic::Rcl => shift::<RotateCarryLeft>(instruction),
        Mnemonic::Rcr => shift::<RotateCarryRight>(instruction),
        Mnemonic::Shld => double_shift::<DoubleLeft>(instruction),
        Mnemonic::Shrd => double_shift::<DoubleRight>(instruction),
        _ => None,
    }
}

fn shift<S: Shift>(instruction: &Instruction) -> Option<Handler> {
    let bytes = operand_bytes(instruction, 0);
    // The other operand is CL or an immediate.
    Some(match form(instruction)? {
        Form::RegisterImmediate => by_width!(bytes, register, S, Immediate),
        Form::RegisterRegister => by_width!(bytes, register, S, InCl),
        Form::MemoryImmediate => by_width!(bytes, memory, S, Immediate),
        Form::MemoryRegister => by_width!(bytes, memory, S, InCl),
        _ => return None,
    })
}

fn double_shift<S: DoubleShift>(instruction: &Instruction) -> Option<Handler> {
    let bytes = operand_bytes(instruction, 0);
    let in_cl = instruction.op2_kind() == OpKind::Register;
    Some(match (form(instruction)?, in_cl) {
        (Form::RegisterRegister, false) => by_width_16_up!(bytes, double_register, S, Immediate),
        (Form::RegisterRegister, true) => by_width_16_up!(bytes, double_register, S, InCl),
        (_, false) => by_width_16_up!(bytes, double_memory, S, Immediate),
        (_, true) => by_width_16_up!(bytes, double_memory, S, InCl),
    })
}

fn register<S: Shift, C: Count, T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let count = count::<C, T>(cpu, op);
    let value = cpu.get::<T>(op.destination);
    let result = if count == 0 { value } else { S::apply(cpu, value, count) };
    cpu.set(op.destination, result);
    Ok(())
}

fn memory<S: Shift, C: Count, T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let count = count::<C, T>(cpu, op);
    let linear = cpu.linear(op, T::BYTES, Access::Write)?;
    cpu.modify::<T, _>(env, linear, |cpu, value| {
        (if count == 0 { value } else { S::apply(cpu, value, count) }, ())
    })
}

fn double_register<S: DoubleShift, C: Count, T: Width>(
    cpu: &mut Cpu,
    _env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    let count = count::<C, T>(cpu, op);
    let (value, fill) = (cpu.get::<T>(op.destination), cpu.get::<T>(op.source));
    let result = if count == 0 { value } else { S::apply(cpu, value, fill, count) };
    cpu.set(op.destination, result);
    Ok(())
}

fn double_memory<S: DoubleShift, C: Count, T: Width>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    let count = count::<C, T>(cpu, op);
    let linear = cpu.linear(op, T::BYTES, Access::Write)?;
    let fill = cpu.get::<T>(op.source);
    cpu.modify::<T, _>(env, linear, |cpu, value| {
        (if count == 0 { value } else { S::apply(cpu, value, fill, count) }, ())
    })
}

/// The shift count as the CPU masks it.
#[inline(always)]
fn count<C: Count, T: Width>(cpu: &Cpu, op: &Op) -> u32 {
    C::get(cpu, op) & if T::BITS == 64 { 63 } else { 31 }
}

/// Where a shift count comes from.
trait Count {
    fn get(cpu: &Cpu, op: &Op) -> u32;
}

struct Immediate;
struct InCl;

impl Count for Immediate {
    #[inline(always)]
    fn get(_cpu: &Cpu, op: &Op) -> u32 {
        op.immediate as u32
    }
}

impl Count for InCl {
    #[inline(always)]
    fn get(cpu: &Cpu, _op: &Op) -> u32 {
        cpu.registers[RCX as usize] as u32
    }
}

/// A shift by `count`, which is masked and not zero.
trait Shift {
    fn apply<T: Width>(cpu: &mut Cpu, value: T, count: u32) -> T;
}

struct ShiftLeft;
struct ShiftRight;
struct ShiftArithmetic;
struct RotateLeft;
struct RotateRight;
struct RotateCarryLeft;
struct RotateCarryRight;

impl Shift for ShiftLeft {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, value: T, count: u32) -> T {
        let value = value.zero_extend();
        let result = T::truncate(value << count);
        let carry = if T::BITS == 64 { value >> (64 - count) } else { value << count >> T::BITS } & 1 != 0;
        cpu.set_flags_result(result, carry, result.sign() ^ carry, true);
        result
    }
}

impl Shift for ShiftRight {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, value: T, count: u32) -> T {
        let result = T::truncate(value.zero_extend() >> count);
        let carry = value.zero_extend() >> (count - 1) & 1 != 0;
        cpu.set_flags_result(result, carry, top_two_differ(result), true);
        result
    }
}

impl Shift for ShiftArithmetic {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, value: T, count: u32) -> T {
        let value = value.sign_extend() as i64;
        let result = T::truncate((value >> count) as u64);
        let carry = value >> (count - 1) & 1 != 0;
        cpu.set_flags_result(result, carry, false, true);
        result
    }
}

impl Shift for RotateLeft {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, value: T, count: u32) -> T {
        let result = rotate_left(value, count % T::BITS);
        let carry = result.zero_extend() & 1 != 0;
        cpu.set_carry_overflow(carry, result.sign() ^ carry);
        result
    }
}

impl Shift for RotateRight {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, value: T, count: u32) -> T {
        let result = rotate_left(value, (T::BITS - count % T::BITS) % T::BITS);
        cpu.set_carry_overflow(result.sign(), top_two_differ(result));
        result
    }
}

impl Shift for RotateCarryLeft {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, value: T, count: u32) -> T {
        let (result, carry) = rotate_with_carry(cpu, value, count % (T::BITS + 1));
        cpu.set_carry_overflow(carry, result.sign() ^ carry);
        result
    }
}

impl Shift for RotateCarryRight {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, value: T, count: u32) -> T {
        let left = (T::BITS + 1 - count % (T::BITS + 1)) % (T::BITS + 1);
        let (result, carry) = rotate_with_carry(cpu, value, left);
        cpu.set_carry_overflow(carry, top_two_differ(result));
        result
    }
}

#[inline(always)]
fn rotate_left<T: Width>(value: T, count: u32) -> T {
    let value = value.zero_extend();
    T::truncate(match T::BITS {
        8 => u64::from((value as u8).rotate_left(count)),
        16 => u64::from((value as u16).rotate_left(count)),
        32 => u64::from((value as u32).rotate_left(count)),
        _ => value.rotate_left(count),
    })
}

/// Rotates CF and `value` as one number of `T::BITS + 1` bits left by `count`, less than that.
#[inline(always)]
fn rotate_with_carry<T: Width>(cpu: &Cpu, value: T, count: u32) -> (T, bool) {
    let bits = T::BITS + 1;
    let all = u128::from(cpu.flags.carry()) << T::BITS | u128::from(value.zero_extend());
    let rotated = all << count | all >> (bits - count);
    (T::truncate(rotated as u64), rotated >> T::BITS & 1 != 0)
}

/// OF of right shifts and rotates: whether the two most significant bits differ.
#[inline(always)]
fn top_two_differ<T: Width>(value: T) -> bool {
    let value = value.zero_extend() >> (T::BITS - 2);
    (value ^ value >> 1) & 1 != 0
}

/// A shift by `count`, which is masked and not zero, that fills with the bits of a second operand.
trait DoubleShift {
    fn apply<T: Width>(cpu: &mut Cpu, value: T, fill: T, count: u32) -> T;
}

struct DoubleLeft;
struct DoubleRight;

impl DoubleShift for DoubleLeft {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, value: T, fill: T, count: u32) -> T {
        let (all, bits) =
            if T::BITS == 16 { (around(value, fill), 48) } else { (join(value, fill), 2 * T::BITS) };
        let result = T::truncate((all << count >> (bits - T::BITS)) as u64);
        let carry = all >> (bits - count) & 1 != 0;
        cpu.set_flags_result(result, carry, result.sign() != value.sign(), true);
        result
    }
}

impl DoubleShift for DoubleRight {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, value: T, fill: T, count: u32) -> T {
        let all = if T::BITS == 16 { around(value, fill) } else { join(fill, value) };
        let result = T::truncate((all >> count) as u64);
        let carry = all >> (count - 1) & 1 != 0;
        cpu.set_flags_result(result, carry, result.sign() != value.sign(), true);
        result
    }
}

/// `high` and `low` side by side.
#[inline(always)]
fn join<T: Width>(high: T, low: T) -> u128 {
    u128::from(high.zero_extend()) << T::BITS | u128::from(low.zero_extend())
}

/// `fill` with `value` on both sides of it. 16-bit operands may be shifted by up to 31, which the manuals leave
/// undefined: behind the fill, the value itself comes in again.
#[inline(always)]
fn around<T: Width>(value: T, fill: T) -> u128 {
    u128::from(value.zero_extend()) << 32 | join(fill, value)
}
