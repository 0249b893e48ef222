//! Moves and conversions that compute nothing.

use iced_x86::{Instruction, Mnemonic};

use super::memory::{self, Address, by_address};
use super::operand::{
    Form, by_condition, by_width, by_width_16_up, condition_table, form, is_absolute64, operand_bytes,
};
use crate::access::Access;
use crate::cpu::{RAX, RBX, RDX};
use crate::op::{Handler, Op};
use crate::{Cpu, Env, Stop, Width};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    Some(match instruction.mnemonic() {
        Mnemonic::Mov => return mov(instruction),
        Mnemonic::Movzx => return zero_extend(instruction),
        Mnemonic::Movsx | Mnemonic::Movsxd => return sign_extend(instruction),
        Mnemonic::Lea => by_width_16_up!(operand_bytes(instruction, 0), load_effective_address),
        Mnemonic::Movnti => by_address!(instruction, operand_bytes(instruction, 1), memory_register),
        Mnemonic::Bswap => by_width_16_up!(operand_bytes(instruction, 0), swap_bytes),
        Mnemonic::Cbw => widen_accumulator::<u8, u16>,
        Mnemonic::Cwde => widen_accumulator::<u16, u32>,
        Mnemonic::Cdqe => widen_accumulator::<u32, u64>,
        Mnemonic::Cwd => spread_sign::<u16>,
        Mnemonic::Cdq => spread_sign::<u32>,
        Mnemonic::Cqo => spread_sign::<u64>,
        Mnemonic::Xlatb => translate,
        _ => return set_condition(instruction).or_else(|| conditional_move(instruction)),
    })
}

fn mov(instruction: &Instruction) -> Option<Handler> {
    let bytes = operand_bytes(instruction, 0);
    Some(match form(instruction)? {
        Form::RegisterRegister => by_width!(bytes, register_register),
        Form::RegisterImmediate => by_width!(bytes, register_immediate),
        Form::RegisterMemory if is_absolute64(instruction) => by_width!(bytes, register_absolute),
        Form::MemoryRegister if is_absolute64(instruction) => by_width!(bytes, absolute_register),
        Form::RegisterMemory => by_address!(instruction, bytes, register_memory),
        Form::MemoryRegister => by_address!(instruction, bytes, memory_register),
        Form::MemoryImmediate => by_address!(instruction, bytes, memory_immediate),
        Form::Register | Form::Memory => return None,
    })
}

fn zero_extend(instruction: &Instruction) -> Option<Handler> {
    let (to, from) = (operand_bytes(instruction, 0), operand_bytes(instruction, 1));
    Some(match (form(instruction)?, to) {
        (Form::RegisterRegister, 2) => by_width!(from, zero_extend_register, u16),
        (Form::RegisterRegister, _) => by_width!(from, zero_extend_register, u64),
        (_, 2) => by_address!(instruction, from, zero_extend_memory, u16),
        (_, _) => by_address!(instruction, from, zero_extend_memory, u64),
    })
}

fn sign_extend(instruction: &Instruction) -> Option<Handler> {
    let (to, from) = (operand_bytes(instruction, 0), operand_bytes(instruction, 1));
    Some(match (form(instruction)?, to) {
        (Form::RegisterRegister, 2) => by_width!(from, sign_extend_register, u16),
        (Form::RegisterRegister, 4) => by_width!(from, sign_extend_register, u32),
        (Form::RegisterRegister, _) => by_width!(from, sign_extend_register, u64),
        (_, 2) => by_address!(instruction, from, sign_extend_memory, u16),
        (_, 4) => by_address!(instruction, from, sign_extend_memory, u32),
        (_, _) => by_address!(instruction, from, sign_extend_memory, u64),
    })
}

fn set_condition(instruction: &Instruction) -> Option<Handler> {
    use Mnemonic::*;
    let (Seta | Setae | Setb | Setbe | Sete | Setne | Setg | Setge | Setl | Setle | Seto | Setno | Setp
    | Setnp | Sets | Setns) = instruction.mnemonic()
    else {
        return None;
    };
    match form(instruction)? {
        Form::Register => by_condition(instruction, condition_table!(set_register_if)),
        Form::Memory => by_condition(instruction, condition_table!(set_memory_if)),
        _ => None,
    }
}

fn conditional_move(instruction: &Instruction) -> Option<Handler> {
    use Mnemonic::*;
    let (Cmova | Cmovae | Cmovb | Cmovbe | Cmove | Cmovne | Cmovg | Cmovge | Cmovl | Cmovle | Cmovo | Cmovno
    | Cmovp | Cmovnp | Cmovs | Cmovns) = instruction.mnemonic()
    else {
        return None;
    };
    let handlers = match (form(instruction)?, operand_bytes(instruction, 0)) {
        (Form::RegisterRegister, 2) => condition_table!(move_register_if, u16),
        (Form::RegisterRegister, 4) => condition_table!(move_register_if, u32),
        (Form::RegisterRegister, 8) => condition_table!(move_register_if, u64),
        (Form::RegisterMemory, 2) => condition_table!(move_memory_if, u16),
        (Form::RegisterMemory, 4) => condition_table!(move_memory_if, u32),
        (Form::RegisterMemory, 8) => condition_table!(move_memory_if, u64),
        _ => return None,
    };
    by_condition(instruction, handlers)
}

