//! `FNSTENV`, `FLDENV`, `FNSAVE` and `FRSTOR` in their 16- and 32-bit formats.

use iced_x86::{Code, Instruction};

use crate::flags::VM;
use crate::fp::{Extended, FpuState};
use crate::mode::Mode;
use crate::op::{Handler, Op};
use crate::{Access, Cpu, Env, Stop};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    Some(match instruction.code() {
        Code::Fnstenv_m14byte => fnstenv::<2>,
        Code::Fnstenv_m28byte => fnstenv::<4>,
        Code::Fldenv_m14byte => fldenv::<2>,
        Code::Fldenv_m28byte => fldenv::<4>,
        Code::Fnsave_m94byte => fnsave::<2>,
        Code::Fnsave_m108byte => fnsave::<4>,
        Code::Frstor_m94byte => frstor::<2>,
        Code::Frstor_m108byte => frstor::<4>,
        _ => return None,
    })
}

/// `FNSTENV` with fields of `FIELD` bytes.
fn fnstenv<const FIELD: usize>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_x87_without_wait()?;
    let linear = cpu.linear(op, FIELDS * FIELD, Access::Write)?;
    let mut image = [0; FIELDS * 4];
    write_environment::<FIELD>(cpu, &mut image);
    cpu.store_bytes(env, linear, &image[..FIELDS * FIELD])?;
    cpu.fpu.control |= ALL_MASKED;
    Ok(())
}

/// `FLDENV`
fn fldenv<const FIELD: usize>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_x87()?;
    let linear = cpu.linear(op, FIELDS * FIELD, Access::Read)?;
    let mut image = [0; FIELDS * 4];
    cpu.load_bytes(env, linear, &mut image[..FIELDS * FIELD])?;
    read_environment::<FIELD>(cpu, &image);
    Ok(())
}

/// `FNSAVE`: the environment, ST(0) to ST(7), and then `FNINIT`.
fn fnsave<const FIELD: usize>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_x87_without_wait()?;
    let linear = cpu.linear(op, FIELDS * FIELD + REGISTERS, Access::Write)?;
    let mut image = [0; FIELDS * 4 + REGISTERS];
    write_environment::<FIELD>(cpu, &mut image);
    let registers = &mut image[FIELDS * FIELD..];
    for (number, slot) in (0..8).zip(registers.chunks_exact_mut(10)) {
        slot.copy_from_slice(&cpu.fpu.st(number).to_bytes());
    }
    cpu.store_bytes(env, linear, &image[..FIELDS * FIELD + REGISTERS])?;
    cpu.fpu.init_x87();
    Ok(())
}

/// `FRSTOR`
fn frstor<const FIELD: usize>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_x87()?;
    let linear = cpu.linear(op, FIELDS * FIELD + REGISTERS, Access::Read)?;
    let mut image = [0; FIELDS * 4 + REGISTERS];
    cpu.load_bytes(env, linear, &mut image[..FIELDS * FIELD + REGISTERS])?;
    read_environment::<FIELD>(cpu, &image);
    for (number, slot) in (0..8).zip(image[FIELDS * FIELD..].chunks_exact(10)) {
        let mut bytes = [0; 10];
        bytes.copy_from_slice(slot);
        *cpu.fpu.st_mut(number) = Extended::from_bytes(bytes);
    }
    Ok(())
}

