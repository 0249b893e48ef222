//! Delivery of exceptions and interrupts (Intel SDM vol. 3, chapter 6).

use crate::access::{Env, is_canonical};
use crate::control::*;
use crate::cpu::Activity;
use crate::descriptors::{null_stack, selector_code};
use crate::flags::{IF, NT, RF, TF, VM};
use crate::frame::Stack;
use crate::segment::*;
use crate::tlb::Context;
use crate::{Cpu, Exception, Stop};

/// What makes the CPU go through the interrupt descriptor table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// INT n, INT3, INTO: subject to the gate's privilege level.
    Software,
    /// An interrupt from outside, or an exception that is a trap.
    Trap,
    /// An exception that lets the instruction be tried again: RF is set in the saved flags.
    Fault,
}

impl Source {
    /// The EXT bit of error codes about a failed delivery.
    fn external(self) -> u32 {
        u32::from(self != Source::Software)
    }
}

/// The parts of a gate that matter.
#[derive(Clone, Copy, Debug)]
struct Gate {
    selector: u16,
    offset: u64,
    kind: u16,
    stack: u8,
    dpl: u8,
    present: bool,
}

impl Cpu {
    /// Delivers the exception that an instruction has left in [`Cpu::pending_fault`].
    #[cold]
    pub(crate) fn raise_pending(&mut self, env: &mut Env<'_>) {
        self.debug_trap = 0;
        if let Some(exception) = self.pending_fault.take() {
            self.raise(env, exception, Source::Fault);
        }
    }

    /// Delivers a debug exception with `causes` as bits of DR6.
    pub(crate) fn raise_debug(&mut self, env: &mut Env<'_>, causes: u64, fault: bool) {
        self.debug[6] |= causes;
        self.debug[7] &= !DR7_GD;
        self.raise(env, Exception::DEBUG, if fault { Source::Fault } else { Source::Trap });
    }

    /// Delivers a maskable interrupt.
    pub(crate) fn deliver_interrupt(&mut self, env: &mut Env<'_>, vector: u8) {
        self.deliver_or_raise(env, vector);
    }

    /// Delivers a non-maskable interrupt; further ones wait for IRET.
    pub(crate) fn deliver_nmi(&mut self, env: &mut Env<'_>) {
        self.nmi_blocked = true;
        self.activity = Activity::Running;
        self.deliver_or_raise(env, NMI_VECTOR);
    }

    fn deliver_or_raise(&mut self, env: &mut Env<'_>, vector: u8) {
        if self.deliver(env, vector, None, Source::Trap).is_err()
            && let Some(exception) = self.pending_fault.take()
        {
            self.raise(env, exception, Source::Fault);
        }
    }

    /// Delivers `exception`; where that faults in turn, the double fault; and where that faults too, shuts down.
    fn raise(&mut self, env: &mut Env<'_>, exception: Exception, source: Source) {
        let mut current = exception;
        let mut source = source;
        loop {
            if current.vector == PAGE_FAULT_VECTOR {
                self.cr2 = current.address;
            }
            if self.deliver(env, current.vector, current.error_code, source).is_ok() {
                return;
            }
            let second = self.pending_fault.take().unwrap_or(Exception::double_fault());
            if current.vector == DOUBLE_FAULT_VECTOR {
                self.activity = Activity::Shutdown;
                return;
            }
            current = if makes_double_fault(current.vector, second.vector) {
                Exception::double_fault()
            } else {
                second
            };
            source = Source::Fault;
        }
    }

    /// INT n and its relatives, from their handlers.
    pub(crate) fn software_interrupt(&mut self, env: &mut Env<'_>, vector: u8) -> Result<(), Stop> {
        self.deliver(env, vector, None, Source::Software)?;
        self.derived.single_step = false;
        Err(Stop::Resume)
    }

    /// INT1: a debug exception that needs no gate privilege.
    pub(crate) fn debug_interrupt(&mut self, env: &mut Env<'_>) -> Result<(), Stop> {
        self.deliver(env, Exception::DEBUG.vector, None, Source::Trap)?;
        self.derived.single_step = false;
        Err(Stop::Resume)
    }

