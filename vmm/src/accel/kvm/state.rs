//! A CPU's state in KVM's form, in the software CPU's, and in that of reports.

use kvm_bindings::{
    KVM_MP_STATE_HALTED, KVM_MP_STATE_INIT_RECEIVED, KVM_MP_STATE_UNINITIALIZED, kvm_debugregs, kvm_dtable,
    kvm_regs, kvm_segment, kvm_sregs,
};
use kvm_ioctls::VcpuFd;
use nicvisor_core::GeneralRegisters;
use softcpu::Cpu;
use softcpu::segment::{CS, DS, DescriptorTable, ES, FS, GS, SS, Segment};

use crate::boot::layout::{GDT, PAGE_TABLES};
use crate::boot::{Entry, EntryMode};
use crate::machine::{CpuActivity, CpuState};

/// Puts `vcpu` where `entry` says, as the software CPU does with its own.
pub(super) fn enter(vcpu: &VcpuFd, entry: &Entry) -> Result<(), kvm_ioctls::Error> {
    let gdt = DescriptorTable { base: GDT, limit: 0x1f };
    let mut cpu = Cpu::default();
    match entry.mode {
        EntryMode::Long => cpu.enter_long(entry.ip, PAGE_TABLES, gdt),
        EntryMode::Protected => {
            cpu.enter_protected(entry.ip as u32);
            cpu.gdtr = gdt;
        }
    }
    let registers = [
        (softcpu::cpu::RAX, entry.rax),
        (softcpu::cpu::RBX, entry.rbx),
        (softcpu::cpu::RSI, entry.rsi),
        (softcpu::cpu::RSP, entry.sp),
    ];
    for (register, value) in registers {
        cpu.registers[usize::from(register)] = value;
    }
    let mut system = vcpu.get_sregs()?;
    system_to_kvm(&cpu, &mut system);
    vcpu.set_sregs(&system)?;
    vcpu.set_regs(&general_to_kvm(&cpu))
}

/// The state as reports show it.
pub(super) fn report(vcpu: &VcpuFd) -> Result<CpuState, kvm_ioctls::Error> {
    let (general, system) = (vcpu.get_regs()?, vcpu.get_sregs()?);
    let activity = match vcpu.get_mp_state()?.mp_state {
        KVM_MP_STATE_HALTED => CpuActivity::Halted,
        KVM_MP_STATE_UNINITIALIZED | KVM_MP_STATE_INIT_RECEIVED => CpuActivity::Offline,
        _ => CpuActivity::Running,
    };
    Ok(CpuState {
        registers: registers_of(&general),
        rip: general.rip,
        rflags: general.rflags,
        cs: system.cs.selector,
        cs_base: system.cs.base,
        ss_base: system.ss.base,
        fs_base: system.fs.base,
        gs_base: system.gs.base,
        cr0: system.cr0,
        cr2: system.cr2,
        cr3: system.cr3,
        cr4: system.cr4,
        efer: system.efer,
        activity,
    })
}

/// What it takes to read memory by virtual addresses.
pub(super) fn memory_view(system: &kvm_sregs) -> CpuState {
    CpuState { cr0: system.cr0, cr3: system.cr3, cr4: system.cr4, efer: system.efer, ..CpuState::default() }
}

/// Fills `cpu` with everything but floating point and model-specific registers.
pub(super) fn from_kvm(cpu: &mut Cpu, general: &kvm_regs, system: &kvm_sregs, debug: &kvm_debugregs) {
    cpu.registers[..16].copy_from_slice(&registers_of(general));
    cpu.set_rip(general.rip);
    cpu.set_rflags(general.rflags);
    for (index, segment) in [
        (ES, &system.es),
        (CS, &system.cs),
        (SS, &system.ss),
        (DS, &system.ds),
        (FS, &system.fs),
        (GS, &system.gs),
    ] {
        cpu.segments[index] = segment_from_kvm(segment);
    }
    cpu.ldtr = segment_from_kvm(&system.ldt);
    cpu.tr = segment_from_kvm(&system.tr);
    cpu.gdtr = DescriptorTable { base: system.gdt.base, limit: system.gdt.limit };
    cpu.idtr = DescriptorTable { base: system.idt.base, limit: system.idt.limit };
    (cpu.cr0, cpu.cr2, cpu.cr3, cpu.cr4) = (system.cr0, system.cr2, system.cr3, system.cr4);
    cpu.msrs.efer = system.efer;
    cpu.debug[..4].copy_from_slice(&debug.db);
    (cpu.debug[6], cpu.debug[7]) = (debug.dr6, debug.dr7);
}

