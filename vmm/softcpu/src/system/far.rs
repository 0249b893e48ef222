//! Far jumps, calls and returns, and call gates (Intel SDM vol. 3, 5.8).

use iced_x86::{Instruction, Mnemonic, OpKind};

use crate::access::is_canonical;
use crate::cpu::RSP;
use crate::descriptors::{null_stack, selector_code};
use crate::frame::Stack;
use crate::op::{Handler, Op};
use crate::segment::*;
use crate::tlb::Context;
use crate::{Access, Cpu, Env, Exception, Stop};

pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    let far = matches!(instruction.op0_kind(), OpKind::FarBranch16 | OpKind::FarBranch32);
    let pointer = instruction.op0_kind() == OpKind::Memory
        && (instruction.is_jmp_far_indirect() || instruction.is_call_far_indirect());
    let handler: Handler = match instruction.mnemonic() {
        Mnemonic::Jmp if far && instruction.op0_kind() == OpKind::FarBranch16 => jump::<2>,
        Mnemonic::Jmp if far => jump::<4>,
        Mnemonic::Jmp if pointer => match instruction.memory_size().size() {
            4 => jump_indirect::<2>,
            6 => jump_indirect::<4>,
            _ => jump_indirect::<8>,
        },
        Mnemonic::Call if far && instruction.op0_kind() == OpKind::FarBranch16 => call::<2>,
        Mnemonic::Call if far => call::<4>,
        Mnemonic::Call if pointer => match instruction.memory_size().size() {
            4 => call_indirect::<2>,
            6 => call_indirect::<4>,
            _ => call_indirect::<8>,
        },
        Mnemonic::Retf => {
            // What RETF pops is its two slots and the immediate.
            let immediate = if instruction.op_count() > 0 { i32::from(instruction.immediate16()) } else { 0 };
            match instruction.stack_pointer_increment() - immediate {
                4 => ret::<2>,
                8 => ret::<4>,
                _ => ret::<8>,
            }
        }
        _ => return None,
    };
    Some(handler)
}

fn jump<const SIZE: u8>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.jump_far(env, (op.immediate >> 32) as u16, op.immediate & 0xffff_ffff)
}

fn jump_indirect<const SIZE: u8>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let (selector, offset) = cpu.load_far_operand::<SIZE>(env, op)?;
    cpu.jump_far(env, selector, offset)
}

fn call<const SIZE: u8>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.call_far(env, (op.immediate >> 32) as u16, op.immediate & 0xffff_ffff, SIZE)
}

fn call_indirect<const SIZE: u8>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let (selector, offset) = cpu.load_far_operand::<SIZE>(env, op)?;
    cpu.call_far(env, selector, offset, SIZE)
}

/// Where a far transfer leads.
enum Target {
    /// Straight into a code segment, at the offset given.
    Code(Segment),
    /// Through a call gate that has the offset, and the number of parameters and slot size for inner calls.
    Gate { code: Segment, offset: u64, parameters: u8, size: u8 },
}

impl Cpu {
    fn load_far_operand<const SIZE: u8>(&mut self, env: &mut Env<'_>, op: &Op) -> Result<(u16, u64), Stop> {
        let size = usize::from(SIZE);
        let linear = self.linear(op, size + 2, Access::Read)?;
        let mut offset = [0; 8];
        self.load_bytes(env, linear, &mut offset[..size])?;
        let selector = self.load(env, linear.wrapping_add(size as u64))?;
        Ok((selector, u64::from_le_bytes(offset)))
    }

    /// #GP(0) unless `offset` can be executed at in `code`.
    pub(super) fn require_offset(&mut self, code: &Segment, offset: u64) -> Result<(), Stop> {
        let valid = if self.is_long_mode() && code.is_long() {
            is_canonical(offset)
        } else {
            offset <= u64::from(code.limit)
        };
        if valid { Ok(()) } else { Err(self.fault(Exception::general_protection(0))) }
    }

    /// Makes `code` current at privilege `cpl` and goes on at `offset`.
    pub(super) fn enter_code(&mut self, mut code: Segment, cpl: u8, offset: u64) {
        code.selector = code.selector & !3 | u16::from(cpl);
        self.segments[CS] = code;
        self.set_rip(offset);
        self.refresh();
    }

    fn jump_real(&mut self, selector: u16, offset: u64) -> Result<(), Stop> {
        if offset > u64::from(self.segments[CS].limit) {
            return Err(self.fault(Exception::general_protection(0)));
        }
        self.load_real_code_segment(selector);
        self.set_rip(offset);
        self.refresh();
        Err(Stop::Resume)
    }

