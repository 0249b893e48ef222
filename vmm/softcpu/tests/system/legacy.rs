//! Real and protected mode, and the kinds of paging that come with them.

use iced_x86::code_asm::*;
use softcpu::control::*;
use softcpu::cpu::RSP;
use softcpu::segment::*;
use softcpu::{Exit, Mode};

use crate::guest::*;

/// In 32-bit protected mode without paging at [`CODE`], with the guest's descriptor table.
fn protected() -> Guest {
    let mut guest = Guest::new();
    for vector in 0..64_u64 {
        let target = handler(vector as u8);
        let gate = target & 0xffff | u64::from(KERNEL_CODE_32) << 16 | 0x8e << 40 | (target >> 16) << 48;
        guest.write(IDT + vector * 8, &gate.to_le_bytes());
    }
    let cpu = guest.cpu();
    cpu.enter_protected(CODE as u32);
    cpu.gdtr = DescriptorTable { base: GDT, limit: 0x7f };
    cpu.idtr = DescriptorTable { base: IDT, limit: 0x1ff };
    cpu.segments[CS].selector = KERNEL_CODE_32;
    cpu.segments[SS].selector = KERNEL_DATA;
    cpu.registers[RSP as usize] = KERNEL_STACK;
    guest
}

/// The vector, error code (or the word in its place) and saved EIP of the exception that the program raises.
fn raised(guest: &mut Guest, build: impl FnOnce(&mut CodeAssembler)) -> (u8, u32, u32) {
    guest.program_for(32, CODE, build);
    assert_eq!(guest.run(1000).1, Exit::Halt);
    let rip = guest.cpu().rip();
    assert!((HANDLERS..HANDLERS + 0x1000).contains(&rip), "no exception, halted at {rip:#x}");
    let frame = guest.cpu().registers[RSP as usize];
    let words = [guest.read_u64(frame) as u32, (guest.read_u64(frame) >> 32) as u32];
    (((rip - HANDLERS) / 16) as u8, words[0], words[1])
}

fn segment(base: u64, limit: u64, access: u64, flags: u64) -> u64 {
    limit & 0xffff
        | (base & 0xff_ffff) << 16
        | access << 40
        | (limit >> 16 & 0xf) << 48
        | flags << 52
        | (base >> 24) << 56
}

#[test]
fn real_mode_interrupts_go_through_the_vector_table() {
    let mut guest = Guest::new();
    let cpu = guest.cpu();
    *cpu = Default::default();
    cpu.segments[CS] = Segment::real(0x1000, true);
    cpu.segments[SS] = Segment::real(0x3000, false);
    cpu.registers[RSP as usize] = 0x100;
    cpu.set_rip(0);
    cpu.idtr = DescriptorTable { base: 0, limit: 0x3ff };
    guest.write(0x21 * 4, &[0x34, 0x12, 0x00, 0x20]);
    guest.program_for(16, 0x1_0000, |a| {
        a.sti().unwrap();
        a.int(0x21).unwrap();
        a.hlt().unwrap();
    });
    guest.program_for(16, 0x2_1234, |a| {
        a.mov(ax, cs).unwrap();
        a.pushf().unwrap();
        a.pop(bx).unwrap();
        a.iret().unwrap();
    });
    assert_eq!(guest.run(100).1, Exit::Halt);
    let cpu = guest.cpu();
    assert_eq!((cpu.rip(), cpu.segments[CS].selector, cpu.mode()), (4, 0x1000, Mode::Real));
    assert_eq!((cpu.registers[0], cpu.registers[3] & 0x200), (0x2000, 0));
    assert_eq!((cpu.registers[RSP as usize], cpu.rflags() & 0x200), (0x100, 0x200));
}