/// Control, status and tag word, then the pointers: in protected mode offset and selector of instruction and
/// data, the opcode above the code selector where there is room; in real mode linear addresses in two parts,
/// the opcode beside the upper part of the instruction's.
fn write_environment<const FIELD: usize>(cpu: &Cpu, image: &mut [u8]) {
    let fpu = &cpu.fpu;
    let (opcode, instruction, data) =
        (u32::from(fpu.last_opcode), fpu.last_instruction as u32, fpu.last_data as u32);
    let (code_segment, data_segment) = (u32::from(fpu.last_code_segment), u32::from(fpu.last_data_segment));
    let pointers: [u32; 4] = match (has_linear_pointers(cpu), FIELD) {
        (true, 2) => {
            [instruction, instruction >> 16 << 12 & 0xf000 | opcode, data, data >> 16 << 12 & 0xf000]
        }
        (true, _) => [
            instruction & 0xffff | UPPER,
            instruction >> 16 << 12 | opcode,
            data & 0xffff | UPPER,
            data >> 16 << 12,
        ],
        (false, 2) => [instruction, code_segment, data, data_segment],
        (false, _) => [instruction, opcode << 16 | code_segment, data, data_segment | UPPER],
    };
    let words = [fpu.control, fpu.status_word(), fpu.tag_word()].map(|word| u32::from(word) | UPPER);
    for (slot, value) in image.chunks_exact_mut(FIELD).zip(words.into_iter().chain(pointers)) {
        slot.copy_from_slice(&value.to_le_bytes()[..FIELD]);
    }
}

fn read_environment<const FIELD: usize>(cpu: &mut Cpu, image: &[u8]) {
    let linear_pointers = has_linear_pointers(cpu);
    let mut fields = [0u32; FIELDS];
    for (field, slot) in fields.iter_mut().zip(image.chunks_exact(FIELD)) {
        let mut bytes = [0; 4];
        bytes[..FIELD].copy_from_slice(slot);
        *field = u32::from_le_bytes(bytes);
    }
    let [control, status, tags, pointers @ ..] = fields;
    let fpu = &mut cpu.fpu;
    fpu.set_control_word(control as u16);
    fpu.set_status_word(status as u16);
    fpu.set_tag_word(tags as u16);
    let (instruction, code_segment, opcode, data, data_segment) = match (linear_pointers, FIELD) {
        (true, _) => (
            pointers[0] & 0xffff | pointers[1] >> 12 << 16,
            0,
            pointers[1],
            pointers[2] & 0xffff | pointers[3] >> 12 << 16,
            0,
        ),
        (false, 2) => (pointers[0], pointers[1], 0, pointers[2], pointers[3]),
        (false, _) => (pointers[0], pointers[1], pointers[1] >> 16, pointers[2], pointers[3]),
    };
    fpu.last_instruction = instruction.into();
    fpu.last_code_segment = code_segment as u16;
    fpu.last_opcode = opcode as u16 & OPCODE_MASK;
    fpu.last_data = data.into();
    fpu.last_data_segment = data_segment as u16;
}

fn has_linear_pointers(cpu: &Cpu) -> bool {
    cpu.mode() == Mode::Real || cpu.system_flags & VM != 0
}

impl FpuState {
    /// Two bits for each physical register: valid, zero, special, empty.
    fn tag_word(&self) -> u16 {
        (0..8).fold(0, |word, register| {
            let tag = match self.occupied >> register & 1 {
                0 => TAG_EMPTY,
                _ => tag(self.registers[register]),
            };
            word | tag << (2 * register)
        })
    }

    /// Only "empty" is taken from the tags; the rest follows from the registers.
    fn set_tag_word(&mut self, tags: u16) {
        self.occupied = (0..8).fold(0, |occupied, register| {
            occupied | u8::from(tags >> (2 * register) & 3 != TAG_EMPTY) << register
        });
    }
}

fn tag(value: Extended) -> u16 {
    match (value.sign_exponent & 0x7fff, value.mantissa) {
        (0, 0) => TAG_ZERO,
        (0 | 0x7fff, _) => TAG_SPECIAL,
        (_, mantissa) if mantissa >> 63 == 0 => TAG_SPECIAL,
        _ => TAG_VALID,
    }
}

