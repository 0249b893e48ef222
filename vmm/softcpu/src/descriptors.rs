//! Reading descriptor tables and loading segment registers (Intel SDM vol. 3, 5.5 to 5.8).

use crate::access::Env;
use crate::segment::*;
use crate::tlb::Context;
use crate::{Cpu, Exception, Stop};

/// An exception that has a selector as its error code.
pub(crate) type SelectorFault = fn(u32) -> Exception;

impl Cpu {
    /// Does `work` with supervisor rights, as the CPU's own accesses to its tables have them.
    pub(crate) fn as_supervisor<R>(&mut self, work: impl FnOnce(&mut Cpu) -> R) -> R {
        let context = self.tlb.context();
        self.tlb.set_context(Context::Supervisor);
        let result = work(self);
        self.tlb.set_context(context);
        result
    }

    /// Linear address of `selector`'s descriptor of `bytes` bytes; `None` when it lies beyond its table.
    fn descriptor_address(&self, selector: u16, bytes: u32) -> Option<u64> {
        let offset = u32::from(selector & !7);
        let (base, limit) = if selector & 4 == 0 {
            (self.gdtr.base, u32::from(self.gdtr.limit))
        } else if self.ldtr.present() {
            (self.ldtr.base, self.ldtr.limit)
        } else {
            return None;
        };
        (offset + bytes - 1 <= limit).then(|| base.wrapping_add(u64::from(offset)))
    }

    /// The descriptor that `selector` (not null) names.
    pub(crate) fn read_descriptor(
        &mut self,
        env: &mut Env<'_>,
        selector: u16,
        fault: SelectorFault,
    ) -> Result<u64, Stop> {
        let Some(address) = self.descriptor_address(selector, 8) else {
            return Err(self.fault(fault(selector_code(selector))));
        };
        self.as_supervisor(|cpu| cpu.load(env, address))
    }

    /// The upper half of a 16-byte descriptor.
    pub(crate) fn read_descriptor_high(
        &mut self,
        env: &mut Env<'_>,
        selector: u16,
        fault: SelectorFault,
    ) -> Result<u64, Stop> {
        let Some(address) = self.descriptor_address(selector, 16) else {
            return Err(self.fault(fault(selector_code(selector))));
        };
        self.as_supervisor(|cpu| cpu.load(env, address.wrapping_add(8)))
    }

    /// Replaces the type bits in `selector`'s descriptor by `change` of them.
    pub(crate) fn change_descriptor_type(
        &mut self,
        env: &mut Env<'_>,
        selector: u16,
        change: impl FnOnce(u8) -> u8,
    ) -> Result<(), Stop> {
        let Some(address) = self.descriptor_address(selector, 8) else { return Ok(()) };
        self.as_supervisor(|cpu| {
            cpu.modify(env, address.wrapping_add(5), |_, access: u8| {
                (access & 0xf0 | change(access & 15), ())
            })
        })
    }

    /// Sets the accessed bit of the code or data segment that is being loaded.
    pub(crate) fn mark_segment_accessed(
        &mut self,
        env: &mut Env<'_>,
        segment: &mut Segment,
    ) -> Result<(), Stop> {
        if segment.attributes & TYPE_ACCESSED == 0 {
            self.change_descriptor_type(env, segment.selector, |kind| kind | TYPE_ACCESSED as u8)?;
            segment.attributes |= TYPE_ACCESSED;
        }
        Ok(())
    }

    /// Loads ES, SS, DS, FS or GS (`index`) as MOV and POP do.
    pub(crate) fn load_segment(
        &mut self,
        env: &mut Env<'_>,
        index: usize,
        selector: u16,
    ) -> Result<(), Stop> {
        if !self.is_protected() {
            let segment = &mut self.segments[index];
            segment.selector = selector;
            segment.base = u64::from(selector) << 4;
            segment.attributes |= ATTRIBUTE_PRESENT;
            return Ok(());
        }
        let segment = if index == SS {
            self.check_stack_segment(
                env,
                selector,
                self.cpl(),
                self.is_64_bit(),
                Exception::general_protection,
            )?
        } else {
            self.check_data_segment(env, selector)?
        };
        self.segments[index] = segment;
        if index == SS {
            self.refresh();
        }
        Ok(())
    }

