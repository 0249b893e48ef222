//! RFLAGS as a whole, and the interrupt flag.

use iced_x86::{Instruction, Mnemonic};

use crate::control::CR4_SMAP;
use crate::flags::*;
use crate::frame::Stack;
use crate::op::{Handler, Op};
use crate::{Cpu, Env, Exception, Stop};

pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    let handler: Handler = match instruction.mnemonic() {
        Mnemonic::Pushf => push_flags::<2>,
        Mnemonic::Pushfd => push_flags::<4>,
        Mnemonic::Pushfq => push_flags::<8>,
        Mnemonic::Popf => pop_flags::<2>,
        Mnemonic::Popfd => pop_flags::<4>,
        Mnemonic::Popfq => pop_flags::<8>,
        Mnemonic::Cli => clear_interrupt,
        Mnemonic::Sti => set_interrupt,
        Mnemonic::Stac => set_access,
        Mnemonic::Clac => clear_access,
        _ => return None,
    };
    Some(handler)
}

impl Cpu {
    /// The flags that POPF and IRET with an operand of `size` bytes may change at the current privilege.
    pub(super) fn changeable_flags(&self, size: u8) -> u64 {
        let mut mask = ARITHMETIC | TF | DF | NT;
        if size > 2 {
            mask |= AC | ID;
        }
        if self.cpl() == 0 {
            mask |= IOPL;
        }
        if self.may_change_interrupts() {
            mask |= IF;
        }
        mask
    }

    fn may_change_interrupts(&self) -> bool {
        u64::from(self.cpl()) <= (self.system_flags & IOPL) >> 12
    }
}

fn push_flags<const SIZE: u8>(cpu: &mut Cpu, env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    let mut stack = Stack::current(cpu);
    let flags = cpu.rflags() & !(RF | VM);
    stack.push(cpu, env, flags, SIZE)?;
    stack.commit_pointer(cpu);
    Ok(())
}

fn pop_flags<const SIZE: u8>(cpu: &mut Cpu, env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    let mut stack = Stack::current(cpu);
    let value = stack.pop(cpu, env, SIZE)?;
    stack.commit_pointer(cpu);
    let before = cpu.system_flags;
    let mask = cpu.changeable_flags(SIZE) | if SIZE > 2 { RF } else { 0 };
    cpu.change_flags(value & !RF, mask);
    let set = cpu.system_flags & !before;
    if (cpu.system_flags ^ before) & AC != 0 {
        cpu.refresh_context();
    }
    if set & (IF | TF) != 0 {
        env.end_block();
    }
    Ok(())
}

fn clear_interrupt(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    if !cpu.may_change_interrupts() {
        return Err(cpu.fault(Exception::general_protection(0)));
    }
    cpu.system_flags &= !IF;
    Ok(())
}

fn set_interrupt(cpu: &mut Cpu, env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    if !cpu.may_change_interrupts() {
        return Err(cpu.fault(Exception::general_protection(0)));
    }
    if cpu.system_flags & IF == 0 {
        cpu.system_flags |= IF;
        cpu.interrupt_shadow = true;
        env.look = true;
        return Err(Stop::Resume);
    }
    Ok(())
}

fn set_access(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.change_access(AC)
}

fn clear_access(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.change_access(0)
}

impl Cpu {
    fn change_access(&mut self, value: u64) -> Result<(), Stop> {
        if self.derived.features.cr4 & CR4_SMAP == 0 || self.cpl() != 0 {
            return Err(self.fault(Exception::INVALID_OPCODE));
        }
        self.system_flags = self.system_flags & !AC | value;
        self.refresh_context();
        Ok(())
    }
}
