//! Return from interrupts.

use iced_x86::{Instruction, Mnemonic};

use crate::flags::{NT, RF, VM};
use crate::frame::Stack;
use crate::op::{Handler, Op};
use crate::{Cpu, Env, Exception, Stop};

pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    let handler: Handler = match instruction.mnemonic() {
        Mnemonic::Iret => interrupt_return::<2>,
        Mnemonic::Iretd => interrupt_return::<4>,
        Mnemonic::Iretq => interrupt_return::<8>,
        _ => return None,
    };
    Some(handler)
}

fn interrupt_return<const SIZE: u8>(cpu: &mut Cpu, env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    let result =
        if cpu.is_protected() { cpu.return_protected::<SIZE>(env) } else { cpu.return_real::<SIZE>(env) };
    result?;
    cpu.nmi_blocked = false;
    env.look = true;
    Err(Stop::Resume)
}

impl Cpu {
    fn return_real<const SIZE: u8>(&mut self, env: &mut Env<'_>) -> Result<(), Stop> {
        let mut stack = Stack::current(self);
        let offset = stack.pop(self, env, SIZE)?;
        let selector = stack.pop(self, env, SIZE)? as u16;
        let flags = stack.pop(self, env, SIZE)?;
        self.require_offset(&self.segments[crate::segment::CS].clone(), offset)?;
        stack.commit_pointer(self);
        self.load_real_code_segment(selector);
        self.set_rip(offset);
        let mask = self.changeable_flags(SIZE) | if SIZE > 2 { RF } else { 0 };
        self.change_flags(flags, mask);
        self.refresh();
        Ok(())
    }

    fn return_protected<const SIZE: u8>(&mut self, env: &mut Env<'_>) -> Result<(), Stop> {
        if self.system_flags & NT != 0 {
            // A nested task would be returned to; there are none.
            return Err(self.fault(if self.is_long_mode() {
                Exception::general_protection(0)
            } else {
                Exception::invalid_tss(self.tr.selector)
            }));
        }
        let mut stack = Stack::current(self);
        let offset = stack.pop(self, env, SIZE)?;
        let selector = stack.pop(self, env, SIZE)? as u16;
        let flags = stack.pop(self, env, SIZE)?;
        if SIZE == 4 && flags & VM != 0 && self.cpl() == 0 && !self.is_long_mode() {
            // Virtual-8086 mode is not supported.
            return Err(self.fault(Exception::general_protection(0)));
        }
        let code = self.return_segment(env, selector)?;
        self.require_offset(&code, offset)?;
        let mask = self.changeable_flags(SIZE) | if SIZE > 2 { RF } else { 0 };
        // 64-bit code always has a stack pointer in the frame.
        if code.rpl() != self.cpl() || self.is_64_bit() {
            let pointer = stack.pop(self, env, SIZE)?;
            let selector = stack.pop(self, env, SIZE)? as u16;
            let outer = self.return_stack(env, &code, selector, pointer)?;
            self.change_flags(flags, mask);
            self.return_to(code, offset, Some(outer));
        } else {
            stack.commit_pointer(self);
            self.change_flags(flags, mask);
            self.return_to(code, offset, None);
        }
        // The flags may have changed what the TLB's context depends on.
        self.refresh_context();
        Ok(())
    }
}
