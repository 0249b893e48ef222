//! Instructions that change the CPU's mode, tables, privilege or surroundings.

mod control;
mod far;
mod identify;
mod io;
mod iret;
mod msr;
mod privilege;
mod segments;
mod status;
mod syscall;
mod tables;

use iced_x86::Instruction;

use crate::op::{Handler, Op};
use crate::{Access, Cpu, Env, Exception, Stop};

/// The handler for `instruction` if it belongs to this family.
pub(crate) fn lookup(instruction: &Instruction) -> Option<Handler> {
    control::lookup(instruction)
        .or_else(|| far::lookup(instruction))
        .or_else(|| identify::lookup(instruction))
        .or_else(|| io::lookup(instruction))
        .or_else(|| iret::lookup(instruction))
        .or_else(|| msr::lookup(instruction))
        .or_else(|| privilege::lookup(instruction))
        .or_else(|| segments::lookup(instruction))
        .or_else(|| status::lookup(instruction))
        .or_else(|| syscall::lookup(instruction))
        .or_else(|| tables::lookup(instruction))
}

impl Cpu {
    /// #GP(0) unless at privilege 0.
    fn require_privilege(&mut self) -> Result<(), Stop> {
        if self.cpl() != 0 { Err(self.fault(Exception::general_protection(0))) } else { Ok(()) }
    }

    /// #UD in real mode.
    fn require_protected(&mut self) -> Result<(), Stop> {
        if self.is_protected() { Ok(()) } else { Err(self.fault(Exception::INVALID_OPCODE)) }
    }

    /// The 16-bit operand of `op`: `register`, or memory when `MEMORY`.
    fn load_word<const MEMORY: bool>(
        &mut self,
        env: &mut Env<'_>,
        op: &Op,
        register: u8,
    ) -> Result<u16, Stop> {
        if MEMORY {
            let linear = self.linear(op, 2, Access::Read)?;
            self.load(env, linear)
        } else {
            Ok(self.get(register))
        }
    }

    /// Stores to the destination of `op`: 16 bits of memory, or a register of `BYTES` bytes.
    fn store_word<const BYTES: usize>(&mut self, env: &mut Env<'_>, op: &Op, value: u64) -> Result<(), Stop> {
        match BYTES {
            0 => {
                let linear = self.linear(op, 2, Access::Write)?;
                return self.store(env, linear, value as u16);
            }
            2 => self.set(op.destination, value as u16),
            4 => self.set(op.destination, value as u32),
            _ => self.set(op.destination, value),
        }
        Ok(())
    }

    /// Replaces the flags in `mask` by those of `value`.
    fn change_flags(&mut self, value: u64, mask: u64) {
        let flags = self.rflags() & !mask | value & mask;
        self.set_rflags(flags);
    }
}

/// Chooses between the register and the memory form of a handler.
macro_rules! by_memory {
    ($instruction:expr, $handler:ident) => {
        if Op::has_memory($instruction) { $handler::<true> } else { $handler::<false> }
    };
}

/// Chooses by the size of the destination; memory is 0.
macro_rules! by_destination {
    ($instruction:expr, $handler:ident) => {
        match ($instruction.op0_kind(), $instruction.op0_register().size()) {
            (iced_x86::OpKind::Register, 2) => $handler::<2>,
            (iced_x86::OpKind::Register, 4) => $handler::<4>,
            (iced_x86::OpKind::Register, _) => $handler::<8>,
            _ => $handler::<0>,
        }
    };
}

use {by_destination, by_memory};
