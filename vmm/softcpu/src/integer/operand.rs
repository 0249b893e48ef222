//! From the forms of an instruction (where its operands are, how wide they are) to monomorphised handlers.

use iced_x86::{CodeSize, Instruction, OpKind, Register};

use crate::op::Handler;

/// Where the operands of an instruction are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One register.
    Register,
    /// One memory operand.
    Memory,
    RegisterRegister,
    RegisterMemory,
    RegisterImmediate,
    MemoryRegister,
    MemoryImmediate,
}

/// The form of `instruction` by its first two operands; `None` if they are not general-purpose registers,
/// memory or immediates.
pub(super) fn form(instruction: &Instruction) -> Option<Form> {
    let first = kind(instruction, 0)?;
    if instruction.op_count() == 1 {
        return match first {
            Kind::Register => Some(Form::Register),
            Kind::Memory => Some(Form::Memory),
            Kind::Immediate => None,
        };
    }
    match (first, kind(instruction, 1)?) {
        (Kind::Register, Kind::Register) => Some(Form::RegisterRegister),
        (Kind::Register, Kind::Memory) => Some(Form::RegisterMemory),
        (Kind::Register, Kind::Immediate) => Some(Form::RegisterImmediate),
        (Kind::Memory, Kind::Register) => Some(Form::MemoryRegister),
        (Kind::Memory, Kind::Immediate) => Some(Form::MemoryImmediate),
        _ => None,
    }
}

/// Width in bytes of operand `operand`, a register or memory.
pub(super) fn operand_bytes(instruction: &Instruction, operand: u32) -> usize {
    match instruction.op_kind(operand) {
        OpKind::Register => instruction.op_register(operand).size(),
        _ => instruction.memory_size().size(),
    }
}

/// Whether `instruction` was decoded in a 64-bit code segment.
pub(super) fn long_mode(instruction: &Instruction) -> bool {
    instruction.code_size() == CodeSize::Code64
}

/// Whether the memory operand is an absolute 64-bit address, which an op's displacement cannot hold.
pub(super) fn is_absolute64(instruction: &Instruction) -> bool {
    instruction.memory_base() == Register::None
        && instruction.memory_index() == Register::None
        && instruction.memory_displ_size() == 8
        && instruction.memory_displacement64() as i32 as u64 != instruction.memory_displacement64()
}

enum Kind {
    Register,
    Memory,
    Immediate,
}

fn kind(instruction: &Instruction, operand: u32) -> Option<Kind> {
    match instruction.op_kind(operand) {
        OpKind::Register if instruction.op_register(operand).is_gpr() => Some(Kind::Register),
        OpKind::Memory => Some(Kind::Memory),
        OpKind::Immediate8
        | OpKind::Immediate16
        | OpKind::Immediate32
        | OpKind::Immediate64
        | OpKind::Immediate8to16
        | OpKind::Immediate8to32
        | OpKind::Immediate8to64
        | OpKind::Immediate32to64 => Some(Kind::Immediate),
        _ => None,
    }
}

/// `by_width!(bytes, function, A, B)` is `function::<A, B, T>` as a handler, `T` being the integer of `bytes`
/// bytes; returns `None` from the caller when there is none.
macro_rules! by_width {
    ($bytes:expr, $function:ident $(, $parameter:ty)*) => {
        match $bytes {
            1 => $function::<$($parameter,)* u8> as crate::op::Handler,
            2 => $function::<$($parameter,)* u16>,
            4 => $function::<$($parameter,)* u32>,
            8 => $function::<$($parameter,)* u64>,
            _ => return None,
        }
    };
}

/// As [`by_width`] for instructions without an 8-bit form.
macro_rules! by_width_16_up {
    ($bytes:expr, $function:ident $(, $parameter:ty)*) => {
        match $bytes {
            2 => $function::<$($parameter,)* u16> as crate::op::Handler,
            4 => $function::<$($parameter,)* u32>,
            8 => $function::<$($parameter,)* u64>,
            _ => return None,
        }
    };
}

pub(super) use {by_width, by_width_16_up};

/// The entry of `handlers` for the condition in `instruction`.
pub(super) fn by_condition(instruction: &Instruction, handlers: [Handler; 16]) -> Option<Handler> {
    use iced_x86::ConditionCode as Condition;
    let code = match instruction.condition_code() {
        Condition::None => return None,
        Condition::o => 0,
        Condition::no => 1,
        Condition::b => 2,
        Condition::ae => 3,
        Condition::e => 4,
        Condition::ne => 5,
        Condition::be => 6,
        Condition::a => 7,
        Condition::s => 8,
        Condition::ns => 9,
        Condition::p => 10,
        Condition::np => 11,
        Condition::l => 12,
        Condition::ge => 13,
        Condition::le => 14,
        Condition::g => 15,
    };
    Some(handlers[code])
}

/// `by_condition_table!(function)` is the array of `function::<CODE>` for the 16 conditions;
/// `by_condition_table!(function, T)` of `function::<CODE, T>`.
macro_rules! condition_table {
    ($function:ident $(, $parameter:ty)*) => {
        [
            $function::<0 $(, $parameter)*> as crate::op::Handler,
            $function::<1 $(, $parameter)*>,
            $function::<2 $(, $parameter)*>,
            $function::<3 $(, $parameter)*>,
            $function::<4 $(, $parameter)*>,
            $function::<5 $(, $parameter)*>,
            $function::<6 $(, $parameter)*>,
            $function::<7 $(, $parameter)*>,
            $function::<8 $(, $parameter)*>,
            $function::<9 $(, $parameter)*>,
            $function::<10 $(, $parameter)*>,
            $function::<11 $(, $parameter)*>,
            $function::<12 $(, $parameter)*>,
            $function::<13 $(, $parameter)*>,
            $function::<14 $(, $parameter)*>,
            $function::<15 $(, $parameter)*>,
        ]
    };
}

pub(super) use condition_table;
