//! Multiplication and division.
//!
//! The flags that the manuals leave undefined stay as they are: all but CF and OF for a multiplication, all of
//! them for a division.

use iced_x86::{Instruction, Mnemonic};

use super::operand::{Form, by_width, by_width_16_up, form, operand_bytes};
use crate::access::Access;
use crate::cpu::{RAX, RDX};
use crate::op::{Handler, Op};
use crate::{Cpu, Env, Exception, Stop, Width};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    match (instruction.mnemonic(), instruction.op_count()) {
        (Mnemonic::Mul, 1) => wide::<Multiply>(instruction),
        (Mnemonic::Imul, 1) => wide::<MultiplySigned>(instruction),
        (Mnemonic::Div, 1) => wide::<Divide>(instruction),
        (Mnemonic::Idiv, 1) => wide::<DivideSigned>(instruction),
        (Mnemonic::Imul, 2) => product(instruction),
        (Mnemonic::Imul, 3) => product_immediate(instruction),
        _ => None,
    }
}

fn wide<O: Wide>(instruction: &Instruction) -> Option<Handler> {
    let bytes = operand_bytes(instruction, 0);
    Some(match form(instruction)? {
        Form::Register => by_width!(bytes, wide_register, O),
        _ => by_width!(bytes, wide_memory, O),
    })
}

fn product(instruction: &Instruction) -> Option<Handler> {
    let bytes = operand_bytes(instruction, 0);
    Some(match form(instruction)? {
        Form::RegisterRegister => by_width_16_up!(bytes, multiply_register),
        _ => by_width_16_up!(bytes, multiply_memory),
    })
}

fn product_immediate(instruction: &Instruction) -> Option<Handler> {
    let bytes = operand_bytes(instruction, 0);
    Some(match form(instruction)? {
        Form::RegisterRegister => by_width_16_up!(bytes, multiply_register_immediate),
        _ => by_width_16_up!(bytes, multiply_memory_immediate),
    })
}

fn wide_register<O: Wide, T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let operand = cpu.get::<T>(op.destination);
    O::apply(cpu, operand)
}

fn wide_memory<O: Wide, T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let linear = cpu.linear(op, T::BYTES, Access::Read)?;
    let operand = cpu.load::<T>(env, linear)?;
    O::apply(cpu, operand)
}

fn multiply_register<T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let (left, right) = (cpu.get::<T>(op.destination), cpu.get::<T>(op.source));
    set_product(cpu, op, left, right)
}

fn multiply_memory<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let linear = cpu.linear(op, T::BYTES, Access::Read)?;
    let right = cpu.load::<T>(env, linear)?;
    let left = cpu.get::<T>(op.destination);
    set_product(cpu, op, left, right)
}

fn multiply_register_immediate<T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let left = cpu.get::<T>(op.source);
    set_product(cpu, op, left, T::truncate(op.immediate))
}

fn multiply_memory_immediate<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let linear = cpu.linear(op, T::BYTES, Access::Read)?;
    let left = cpu.load::<T>(env, linear)?;
    set_product(cpu, op, left, T::truncate(op.immediate))
}

#[inline(always)]
fn set_product<T: Width>(cpu: &mut Cpu, op: &Op, left: T, right: T) -> Result<(), Stop> {
    let result = multiply_signed(cpu, left, right).0;
    cpu.set(op.destination, result);
    Ok(())
}

/// The low and high half of the signed product; sets the flags.
#[inline(always)]
fn multiply_signed<T: Width>(cpu: &mut Cpu, left: T, right: T) -> (T, T) {
    let (left, right) = (left.sign_extend() as i64, right.sign_extend() as i64);
    let (low, high, overflow);
    if T::BITS == 64 {
        let product = i128::from(left) * i128::from(right);
        (low, high) = (product as u64, (product >> 64) as u64);
        overflow = product != i128::from(product as i64);
    } else {
        let product = left * right;
        (low, high) = (product as u64, (product >> T::BITS) as u64);
        overflow = product != T::truncate(low).sign_extend() as i64;
    }
    cpu.set_carry_overflow(overflow, overflow);
    (T::truncate(low), T::truncate(high))
}

