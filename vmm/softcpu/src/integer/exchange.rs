//! Instructions that read and replace in one step. All of them are atomic, locked or not.

use iced_x86::{Code, Instruction, Mnemonic};

use super::operand::{Form, by_width, form, operand_bytes};
use crate::access::Access;
use crate::cpu::{RAX, RBX, RCX, RDX};
use crate::op::{Handler, Op};
use crate::{Cpu, Env, Exception, Stop, Width};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    let bytes = operand_bytes(instruction, 0);
    Some(match (instruction.mnemonic(), instruction.code()) {
        (Mnemonic::Xchg, _) => match form(instruction)? {
            Form::RegisterRegister => by_width!(bytes, exchange_registers),
            _ => by_width!(bytes, exchange_memory),
        },
        (Mnemonic::Xadd, _) => match form(instruction)? {
            Form::RegisterRegister => by_width!(bytes, add_registers),
            _ => by_width!(bytes, add_memory),
        },
        (Mnemonic::Cmpxchg, _) => match form(instruction)? {
            Form::RegisterRegister => by_width!(bytes, compare_register),
            _ => by_width!(bytes, compare_memory),
        },
        (_, Code::Cmpxchg8b_m64) => compare_pair32,
        (_, Code::Cmpxchg16b_m128) => compare_pair64,
        _ => return None,
    })
}

fn exchange_registers<T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let (first, second) = (cpu.get::<T>(op.destination), cpu.get::<T>(op.source));
    cpu.set(op.destination, second);
    cpu.set(op.source, first);
    Ok(())
}

fn exchange_memory<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let linear = cpu.linear(op, T::BYTES, Access::Write)?;
    // The register is the second operand in this encoding's listing, whichever way round it is written.
    let new = cpu.get::<T>(op.source);
    let old = cpu.modify::<T, _>(env, linear, |_, old| (new, old))?;
    cpu.set(op.source, old);
    Ok(())
}

fn add_registers<T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let (left, right) = (cpu.get::<T>(op.destination), cpu.get::<T>(op.source));
    let sum = add(cpu, left, right);
    cpu.set(op.source, left);
    cpu.set(op.destination, sum);
    Ok(())
}

fn add_memory<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let linear = cpu.linear(op, T::BYTES, Access::Write)?;
    let right = cpu.get::<T>(op.source);
    let old = cpu.modify::<T, _>(env, linear, |cpu, left| (add(cpu, left, right), left))?;
    cpu.set(op.source, old);
    Ok(())
}

#[inline(always)]
fn add<T: Width>(cpu: &mut Cpu, left: T, right: T) -> T {
    let sum = T::truncate(left.zero_extend().wrapping_add(right.zero_extend()));
    cpu.set_flags_add(left, right, sum);
    sum
}

fn compare_register<T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let (old, new) = (cpu.get::<T>(op.destination), cpu.get::<T>(op.source));
    if compare(cpu, old) {
        cpu.set(op.destination, new);
    } else {
        cpu.set(RAX, old);
    }
    Ok(())
}

/// `CMPXCHG` on memory, which is written in any case.
fn compare_memory<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let linear = cpu.linear(op, T::BYTES, Access::Write)?;
    let new = cpu.get::<T>(op.source);
    let (equal, old) = cpu.modify::<T, _>(env, linear, |cpu, old| {
        let equal = compare(cpu, old);
        (if equal { new } else { old }, (equal, old))
    })?;
    if !equal {
        cpu.set(RAX, old);
    }
    Ok(())
}

/// Compares the accumulator with `old` and sets the flags of `CMP`.
#[inline(always)]
fn compare<T: Width>(cpu: &mut Cpu, old: T) -> bool {
    let expected = cpu.get::<T>(RAX);
    let difference = T::truncate(expected.zero_extend().wrapping_sub(old.zero_extend()));
    cpu.set_flags_subtract(expected, old, difference);
    expected == old
}

/// `CMPXCHG8B`
fn compare_pair32(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let linear = cpu.linear(op, 8, Access::Write)?;
    let pair = |cpu: &Cpu, low, high| u64::from(cpu.get::<u32>(high)) << 32 | u64::from(cpu.get::<u32>(low));
    let (expected, new) = (pair(cpu, RAX, RDX), pair(cpu, RBX, RCX));
    let old = cpu.modify::<u64, _>(env, linear, |_, old| (if old == expected { new } else { old }, old))?;
    cpu.set_zero(old == expected);
    if old != expected {
        cpu.set(RAX, old as u32);
        cpu.set(RDX, (old >> 32) as u32);
    }
    Ok(())
}

/// `CMPXCHG16B`
fn compare_pair64(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let linear = cpu.linear(op, 16, Access::Write)?;
    if linear & 15 != 0 {
        return Err(cpu.fault(Exception::general_protection(0)));
    }
    // Being aligned, all of it is in one page: once the low half could be written, the rest can.
    let low = cpu.modify::<u64, _>(env, linear, |_, low| (low, low))?;
    let high = cpu.load::<u64>(env, linear + 8)?;
    let equal = low == cpu.get::<u64>(RAX) && high == cpu.get::<u64>(RDX);
    if equal {
        let (new_low, new_high) = (cpu.get::<u64>(RBX), cpu.get::<u64>(RCX));
        cpu.store(env, linear, new_low)?;
        cpu.store(env, linear + 8, new_high)?;
    } else {
        cpu.set(RAX, low);
        cpu.set(RDX, high);
    }
    cpu.set_zero(equal);
    Ok(())
}