#[test]
fn the_way_from_real_to_long_mode() {
    // What a trampoline does: protected mode, PAE, EFER.LME, paging, a far jump.
    let mut guest = Guest::new();
    *guest.cpu() = Default::default();
    guest.cpu().init(false);
    guest.cpu().start_up(0x10);
    guest.write(0x1_0800, &[0x7f, 0, 0, 0x60, 0, 0]);
    guest.program_for(16, 0, |a| {
        a.mov(ax, cs).unwrap();
        a.mov(ds, ax).unwrap();
        a.lgdt(ptr(0x800)).unwrap();
        a.mov(eax, cr0).unwrap();
        a.or(eax, 1).unwrap();
        a.mov(cr0, eax).unwrap();
        a.db(&[0x66, 0xea, 0x00, 0x01, 0x01, 0x00, 0x40, 0x00]).unwrap();
    });
    // `program_for` wrote to 0; real-mode code runs at 0x10000.
    let mut code = [0; 64];
    vm_memory::Bytes::read_slice(guest.engine.ram(), &mut code, vm_memory::GuestAddress(0)).unwrap();
    guest.write(0x1_0000, &code);
    guest.program_for(32, 0x1_0100, |a| {
        a.mov(eax, u32::from(KERNEL_DATA)).unwrap();
        a.mov(ss, eax).unwrap();
        a.mov(esp, KERNEL_STACK as u32).unwrap();
        a.mov(eax, CR4_PAE as u32).unwrap();
        a.mov(cr4, eax).unwrap();
        a.mov(eax, PAGE_MAP as u32).unwrap();
        a.mov(cr3, eax).unwrap();
        a.mov(ecx, 0xc000_0080_u32).unwrap();
        a.mov(eax, EFER_LME as u32).unwrap();
        a.xor(edx, edx).unwrap();
        a.wrmsr().unwrap();
        a.mov(eax, (CR0_PE | CR0_PG) as u32).unwrap();
        a.mov(cr0, eax).unwrap();
        a.db(&[0xea, 0x00, 0x02, 0x01, 0x00, 0x08, 0x00]).unwrap();
    });
    guest.program(0x1_0200, |a| {
        a.mov(rax, 0x1234_5678_9abc_def0_u64).unwrap();
        a.hlt().unwrap();
    });
    assert_eq!(guest.run(100).1, Exit::Halt);
    assert_eq!(guest.cpu().mode(), Mode::Long64);
    assert_eq!(guest.cpu().registers[0], 0x1234_5678_9abc_def0);
    assert_eq!(guest.cpu().msrs.efer, EFER_LME | EFER_LMA);
}

#[test]
fn segment_limits_and_types_are_enforced() {
    let with_fs = |descriptor: u64| {
        let guest = protected();
        guest.write(GDT + 0x50, &descriptor.to_le_bytes());
        guest
    };
    let load = |a: &mut CodeAssembler| {
        a.mov(eax, 0x50).unwrap();
        a.mov(fs, eax).unwrap();
    };
    // Base and limit.
    let mut guest = with_fs(segment(DATA, 0xfff, 0x92, 4));
    guest.write(DATA + 0xffc, &0x1234_5678_u32.to_le_bytes());
    guest.program_for(32, CODE, |a| {
        load(a);
        a.mov(ebx, dword_ptr(0xffc).fs()).unwrap();
        a.hlt().unwrap();
    });
    guest.run_to_halt();
    assert_eq!(guest.cpu().registers[3], 0x1234_5678);
    assert_eq!(guest.read_u64(GDT + 0x50) >> 40 & 0xff, 0x93, "accessed");
    for (descriptor, offset, write, allowed) in [
        (segment(DATA, 0xfff, 0x92, 4), 0xffd, false, false),
        // Read-only.
        (segment(DATA, 0xfff, 0x90, 4), 0, true, false),
        (segment(DATA, 0xfff, 0x90, 4), 0, false, true),
        // Expand-down.
        (segment(DATA, 0xfff, 0x96, 4), 0xfff, false, false),
        (segment(DATA, 0xfff, 0x96, 4), 0x1000, false, true),
        // Page granularity.
        (segment(DATA, 0, 0x92, 0xc), 0xffc, false, true),
        (segment(DATA, 0, 0x92, 0xc), 0xffd, false, false),
        // Execute-only code cannot be read, and no code can be written.
        (segment(DATA, 0xfff, 0x9a, 4), 0, false, true),
        (segment(DATA, 0xfff, 0x9a, 4), 0, true, false),
    ] {
        let mut guest = with_fs(descriptor);
        let (vector, code, _) = raised(&mut guest, |a| {
            load(a);
            if write {
                a.mov(dword_ptr(offset).fs(), ebx).unwrap();
            } else {
                a.mov(ebx, dword_ptr(offset).fs()).unwrap();
            }
            a.ud2().unwrap();
        });
        assert_eq!(vector == 6, allowed, "{descriptor:#x} {offset:#x} {write}");
        assert!(allowed || (vector, code) == (13, 0));
    }
}