    fn jump_far(&mut self, env: &mut Env<'_>, selector: u16, offset: u64) -> Result<(), Stop> {
        if !self.is_protected() {
            return self.jump_real(selector, offset);
        }
        let (code, offset) = match self.far_target(env, selector)? {
            Target::Code(code) => (code, offset),
            Target::Gate { code, offset, .. } => {
                if !code.is_conforming() && code.dpl() != self.cpl() {
                    return Err(self.fault(Exception::general_protection(selector_code(code.selector))));
                }
                (code, offset)
            }
        };
        self.require_offset(&code, offset)?;
        self.enter_code(code, self.cpl(), offset);
        Err(Stop::Resume)
    }

    fn call_far(&mut self, env: &mut Env<'_>, selector: u16, offset: u64, size: u8) -> Result<(), Stop> {
        let back = (u64::from(self.segments[CS].selector), self.rip());
        let mut stack = Stack::current(self);
        if !self.is_protected() {
            stack.push(self, env, back.0, size)?;
            stack.push(self, env, back.1, size)?;
            self.jump_real(selector, offset).or_else(|stop| match stop {
                Stop::Resume => Ok(()),
                stop => Err(stop),
            })?;
            stack.commit_pointer(self);
            return Err(Stop::Resume);
        }
        let (code, offset, size) = match self.far_target(env, selector)? {
            Target::Code(code) => (code, offset, size),
            Target::Gate { code, offset, parameters, size } => {
                if !code.is_conforming() && code.dpl() < self.cpl() {
                    return self.call_inner(env, code, offset, parameters, size);
                }
                (code, offset, size)
            }
        };
        self.require_offset(&code, offset)?;
        stack.push(self, env, back.0, size)?;
        stack.push(self, env, back.1, size)?;
        stack.commit_pointer(self);
        self.enter_code(code, self.cpl(), offset);
        Err(Stop::Resume)
    }

    /// A call through a gate to more privileged code, on that privilege's stack.
    fn call_inner(
        &mut self,
        env: &mut Env<'_>,
        code: Segment,
        offset: u64,
        parameters: u8,
        size: u8,
    ) -> Result<(), Stop> {
        self.require_offset(&code, offset)?;
        let cpl = code.dpl();
        let (selector, pointer) = self.task_stack(env, cpl)?;
        let mut stack = if self.is_long_mode() {
            Stack::long(null_stack(u16::from(cpl)), pointer)
        } else {
            let segment = self.check_stack_segment(env, selector, cpl, false, task_fault)?;
            Stack::legacy(segment, pointer)
        };
        let mut outer = Stack::current(self);
        let mut copied = Vec::with_capacity(usize::from(parameters));
        for _ in 0..parameters {
            copied.push(outer.pop(self, env, size)?);
        }
        let context = self.tlb.context();
        self.tlb.set_context(Context::Supervisor);
        let pushed = (|| {
            stack.push(self, env, u64::from(self.segments[SS].selector), size)?;
            stack.push(self, env, self.registers[RSP as usize], size)?;
            for &value in copied.iter().rev() {
                stack.push(self, env, value, size)?;
            }
            stack.push(self, env, u64::from(self.segments[CS].selector), size)?;
            stack.push(self, env, self.rip(), size)
        })();
        self.tlb.set_context(context);
        pushed?;
        self.segments[SS] = stack.segment;
        stack.commit_pointer(self);
        self.enter_code(code, cpl, offset);
        Err(Stop::Resume)
    }

    /// Finds and checks what `selector` leads to, for JMP and CALL alike. Task gates and task state segments
    /// are refused: no 64-bit system, and none of its boot code, switches tasks in hardware.
    fn far_target(&mut self, env: &mut Env<'_>, selector: u16) -> Result<Target, Stop> {
        if selector & !3 == 0 {
            return Err(self.fault(Exception::general_protection(0)));
        }
        let wrong = Exception::general_protection(selector_code(selector));
        let descriptor = self.read_descriptor(env, selector, Exception::general_protection)?;
        let segment = Segment::from_descriptor(selector, descriptor);
        if segment.is_code() {
            let privileged = if segment.is_conforming() {
                segment.dpl() <= self.cpl()
            } else {
                segment.rpl() <= self.cpl() && segment.dpl() == self.cpl()
            };
            if !privileged {
                return Err(self.fault(wrong));
            }
            return Ok(Target::Code(self.finish_code(env, segment)?));
        }
        let long = self.is_long_mode();
        let gate = !segment.is_segment()
            && (segment.kind() == CALL_GATE || segment.kind() == CALL_GATE_16 && !long)
            && segment.dpl() >= self.cpl().max(segment.rpl());
        if !gate {
            return Err(self.fault(wrong));
        }
        if !segment.present() {
            return Err(self.fault(Exception::not_present(selector)));
        }
        self.gate_target(env, selector, descriptor)
    }

