//! Segment registers as operands, and questions about selectors.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::{by_destination, by_memory};
use crate::descriptors::selector_code;
use crate::flags::ZF;
use crate::frame::Stack;
use crate::op::{Handler, Op};
use crate::segment::*;
use crate::{Access, Cpu, Env, Exception, Stop, Width};

pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    let segment_operand = |operand| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand).is_segment_register()
    };
    let handler: Handler = match instruction.mnemonic() {
        Mnemonic::Mov if segment_operand(0) => by_memory!(instruction, move_to_segment),
        Mnemonic::Mov if segment_operand(1) => by_destination!(instruction, move_from_segment),
        Mnemonic::Push if segment_operand(0) => match instruction.stack_pointer_increment() {
            -2 => push_segment::<2>,
            -4 => push_segment::<4>,
            _ => push_segment::<8>,
        },
        Mnemonic::Pop if segment_operand(0) => match instruction.stack_pointer_increment() {
            2 => pop_segment::<2>,
            4 => pop_segment::<4>,
            _ => pop_segment::<8>,
        },
        Mnemonic::Les => load_far_pointer(instruction.op0_register(), ES)?,
        Mnemonic::Lds => load_far_pointer(instruction.op0_register(), DS)?,
        Mnemonic::Lss => load_far_pointer(instruction.op0_register(), SS)?,
        Mnemonic::Lfs => load_far_pointer(instruction.op0_register(), FS)?,
        Mnemonic::Lgs => load_far_pointer(instruction.op0_register(), GS)?,
        Mnemonic::Lar => match (Op::has_memory(instruction), instruction.op0_register().size()) {
            (false, 2) => access_rights::<false, u16>,
            (false, 4) => access_rights::<false, u32>,
            (false, _) => access_rights::<false, u64>,
            (true, 2) => access_rights::<true, u16>,
            (true, 4) => access_rights::<true, u32>,
            (true, _) => access_rights::<true, u64>,
        },
        Mnemonic::Lsl => match (Op::has_memory(instruction), instruction.op0_register().size()) {
            (false, 2) => segment_limit::<false, u16>,
            (false, 4) => segment_limit::<false, u32>,
            (false, _) => segment_limit::<false, u64>,
            (true, 2) => segment_limit::<true, u16>,
            (true, 4) => segment_limit::<true, u32>,
            (true, _) => segment_limit::<true, u64>,
        },
        Mnemonic::Verr => by_memory!(instruction, verify_read),
        Mnemonic::Verw => by_memory!(instruction, verify_write),
        Mnemonic::Arpl => by_memory!(instruction, adjust_privilege),
        _ => return None,
    };
    Some(handler)
}

fn load_far_pointer(register: Register, segment: usize) -> Option<Handler> {
    fn choose<const SEGMENT: usize>(bytes: usize) -> Handler {
        match bytes {
            2 => load_pointer::<SEGMENT, u16>,
            4 => load_pointer::<SEGMENT, u32>,
            _ => load_pointer::<SEGMENT, u64>,
        }
    }
    let bytes = register.size();
    Some(match segment {
        ES => choose::<ES>(bytes),
        DS => choose::<DS>(bytes),
        SS => choose::<SS>(bytes),
        FS => choose::<FS>(bytes),
        GS => choose::<GS>(bytes),
        _ => return None,
    })
}

impl Cpu {
    /// Loads a segment register as an instruction of its own. SS holds interrupts off for one instruction.
    fn load_segment_operand(&mut self, env: &mut Env<'_>, index: usize, selector: u16) -> Result<(), Stop> {
        if index == CS || index > GS {
            return Err(self.fault(Exception::INVALID_OPCODE));
        }
        self.load_segment(env, index, selector)
    }

    fn after_segment_load(&mut self, env: &mut Env<'_>, index: usize) -> Result<(), Stop> {
        if index == SS {
            self.interrupt_shadow = true;
            env.look = true;
            return Err(Stop::Resume);
        }
        Ok(())
    }
}

fn move_to_segment<const MEMORY: bool>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let selector = cpu.load_word::<MEMORY>(env, op, op.source)?;
    let index = usize::from(op.destination);
    cpu.load_segment_operand(env, index, selector)?;
    cpu.after_segment_load(env, index)
}

fn move_from_segment<const BYTES: usize>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let selector = cpu.segments[usize::from(op.source) % 6].selector;
    cpu.store_word::<BYTES>(env, op, u64::from(selector))
}

fn push_segment<const SIZE: u8>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let selector = cpu.segments[usize::from(op.destination) % 6].selector;
    let mut stack = Stack::current(cpu);
    stack.push(cpu, env, u64::from(selector), SIZE)?;
    stack.commit_pointer(cpu);
    Ok(())
}