/// The general-purpose registers, RIP and RFLAGS of `cpu`.
pub(super) fn general_to_kvm(cpu: &Cpu) -> kvm_regs {
    let mut general = kvm_regs { rip: cpu.rip(), rflags: cpu.rflags(), ..kvm_regs::default() };
    set_registers(&mut general, cpu.registers.first_chunk().expect("there are more than 16"));
    general
}

/// Replaces the general-purpose registers, given by their encoding.
pub(super) fn set_registers(general: &mut kvm_regs, registers: &GeneralRegisters) {
    let g = general;
    [
        g.rax, g.rcx, g.rdx, g.rbx, g.rsp, g.rbp, g.rsi, g.rdi, g.r8, g.r9, g.r10, g.r11, g.r12, g.r13,
        g.r14, g.r15,
    ] = *registers;
}

/// Changes in `system` what `cpu` has.
pub(super) fn system_to_kvm(cpu: &Cpu, system: &mut kvm_sregs) {
    for (index, segment) in [
        (ES, &mut system.es),
        (CS, &mut system.cs),
        (SS, &mut system.ss),
        (DS, &mut system.ds),
        (FS, &mut system.fs),
        (GS, &mut system.gs),
    ] {
        *segment = segment_to_kvm(&cpu.segments[index]);
    }
    system.ldt = segment_to_kvm(&cpu.ldtr);
    system.tr = segment_to_kvm(&cpu.tr);
    system.gdt = kvm_dtable { base: cpu.gdtr.base, limit: cpu.gdtr.limit, ..kvm_dtable::default() };
    system.idt = kvm_dtable { base: cpu.idtr.base, limit: cpu.idtr.limit, ..kvm_dtable::default() };
    (system.cr0, system.cr2, system.cr3, system.cr4) = (cpu.cr0, cpu.cr2, cpu.cr3, cpu.cr4);
    system.efer = cpu.msrs.efer;
}

/// The general-purpose registers by their encoding.
pub(super) fn registers_of(general: &kvm_regs) -> GeneralRegisters {
    let g = general;
    [
        g.rax, g.rcx, g.rdx, g.rbx, g.rsp, g.rbp, g.rsi, g.rdi, g.r8, g.r9, g.r10, g.r11, g.r12, g.r13,
        g.r14, g.r15,
    ]
}

fn segment_from_kvm(segment: &kvm_segment) -> Segment {
    let bit = |value: u8, position: u32| u16::from(value & 1) << position;
    let present = segment.present & u8::from(segment.unusable == 0);
    Segment {
        selector: segment.selector,
        base: segment.base,
        limit: segment.limit,
        attributes: u16::from(segment.type_ & 15)
            | bit(segment.s, 4)
            | u16::from(segment.dpl & 3) << 5
            | bit(present, 7)
            | bit(segment.avl, 12)
            | bit(segment.l, 13)
            | bit(segment.db, 14)
            | bit(segment.g, 15),
    }
}

fn segment_to_kvm(segment: &Segment) -> kvm_segment {
    let bit = |position: u32| (segment.attributes >> position & 1) as u8;
    kvm_segment {
        base: segment.base,
        limit: segment.limit,
        selector: segment.selector,
        type_: (segment.attributes & 15) as u8,
        present: bit(7),
        dpl: segment.dpl(),
        db: bit(14),
        s: bit(4),
        l: bit(13),
        g: bit(15),
        avl: bit(12),
        unusable: 1 - bit(7),
        padding: 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn segments_survive_the_way_to_kvm_and_back(
            selector: u16, base: u64, limit: u32, attributes: u16,
        ) {
            // Bits 8 to 11 of a descriptor's upper half are part of the limit.
            let segment = Segment { selector, base, limit, attributes: attributes & 0xf0ff };
            prop_assert_eq!(segment_from_kvm(&segment_to_kvm(&segment)), segment);
        }

        #[test]
        fn registers_survive_the_way_to_kvm_and_back(values: [u64; 16], rip: u64, flags: u64) {
            let mut cpu = Cpu::default();
            cpu.enter_flat_long(rip);
            cpu.registers[..16].copy_from_slice(&values);
            cpu.set_rflags(flags & 0x24_4fd5 | 2);
            cpu.cr2 = flags;
            let mut system = kvm_sregs::default();
            system_to_kvm(&cpu, &mut system);
            let mut back = Cpu::default();
            from_kvm(&mut back, &general_to_kvm(&cpu), &system, &kvm_debugregs::default());
            prop_assert_eq!(&back.registers[..17], &cpu.registers[..17]);
            prop_assert_eq!(back.rflags(), cpu.rflags());
            prop_assert_eq!(back.segments, cpu.segments);
            prop_assert_eq!((back.cr0, back.cr2, back.cr4), (cpu.cr0, cpu.cr2, cpu.cr4));
            prop_assert_eq!(back.msrs.efer, cpu.msrs.efer);
        }
    }
}