/// An operation on the accumulator pair (AX, DX:AX, EDX:EAX, RDX:RAX) and one operand.
trait Wide {
    fn apply<T: Width>(cpu: &mut Cpu, operand: T) -> Result<(), Stop>;
}

struct Multiply;
struct MultiplySigned;
struct Divide;
struct DivideSigned;

impl Wide for Multiply {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, operand: T) -> Result<(), Stop> {
        let left = cpu.get::<T>(RAX).zero_extend();
        let product = u128::from(left) * u128::from(operand.zero_extend());
        let (low, high) = (T::truncate(product as u64), T::truncate((product >> T::BITS) as u64));
        let overflow = high != T::default();
        cpu.set_carry_overflow(overflow, overflow);
        set_pair(cpu, low, high);
        Ok(())
    }
}

impl Wide for MultiplySigned {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, operand: T) -> Result<(), Stop> {
        let left = cpu.get::<T>(RAX);
        let (low, high) = multiply_signed(cpu, left, operand);
        set_pair(cpu, low, high);
        Ok(())
    }
}

impl Wide for Divide {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, operand: T) -> Result<(), Stop> {
        let divisor = operand.zero_extend();
        let (low, high) = pair::<T>(cpu);
        // The quotient fits if and only if this holds; it excludes a divisor of zero.
        if high.zero_extend() >= divisor {
            return Err(cpu.fault(Exception::DIVIDE_ERROR));
        }
        let (quotient, remainder) = if T::BITS < 64 || high == T::default() {
            let dividend =
                if T::BITS < 64 { high.zero_extend() << (T::BITS & 63) } else { 0 } | low.zero_extend();
            (dividend / divisor, dividend % divisor)
        } else {
            let dividend = u128::from(high.zero_extend()) << 64 | u128::from(low.zero_extend());
            let divisor = u128::from(divisor);
            ((dividend / divisor) as u64, (dividend % divisor) as u64)
        };
        set_pair(cpu, T::truncate(quotient), T::truncate(remainder));
        Ok(())
    }
}

impl Wide for DivideSigned {
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, operand: T) -> Result<(), Stop> {
        let divisor = operand.sign_extend() as i64;
        let (low, high) = pair::<T>(cpu);
        let dividend = i128::from(high.sign_extend() as i64) << T::BITS | i128::from(low.zero_extend());
        if divisor == 0 {
            return Err(cpu.fault(Exception::DIVIDE_ERROR));
        }
        // Where 64 bits hold the dividend, the host divides at once; only i64::MIN / -1 overflows.
        let (quotient, remainder) = match i64::try_from(dividend)
            .ok()
            .and_then(|dividend| Some((dividend.checked_div(divisor)?, dividend.checked_rem(divisor)?)))
        {
            Some((quotient, remainder)) => (i128::from(quotient), remainder as u64),
            None => {
                // i128::MIN / -1 overflows; any result that does not fit in 64 bits is as good in its place.
                let Some(quotient) = dividend.checked_div(i128::from(divisor)) else {
                    return Err(cpu.fault(Exception::DIVIDE_ERROR));
                };
                (quotient, (dividend % i128::from(divisor)) as u64)
            }
        };
        let result = T::truncate(quotient as u64);
        if i128::from(result.sign_extend() as i64) != quotient {
            return Err(cpu.fault(Exception::DIVIDE_ERROR));
        }
        set_pair(cpu, result, T::truncate(remainder));
        Ok(())
    }
}

/// The low and high half of the accumulator pair.
#[inline(always)]
fn pair<T: Width>(cpu: &Cpu) -> (T, T) {
    let high = if T::BITS == 8 { T::truncate(cpu.registers[RAX as usize] >> 8) } else { cpu.get::<T>(RDX) };
    (cpu.get::<T>(RAX), high)
}

#[inline(always)]
fn set_pair<T: Width>(cpu: &mut Cpu, low: T, high: T) {
    if T::BITS == 8 {
        cpu.set(RAX, (high.zero_extend() << 8 | low.zero_extend()) as u16);
    } else {
        cpu.set(RAX, low);
        cpu.set(RDX, high);
    }
}
