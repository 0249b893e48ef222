//! General-purpose instructions of extensions: see [`crate::extensions`]. Undefined flags are cleared.

use iced_x86::{Instruction, Mnemonic};

use super::operand::{Form, by_width, by_width_16_up, form, operand_bytes};
use crate::access::Access;
use crate::cpu::RDX;
use crate::extensions::Extension;
use crate::flags::{CF, OF};
use crate::op::{Handler, Op};
use crate::{Cpu, Env, Exception, Stop, Width};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    match instruction.mnemonic() {
        Mnemonic::Popcnt => one_operand::<CountOnes>(instruction),
        Mnemonic::Blsi => one_operand::<IsolateLowest>(instruction),
        Mnemonic::Blsmsk => one_operand::<MaskToLowest>(instruction),
        Mnemonic::Blsr => one_operand::<ResetLowest>(instruction),
        Mnemonic::Bextr => memory_first::<Extract>(instruction),
        Mnemonic::Bzhi => memory_first::<ZeroHigh>(instruction),
        Mnemonic::Sarx => memory_first::<ShiftArithmetic>(instruction),
        Mnemonic::Shlx => memory_first::<ShiftLeft>(instruction),
        Mnemonic::Shrx => memory_first::<ShiftRight>(instruction),
        Mnemonic::Rorx => memory_first::<RotateRight>(instruction),
        Mnemonic::Andn => memory_last::<AndNot>(instruction),
        Mnemonic::Pdep => memory_last::<Deposit>(instruction),
        Mnemonic::Pext => memory_last::<Gather>(instruction),
        Mnemonic::Mulx => multiply(instruction),
        Mnemonic::Adcx => add::<CF>(instruction),
        Mnemonic::Adox => add::<OF>(instruction),
        Mnemonic::Movbe => swap(instruction),
        Mnemonic::Crc32 => checksum(instruction),
        Mnemonic::Serialize => Some(serialize),
        Mnemonic::Clflushopt => Some(flush_line),
        Mnemonic::Clwb => Some(write_line_back),
        _ => None,
    }
}

/// A register becomes what an operation makes of a register or memory.
fn one_operand<O: OneOperand>(instruction: &Instruction) -> Option<Handler> {
    let bytes = operand_bytes(instruction, 0);
    Some(match form(instruction)? {
        Form::RegisterMemory => by_width_16_up!(bytes, change, O, Memory),
        _ => by_width_16_up!(bytes, change, O, InRegister),
    })
}

/// Operands 1 and 2, of which the first may be memory.
fn memory_first<O: TwoOperands>(instruction: &Instruction) -> Option<Handler> {
    let bytes = operand_bytes(instruction, 0);
    Some(match Op::has_memory(instruction) {
        true => by_width_16_up!(bytes, combine_memory_first, O, Memory),
        false => by_width_16_up!(bytes, combine_memory_first, O, InRegister),
    })
}

/// Operands 1 and 2, of which the second may be memory.
fn memory_last<O: TwoOperands>(instruction: &Instruction) -> Option<Handler> {
    let bytes = operand_bytes(instruction, 0);
    Some(match Op::has_memory(instruction) {
        true => by_width_16_up!(bytes, combine_memory_last, O, Memory),
        false => by_width_16_up!(bytes, combine_memory_last, O, InRegister),
    })
}

fn multiply(instruction: &Instruction) -> Option<Handler> {
    let bytes = operand_bytes(instruction, 0);
    Some(match Op::has_memory(instruction) {
        true => by_width_16_up!(bytes, multiply_by, Memory),
        false => by_width_16_up!(bytes, multiply_by, InRegister),
    })
}

fn add<const FLAG: u64>(instruction: &Instruction) -> Option<Handler> {
    Some(match (operand_bytes(instruction, 0), Op::has_memory(instruction)) {
        (4, true) => add_with::<FLAG, Memory, u32>,
        (4, false) => add_with::<FLAG, InRegister, u32>,
        (_, true) => add_with::<FLAG, Memory, u64>,
        (_, false) => add_with::<FLAG, InRegister, u64>,
    })
}

fn swap(instruction: &Instruction) -> Option<Handler> {
    let bytes = operand_bytes(instruction, 0);
    Some(match form(instruction)? {
        Form::RegisterMemory => by_width_16_up!(bytes, load_swapped),
        Form::MemoryRegister => by_width_16_up!(bytes, store_swapped),
        _ => return None,
    })
}

fn checksum(instruction: &Instruction) -> Option<Handler> {
    let bytes = operand_bytes(instruction, 1);
    Some(match form(instruction)? {
        Form::RegisterMemory => by_width!(bytes, add_to_checksum, Memory),
        _ => by_width!(bytes, add_to_checksum, InRegister),
    })
}

fn change<O: OneOperand, P: Place, T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.require(O::EXTENSION)?;
    let value = P::load::<T>(cpu, env, op, op.source)?;
    let result = O::apply(cpu, value);
    cpu.set(op.destination, result);
    Ok(())
}