#[test]
fn a_null_segment_cannot_be_used() {
    let mut guest = protected();
    let (vector, code, rip) = raised(&mut guest, |a| {
        a.xor(eax, eax).unwrap();
        a.mov(ds, eax).unwrap();
        a.mov(eax, dword_ptr(ebx)).unwrap();
    });
    assert_eq!((vector, code, rip), (13, 0, CODE as u32 + 4));
}

#[test]
fn the_code_segments_limit_bounds_execution() {
    let mut guest = protected();
    guest.cpu().segments[CS].limit = CODE as u32 + 3;
    // The handler is below the limit, CODE + 4 is not.
    let (vector, code, rip) = raised(&mut guest, |a| {
        a.nop().unwrap();
        a.nop().unwrap();
        a.mov(eax, 1).unwrap();
    });
    assert_eq!((vector, code, rip), (13, 0, CODE as u32 + 2));
}

#[test]
fn an_inner_ring_is_entered_on_the_task_segments_stack() {
    let mut guest = protected();
    guest.write(TSS + 4, &(INNER_STACK as u32).to_le_bytes());
    guest.write(TSS + 8, &u32::from(KERNEL_DATA).to_le_bytes());
    let cpu = guest.cpu();
    cpu.tr = Segment { selector: TASK, base: TSS, limit: 0x67, attributes: 0x8b };
    cpu.segments[CS] = Segment::flat(USER_CODE_32 | 3, 0xb, ATTRIBUTE_32_BIT);
    cpu.segments[SS] = Segment::flat(USER_DATA | 3, 3, ATTRIBUTE_32_BIT);
    cpu.segments[DS] = Segment::flat(USER_DATA | 3, 3, ATTRIBUTE_32_BIT);
    cpu.registers[RSP as usize] = USER_STACK;
    // The handler returns behind the instruction.
    guest.program_for(32, handler(6), |a| {
        a.add(dword_ptr(esp), 2).unwrap();
        a.mov(eax, cs).unwrap();
        a.iretd().unwrap();
    });
    let (vector, code, _) = raised(&mut guest, |a| {
        a.ud2().unwrap();
        a.mov(ebx, cs).unwrap();
        a.hlt().unwrap();
    });
    assert_eq!((vector, code), (13, 0));
    let cpu = guest.cpu();
    assert_eq!(
        (cpu.registers[0], cpu.registers[3]),
        (u64::from(KERNEL_CODE_32), u64::from(USER_CODE_32 | 3))
    );
    assert_eq!((cpu.segments[SS].selector, cpu.registers[RSP as usize]), (KERNEL_DATA, INNER_STACK - 24));
    assert_eq!(guest.read_u64(INNER_STACK - 8), USER_STACK | u64::from(USER_DATA | 3) << 32);
}

