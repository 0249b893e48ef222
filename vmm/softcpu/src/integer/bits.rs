//! Instructions on single bits.

use iced_x86::{Instruction, Mnemonic};

use super::operand::{Form, by_width_16_up, form, operand_bytes};
use crate::access::Access;
use crate::op::{Handler, Op};
use crate::{Cpu, Env, Stop, Width};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    match instruction.mnemonic() {
        Mnemonic::Bt => test::<Keep>(instruction),
        Mnemonic::Bts => test::<Set>(instruction),
        Mnemonic::Btr => test::<Reset>(instruction),
        Mnemonic::Btc => test::<Complement>(instruction),
        // The encodings of the latter are those of the former with a prefix that older CPUs ignore.
        Mnemonic::Bsf | Mnemonic::Tzcnt => scan::<Forward>(instruction),
        Mnemonic::Bsr | Mnemonic::Lzcnt => scan::<Reverse>(instruction),
        _ => None,
    }
}

fn test<B: BitOperation>(instruction: &Instruction) -> Option<Handler> {
    let bytes = operand_bytes(instruction, 0);
    Some(match form(instruction)? {
        Form::RegisterRegister => by_width_16_up!(bytes, register_register, B),
        Form::RegisterImmediate => by_width_16_up!(bytes, register_immediate, B),
        Form::MemoryRegister => by_width_16_up!(bytes, memory_register, B),
        Form::MemoryImmediate => by_width_16_up!(bytes, memory_immediate, B),
        _ => return None,
    })
}

fn scan<S: Scan>(instruction: &Instruction) -> Option<Handler> {
    let bytes = operand_bytes(instruction, 0);
    Some(match form(instruction)? {
        Form::RegisterRegister => by_width_16_up!(bytes, scan_register, S),
        Form::RegisterMemory => by_width_16_up!(bytes, scan_memory, S),
        _ => return None,
    })
}

fn register_register<B: BitOperation, T: Width>(
    cpu: &mut Cpu,
    _env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    let bit = cpu.get::<T>(op.source).zero_extend();
    update_register::<B, T>(cpu, op, bit)
}

fn register_immediate<B: BitOperation, T: Width>(
    cpu: &mut Cpu,
    _env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    update_register::<B, T>(cpu, op, op.immediate)
}

#[inline(always)]
fn update_register<B: BitOperation, T: Width>(cpu: &mut Cpu, op: &Op, bit: u64) -> Result<(), Stop> {
    let value = cpu.get::<T>(op.destination);
    let result = B::apply(cpu, value, bit);
    if B::WRITES {
        cpu.set(op.destination, result);
    }
    Ok(())
}

/// With the bit number in a register, the memory operand is a bit string of any length around the address.
fn memory_register<B: BitOperation, T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let bit = cpu.get::<T>(op.source).sign_extend();
    let word = (bit as i64).div_euclid(i64::from(T::BITS)).wrapping_mul(T::BYTES as i64);
    let mask = u64::MAX >> (64 - 8 * u32::from(op.address_size));
    let offset = cpu.effective(op).wrapping_add(word as u64) & mask;
    let linear = cpu.linear_in(op.segment, offset, T::BYTES, B::ACCESS)?;
    update_memory::<B, T>(cpu, env, linear, bit)
}

fn memory_immediate<B: BitOperation, T: Width>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    let linear = cpu.linear(op, T::BYTES, B::ACCESS)?;
    update_memory::<B, T>(cpu, env, linear, op.immediate)
}

#[inline(always)]
fn update_memory<B: BitOperation, T: Width>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    linear: u64,
    bit: u64,
) -> Result<(), Stop> {
    if B::WRITES {
        cpu.modify::<T, _>(env, linear, |cpu, value| (B::apply(cpu, value, bit), ()))
    } else {
        let value = cpu.load::<T>(env, linear)?;
        B::apply(cpu, value, bit);
        Ok(())
    }
}

fn scan_register<S: Scan, T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let value = cpu.get::<T>(op.source);
    update_scanned::<S, T>(cpu, op, value)
}

fn scan_memory<S: Scan, T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let linear = cpu.linear(op, T::BYTES, Access::Read)?;
    let value = cpu.load::<T>(env, linear)?;
    update_scanned::<S, T>(cpu, op, value)
}

/// A scan of zero sets ZF and leaves the destination alone, all 64 bits of it.
#[inline(always)]
fn update_scanned<S: Scan, T: Width>(cpu: &mut Cpu, op: &Op, value: T) -> Result<(), Stop> {
    if value == T::default() {
        cpu.set_zero(true);
    } else {
        cpu.set_zero(false);
        cpu.set(op.destination, T::truncate(S::apply(value)));
    }
    Ok(())
}

/// What happens to the bit that goes to CF.
trait BitOperation {
    const WRITES: bool = true;
    const ACCESS: Access = if Self::WRITES { Access::Write } else { Access::Read };
    fn change(value: u64, mask: u64) -> u64;

    /// Copies bit `bit` (modulo the width) of `value` to CF, and returns `value` with it changed. The other
    /// flags keep their values.
    #[inline(always)]
    fn apply<T: Width>(cpu: &mut Cpu, value: T, bit: u64) -> T {
        let mask = 1 << (bit & u64::from(T::BITS - 1));
        let value = value.zero_extend();
        cpu.set_carry(value & mask != 0);
        T::truncate(Self::change(value, mask))
    }
}

struct Keep;
struct Set;
struct Reset;
struct Complement;

impl BitOperation for Keep {
    const WRITES: bool = false;
    #[inline(always)]
    fn change(value: u64, _mask: u64) -> u64 {
        value
    }
}

impl BitOperation for Set {
    #[inline(always)]
    fn change(value: u64, mask: u64) -> u64 {
        value | mask
    }
}

impl BitOperation for Reset {
    #[inline(always)]
    fn change(value: u64, mask: u64) -> u64 {
        value & !mask
    }
}

impl BitOperation for Complement {
    #[inline(always)]
    fn change(value: u64, mask: u64) -> u64 {
        value ^ mask
    }
}

/// Looks for a set bit in a value that has one.
trait Scan {
    fn apply<T: Width>(value: T) -> u64;
}

struct Forward;
struct Reverse;

impl Scan for Forward {
    #[inline(always)]
    fn apply<T: Width>(value: T) -> u64 {
        u64::from(value.zero_extend().trailing_zeros())
    }
}

impl Scan for Reverse {
    #[inline(always)]
    fn apply<T: Width>(value: T) -> u64 {
        u64::from(63 - value.zero_extend().leading_zeros())
    }
}