    /// Enters the handler for `vector`. Nothing has changed if it fails.
    fn deliver(
        &mut self,
        env: &mut Env<'_>,
        vector: u8,
        error_code: Option<u32>,
        source: Source,
    ) -> Result<(), Stop> {
        if !self.is_protected() {
            return self.deliver_real(env, vector);
        }
        let gate = self.read_gate(env, vector, source)?;
        let external = source.external();
        let gate_code = u32::from(vector) * 8 + 2 + external;
        let valid = match gate.kind {
            GATE_INTERRUPT | GATE_TRAP => true,
            GATE_INTERRUPT_16 | GATE_TRAP_16 => !self.derived.long,
            _ => false,
        };
        if !valid || source == Source::Software && gate.dpl < self.cpl() {
            return Err(self.fault(Exception::general_protection(gate_code)));
        }
        if !gate.present {
            return Err(self.fault(not_present_code(gate_code)));
        }
        if gate.selector & !3 == 0 {
            return Err(self.fault(Exception::general_protection(external)));
        }
        let mut code = self.read_handler_segment(env, gate.selector, external)?;
        let cpl = if code.is_conforming() { self.cpl() } else { code.dpl() };
        code.selector = code.selector & !3 | u16::from(cpl);

        let mut flags = self.rflags();
        if source == Source::Fault {
            flags |= RF;
        }
        let (mut stack, size) = if self.derived.long {
            (self.handler_stack_long(env, gate.stack, cpl)?, 8)
        } else {
            (self.handler_stack_legacy(env, cpl, external)?, if gate.kind & 8 != 0 { 4 } else { 2 })
        };
        let switched = self.derived.long || cpl != self.cpl();
        let context = self.tlb.context();
        self.tlb.set_context(if cpl == 3 { Context::User } else { Context::Supervisor });
        let pushed = self.push_handler_frame(env, &mut stack, size, switched, flags, error_code);
        self.tlb.set_context(context);
        pushed?;

        let target = if gate.kind & 8 != 0 { gate.offset } else { gate.offset & 0xffff };
        if !self.derived.long && target > u64::from(code.limit) {
            return Err(self.fault(Exception::general_protection(external)));
        }
        if self.derived.long && !is_canonical(target) {
            return Err(self.fault(Exception::general_protection(external)));
        }
        self.segments[CS] = code;
        if switched {
            self.segments[SS] = stack.segment;
        }
        stack.commit_pointer(self);
        self.set_rip(target);
        let interrupt_gate = gate.kind & 1 == 0;
        self.system_flags &= !(TF | NT | RF | VM | if interrupt_gate { IF } else { 0 });
        self.refresh();
        Ok(())
    }

    fn push_handler_frame(
        &mut self,
        env: &mut Env<'_>,
        stack: &mut Stack,
        size: u8,
        switched: bool,
        flags: u64,
        error_code: Option<u32>,
    ) -> Result<(), Stop> {
        if switched {
            stack.push(self, env, u64::from(self.segments[SS].selector), size)?;
            stack.push(self, env, self.registers[crate::cpu::RSP as usize], size)?;
        }
        stack.push(self, env, flags, size)?;
        stack.push(self, env, u64::from(self.segments[CS].selector), size)?;
        stack.push(self, env, self.rip(), size)?;
        if let Some(code) = error_code {
            stack.push(self, env, u64::from(code), size)?;
        }
        Ok(())
    }

    fn read_gate(&mut self, env: &mut Env<'_>, vector: u8, source: Source) -> Result<Gate, Stop> {
        let bytes = if self.derived.long { 16 } else { 8 };
        let offset = u64::from(vector) * bytes;
        if offset + bytes - 1 > u64::from(self.idtr.limit) {
            let code = u32::from(vector) * 8 + 2 + source.external();
            return Err(self.fault(Exception::general_protection(code)));
        }
        let address = self.idtr.base.wrapping_add(offset);
        let long = self.derived.long;
        let (low, high) = self.as_supervisor(|cpu| -> Result<(u64, u64), Stop> {
            let low = cpu.load(env, address)?;
            Ok((low, if long { cpu.load(env, address.wrapping_add(8))? } else { 0 }))
        })?;
        Ok(Gate {
            selector: (low >> 16) as u16,
            offset: low & 0xffff | low >> 32 & 0xffff_0000 | high << 32,
            kind: (low >> 40) as u16 & 0x1f,
            stack: (low >> 32) as u8 & 7,
            dpl: (low >> 45) as u8 & 3,
            present: low >> 47 & 1 != 0,
        })
    }