/// Fields of the environment.
const FIELDS: usize = 7;
/// Bytes of the eight registers behind it.
const REGISTERS: usize = 80;
/// The reserved upper half of 32-bit fields.
const UPPER: u32 = 0xffff_0000;
/// x87 opcodes are kept as 11 bits.
const OPCODE_MASK: u16 = 0x7ff;
/// Exception masks of the control word.
const ALL_MASKED: u16 = 0x3f;
const TAG_VALID: u16 = 0;
const TAG_ZERO: u16 = 1;
const TAG_SPECIAL: u16 = 2;
const TAG_EMPTY: u16 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::DescriptorTable;

    #[test]
    fn protected_mode_keeps_selectors() {
        let cpu = protected();
        assert_eq!(
            words::<2>(&cpu),
            [0x027f, 0x6f00, TAGS, 0x5678, 0x0010, 0xdef0, 0x0018],
            "control, status, tags, instruction offset and selector, data offset and selector"
        );
        assert_eq!(
            words::<4>(&cpu),
            [0xffff_027f, 0xffff_6f00, UPPER | TAGS, 0x0001_5678, 0x05dc_0010, 0x0009_def0, 0xffff_0018]
        );
    }

    #[test]
    fn real_mode_has_linear_addresses() {
        let cpu = Cpu { fpu: sample(), ..Cpu::default() };
        assert_eq!(words::<2>(&cpu), [0x027f, 0x6f00, TAGS, 0x5678, 0x15dc, 0xdef0, 0x9000]);
        assert_eq!(
            words::<4>(&cpu),
            [0xffff_027f, 0xffff_6f00, UPPER | TAGS, 0xffff_5678, 0x0000_15dc, 0xffff_def0, 0x0000_9000]
        );
    }

    #[test]
    fn a_stored_environment_can_be_loaded() {
        for mut cpu in [protected(), Cpu { fpu: sample(), ..Cpu::default() }] {
            let real = cpu.mode() == Mode::Real;
            let mut expected = sample();
            if real {
                (expected.last_code_segment, expected.last_data_segment) = (0, 0);
            }
            let mut image = [0; FIELDS * 4];
            write_environment::<4>(&cpu, &mut image);
            cpu.fpu = FpuState { registers: expected.registers, ..FpuState::default() };
            read_environment::<4>(&mut cpu, &image);
            assert_eq!(cpu.fpu, expected);

            write_environment::<2>(&cpu, &mut image);
            cpu.fpu = FpuState { registers: expected.registers, ..FpuState::default() };
            read_environment::<2>(&mut cpu, &image);
            if !real {
                // The 16-bit format has room for 16 bits of each pointer only, and none for the opcode.
                expected.last_instruction &= 0xffff;
                expected.last_data &= 0xffff;
                expected.last_opcode = 0;
            }
            assert_eq!(cpu.fpu, expected);
        }
    }

    fn words<const FIELD: usize>(cpu: &Cpu) -> [u32; FIELDS] {
        let mut image = [0; FIELDS * 4];
        write_environment::<FIELD>(cpu, &mut image);
        let mut words = [0; FIELDS];
        for (word, bytes) in words.iter_mut().zip(image.chunks_exact(FIELD)) {
            *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        }
        words
    }

    fn protected() -> Cpu {
        let mut cpu = Cpu::default();
        cpu.enter_long(0, 0, DescriptorTable { base: 0, limit: 0 });
        cpu.fpu = sample();
        cpu
    }

    /// TOP is 5; physical registers from 0: a number, zero, an infinity, a denormal, an unnormal, then empty.
    fn sample() -> FpuState {
        let mut fpu = FpuState {
            top: 5,
            occupied: 0b0001_1111,
            control: 0x027f,
            status: 0x4700,
            last_opcode: 0x05dc,
            last_instruction: 0x0001_5678,
            last_code_segment: 0x10,
            last_data: 0x0009_def0,
            last_data_segment: 0x18,
            ..FpuState::default()
        };
        let contents = [(1 << 63, 0x3fff), (0, 0x8000), (1 << 63, 0x7fff), (1, 0), (1, 0x3fff)];
        for (register, (mantissa, sign_exponent)) in fpu.registers.iter_mut().zip(contents) {
            *register = Extended { mantissa, sign_exponent };
        }
        fpu
    }

    const TAGS: u32 = 0b11_11_11_10_10_10_01_00;
}