    fn check_data_segment(&mut self, env: &mut Env<'_>, selector: u16) -> Result<Segment, Stop> {
        if selector & !3 == 0 {
            return Ok(Segment::null(selector));
        }
        let fault: SelectorFault = Exception::general_protection;
        let descriptor = self.read_descriptor(env, selector, fault)?;
        let mut segment = Segment::from_descriptor(selector, descriptor);
        let privileged = segment.is_conforming() || segment.dpl() >= self.cpl().max(segment.rpl());
        if !segment.is_readable() || !privileged {
            return Err(self.fault(fault(selector_code(selector))));
        }
        if !segment.present() {
            return Err(self.fault(Exception::not_present(selector)));
        }
        self.mark_segment_accessed(env, &mut segment)?;
        Ok(segment)
    }

    /// What SS holds after loading `selector` at privilege `cpl`. `null_allowed`: the code runs in 64-bit mode.
    pub(crate) fn check_stack_segment(
        &mut self,
        env: &mut Env<'_>,
        selector: u16,
        cpl: u8,
        null_allowed: bool,
        fault: SelectorFault,
    ) -> Result<Segment, Stop> {
        if selector & !3 == 0 {
            if null_allowed && cpl < 3 && selector as u8 & 3 == cpl {
                return Ok(null_stack(selector));
            }
            return Err(self.fault(fault(0)));
        }
        let descriptor = self.read_descriptor(env, selector, fault)?;
        let mut segment = Segment::from_descriptor(selector, descriptor);
        if segment.rpl() != cpl || segment.dpl() != cpl || !segment.is_writable_data() {
            return Err(self.fault(fault(selector_code(selector))));
        }
        if !segment.present() {
            return Err(self.fault(Exception::stack(selector_code(selector))));
        }
        self.mark_segment_accessed(env, &mut segment)?;
        Ok(segment)
    }

    /// After a return to less privileged code: data segments that it may not use become null.
    pub(crate) fn drop_privileged_segments(&mut self) {
        let cpl = self.cpl();
        for index in [ES, DS, FS, GS] {
            let segment = &mut self.segments[index];
            if segment.present() && !segment.is_conforming() && segment.dpl() < cpl {
                *segment = Segment { base: segment.base * u64::from(self.derived.long), ..Segment::null(0) };
            }
        }
    }

    /// The stack pointers that the task state segment has for privilege `level`: SS and RSP.
    pub(crate) fn task_stack(&mut self, env: &mut Env<'_>, level: u8) -> Result<(u16, u64), Stop> {
        let level = u32::from(level);
        if self.derived.long {
            return Ok((0, self.read_task_state::<u64>(env, 4 + 8 * level)?));
        }
        if self.tr.kind() & 8 != 0 {
            let pointer: u32 = self.read_task_state(env, 4 + 8 * level)?;
            Ok((self.read_task_state(env, 8 + 8 * level)?, u64::from(pointer)))
        } else {
            let pointer: u16 = self.read_task_state(env, 2 + 4 * level)?;
            Ok((self.read_task_state(env, 4 + 4 * level)?, u64::from(pointer)))
        }
    }

    /// Reads from the task state segment at `offset`.
    pub(crate) fn read_task_state<T: crate::Width>(
        &mut self,
        env: &mut Env<'_>,
        offset: u32,
    ) -> Result<T, Stop> {
        if !self.tr.present() || offset + T::BYTES as u32 - 1 > self.tr.limit {
            return Err(self.fault(Exception::invalid_tss(self.tr.selector)));
        }
        let address = self.tr.base.wrapping_add(u64::from(offset));
        self.as_supervisor(|cpu| cpu.load(env, address))
    }
}

/// The stack segment that 64-bit code of a privilege below 3 may run with: null, but usable.
pub(crate) fn null_stack(selector: u16) -> Segment {
    Segment {
        selector,
        base: 0,
        limit: u32::MAX,
        attributes: TYPE_WRITABLE
            | TYPE_ACCESSED
            | ATTRIBUTE_SEGMENT
            | ATTRIBUTE_PRESENT
            | ATTRIBUTE_GRANULARITY
            | ATTRIBUTE_32_BIT
            | (selector & 3) << 5,
    }
}

/// `selector` as an error code.
pub(crate) fn selector_code(selector: u16) -> u32 {
    u32::from(selector & !3)
}
