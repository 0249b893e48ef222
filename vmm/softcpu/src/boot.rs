//! The states a CPU can be put into from outside: power-on, INIT, start-up, and those of boot protocols.

use crate::Cpu;
use crate::control::*;
use crate::cpu::{Activity, Msrs};
use crate::cpu::{RDX, RIP};
use crate::flags::LazyFlags;
use crate::fp::FpuState;
use crate::mode::Derived;
use crate::segment::*;
use crate::tlb::Tlb;

impl Default for Cpu {
    /// The power-on state: real mode, about to execute the instruction at physical 0xffff_fff0.
    fn default() -> Self {
        let mut code = Segment::real(0xf000, true);
        code.base = 0xffff_0000;
        let mut registers = [0; 18];
        registers[RIP as usize] = 0xfff0;
        registers[RDX as usize] = 0x600;
        let system =
            |kind| Segment { selector: 0, base: 0, limit: 0xffff, attributes: kind | ATTRIBUTE_PRESENT };
        let data = Segment::real(0, false);
        let mut cpu = Cpu {
            registers,
            flags: LazyFlags::default(),
            system_flags: 2,
            segments: [data, code, data, data, data, data],
            ldtr: system(TYPE_LDT),
            tr: system(TYPE_TSS_BUSY),
            gdtr: DescriptorTable { base: 0, limit: 0xffff },
            idtr: DescriptorTable { base: 0, limit: 0xffff },
            cr0: CR0_CD | CR0_NW | CR0_ET,
            cr2: 0,
            cr3: 0,
            cr4: 0,
            pae_pointers: [0; 4],
            debug: [0, 0, 0, 0, 0, 0, DR6_ONES, DR7_ONES],
            msrs: Msrs::default(),
            activity: Activity::Running,
            interrupt_shadow: false,
            nmi_blocked: false,
            nmi_pending: false,
            debug_trap: 0,
            fpu: FpuState::default(),
            pending_fault: None,
            derived: Derived::default(),
            tlb: Tlb::default(),
        };
        cpu.refresh();
        cpu
    }
}

impl Default for Msrs {
    fn default() -> Self {
        Msrs {
            efer: 0,
            star: 0,
            lstar: 0,
            cstar: 0,
            sfmask: 0,
            kernel_gs_base: 0,
            sysenter_cs: 0,
            sysenter_esp: 0,
            sysenter_eip: 0,
            pat: 0x0007_0406_0007_0406,
            tsc_aux: 0,
            tsc_adjust: 0,
            tsc_offset: 0,
            misc_enable: 1,
            // Enabled, write-back: what firmware would have left, which there is none of.
            mtrr_default_type: 0xc06,
            mtrr_fixed: [0; 11],
            mtrr_variable: [0; 16],
        }
    }
}

impl Cpu {
    /// INIT: as power-on, but model-specific registers other than EFER, the floating-point state and the
    /// cache-control bits of CR0 stay. `boot` CPUs go on at the reset vector, others wait for a start-up IPI.
    pub fn init(&mut self, boot: bool) {
        let old = std::mem::take(self);
        self.msrs = Msrs { efer: 0, ..old.msrs };
        self.cr0 |= old.cr0 & (CR0_CD | CR0_NW);
        self.derived.features = old.derived.features;
        self.fpu = old.fpu;
        self.tlb = old.tlb;
        self.tlb.flush();
        self.activity = if boot { Activity::Running } else { Activity::WaitForStartUp };
        self.refresh();
    }

    /// Start-up IPI with `vector`: begins at `vector << 12` in real mode. Ignored unless the CPU waits for it.
    pub fn start_up(&mut self, vector: u8) {
        if self.activity == Activity::WaitForStartUp {
            self.segments[CS] = Segment::real(u16::from(vector) << 8, true);
            self.set_rip(0);
            self.activity = Activity::Running;
            self.refresh();
        }
    }

    /// 32-bit protected mode without paging, flat segments, interrupts off: the state in which the Multiboot
    /// and PVH entry points start. The descriptor tables are empty.
    pub fn enter_protected(&mut self, entry: u32) {
        let old = std::mem::take(self);
        self.derived.features = old.derived.features;
        self.cr0 = CR0_PE | CR0_ET;
        let data = Segment::flat(0x18, TYPE_WRITABLE | TYPE_ACCESSED, ATTRIBUTE_32_BIT);
        self.segments = [data; 6];
        self.segments[CS] = Segment::flat(0x10, TYPE_CODE | TYPE_WRITABLE | TYPE_ACCESSED, ATTRIBUTE_32_BIT);
        self.gdtr = DescriptorTable::default();
        self.idtr = DescriptorTable::default();
        self.set_rip(u64::from(entry));
        self.refresh();
    }

    /// 64-bit mode with the page tables at `cr3`, flat segments, interrupts off: the state in which Linux's
    /// 64-bit boot protocol starts. `gdt` is where the machine has put a table with 64-bit code at selector
    /// 0x10 and data at 0x18, as that protocol wants.
    pub fn enter_long(&mut self, entry: u64, cr3: u64, gdt: DescriptorTable) {
        self.enter_protected(0);
        self.segments[CS] = Segment::flat(0x10, TYPE_CODE | TYPE_WRITABLE | TYPE_ACCESSED, ATTRIBUTE_LONG);
        self.cr0 |= CR0_PG | CR0_WP | CR0_NE | CR0_MP;
        self.cr3 = cr3;
        self.cr4 = CR4_PAE;
        self.msrs.efer = EFER_LME | EFER_LMA;
        self.gdtr = gdt;
        self.set_rip(entry);
        self.refresh();
    }

    /// 64-bit mode with paging off, linear addresses being physical: a state that no real CPU can be in, but
    /// the simplest one to try instructions in.
    pub fn enter_flat_long(&mut self, entry: u64) {
        self.enter_long(entry, 0, DescriptorTable::default());
        self.cr0 &= !CR0_PG;
        self.cr4 |= CR4_OSFXSR | CR4_OSXMMEXCPT;
    }
}

/// System descriptor type of a local descriptor table.
pub(crate) const TYPE_LDT: u16 = 2;
/// System descriptor type of a busy 32- or 64-bit task state segment.
pub(crate) const TYPE_TSS_BUSY: u16 = 11;
