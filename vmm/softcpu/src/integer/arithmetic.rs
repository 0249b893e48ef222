//! Two-operand arithmetic and logic, and the one-operand `INC`, `DEC`, `NEG`, `NOT`.

use iced_x86::{Instruction, Mnemonic, Register};

use super::memory::{self, Address, by_address};
use super::operand::{Form, by_width, form, operand_bytes};
use crate::op::{Handler, Op};
use crate::{Cpu, Env, Stop, Width};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    match instruction.mnemonic() {
        Mnemonic::Add => binary::<Add>(instruction),
        Mnemonic::Or => binary::<Or>(instruction),
        Mnemonic::Adc => binary::<Adc>(instruction),
        Mnemonic::Sbb => binary::<Sbb>(instruction),
        Mnemonic::And => binary::<And>(instruction),
        Mnemonic::Sub => binary::<Sub>(instruction),
        Mnemonic::Xor if clears_register(instruction) => {
            Some(by_width!(operand_bytes(instruction, 0), clear_register))
        }
        Mnemonic::Xor => binary::<Xor>(instruction),
        Mnemonic::Cmp => binary::<Compare>(instruction),
        Mnemonic::Test => binary::<Test>(instruction),
        Mnemonic::Inc => unary::<Increment>(instruction),
        Mnemonic::Dec => unary::<Decrement>(instruction),
        Mnemonic::Neg => unary::<Negate>(instruction),
        Mnemonic::Not => unary::<Not>(instruction),
        _ => None,
    }
}

fn clears_register(instruction: &Instruction) -> bool {
    form(instruction) == Some(Form::RegisterRegister)
        && instruction.op0_register() == instruction.op1_register()
        && instruction.op0_register() != Register::None
}

fn binary<O: Binary>(instruction: &Instruction) -> Option<Handler> {
    let bytes = operand_bytes(instruction, 0);
    Some(match form(instruction)? {
        Form::RegisterRegister => by_width!(bytes, register_register, O),
        Form::RegisterMemory => by_address!(instruction, bytes, register_memory, O),
        Form::RegisterImmediate => by_width!(bytes, register_immediate, O),
        Form::MemoryRegister => by_address!(instruction, bytes, memory_register, O),
        Form::MemoryImmediate => by_address!(instruction, bytes, memory_immediate, O),
        Form::Register | Form::Memory => return None,
    })
}

fn unary<O: Unary>(instruction: &Instruction) -> Option<Handler> {
    let bytes = operand_bytes(instruction, 0);
    Some(match form(instruction)? {
        Form::Register => by_width!(bytes, register, O),
        Form::Memory => by_address!(instruction, bytes, memory, O),
        _ => return None,
    })
}

fn register_register<O: Binary, T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let right = cpu.get::<T>(op.source);
    update_register::<O, T>(cpu, op, right);
    Ok(())
}

fn register_immediate<O: Binary, T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    update_register::<O, T>(cpu, op, T::truncate(op.immediate));
    Ok(())
}

fn register_memory<O: Binary, A: Address, T: Width>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    memory::load::<A, T>(cpu, env, op, update_register::<O, T>)
}

fn memory_register<O: Binary, A: Address, T: Width>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    if O::WRITES {
        memory::modify::<A, T>(cpu, env, op, with_register::<O, T>)
    } else {
        memory::load::<A, T>(cpu, env, op, |cpu, op, left| {
            with_register::<O, T>(cpu, op, left);
        })
    }
}

fn memory_immediate<O: Binary, A: Address, T: Width>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    if O::WRITES {
        memory::modify::<A, T>(cpu, env, op, with_immediate::<O, T>)
    } else {
        memory::load::<A, T>(cpu, env, op, |cpu, op, left| {
            with_immediate::<O, T>(cpu, op, left);
        })
    }
}

#[inline(always)]
fn update_register<O: Binary, T: Width>(cpu: &mut Cpu, op: &Op, right: T) {
    let left = cpu.get::<T>(op.destination);
    let result = O::apply(cpu, left, right);
    if O::WRITES {
        cpu.set(op.destination, result);
    }
}

