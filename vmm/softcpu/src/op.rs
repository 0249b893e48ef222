//! A decoded instruction in the form that handlers work from.

use iced_x86::{Code, Instruction, MemorySize, OpKind, Register};

use crate::cpu::{HIGH_BYTE, RIP, ZERO};
use crate::{Cpu, Stop};

/// Executes one instruction. See [`Stop`] for how it ends; `Ok` means: completed, go on with the next one.
pub type Handler = fn(&mut Cpu, &mut crate::Env<'_>, &Op) -> Result<(), Stop>;

/// What is constant about an instruction, packed for speed.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// The function that executes it.
    pub handler: Handler,
    /// The immediate operand, sign-extended as the instruction wants it; for near branches the *displacement*
    /// from the next instruction; for far pointers `selector << 32 | offset`; for `ENTER` the frame size in
    /// the low 16 bits and the nesting level above; for moffs forms the 64-bit address; for instructions with
    /// three registers the number of the third (`Op::third`).
    pub immediate: u64,
    /// Displacement of the memory operand.
    pub displacement: i32,
    /// Register number of operand 0, if that is a register (general-purpose: see [`Cpu::get`]; otherwise the
    /// plain number in its register file: XMM, MM, ST, segment, control, debug). For `MASKMOVQ` and
    /// `MASKMOVDQU`, which store to RDI, the mask register.
    pub destination: u8,
    /// Register number of operand 1, if that is a register.
    pub source: u8,
    /// Base register of the memory operand as an index into [`Cpu::registers`].
    pub base: u8,
    /// Index register of the memory operand likewise.
    pub index: u8,
    /// log2 of the scale.
    pub scale: u8,
    /// Segment register of the memory operand (ES 0, CS 1, SS 2, DS 3, FS 4, GS 5), or [`FLAT`] where
    /// segmentation has no effect (64-bit mode, except FS and GS).
    pub segment: u8,
    /// Length of the instruction in bytes, 1 to 15.
    pub length: u8,
    /// Width of effective addresses in bytes: 2, 4 or 8.
    pub address_size: u8,
    /// Repeat prefix of string instructions.
    pub repeat: Repeat,
    /// Which instruction it is, for handlers that serve several.
    pub code: Code,
}

/// A repeat prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Repeat {
    /// None.
    No,
    /// F3: `REP`, `REPE`.
    WhileEqual,
    /// F2: `REPNE`.
    WhileNotEqual,
}

impl Op {
    /// Packs `instruction`, decoded in a code segment of `bits` (16, 32 or 64), to be executed by `handler`.
    pub fn new(instruction: &Instruction, bits: u32, handler: Handler) -> Op {
        let mut op = Op {
            handler,
            immediate: 0,
            displacement: instruction.memory_displacement64() as i32,
            destination: operand_register(instruction, 0),
            source: operand_register(instruction, 1),
            base: address_register(instruction.memory_base()),
            index: address_register(instruction.memory_index()),
            scale: instruction.memory_index_scale().trailing_zeros() as u8,
            segment: segment(instruction, bits),
            length: instruction.len() as u8,
            address_size: address_size(instruction, bits),
            repeat: repeat(instruction),
            code: instruction.code(),
        };
        if instruction.is_ip_rel_memory_operand() {
            // RIP is already behind the instruction when the handler runs: keep what the encoding has.
            let target = instruction.memory_displacement64();
            op.displacement = target.wrapping_sub(instruction.next_ip()) as i32;
        }
        for operand in 0..instruction.op_count() {
            match instruction.op_kind(operand) {
                OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
                    op.immediate = instruction.near_branch_target().wrapping_sub(instruction.next_ip());
                }
                OpKind::FarBranch16 => {
                    op.immediate = u64::from(instruction.far_branch_selector()) << 32
                        | u64::from(instruction.far_branch16());
                }
                OpKind::FarBranch32 => {
                    op.immediate = u64::from(instruction.far_branch_selector()) << 32
                        | u64::from(instruction.far_branch32());
                }
                OpKind::Register if operand == 2 && !stores_to_rdi(instruction) => {
                    op.immediate = u64::from(operand_register(instruction, operand));
                }
                OpKind::Immediate8_2nd => {
                    op.immediate |= u64::from(instruction.immediate8_2nd()) << 16;
                }
                OpKind::Register if operand == 2 && stores_to_rdi(instruction) => {
                    op.destination = operand_register(instruction, operand);
                }
                OpKind::Memory if instruction.memory_displ_size() == 8 && op.base == ZERO => {
                    op.immediate = instruction.memory_displacement64();
                }
                kind if is_immediate(kind) => op.immediate = instruction.immediate(operand),
                _ => {}
            }
        }
        op
    }

    /// Register number of operand 2, of an instruction that has a register there.
    pub(crate) fn third(&self) -> u8 {
        self.immediate as u8
    }

    /// Whether the instruction has a memory operand (as opposed to the register form of the same code).
    pub fn has_memory(instruction: &Instruction) -> bool {
        (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory)
    }

    /// Size of the memory operand in bytes, 0 if it has none.
    pub fn memory_bytes(instruction: &Instruction) -> usize {
        let size: MemorySize = instruction.memory_size();
        size.size()
    }
}