fn combine_memory_first<O: TwoOperands, P: Place, T: Width>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    cpu.require(O::EXTENSION)?;
    let first = P::load::<T>(cpu, env, op, op.source)?;
    let second = if O::IMMEDIATE { T::truncate(op.immediate) } else { cpu.get(op.third()) };
    let result = O::apply(cpu, first, second);
    cpu.set(op.destination, result);
    Ok(())
}

fn combine_memory_last<O: TwoOperands, P: Place, T: Width>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    cpu.require(O::EXTENSION)?;
    let second = P::load::<T>(cpu, env, op, op.third())?;
    let first = cpu.get(op.source);
    let result = O::apply(cpu, first, second);
    cpu.set(op.destination, result);
    Ok(())
}

/// `MULX`: the upper half of the product goes to operand 0, the lower to operand 1; where both are the same
/// register it is the upper half. No flags change.
fn multiply_by<P: Place, T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.require(Extension::Bmi2)?;
    let factor = P::load::<T>(cpu, env, op, op.third())?;
    let product = u128::from(cpu.get::<T>(RDX).zero_extend()) * u128::from(factor.zero_extend());
    cpu.set(op.source, T::truncate(product as u64));
    cpu.set(op.destination, T::truncate((product >> T::BITS) as u64));
    Ok(())
}

/// `ADCX` and `ADOX`: an addition whose carry in and out is `FLAG`. No other flag changes.
fn add_with<const FLAG: u64, P: Place, T: Width>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    cpu.require(Extension::Adx)?;
    let value = P::load::<T>(cpu, env, op, op.source)?;
    let flags = cpu.rflags();
    let sum = u128::from(cpu.get::<T>(op.destination).zero_extend())
        + u128::from(value.zero_extend())
        + u128::from(flags & FLAG != 0);
    cpu.set(op.destination, T::truncate(sum as u64));
    let carry = if sum >> T::BITS != 0 { FLAG } else { 0 };
    cpu.set_arithmetic_flags(flags & !FLAG | carry);
    Ok(())
}

fn load_swapped<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.require(Extension::Movbe)?;
    let value = Memory::load::<T>(cpu, env, op, op.source)?;
    cpu.set(op.destination, swapped(value));
    Ok(())
}

fn store_swapped<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.require(Extension::Movbe)?;
    let value = swapped(cpu.get::<T>(op.source));
    let linear = cpu.linear(op, T::BYTES, Access::Write)?;
    cpu.store(env, linear, value)
}

fn swapped<T: Width>(value: T) -> T {
    T::truncate(value.zero_extend().swap_bytes() >> (64 - T::BITS))
}

/// `CRC32` over one operand, least significant bit first.
fn add_to_checksum<P: Place, T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.require(Extension::Crc32)?;
    let value = P::load::<T>(cpu, env, op, op.source)?.zero_extend();
    let start = cpu.get::<u32>(op.destination);
    let bytes = value.to_le_bytes();
    let result = bytes[..T::BYTES].iter().fold(start, |checksum, byte| {
        (0..8).fold(checksum ^ u32::from(*byte), |rest, _| {
            rest >> 1 ^ if rest & 1 != 0 { CASTAGNOLI } else { 0 }
        })
    });
    cpu.set(op.destination, result);
    Ok(())
}

/// Instructions are executed one after the other anyway.
fn serialize(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.require(Extension::Serialize)
}

fn flush_line(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.require(Extension::Clflushopt)?;
    touch(cpu, env, op)
}

fn write_line_back(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.require(Extension::Clwb)?;
    touch(cpu, env, op)
}

/// What concerns caches only accesses its operand and does no more.
fn touch(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let linear = cpu.linear(op, 1, Access::Read)?;
    cpu.load::<u8>(env, linear).map(drop)
}

impl Cpu {
    /// #UD unless CPUID shows `extension`, and in real mode for those whose encoding does not exist there.
    fn require(&mut self, extension: Extension) -> Result<(), Stop> {
        let vector_encoded = matches!(extension, Extension::Bmi1 | Extension::Bmi2);
        if !self.derived.features.extensions.contains(extension) || vector_encoded && !self.is_protected() {
            return Err(self.fault(Exception::INVALID_OPCODE));
        }
        Ok(())
    }
}

/// Where an operand is.
trait Place {
    /// Its value; `register` is the number of the register that it may be.
    fn load<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op, register: u8) -> Result<T, Stop>;
}

struct InRegister;
struct Memory;

impl Place for InRegister {
    fn load<T: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op, register: u8) -> Result<T, Stop> {
        Ok(cpu.get(register))
    }
}

impl Place for Memory {
    fn load<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op, _register: u8) -> Result<T, Stop> {
        let linear = cpu.linear(op, T::BYTES, Access::Read)?;
        cpu.load(env, linear)
    }
}

trait OneOperand {
    const EXTENSION: Extension = Extension::Bmi1;
    fn apply<T: Width>(cpu: &mut Cpu, value: T) -> T;
}

trait TwoOperands {
    const EXTENSION: Extension = Extension::Bmi2;
    /// The second operand is part of the instruction.
    const IMMEDIATE: bool = false;
    fn apply<T: Width>(cpu: &mut Cpu, first: T, second: T) -> T;
}