    fn read_handler_segment(
        &mut self,
        env: &mut Env<'_>,
        selector: u16,
        external: u32,
    ) -> Result<Segment, Stop> {
        let code = selector_code(selector) + external;
        let fault = if external != 0 { external_protection } else { Exception::general_protection };
        let descriptor = self.read_descriptor(env, selector, fault)?;
        let mut segment = Segment::from_descriptor(selector, descriptor);
        let wrong_width = self.derived.long && (!segment.is_long() || segment.is_32_bit());
        if !segment.is_code() || segment.dpl() > self.cpl() || wrong_width {
            return Err(self.fault(Exception::general_protection(code)));
        }
        if !segment.present() {
            return Err(self.fault(not_present_code(code)));
        }
        self.mark_segment_accessed(env, &mut segment)?;
        Ok(segment)
    }

    fn handler_stack_long(&mut self, env: &mut Env<'_>, ist: u8, cpl: u8) -> Result<Stack, Stop> {
        let inner = cpl != self.cpl();
        let pointer = if ist != 0 {
            self.read_task_state(env, 0x1c + 8 * u32::from(ist))?
        } else if inner {
            self.task_stack(env, cpl)?.1
        } else {
            self.registers[crate::cpu::RSP as usize]
        };
        let segment = if inner { null_stack(u16::from(cpl)) } else { self.segments[SS] };
        Ok(Stack::long(segment, pointer & !15))
    }

    fn handler_stack_legacy(&mut self, env: &mut Env<'_>, cpl: u8, external: u32) -> Result<Stack, Stop> {
        if cpl == self.cpl() {
            return Ok(Stack::current(self));
        }
        let (selector, pointer) = self.task_stack(env, cpl)?;
        let fault = if external != 0 { external_task } else { invalid_task };
        let segment = self.check_stack_segment(env, selector, cpl, false, fault)?;
        Ok(Stack::legacy(segment, pointer))
    }

    fn deliver_real(&mut self, env: &mut Env<'_>, vector: u8) -> Result<(), Stop> {
        let offset = u64::from(vector) * 4;
        if offset + 3 > u64::from(self.idtr.limit) {
            return Err(self.fault(Exception::general_protection(u32::from(vector) * 8 + 2)));
        }
        let entry: u32 = self.load(env, self.idtr.base.wrapping_add(offset))?;
        let mut stack = Stack::current(self);
        for value in [self.rflags(), u64::from(self.segments[CS].selector), self.rip()] {
            stack.push(self, env, value, 2)?;
        }
        stack.commit_pointer(self);
        self.load_real_code_segment((entry >> 16) as u16);
        self.set_rip(u64::from(entry & 0xffff));
        self.system_flags &= !(IF | TF | RF | crate::flags::AC);
        self.refresh();
        Ok(())
    }

    /// CS in real mode: only the base follows the selector.
    pub(crate) fn load_real_code_segment(&mut self, selector: u16) {
        let segment = &mut self.segments[CS];
        segment.selector = selector;
        segment.base = u64::from(selector) << 4;
    }
}

fn makes_double_fault(first: u8, second: u8) -> bool {
    let contributory = |vector| matches!(vector, 0 | 10..=13);
    contributory(first) && contributory(second)
        || first == PAGE_FAULT_VECTOR && (second == PAGE_FAULT_VECTOR || contributory(second))
}

fn not_present_code(code: u32) -> Exception {
    Exception { vector: 11, error_code: Some(code), address: 0 }
}

fn external_protection(code: u32) -> Exception {
    Exception::general_protection(code | 1)
}

fn invalid_task(code: u32) -> Exception {
    Exception { vector: 10, error_code: Some(code), address: 0 }
}

fn external_task(code: u32) -> Exception {
    invalid_task(code | 1)
}

const NMI_VECTOR: u8 = 2;
const DOUBLE_FAULT_VECTOR: u8 = 8;
const PAGE_FAULT_VECTOR: u8 = 14;
const GATE_INTERRUPT_16: u16 = 6;
const GATE_TRAP_16: u16 = 7;
const GATE_INTERRUPT: u16 = 14;
const GATE_TRAP: u16 = 15;
