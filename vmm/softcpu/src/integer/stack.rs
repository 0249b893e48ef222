//! The stack, and the instructions that do nothing else.

use iced_x86::{Code, Instruction, Mnemonic};

use super::operand::{Form, by_width_16_up, form, operand_bytes};
use crate::access::Access;
use crate::cpu::{RBP, RSP};
use crate::op::{FLAT, Handler, Op};
use crate::{Cpu, Env, Exception, Stop, Width};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    Some(match instruction.code() {
        Code::Push_imm16 | Code::Pushw_imm8 => push_immediate::<u16>,
        Code::Pushd_imm32 | Code::Pushd_imm8 => push_immediate::<u32>,
        Code::Pushq_imm32 | Code::Pushq_imm8 => push_immediate::<u64>,
        Code::Pushaw => push_all::<u16>,
        Code::Pushad => push_all::<u32>,
        Code::Popaw => pop_all::<u16>,
        Code::Popad => pop_all::<u32>,
        Code::Enterw_imm16_imm8 => enter::<u16>,
        Code::Enterd_imm16_imm8 => enter::<u32>,
        Code::Enterq_imm16_imm8 => enter::<u64>,
        Code::Leavew => leave::<u16>,
        Code::Leaved => leave::<u32>,
        Code::Leaveq => leave::<u64>,
        _ => return push_or_pop(instruction),
    })
}

fn push_or_pop(instruction: &Instruction) -> Option<Handler> {
    let push = match instruction.mnemonic() {
        Mnemonic::Push => true,
        Mnemonic::Pop => false,
        _ => return None,
    };
    let bytes = operand_bytes(instruction, 0);
    Some(match (push, form(instruction)?) {
        // In 64-bit mode nothing but the operand size is left to decide.
        (true, Form::Register) if bytes == 8 => push_register_long,
        (false, Form::Register) if bytes == 8 => pop_register_long,
        (true, Form::Register) => by_width_16_up!(bytes, push_register),
        (false, Form::Register) => by_width_16_up!(bytes, pop_register),
        (true, _) => by_width_16_up!(bytes, push_memory),
        (false, _) => by_width_16_up!(bytes, pop_memory),
    })
}

/// Pushes `value`.
///
/// # Errors
/// #SS, #PF, #AC; RSP is unchanged then.
#[inline]
pub(crate) fn push<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, value: T) -> Result<(), Stop> {
    if cpu.stack_address_size() == 8 {
        return push_long(cpu, env, value);
    }
    let mask = stack_mask(cpu);
    let pointer = cpu.registers[RSP as usize].wrapping_sub(T::BYTES as u64) & mask;
    let linear = cpu.linear_in(SS, pointer, T::BYTES, Access::Write)?;
    cpu.store(env, linear, value)?;
    set_pointer(cpu, mask, pointer);
    Ok(())
}

/// Pops a `T`.
///
/// # Errors
/// As [`push`].
#[inline]
pub(crate) fn pop<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>) -> Result<T, Stop> {
    let value = peek(cpu, env, 0)?;
    release(cpu, T::BYTES as u64);
    Ok(value)
}

/// Reads the `T` that lies `offset` bytes above the top of the stack.
///
/// # Errors
/// As [`push`].
#[inline]
pub(crate) fn peek<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, offset: u64) -> Result<T, Stop> {
    if cpu.stack_address_size() == 8 {
        return peek_long(cpu, env, offset);
    }
    let pointer = cpu.registers[RSP as usize].wrapping_add(offset) & stack_mask(cpu);
    let linear = cpu.linear_in(SS, pointer, T::BYTES, Access::Read)?;
    cpu.load(env, linear)
}

/// Removes `bytes` bytes from the stack.
#[inline]
pub(crate) fn release(cpu: &mut Cpu, bytes: u64) {
    let mask = stack_mask(cpu);
    let pointer = cpu.registers[RSP as usize].wrapping_add(bytes);
    set_pointer(cpu, mask, pointer);
}