fn register_register<T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let value = cpu.get::<T>(op.source);
    cpu.set(op.destination, value);
    Ok(())
}

fn register_immediate<T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.set(op.destination, T::truncate(op.immediate));
    Ok(())
}

fn register_memory<A: Address, T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    memory::load::<A, T>(cpu, env, op, set_destination)
}

fn memory_register<A: Address, T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    memory::store::<A, T>(cpu, env, op, source)
}

fn memory_immediate<A: Address, T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    memory::store::<A, T>(cpu, env, op, immediate)
}

#[inline(always)]
fn set_destination<T: Width>(cpu: &mut Cpu, op: &Op, value: T) {
    cpu.set(op.destination, value);
}

#[inline(always)]
fn source<T: Width>(cpu: &Cpu, op: &Op) -> T {
    cpu.get(op.source)
}

#[inline(always)]
fn immediate<T: Width>(_cpu: &Cpu, op: &Op) -> T {
    T::truncate(op.immediate)
}

fn register_absolute<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let linear = cpu.linear_in(op.segment, op.immediate, T::BYTES, Access::Read)?;
    let value = cpu.load::<T>(env, linear)?;
    cpu.set(op.destination, value);
    Ok(())
}

fn absolute_register<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let linear = cpu.linear_in(op.segment, op.immediate, T::BYTES, Access::Write)?;
    let value = cpu.get::<T>(op.source);
    cpu.store(env, linear, value)
}

fn zero_extend_register<T: Width, S: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let value = cpu.get::<S>(op.source);
    set_zero_extended::<T, S>(cpu, op, value);
    Ok(())
}

fn zero_extend_memory<T: Width, A: Address, S: Width>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    memory::load::<A, S>(cpu, env, op, set_zero_extended::<T, S>)
}

#[inline(always)]
fn set_zero_extended<T: Width, S: Width>(cpu: &mut Cpu, op: &Op, value: S) {
    cpu.set(op.destination, T::truncate(value.zero_extend()));
}

fn sign_extend_register<T: Width, S: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let value = cpu.get::<S>(op.source);
    set_sign_extended::<T, S>(cpu, op, value);
    Ok(())
}

fn sign_extend_memory<T: Width, A: Address, S: Width>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    memory::load::<A, S>(cpu, env, op, set_sign_extended::<T, S>)
}

#[inline(always)]
fn set_sign_extended<T: Width, S: Width>(cpu: &mut Cpu, op: &Op, value: S) {
    cpu.set(op.destination, T::truncate(value.sign_extend()));
}

fn load_effective_address<T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let address = cpu.effective(op);
    cpu.set(op.destination, T::truncate(address));
    Ok(())
}

/// `BSWAP`; its result is undefined for 16 bits, where CPUs write zero.
fn swap_bytes<T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let value = cpu.get::<T>(op.destination).zero_extend();
    let swapped = match T::BITS {
        64 => value.swap_bytes(),
        32 => u64::from((value as u32).swap_bytes()),
        _ => 0,
    };
    cpu.set(op.destination, T::truncate(swapped));
    Ok(())
}

/// `CBW`, `CWDE`, `CDQE`
fn widen_accumulator<S: Width, T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    let value = cpu.get::<S>(RAX);
    cpu.set(RAX, T::truncate(value.sign_extend()));
    Ok(())
}

/// `CWD`, `CDQ`, `CQO`
fn spread_sign<T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    let negative = cpu.get::<T>(RAX).sign();
    cpu.set(RDX, T::truncate(0u64.wrapping_sub(u64::from(negative))));
    Ok(())
}

/// `XLAT`
fn translate(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let mask = u64::MAX >> (64 - 8 * u32::from(op.address_size));
    let offset = cpu.registers[RBX as usize].wrapping_add(cpu.registers[RAX as usize] & 0xff) & mask;
    let linear = cpu.linear_in(op.segment, offset, 1, Access::Read)?;
    let value = cpu.load::<u8>(env, linear)?;
    cpu.set(RAX, value);
    Ok(())
}

fn set_register_if<const CODE: u8>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let met = u8::from(cpu.flags.condition::<CODE>());
    cpu.set(op.destination, met);
    Ok(())
}

fn set_memory_if<const CODE: u8>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let linear = cpu.linear(op, 1, Access::Write)?;
    let met = u8::from(cpu.flags.condition::<CODE>());
    cpu.store(env, linear, met)
}

/// `CMOVcc`. The destination is written in any case: 32-bit forms clear its upper half.
fn move_register_if<const CODE: u8, T: Width>(
    cpu: &mut Cpu,
    _env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    let (kept, moved) = (cpu.get::<T>(op.destination), cpu.get::<T>(op.source));
    let value = if cpu.flags.condition::<CODE>() { moved } else { kept };
    cpu.set(op.destination, value);
    Ok(())
}

/// `CMOVcc` from memory, which is read (and may fault) in any case.
fn move_memory_if<const CODE: u8, T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let linear = cpu.linear(op, T::BYTES, Access::Read)?;
    let moved = cpu.load::<T>(env, linear)?;
    let kept = cpu.get::<T>(op.destination);
    let value = if cpu.flags.condition::<CODE>() { moved } else { kept };
    cpu.set(op.destination, value);
    Ok(())
}