fn pop_segment<const SIZE: u8>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let mut stack = Stack::current(cpu);
    let selector = stack.pop(cpu, env, SIZE)? as u16;
    let index = usize::from(op.destination);
    cpu.load_segment_operand(env, index, selector)?;
    stack.commit_pointer(cpu);
    cpu.after_segment_load(env, index)
}

fn load_pointer<const SEGMENT: usize, T: Width>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    let linear = cpu.linear(op, T::BYTES + 2, Access::Read)?;
    let offset: T = cpu.load(env, linear)?;
    let selector = cpu.load(env, linear.wrapping_add(T::BYTES as u64))?;
    cpu.load_segment(env, SEGMENT, selector)?;
    cpu.set(op.destination, offset);
    Ok(())
}

/// What a question about a selector may be about.
enum Question {
    AccessRights,
    Limit,
    Read,
    Write,
}

impl Cpu {
    /// The descriptor that `selector` names, if the current code may know about it.
    fn visible_descriptor(
        &mut self,
        env: &mut Env<'_>,
        selector: u16,
        question: &Question,
    ) -> Result<Option<u64>, Stop> {
        if selector & !3 == 0 {
            return Ok(None);
        }
        let descriptor = match self.read_descriptor(env, selector, Exception::general_protection) {
            Ok(descriptor) => descriptor,
            Err(stop) => {
                // Beyond the table is an answer; a page fault is not.
                let beyond = Exception::general_protection(selector_code(selector));
                return if self.pending_fault.take_if(|fault| *fault == beyond).is_some() {
                    Ok(None)
                } else {
                    Err(stop)
                };
            }
        };
        let segment = Segment::from_descriptor(selector, descriptor);
        let privileged = segment.dpl() >= self.cpl().max(segment.rpl());
        let long = self.is_long_mode();
        let visible = match question {
            Question::Read => segment.is_readable() && (segment.is_conforming() || privileged),
            Question::Write => segment.is_writable_data() && privileged,
            _ if segment.is_segment() => segment.is_conforming() || privileged,
            Question::AccessRights => {
                privileged
                    && match segment.kind() {
                        2 | 9 | 11 | 12 => true,
                        1 | 3 | 4 | 5 => !long,
                        _ => false,
                    }
            }
            Question::Limit => {
                privileged
                    && match segment.kind() {
                        2 | 9 | 11 => true,
                        1 | 3 => !long,
                        _ => false,
                    }
            }
        };
        Ok(visible.then_some(descriptor))
    }

    fn set_zero_flag(&mut self, value: bool) {
        self.change_flags(if value { ZF } else { 0 }, ZF);
    }
}

fn access_rights<const MEMORY: bool, T: Width>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    cpu.require_protected()?;
    let selector = cpu.load_word::<MEMORY>(env, op, op.source)?;
    let found = cpu.visible_descriptor(env, selector, &Question::AccessRights)?;
    if let Some(descriptor) = found {
        cpu.set(op.destination, T::truncate(descriptor >> 32 & 0x00ff_ff00));
    }
    cpu.set_zero_flag(found.is_some());
    Ok(())
}

fn segment_limit<const MEMORY: bool, T: Width>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    cpu.require_protected()?;
    let selector = cpu.load_word::<MEMORY>(env, op, op.source)?;
    let found = cpu.visible_descriptor(env, selector, &Question::Limit)?;
    if let Some(descriptor) = found {
        let limit = Segment::from_descriptor(selector, descriptor).limit;
        cpu.set(op.destination, T::truncate(u64::from(limit)));
    }
    cpu.set_zero_flag(found.is_some());
    Ok(())
}

fn verify_read<const MEMORY: bool>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.require_protected()?;
    let selector = cpu.load_word::<MEMORY>(env, op, op.destination)?;
    let found = cpu.visible_descriptor(env, selector, &Question::Read)?;
    cpu.set_zero_flag(found.is_some());
    Ok(())
}

fn verify_write<const MEMORY: bool>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.require_protected()?;
    let selector = cpu.load_word::<MEMORY>(env, op, op.destination)?;
    let found = cpu.visible_descriptor(env, selector, &Question::Write)?;
    cpu.set_zero_flag(found.is_some());
    Ok(())
}

fn adjust_privilege<const MEMORY: bool>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.require_protected()?;
    let wanted: u16 = cpu.get(op.source);
    let adjust = |selector: u16| {
        let low = selector & 3 < wanted & 3;
        (if low { selector & !3 | wanted & 3 } else { selector }, low)
    };
    let changed = if MEMORY {
        let linear = cpu.linear(op, 2, Access::Write)?;
        cpu.modify(env, linear, |_, selector: u16| adjust(selector))?
    } else {
        let (selector, changed) = adjust(cpu.get(op.destination));
        cpu.set(op.destination, selector);
        changed
    };
    cpu.set_zero_flag(changed);
    Ok(())
}
