//! The short way to memory operands.
//!
//! Nearly all memory operands of 64-bit code are in a flat segment at a 64-bit address, and in a page whose
//! translation is at hand. Handlers that are generic over [`Address`] do that inline, and leave everything else
//! to a copy of themselves out of line: so they need neither a stack frame nor saved registers.

use iced_x86::{Instruction, Register};

use super::operand::long_mode;
use crate::access::Access;
use crate::op::Op;
use crate::{Cpu, Env, Stop, Width};

/// How the address of a memory operand is computed.
pub(crate) enum Addressing {
    Based,
    Indexed,
    Other,
}

/// How to compute the address of `instruction`'s memory operand.
pub(crate) fn addressing(instruction: &Instruction) -> Addressing {
    let registers = [instruction.memory_base(), instruction.memory_index()];
    let flat = !matches!(instruction.memory_segment(), Register::FS | Register::GS);
    let wide = match registers {
        [Register::None, Register::None] => instruction.memory_displ_size() == 8,
        _ => registers
            .iter()
            .all(|register| matches!(register, Register::None | Register::RIP) || register.is_gpr64()),
    };
    match instruction.memory_index() {
        _ if !(long_mode(instruction) && flat && wide) => Addressing::Other,
        Register::None => Addressing::Based,
        _ => Addressing::Indexed,
    }
}

/// As a type parameter of handlers.
pub(crate) trait Address {
    /// The linear address of `op`'s memory operand, if it can be known without checks.
    fn linear(cpu: &Cpu, op: &Op) -> Option<u64>;
}

/// Base and displacement, in 64-bit code.
pub(crate) struct Based;
/// Base, index and displacement, in 64-bit code.
pub(crate) struct Indexed;
/// Anything else.
pub(crate) struct Other;

impl Address for Based {
    #[inline(always)]
    fn linear(cpu: &Cpu, op: &Op) -> Option<u64> {
        Some(cpu.registers[op.base as usize].wrapping_add(i64::from(op.displacement) as u64))
    }
}

impl Address for Indexed {
    #[inline(always)]
    fn linear(cpu: &Cpu, op: &Op) -> Option<u64> {
        let scaled = cpu.registers[op.index as usize] << (op.scale & 3);
        Some(Based::linear(cpu, op)?.wrapping_add(scaled))
    }
}

impl Address for Other {
    #[inline(always)]
    fn linear(_cpu: &Cpu, _op: &Op) -> Option<u64> {
        None
    }
}

/// Reads the operand and does `then` with it.
#[inline(always)]
pub(super) fn load<A: Address, T: Width>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
    then: impl Fn(&mut Cpu, &Op, T),
) -> Result<(), Stop> {
    if let Some(linear) = A::linear(cpu, op)
        && let Some(value) = cpu.load_cached::<T>(linear)
    {
        then(cpu, op, value);
        return Ok(());
    }
    load_slow(cpu, env, op, then)
}

#[inline(never)]
fn load_slow<T: Width>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
    then: impl Fn(&mut Cpu, &Op, T),
) -> Result<(), Stop> {
    let linear = cpu.linear(op, T::BYTES, Access::Read)?;
    let value = cpu.load::<T>(env, linear)?;
    then(cpu, op, value);
    Ok(())
}

/// Writes what `value` is to the operand.
#[inline(always)]
pub(super) fn store<A: Address, T: Width>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
    value: impl Fn(&Cpu, &Op) -> T,
) -> Result<(), Stop> {
    let new = value(cpu, op);
    if let Some(linear) = A::linear(cpu, op)
        && cpu.store_cached::<T>(linear, new)
    {
        return Ok(());
    }
    store_slow(cpu, env, op, value)
}

#[inline(never)]
fn store_slow<T: Width>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
    value: impl Fn(&Cpu, &Op) -> T,
) -> Result<(), Stop> {
    let linear = cpu.linear(op, T::BYTES, Access::Write)?;
    let new = value(cpu, op);
    cpu.store(env, linear, new)
}

/// Replaces the operand by `change` of it.
#[inline(always)]
pub(super) fn modify<A: Address, T: Width>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
    change: impl Fn(&mut Cpu, &Op, T) -> T,
) -> Result<(), Stop> {
    if let Some(linear) = A::linear(cpu, op)
        && cpu.modify_cached::<T>(linear, |cpu, old| change(cpu, op, old))
    {
        return Ok(());
    }
    modify_slow(cpu, env, op, change)
}

#[inline(never)]
fn modify_slow<T: Width>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
    change: impl Fn(&mut Cpu, &Op, T) -> T,
) -> Result<(), Stop> {
    let linear = cpu.linear(op, T::BYTES, Access::Write)?;
    cpu.modify::<T, _>(env, linear, |cpu, old| (change(cpu, op, old), ()))
}

/// `by_address!(instruction, bytes, function, O)` is `function::<O, A, T>` as a handler, `A` being the kind of
/// address and `T` the integer of `bytes` bytes.
macro_rules! by_address {
    ($instruction:expr, $bytes:expr, $function:ident $(, $parameter:ty)*) => {
        match crate::integer::memory::addressing($instruction) {
            crate::integer::memory::Addressing::Based => {
                by_width!($bytes, $function $(, $parameter)*, crate::integer::memory::Based)
            }
            crate::integer::memory::Addressing::Indexed => {
                by_width!($bytes, $function $(, $parameter)*, crate::integer::memory::Indexed)
            }
            crate::integer::memory::Addressing::Other => {
                by_width!($bytes, $function $(, $parameter)*, crate::integer::memory::Other)
            }
        }
    };
}

pub(super) use by_address;