fn operand_register(instruction: &Instruction, operand: u32) -> u8 {
    if operand >= instruction.op_count() || instruction.op_kind(operand) != OpKind::Register {
        return 0;
    }
    match instruction.op_register(operand) {
        register @ (Register::AH | Register::CH | Register::DH | Register::BH) => {
            HIGH_BYTE | (register as u8 - Register::AH as u8)
        }
        register if register.is_gpr8() && register >= Register::SPL => {
            // SPL, BPL, SIL, DIL and R8L up follow the four high-byte names in iced's numbering.
            register as u8 - Register::SPL as u8 + 4
        }
        register => register.number() as u8,
    }
}

fn stores_to_rdi(instruction: &Instruction) -> bool {
    matches!(instruction.op0_kind(), OpKind::MemorySegDI | OpKind::MemorySegEDI | OpKind::MemorySegRDI)
}

fn address_register(register: Register) -> u8 {
    match register {
        Register::None => ZERO,
        Register::RIP | Register::EIP => RIP,
        register => register.number() as u8,
    }
}

fn segment(instruction: &Instruction, bits: u32) -> u8 {
    // String instructions, XLAT and MASKMOVDQU have an overridable segment too: memory_segment covers all.
    match instruction.memory_segment() {
        Register::FS => 4,
        Register::GS => 5,
        _ if bits == 64 => FLAT,
        Register::ES => 0,
        Register::CS => 1,
        Register::SS => 2,
        Register::DS => 3,
        _ => FLAT,
    }
}

fn address_size(instruction: &Instruction, bits: u32) -> u8 {
    let mut size = (bits / 8) as u8;
    for operand in 0..instruction.op_count() {
        match instruction.op_kind(operand) {
            OpKind::Memory => {
                for register in [instruction.memory_base(), instruction.memory_index()] {
                    if register != Register::None {
                        return register.size() as u8;
                    }
                }
                if instruction.memory_displ_size() != 0 {
                    size = instruction.memory_displ_size() as u8;
                    if bits == 64 && size == 4 && instruction.memory_displacement64() >> 32 != 0 {
                        size = 8;
                    }
                }
            }
            OpKind::MemorySegSI | OpKind::MemorySegDI | OpKind::MemoryESDI => size = 2,
            OpKind::MemorySegESI | OpKind::MemorySegEDI | OpKind::MemoryESEDI => size = 4,
            OpKind::MemorySegRSI | OpKind::MemorySegRDI | OpKind::MemoryESRDI => size = 8,
            _ => {}
        }
    }
    size
}

fn repeat(instruction: &Instruction) -> Repeat {
    if instruction.has_repne_prefix() {
        Repeat::WhileNotEqual
    } else if instruction.has_rep_prefix() {
        Repeat::WhileEqual
    } else {
        Repeat::No
    }
}

fn is_immediate(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Immediate8
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64
    )
}

/// [`Op::segment`] of an operand that segmentation does not affect: base 0, no limit.
pub const FLAT: u8 = 6;