#[inline(always)]
fn with_register<O: Binary, T: Width>(cpu: &mut Cpu, op: &Op, left: T) -> T {
    let right = cpu.get::<T>(op.source);
    O::apply(cpu, left, right)
}

#[inline(always)]
fn with_immediate<O: Binary, T: Width>(cpu: &mut Cpu, op: &Op, left: T) -> T {
    O::apply(cpu, left, T::truncate(op.immediate))
}

/// `XOR` of a register with itself: how compilers write zero.
fn clear_register<T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.set(op.destination, T::default());
    cpu.set_flags_logic(T::default());
    Ok(())
}

fn register<O: Unary, T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let value = cpu.get::<T>(op.destination);
    let result = O::apply(cpu, value);
    cpu.set(op.destination, result);
    Ok(())
}

fn memory<O: Unary, A: Address, T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    memory::modify::<A, T>(cpu, env, op, |cpu, _op, value| O::apply(cpu, value))
}

/// An operation on two operands that sets the flags and, if `WRITES`, replaces the first operand.
trait Binary {
    const WRITES: bool = true;
    fn apply<T: Width>(cpu: &mut Cpu, left: T, right: T) -> T;
}

struct Add;
struct Or;
struct Adc;
struct Sbb;
struct And;
struct Sub;
struct Xor;
struct Compare;
struct Test;

impl Binary for Add {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, left: T, right: T) -> T {
        let result = T::truncate(left.zero_extend().wrapping_add(right.zero_extend()));
        cpu.set_flags_add(left, right, result);
        result
    }
}

impl Binary for Adc {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, left: T, right: T) -> T {
        let carry = u64::from(cpu.flags.carry());
        let result = T::truncate(left.zero_extend().wrapping_add(right.zero_extend()).wrapping_add(carry));
        cpu.set_flags_add(left, right, result);
        result
    }
}

impl Binary for Sub {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, left: T, right: T) -> T {
        let result = T::truncate(left.zero_extend().wrapping_sub(right.zero_extend()));
        cpu.set_flags_subtract(left, right, result);
        result
    }
}

impl Binary for Sbb {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, left: T, right: T) -> T {
        let borrow = u64::from(cpu.flags.carry());
        let result = T::truncate(left.zero_extend().wrapping_sub(right.zero_extend()).wrapping_sub(borrow));
        cpu.set_flags_subtract(left, right, result);
        result
    }
}

impl Binary for Compare {
    const WRITES: bool = false;
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, left: T, right: T) -> T {
        Sub::apply(cpu, left, right)
    }
}

impl Binary for And {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, left: T, right: T) -> T {
        let result = T::truncate(left.zero_extend() & right.zero_extend());
        cpu.set_flags_logic(result);
        result
    }
}

impl Binary for Test {
    const WRITES: bool = false;
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, left: T, right: T) -> T {
        And::apply(cpu, left, right)
    }
}

impl Binary for Or {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, left: T, right: T) -> T {
        let result = T::truncate(left.zero_extend() | right.zero_extend());
        cpu.set_flags_logic(result);
        result
    }
}

impl Binary for Xor {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, left: T, right: T) -> T {
        let result = T::truncate(left.zero_extend() ^ right.zero_extend());
        cpu.set_flags_logic(result);
        result
    }
}

/// An operation that replaces its one operand.
trait Unary {
    fn apply<T: Width>(cpu: &mut Cpu, value: T) -> T;
}

struct Increment;
struct Decrement;
struct Negate;
struct Not;

impl Unary for Increment {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, value: T) -> T {
        let result = T::truncate(value.zero_extend().wrapping_add(1));
        cpu.set_flags_increment(value, result);
        result
    }
}

impl Unary for Decrement {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, value: T) -> T {
        let result = T::truncate(value.zero_extend().wrapping_sub(1));
        cpu.set_flags_decrement(value, result);
        result
    }
}

impl Unary for Negate {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, value: T) -> T {
        Sub::apply(cpu, T::default(), value)
    }
}

impl Unary for Not {
    #[inline(always)]
    fn apply<T: Width>(_cpu: &mut Cpu, value: T) -> T {
        T::truncate(!value.zero_extend())
    }
}