#[test]
fn two_level_paging_translates() {
    let mut guest = protected();
    // A 4 MiB page for the first entry, a table for the second.
    guest.write(0x8_0000, &(0x87_u32).to_le_bytes());
    guest.write(0x8_0004, &(0x8_1007_u32).to_le_bytes());
    guest.write(0x8_1000 + 5 * 4, &(0x2_0000_u32 | 5).to_le_bytes());
    guest.write(0x2_0008, &0x1122_3344_u32.to_le_bytes());
    let cpu = guest.cpu();
    cpu.cr3 = 0x8_0000;
    cpu.cr4 = CR4_PSE;
    cpu.cr0 |= CR0_PG | CR0_WP;
    let (vector, code, _) = raised(&mut guest, |a| {
        a.mov(eax, dword_ptr(0x40_5008)).unwrap();
        a.mov(dword_ptr(0x40_5008), eax).unwrap();
    });
    assert_eq!((vector, code), (14, 3));
    assert_eq!((guest.cpu().registers[0], guest.cpu().cr2), (0x1122_3344, 0x40_5008));
    assert_eq!(guest.read_u64(0x8_1000 + 5 * 4) & 0x60, 0x20);
    // Bit 21 of a large page is reserved.
    let mut guest = protected();
    guest.write(0x8_0000, &(0x87_u32).to_le_bytes());
    guest.write(0x8_0004, &(0x87_u32 | 1 << 21).to_le_bytes());
    let cpu = guest.cpu();
    cpu.cr3 = 0x8_0000;
    cpu.cr4 = CR4_PSE;
    cpu.cr0 |= CR0_PG;
    let (vector, code, _) = raised(&mut guest, |a| a.mov(eax, dword_ptr(0x40_5008)).unwrap());
    assert_eq!((vector, code), (14, 9));
}

#[test]
fn pae_paging_loads_its_pointers_with_cr3() {
    let mut guest = protected();
    guest.write(0x8_0020, &(0x8_1001_u64).to_le_bytes());
    guest.write(0x8_1000, &(0x87_u64).to_le_bytes());
    guest.write(0x8_1008, &(0x8_2007_u64).to_le_bytes());
    guest.write(0x8_2000, &(0x2_0000_u64 | 7).to_le_bytes());
    guest.write(0x2_0000, &77_u32.to_le_bytes());
    guest.program_for(32, CODE, |a| {
        a.mov(eax, CR4_PAE as u32).unwrap();
        a.mov(cr4, eax).unwrap();
        a.mov(eax, 0x8_0020).unwrap();
        a.mov(cr3, eax).unwrap();
        a.mov(eax, cr0).unwrap();
        a.or(eax, CR0_PG as u32 as i32).unwrap();
        a.mov(cr0, eax).unwrap();
        // The pointer in memory is no longer looked at.
        a.mov(dword_ptr(0x8_0020), 0).unwrap();
        a.mov(ebx, dword_ptr(0x20_0000)).unwrap();
        a.hlt().unwrap();
    });
    guest.run_to_halt();
    assert_eq!(guest.cpu().registers[3], 77);
    // A reserved bit in a pointer is refused.
    let mut guest = protected();
    guest.write(0x8_0020, &(0x8_1003_u64).to_le_bytes());
    let (vector, code, _) = raised(&mut guest, |a| {
        a.mov(eax, CR4_PAE as u32).unwrap();
        a.mov(cr4, eax).unwrap();
        a.mov(eax, 0x8_0020).unwrap();
        a.mov(cr3, eax).unwrap();
        a.mov(eax, cr0).unwrap();
        a.or(eax, CR0_PG as u32 as i32).unwrap();
        a.mov(cr0, eax).unwrap();
    });
    assert_eq!((vector, code), (13, 0));
}

#[test]
fn string_output_repeats() {
    let mut guest = protected();
    guest.write(DATA, b"abc");
    guest.program_for(32, CODE, |a| {
        a.mov(esi, DATA as u32).unwrap();
        a.mov(ecx, 3).unwrap();
        a.mov(edx, 0x3f8).unwrap();
        a.rep().outsb().unwrap();
        a.hlt().unwrap();
    });
    guest.run_to_halt();
    let written: Vec<u8> = guest.bus.port_writes.iter().map(|(_, _, data)| data[0]).collect();
    assert_eq!(written, b"abc");
    assert_eq!(guest.cpu().registers[1], 0);
}
