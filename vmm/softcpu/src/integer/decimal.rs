//! Decimal arithmetic, `SALC` and `BOUND`, which 64-bit mode does not have.

use iced_x86::{Instruction, Mnemonic};

use super::operand::operand_bytes;
use crate::access::Access;
use crate::cpu::{HIGH_BYTE, RAX};
use crate::op::{Handler, Op};
use crate::{Cpu, Env, Exception, Stop, Width};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    Some(match instruction.mnemonic() {
        Mnemonic::Aaa => adjust_after_add,
        Mnemonic::Aas => adjust_after_subtract,
        Mnemonic::Aam => adjust_after_multiply,
        Mnemonic::Aad => adjust_before_divide,
        Mnemonic::Daa => decimal_adjust_after_add,
        Mnemonic::Das => decimal_adjust_after_subtract,
        Mnemonic::Salc => set_accumulator_by_carry,
        Mnemonic::Bound if operand_bytes(instruction, 0) == 2 => check_bounds::<u16>,
        Mnemonic::Bound => check_bounds::<u32>,
        _ => return None,
    })
}

/// `AAA`
fn adjust_after_add(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    unpacked_adjust(cpu, 0x106)
}

/// `AAS`
fn adjust_after_subtract(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    unpacked_adjust(cpu, 0u16.wrapping_sub(0x106))
}

/// Adds `correction` to AX if AL is not a decimal digit, and leaves a digit in AL.
fn unpacked_adjust(cpu: &mut Cpu, correction: u16) -> Result<(), Stop> {
    let value = cpu.get::<u16>(RAX);
    let adjust = value & 0xf > 9 || cpu.flags.adjust();
    let value = if adjust { value.wrapping_add(correction) } else { value } & 0xff0f;
    cpu.set(RAX, value);
    cpu.set_flags_result(value as u8, adjust, false, adjust);
    Ok(())
}

fn adjust_after_multiply(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let (value, base) = (cpu.get::<u8>(RAX), op.immediate as u8);
    if base == 0 {
        return Err(cpu.fault(Exception::DIVIDE_ERROR));
    }
    cpu.set(RAX, u16::from(value / base) << 8 | u16::from(value % base));
    cpu.set_flags_logic(value % base);
    Ok(())
}

fn adjust_before_divide(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let (low, high) = (cpu.get::<u8>(RAX), cpu.get::<u8>(HIGH_BYTE | RAX));
    let value = low.wrapping_add(high.wrapping_mul(op.immediate as u8));
    cpu.set(RAX, u16::from(value));
    cpu.set_flags_logic(value);
    Ok(())
}

/// `DAA`
fn decimal_adjust_after_add(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    let (low, high) = packed_corrections(cpu);
    let value = cpu.get::<u8>(RAX).wrapping_add(low | high);
    cpu.set(RAX, value);
    cpu.set_flags_result(value, high != 0, false, low != 0);
    Ok(())
}

/// `DAS`
fn decimal_adjust_after_subtract(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    let old = cpu.get::<u8>(RAX);
    let (low, high) = packed_corrections(cpu);
    let value = old.wrapping_sub(low | high);
    let borrow = high != 0 || old < low;
    cpu.set(RAX, value);
    cpu.set_flags_result(value, borrow, false, low != 0);
    Ok(())
}

/// What each of the two decimal digits in AL has to be corrected by: 6 and 0x60, or 0.
fn packed_corrections(cpu: &Cpu) -> (u8, u8) {
    let value = cpu.get::<u8>(RAX);
    let low = if value & 0xf > 9 || cpu.flags.adjust() { 0x06 } else { 0 };
    let high = if value > 0x99 || cpu.flags.carry() { 0x60 } else { 0 };
    (low, high)
}

/// `SALC`, which no manual lists but all CPUs have.
fn set_accumulator_by_carry(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    let value = if cpu.flags.carry() { 0xff } else { 0 };
    cpu.set::<u8>(RAX, value);
    Ok(())
}

/// `BOUND`: memory holds the lowest and the highest index, both signed.
fn check_bounds<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let linear = cpu.linear(op, 2 * T::BYTES, Access::Read)?;
    let lowest = cpu.load::<T>(env, linear)?.sign_extend() as i64;
    let highest = cpu.load::<T>(env, linear.wrapping_add(T::BYTES as u64))?.sign_extend() as i64;
    let index = cpu.get::<T>(op.destination).sign_extend() as i64;
    if index < lowest || index > highest {
        return Err(cpu.fault(Exception::BOUND));
    }
    Ok(())
}
