//! Descriptor-table and task registers, and the machine status word.

use iced_x86::{Code, Instruction, Mnemonic};

use super::{by_destination, by_memory};
use crate::boot::TYPE_LDT;
use crate::control::{CR0_PE, CR4_UMIP};
use crate::descriptors::selector_code;
use crate::op::{Handler, Op};
use crate::segment::{DescriptorTable, Segment};
use crate::{Access, Cpu, Env, Exception, Stop};

pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    let handler: Handler = match instruction.mnemonic() {
        Mnemonic::Lgdt => load_gdt,
        Mnemonic::Lidt => load_idt,
        Mnemonic::Sgdt => store_gdt,
        Mnemonic::Sidt => store_idt,
        Mnemonic::Lldt => by_memory!(instruction, load_ldt),
        Mnemonic::Ltr => by_memory!(instruction, load_task),
        Mnemonic::Sldt => by_destination!(instruction, store_ldt),
        Mnemonic::Str => by_destination!(instruction, store_task),
        Mnemonic::Smsw => by_destination!(instruction, store_status),
        Mnemonic::Lmsw => by_memory!(instruction, load_status),
        _ => return None,
    };
    Some(handler)
}

impl Cpu {
    fn load_table(&mut self, env: &mut Env<'_>, op: &Op) -> Result<DescriptorTable, Stop> {
        self.require_privilege()?;
        let bytes = if self.is_64_bit() { 8 } else { 4 };
        let linear = self.linear(op, 2 + bytes, Access::Read)?;
        let limit = self.load(env, linear)?;
        let mut base = [0; 8];
        self.load_bytes(env, linear.wrapping_add(2), &mut base[..bytes])?;
        let mut base = u64::from_le_bytes(base);
        if matches!(op.code, Code::Lgdt_m1632_16 | Code::Lidt_m1632_16) {
            base &= 0xff_ffff;
        }
        if bytes == 8 && !crate::access::is_canonical(base) {
            return Err(self.fault(Exception::general_protection(0)));
        }
        Ok(DescriptorTable { base, limit })
    }

    fn store_table(&mut self, env: &mut Env<'_>, op: &Op, table: DescriptorTable) -> Result<(), Stop> {
        self.require_unrestricted()?;
        let bytes = if self.is_64_bit() { 8 } else { 4 };
        let linear = self.linear(op, 2 + bytes, Access::Write)?;
        let mut image = [0; 10];
        image[..2].copy_from_slice(&table.limit.to_le_bytes());
        image[2..].copy_from_slice(&table.base.to_le_bytes());
        self.store_bytes(env, linear, &image[..2 + bytes])
    }

    /// #GP(0) where user-mode instruction prevention hides system registers.
    fn require_unrestricted(&mut self) -> Result<(), Stop> {
        if self.cr4 & CR4_UMIP != 0 { self.require_privilege() } else { Ok(()) }
    }

    /// A system descriptor of 8 or, in long mode, 16 bytes.
    fn read_system_segment(
        &mut self,
        env: &mut Env<'_>,
        selector: u16,
        valid: impl Fn(u16) -> bool,
    ) -> Result<Segment, Stop> {
        let wrong = Exception::general_protection(selector_code(selector));
        if selector & 4 != 0 {
            return Err(self.fault(wrong));
        }
        let descriptor = self.read_descriptor(env, selector, Exception::general_protection)?;
        let mut segment = Segment::from_descriptor(selector, descriptor);
        if segment.is_segment() || !valid(segment.kind()) {
            return Err(self.fault(wrong));
        }
        if !segment.present() {
            return Err(self.fault(Exception::not_present(selector)));
        }
        if self.is_long_mode() {
            let high = self.read_descriptor_high(env, selector, Exception::general_protection)?;
            segment.base |= high << 32;
            if !crate::access::is_canonical(segment.base) {
                return Err(self.fault(wrong));
            }
        }
        Ok(segment)
    }
}

fn load_gdt(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.gdtr = cpu.load_table(env, op)?;
    Ok(())
}

fn load_idt(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.idtr = cpu.load_table(env, op)?;
    Ok(())
}

fn store_gdt(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.store_table(env, op, cpu.gdtr)
}

fn store_idt(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.store_table(env, op, cpu.idtr)
}

fn load_ldt<const MEMORY: bool>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.require_protected()?;
    cpu.require_privilege()?;
    let selector = cpu.load_word::<MEMORY>(env, op, op.destination)?;
    cpu.ldtr = if selector & !3 == 0 {
        Segment::null(selector)
    } else {
        cpu.read_system_segment(env, selector, |kind| kind == TYPE_LDT)?
    };
    Ok(())
}

fn load_task<const MEMORY: bool>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.require_protected()?;
    cpu.require_privilege()?;
    let selector = cpu.load_word::<MEMORY>(env, op, op.destination)?;
    if selector & !3 == 0 {
        return Err(cpu.fault(Exception::general_protection(0)));
    }
    let long = cpu.is_long_mode();
    let mut segment =
        cpu.read_system_segment(env, selector, |kind| kind == TSS || kind == TSS_16 && !long)?;
    cpu.change_descriptor_type(env, selector, |kind| kind | BUSY as u8)?;
    segment.attributes |= BUSY;
    cpu.tr = segment;
    Ok(())
}

fn store_ldt<const BYTES: usize>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.require_protected()?;
    cpu.require_unrestricted()?;
    cpu.store_word::<BYTES>(env, op, u64::from(cpu.ldtr.selector))
}

fn store_task<const BYTES: usize>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.require_protected()?;
    cpu.require_unrestricted()?;
    cpu.store_word::<BYTES>(env, op, u64::from(cpu.tr.selector))
}

fn store_status<const BYTES: usize>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.require_unrestricted()?;
    cpu.store_word::<BYTES>(env, op, cpu.cr0)
}

fn load_status<const MEMORY: bool>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.require_privilege()?;
    let value = u64::from(cpu.load_word::<MEMORY>(env, op, op.destination)?);
    // LMSW sets PE but never clears it, and reaches no further than TS.
    let cr0 = cpu.cr0 & !0xe | value & 0xf | cpu.cr0 & CR0_PE;
    cpu.set_cr0(env, cr0)?;
    Err(Stop::Resume)
}

const TSS_16: u16 = 1;
const TSS: u16 = 9;
const BUSY: u16 = 2;