/// As [`push`], for instructions whose 64-bit form exists in 64-bit mode only.
#[inline(always)]
pub(super) fn push_sized<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, value: T) -> Result<(), Stop> {
    if T::BITS == 64 { push_long(cpu, env, value) } else { push(cpu, env, value) }
}

/// As [`peek`], for instructions whose 64-bit form exists in 64-bit mode only.
#[inline(always)]
pub(super) fn peek_sized<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, offset: u64) -> Result<T, Stop> {
    if T::BITS == 64 { peek_long(cpu, env, offset) } else { peek(cpu, env, offset) }
}

/// As [`release`], for instructions whose 64-bit form (`T`) exists in 64-bit mode only.
#[inline(always)]
pub(super) fn release_sized<T: Width>(cpu: &mut Cpu, bytes: u64) {
    if T::BITS == 64 {
        cpu.registers[RSP as usize] = cpu.registers[RSP as usize].wrapping_add(bytes);
    } else {
        release(cpu, bytes);
    }
}

#[inline(always)]
fn push_long<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, value: T) -> Result<(), Stop> {
    let pointer = cpu.registers[RSP as usize].wrapping_sub(T::BYTES as u64);
    if cpu.store_cached(pointer, value) {
        cpu.registers[RSP as usize] = pointer;
        return Ok(());
    }
    push_long_slow(cpu, env, value)
}

#[inline(never)]
fn push_long_slow<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, value: T) -> Result<(), Stop> {
    let pointer = cpu.registers[RSP as usize].wrapping_sub(T::BYTES as u64);
    if let Err(stop) = cpu.store(env, pointer, value) {
        return Err(as_stack_fault(cpu, stop));
    }
    cpu.registers[RSP as usize] = pointer;
    Ok(())
}

#[inline(always)]
fn peek_long<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, offset: u64) -> Result<T, Stop> {
    let pointer = cpu.registers[RSP as usize].wrapping_add(offset);
    cpu.load(env, pointer).map_err(|stop| as_stack_fault(cpu, stop))
}

/// A stack address that is not canonical is #SS, not #GP.
#[cold]
fn as_stack_fault(cpu: &mut Cpu, stop: Stop) -> Stop {
    match cpu.pending_fault {
        Some(exception) if exception == Exception::general_protection(0) => cpu.fault(Exception::stack(0)),
        _ => stop,
    }
}

#[inline]
fn stack_mask(cpu: &Cpu) -> u64 {
    u64::MAX >> (64 - 8 * u32::from(cpu.stack_address_size()))
}

/// Replaces the bits of RSP that address the stack; a 32-bit stack clears those above.
#[inline]
fn set_pointer(cpu: &mut Cpu, mask: u64, pointer: u64) {
    match mask {
        0xffff => cpu.set(RSP, pointer as u16),
        0xffff_ffff => cpu.set(RSP, pointer as u32),
        _ => cpu.set(RSP, pointer),
    }
}

/// Runs `body` on a stack pointer that only becomes RSP when all of it succeeds.
fn all_or_nothing<R>(cpu: &mut Cpu, body: impl FnOnce(&mut Cpu) -> Result<R, Stop>) -> Result<R, Stop> {
    let pointer = cpu.registers[RSP as usize];
    body(cpu).inspect_err(|_| cpu.registers[RSP as usize] = pointer)
}

fn push_register_long(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let value = cpu.get::<u64>(op.destination);
    push_long(cpu, env, value)
}

fn pop_register_long(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let pointer = cpu.registers[RSP as usize];
    let Some(value) = cpu.load_cached::<u64>(pointer) else { return pop_register::<u64>(cpu, env, op) };
    cpu.registers[RSP as usize] = pointer.wrapping_add(8);
    cpu.set(op.destination, value);
    Ok(())
}

fn push_register<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let value = cpu.get::<T>(op.destination);
    push(cpu, env, value)
}

