//! The register stack: empty and full, pushing and popping, and how exceptions end an instruction.

use crate::fp::{Extended, FpuState};
use crate::op::Op;
use crate::{Cpu, Stop};

impl FpuState {
    /// Whether `ST(number)` is empty.
    pub(super) fn is_empty(&self, number: u8) -> bool {
        self.occupied >> self.physical(number) & 1 == 0
    }

    /// Whether there is no room for a push.
    pub(super) fn is_full(&self) -> bool {
        !self.is_empty(7)
    }

    pub(super) fn push(&mut self, value: Extended) {
        self.top = self.top.wrapping_sub(1) & 7;
        self.set_st(0, value);
    }

    pub(super) fn pop(&mut self) {
        self.free(0);
        self.top = (self.top + 1) & 7;
    }

    /// Writes `ST(number)`, which is occupied then.
    pub(super) fn set_st(&mut self, number: u8, value: Extended) {
        *self.st_mut(number) = value;
        self.occupied |= 1 << self.physical(number);
    }

    /// Marks `ST(number)` as empty.
    pub(super) fn free(&mut self, number: u8) {
        self.occupied &= !(1 << self.physical(number));
    }

    /// Notes the use of an empty register. True when that is masked: an indefinite value stands in for it.
    pub(super) fn stack_underflow(&mut self) -> bool {
        self.status &= !C1;
        self.status |= INVALID | STACK_FAULT;
        self.control & INVALID != 0
    }

    /// Notes a push onto a full stack. True when that is masked: an indefinite value is pushed.
    pub(super) fn stack_overflow(&mut self) -> bool {
        self.status |= C1 | INVALID | STACK_FAULT;
        self.control & INVALID != 0
    }

    /// Notes the exceptions of an operation, and those of its condition codes that are in `codes`.
    pub(super) fn raise(&mut self, status: u16, codes: u16) {
        self.status = self.status & !codes | status & (codes | EXCEPTIONS);
    }

    /// Whether `status` has an exception that keeps the operation from changing a register: an unmasked one
    /// about its operands. (Loads complete with a denormal number nevertheless.)
    pub(super) fn prevents_result(&self, status: u16) -> bool {
        status & !self.control & BEFORE_COMPUTING != 0
    }

    /// Whether `status` has an exception that keeps the operation from storing to memory: as
    /// [`Self::prevents_result`], and an unmasked overflow or underflow.
    pub(super) fn prevents_store(&self, status: u16) -> bool {
        status & !self.control & (BEFORE_COMPUTING | OVERFLOW | UNDERFLOW) != 0
    }
}

impl Cpu {
    /// Notes where the x87 instruction `op` lies.
    pub(super) fn note_instruction(&mut self, op: &Op) {
        self.fpu.last_instruction = self.rip().wrapping_sub(u64::from(op.length));
        self.fpu.last_code_segment = 0;
    }

    /// Likewise for one with a memory operand, and where that lies.
    pub(super) fn note_instruction_and_data(&mut self, op: &Op) {
        self.note_instruction(op);
        self.fpu.last_data = self.effective(op);
        self.fpu.last_data_segment = 0;
    }

    /// Start of most instructions on registers.
    pub(super) fn begin_x87(&mut self, op: &Op) -> Result<(), Stop> {
        self.enter_x87()?;
        self.note_instruction(op);
        Ok(())
    }
}

/// The default quiet NaN.
pub(super) const INDEFINITE: Extended = Extended { mantissa: 0xc000_0000_0000_0000, sign_exponent: 0xffff };

/// Condition code 0.
pub(super) const C0: u16 = 1 << 8;
/// Condition code 1: rounded up; stack overflow rather than underflow.
pub(super) const C1: u16 = 1 << 9;
/// Condition code 2.
pub(super) const C2: u16 = 1 << 10;
/// Condition code 3.
pub(super) const C3: u16 = 1 << 14;
/// All of them.
pub(super) const CODES: u16 = C0 | C1 | C2 | C3;

/// The six exception flags.
pub(super) const EXCEPTIONS: u16 = 0x3f;
/// Invalid operation.
pub(super) const INVALID: u16 = 1 << 0;
/// Invalid, denormal, divide by zero.
const BEFORE_COMPUTING: u16 = 7;
const OVERFLOW: u16 = 1 << 3;
const UNDERFLOW: u16 = 1 << 4;
/// Invalid because of the stack.
pub(super) const STACK_FAULT: u16 = 1 << 6;