    fn gate_target(&mut self, env: &mut Env<'_>, selector: u16, descriptor: u64) -> Result<Target, Stop> {
        let long = self.is_long_mode();
        let wide = descriptor >> 40 & 8 != 0;
        let mut offset = descriptor & 0xffff;
        if wide {
            offset |= descriptor >> 32 & 0xffff_0000;
        }
        if long {
            offset |= self.read_descriptor_high(env, selector, Exception::general_protection)? << 32;
        }
        let target = (descriptor >> 16) as u16;
        if target & !3 == 0 {
            return Err(self.fault(Exception::general_protection(0)));
        }
        let descriptor_of_target = self.read_descriptor(env, target, Exception::general_protection)?;
        let code = Segment::from_descriptor(target, descriptor_of_target);
        if !code.is_code() || code.dpl() > self.cpl() || long && !code.is_long() {
            return Err(self.fault(Exception::general_protection(selector_code(target))));
        }
        let code = self.finish_code(env, code)?;
        let size = if long {
            8
        } else if wide {
            4
        } else {
            2
        };
        let parameters = if long { 0 } else { (descriptor >> 32) as u8 & 31 };
        Ok(Target::Gate { code, offset, parameters, size })
    }

    /// The checks on a code segment that come last: width and presence.
    pub(super) fn finish_code(&mut self, env: &mut Env<'_>, mut code: Segment) -> Result<Segment, Stop> {
        if self.is_long_mode() && code.is_long() && code.is_32_bit() {
            return Err(self.fault(Exception::general_protection(selector_code(code.selector))));
        }
        if !code.present() {
            return Err(self.fault(Exception::not_present(code.selector)));
        }
        self.mark_segment_accessed(env, &mut code)?;
        Ok(code)
    }

    /// The code segment that a far return or IRET to `selector` loads.
    pub(super) fn return_segment(&mut self, env: &mut Env<'_>, selector: u16) -> Result<Segment, Stop> {
        if selector & !3 == 0 {
            return Err(self.fault(Exception::general_protection(0)));
        }
        let descriptor = self.read_descriptor(env, selector, Exception::general_protection)?;
        let code = Segment::from_descriptor(selector, descriptor);
        let level = code.rpl();
        let privileged = if code.is_conforming() { code.dpl() <= level } else { code.dpl() == level };
        if !code.is_code() || level < self.cpl() || !privileged {
            return Err(self.fault(Exception::general_protection(selector_code(selector))));
        }
        self.finish_code(env, code)
    }

    /// The stack that a return to `code` of another privilege (or any IRET in 64-bit mode) goes to.
    pub(super) fn return_stack(
        &mut self,
        env: &mut Env<'_>,
        code: &Segment,
        selector: u16,
        pointer: u64,
    ) -> Result<Stack, Stop> {
        let long = self.is_long_mode() && code.is_long();
        let segment =
            self.check_stack_segment(env, selector, code.rpl(), long, Exception::general_protection)?;
        Ok(if long { Stack::long(segment, pointer) } else { Stack::legacy(segment, pointer) })
    }

    /// Makes `stack` and `code` current after a return.
    pub(super) fn return_to(&mut self, code: Segment, offset: u64, stack: Option<Stack>) {
        let outward = code.rpl() > self.cpl();
        if let Some(stack) = stack {
            self.segments[SS] = stack.segment;
            stack.commit_pointer(self);
        }
        self.enter_code(code, code.rpl(), offset);
        if outward {
            self.drop_privileged_segments();
        }
    }
}

fn ret<const SIZE: u8>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let released = op.immediate & 0xffff;
    let mut stack = Stack::current(cpu);
    let offset = stack.pop(cpu, env, SIZE)?;
    let selector = stack.pop(cpu, env, SIZE)? as u16;
    if !cpu.is_protected() {
        stack.skip(released);
        return match cpu.jump_real(selector, offset) {
            Err(Stop::Resume) => {
                stack.commit_pointer(cpu);
                Err(Stop::Resume)
            }
            other => other,
        };
    }
    let code = cpu.return_segment(env, selector)?;
    cpu.require_offset(&code, offset)?;
    stack.skip(released);
    if code.rpl() == cpu.cpl() {
        stack.commit_pointer(cpu);
        cpu.return_to(code, offset, None);
    } else {
        let pointer = stack.pop(cpu, env, SIZE)?;
        let selector = stack.pop(cpu, env, SIZE)? as u16;
        let mut outer = cpu.return_stack(env, &code, selector, pointer)?;
        outer.skip(released);
        cpu.return_to(code, offset, Some(outer));
    }
    Err(Stop::Resume)
}

fn task_fault(code: u32) -> Exception {
    Exception::invalid_tss(code as u16)
}

const CALL_GATE_16: u16 = 4;
const CALL_GATE: u16 = 12;