fn pop_register<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let value = pop::<T>(cpu, env)?;
    cpu.set(op.destination, value);
    Ok(())
}

fn push_immediate<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    push_sized(cpu, env, T::truncate(op.immediate))
}

fn push_memory<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let linear = cpu.linear(op, T::BYTES, Access::Read)?;
    let value = cpu.load::<T>(env, linear)?;
    push_sized(cpu, env, value)
}

/// `POP` to memory. An address that depends on RSP is computed with what RSP is after the pop.
fn pop_memory<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    all_or_nothing(cpu, |cpu| {
        let value = pop::<T>(cpu, env)?;
        let linear = cpu.linear(op, T::BYTES, Access::Write)?;
        cpu.store(env, linear, value)
    })
}

fn push_all<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    let pointer = cpu.get::<T>(RSP);
    all_or_nothing(cpu, |cpu| {
        for register in 0..8 {
            let value = if register == RSP { pointer } else { cpu.get::<T>(register) };
            push(cpu, env, value)?;
        }
        Ok(())
    })
}

fn pop_all<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    let mut values = [T::default(); 8];
    for (register, value) in values.iter_mut().rev().enumerate() {
        *value = peek(cpu, env, (register * T::BYTES) as u64)?;
    }
    release(cpu, 8 * T::BYTES as u64);
    for (register, value) in (0..8).zip(values).filter(|(register, _)| *register != RSP) {
        cpu.set(register, value);
    }
    Ok(())
}

fn enter<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let (size, level) = (op.immediate & 0xffff, op.immediate >> 16 & 31);
    all_or_nothing(cpu, |cpu| {
        let frame = cpu.get::<T>(RBP);
        push(cpu, env, frame)?;
        let frame = cpu.registers[RSP as usize];
        for above in 1..level {
            let outer = read_frame::<T>(cpu, env, above * T::BYTES as u64)?;
            push(cpu, env, outer)?;
        }
        if level > 0 {
            push(cpu, env, T::truncate(frame))?;
        }
        release(cpu, size.wrapping_neg());
        check_writable::<T>(cpu, env)?;
        cpu.set(RBP, T::truncate(frame));
        Ok(())
    })
}

/// Reads the `T` that lies `below` bytes below the frame pointer.
fn read_frame<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, below: u64) -> Result<T, Stop> {
    let pointer = cpu.registers[RBP as usize].wrapping_sub(below) & stack_mask(cpu);
    let linear = cpu.linear_in(stack_segment(cpu), pointer, T::BYTES, Access::Read)?;
    cpu.load(env, linear)
}

/// `ENTER` faults when the new top of the stack could not be written.
fn check_writable<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>) -> Result<(), Stop> {
    let pointer = cpu.registers[RSP as usize] & stack_mask(cpu);
    let linear = cpu.linear_in(stack_segment(cpu), pointer, T::BYTES, Access::Write)?;
    cpu.modify::<T, _>(env, linear, |_, value| (value, ()))
}

fn leave<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    if T::BITS == 64 {
        let pointer = cpu.registers[RBP as usize];
        let frame = match cpu.load::<T>(env, pointer) {
            Ok(frame) => frame,
            Err(stop) => return Err(as_stack_fault(cpu, stop)),
        };
        cpu.registers[RSP as usize] = pointer.wrapping_add(8);
        cpu.set(RBP, frame);
        return Ok(());
    }
    all_or_nothing(cpu, |cpu| {
        let (mask, pointer) = (stack_mask(cpu), cpu.registers[RBP as usize]);
        set_pointer(cpu, mask, pointer);
        let frame = pop::<T>(cpu, env)?;
        cpu.set(RBP, frame);
        Ok(())
    })
}

fn stack_segment(cpu: &Cpu) -> u8 {
    if cpu.stack_address_size() == 8 { FLAT } else { SS }
}

/// SS as [`Op::segment`] numbers it.
const SS: u8 = 2;
