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