struct CountOnes;
struct IsolateLowest;
struct MaskToLowest;
struct ResetLowest;

impl OneOperand for CountOnes {
    const EXTENSION: Extension = Extension::Popcnt;
    fn apply<T: Width>(cpu: &mut Cpu, value: T) -> T {
        cpu.set_arithmetic_flags(0);
        cpu.set_zero(value == T::default());
        T::truncate(value.zero_extend().count_ones().into())
    }
}

impl OneOperand for IsolateLowest {
    fn apply<T: Width>(cpu: &mut Cpu, value: T) -> T {
        let wide = value.zero_extend();
        let result = T::truncate(wide & wide.wrapping_neg());
        cpu.set_flags_result(result, wide != 0, false, false);
        result
    }
}

impl OneOperand for MaskToLowest {
    fn apply<T: Width>(cpu: &mut Cpu, value: T) -> T {
        let wide = value.zero_extend();
        let result = T::truncate(wide ^ wide.wrapping_sub(1));
        cpu.set_flags_result(result, wide == 0, false, false);
        result
    }
}

impl OneOperand for ResetLowest {
    fn apply<T: Width>(cpu: &mut Cpu, value: T) -> T {
        let wide = value.zero_extend();
        let result = T::truncate(wide & wide.wrapping_sub(1));
        cpu.set_flags_result(result, wide == 0, false, false);
        result
    }
}

struct Extract;
struct ZeroHigh;
struct ShiftArithmetic;
struct ShiftLeft;
struct ShiftRight;
struct RotateRight;
struct AndNot;
struct Deposit;
struct Gather;

impl TwoOperands for Extract {
    const EXTENSION: Extension = Extension::Bmi1;
    /// Bits 7:0 of the second operand are where to start, bits 15:8 how many bits to take.
    fn apply<T: Width>(cpu: &mut Cpu, first: T, second: T) -> T {
        let [start, length, ..] = second.zero_extend().to_le_bytes();
        let shifted = first.zero_extend().checked_shr(start.into()).unwrap_or(0);
        let result = T::truncate(shifted & low_bits(length.into()));
        cpu.set_arithmetic_flags(0);
        cpu.set_zero(result == T::default());
        result
    }
}

impl TwoOperands for ZeroHigh {
    fn apply<T: Width>(cpu: &mut Cpu, first: T, second: T) -> T {
        let from = second.zero_extend() & 0xff;
        let result = T::truncate(first.zero_extend() & low_bits(from as u32));
        cpu.set_flags_result(result, from >= T::BITS.into(), false, false);
        result
    }
}

impl TwoOperands for ShiftArithmetic {
    fn apply<T: Width>(_cpu: &mut Cpu, first: T, second: T) -> T {
        T::truncate((first.sign_extend() as i64 >> count(second)) as u64)
    }
}

impl TwoOperands for ShiftLeft {
    fn apply<T: Width>(_cpu: &mut Cpu, first: T, second: T) -> T {
        T::truncate(first.zero_extend() << count(second))
    }
}

impl TwoOperands for ShiftRight {
    fn apply<T: Width>(_cpu: &mut Cpu, first: T, second: T) -> T {
        T::truncate(first.zero_extend() >> count(second))
    }
}

impl TwoOperands for RotateRight {
    const IMMEDIATE: bool = true;
    fn apply<T: Width>(_cpu: &mut Cpu, first: T, second: T) -> T {
        let (value, count) = (first.zero_extend(), count(second));
        T::truncate(value >> count | value.checked_shl(T::BITS - count).unwrap_or(0))
    }
}

impl TwoOperands for AndNot {
    const EXTENSION: Extension = Extension::Bmi1;
    fn apply<T: Width>(cpu: &mut Cpu, first: T, second: T) -> T {
        let result = T::truncate(!first.zero_extend() & second.zero_extend());
        cpu.set_flags_logic(result);
        result
    }
}

impl TwoOperands for Deposit {
    fn apply<T: Width>(_cpu: &mut Cpu, first: T, second: T) -> T {
        let mut source = first.zero_extend();
        let result = ones(second.zero_extend()).fold(0, |result, place| {
            let bit = source & 1;
            source >>= 1;
            result | bit << place
        });
        T::truncate(result)
    }
}

impl TwoOperands for Gather {
    fn apply<T: Width>(_cpu: &mut Cpu, first: T, second: T) -> T {
        let source = first.zero_extend();
        let places = ones(second.zero_extend()).enumerate();
        T::truncate(places.fold(0, |result, (index, place)| result | (source >> place & 1) << index))
    }
}

/// The places of the bits that are set, from the lowest.
fn ones(mask: u64) -> impl Iterator<Item = u32> {
    (0..64).filter(move |place| mask >> place & 1 != 0)
}

fn low_bits(number: u32) -> u64 {
    1_u64.checked_shl(number).map_or(u64::MAX, |bit| bit - 1)
}

/// A shift count as the CPU masks it.
fn count<T: Width>(value: T) -> u32 {
    value.zero_extend() as u32 & (T::BITS - 1)
}

/// The polynomial of CRC-32C, its bits reversed.
const CASTAGNOLI: u32 = 0x82f6_3b78;
