//! Paging: permissions, reserved bits, accessed and dirty bits, what the TLB may remember.

use iced_x86::code_asm::*;
use softcpu::control::*;

use crate::guest::*;

const PAGE: u64 = WINDOW + 0x3000;
const FRAME: u64 = 0x20_0000;

/// The error code of the page fault that `build` raises at [`PAGE`], or `None` if it halts.
fn fault_code(guest: &mut Guest, build: impl FnOnce(&mut CodeAssembler)) -> Option<u64> {
    guest.program(CODE, |a| {
        build(a);
        a.hlt().unwrap();
    });
    let (_, exit) = guest.run(100);
    assert_eq!(exit, softcpu::Exit::Halt);
    if guest.cpu().rip() < CODE {
        let frame = guest.cpu().registers[softcpu::cpu::RSP as usize];
        assert_eq!(guest.cpu().rip(), handler(14) + 1, "another exception");
        Some(guest.read_u64(frame))
    } else {
        None
    }
}

fn read(a: &mut CodeAssembler) {
    a.mov(rbx, PAGE).unwrap();
    a.mov(rax, qword_ptr(rbx)).unwrap();
}

fn write(a: &mut CodeAssembler) {
    a.mov(rbx, PAGE).unwrap();
    a.mov(qword_ptr(rbx), rax).unwrap();
}

fn jump(a: &mut CodeAssembler) {
    a.mov(rbx, PAGE).unwrap();
    a.jmp(rbx).unwrap();
}

fn user_read(flags: u64) -> Option<u64> {
    user(flags, read)
}

fn user(flags: u64, build: impl FnOnce(&mut CodeAssembler)) -> Option<u64> {
    let mut guest = Guest::new();
    guest.map(PAGE, FRAME, flags);
    guest.enter_user(CODE);
    guest.program(CODE, |a| {
        build(a);
        a.int(0x80).unwrap();
    });
    guest.set_gate(0x80, 0xe, 3, 0);
    let taken = guest.run_to_exception();
    (taken.vector == 14).then(|| taken.error_code.unwrap())
}

#[test]
fn absent_pages_fault_with_the_kind_of_access_and_the_address() {
    for (build, code) in [(read as fn(&mut CodeAssembler), 0), (write, 2)] {
        let mut guest = Guest::new();
        guest.map(PAGE, FRAME, 0);
        assert_eq!(fault_code(&mut guest, build), Some(code));
        assert_eq!(guest.cpu().cr2, PAGE);
    }
    assert_eq!(user_read(0), Some(4));
}

#[test]
fn every_level_can_be_absent() {
    for entry in [POINTERS + 8, WINDOW_DIRECTORY, WINDOW_TABLE + 3 * 8] {
        let mut guest = Guest::new();
        guest.map(PAGE, FRAME, TABLE);
        let value = guest.read_u64(entry);
        guest.write(entry, &(value & !PRESENT).to_le_bytes());
        assert_eq!(fault_code(&mut guest, read), Some(0), "{entry:#x}");
    }
    let mut guest = Guest::new();
    let code = fault_code(&mut guest, |a| {
        a.mov(rbx, 1_u64 << 40).unwrap();
        a.mov(rax, qword_ptr(rbx)).unwrap();
    });
    assert_eq!(code, Some(0));
}

#[test]
fn write_protection_holds_for_the_supervisor_only_with_wp() {
    let mut guest = Guest::new();
    guest.map(PAGE, FRAME, PRESENT | USER);
    assert_eq!(fault_code(&mut guest, write), Some(3));

    let mut guest = Guest::new();
    guest.map(PAGE, FRAME, PRESENT | USER);
    guest.cpu().cr0 &= !CR0_WP;
    assert_eq!(fault_code(&mut guest, write), None);
    assert_eq!(guest.read_u64(guest.entry(PAGE)) & (ACCESSED | DIRTY), ACCESSED | DIRTY);

    assert_eq!(user(PRESENT | USER, write), Some(7));
    assert_eq!(user(PRESENT | USER | WRITABLE, write), None);
}

#[test]
fn each_level_takes_rights_away() {
    for entry in [POINTERS + 8, WINDOW_DIRECTORY, WINDOW_TABLE + 3 * 8] {
        for (change, build, code) in
            [(WRITABLE, write as fn(&mut CodeAssembler), 3), (NO_EXECUTE, jump, 0x11)]
        {
            let mut guest = Guest::new();
            guest.map(PAGE, FRAME, TABLE);
            let value = guest.read_u64(entry);
            guest.write(entry, &(value ^ change).to_le_bytes());
            assert_eq!(fault_code(&mut guest, build), Some(code), "{entry:#x}");
        }
        let mut guest = Guest::new();
        guest.map(PAGE, FRAME, TABLE);
        let value = guest.read_u64(entry);
        guest.write(entry, &(value & !USER).to_le_bytes());
        guest.enter_user(CODE);
        guest.program(CODE, read);
        assert_eq!(guest.run_to_exception().error_code, Some(5), "{entry:#x}");
    }
}

#[test]
fn user_code_stays_out_of_supervisor_pages() {
    assert_eq!(user_read(PRESENT | WRITABLE), Some(5));
    assert_eq!(user_read(PRESENT | WRITABLE | USER), None);
}

#[test]
fn no_execute_is_enforced_and_reported() {
    let mut guest = Guest::new();
    guest.map(PAGE, FRAME, PRESENT | NO_EXECUTE);
    assert_eq!(fault_code(&mut guest, jump), Some(0x11));
    assert_eq!(guest.cpu().cr2, PAGE);
    // Without EFER.NXE the bit is reserved.
    let mut guest = Guest::new();
    guest.map(PAGE, FRAME, PRESENT | NO_EXECUTE);
    guest.cpu().msrs.efer &= !EFER_NXE;
    assert_eq!(fault_code(&mut guest, read), Some(9));
}

#[test]
fn the_supervisor_does_not_execute_user_pages_under_smep() {
    let mut guest = supervisor_only();
    guest.map(PAGE, FRAME, TABLE);
    guest.write(FRAME, &[0xf4]);
    guest.cpu().cr4 |= CR4_SMEP;
    assert_eq!(fault_code(&mut guest, jump), Some(0x11));
}

#[test]
fn the_supervisor_reads_user_pages_under_smap_only_with_ac() {
    let mut guest = supervisor_only();
    guest.map(PAGE, FRAME, TABLE);
    guest.cpu().cr4 |= CR4_SMAP;
    assert_eq!(fault_code(&mut guest, read), Some(1));

    let mut guest = supervisor_only();
    guest.map(PAGE, FRAME, TABLE);
    guest.cpu().cr4 |= CR4_SMAP;
    guest.program(CODE, |a| {
        a.stac().unwrap();
        read(a);
        a.mov(rcx, qword_ptr(rbx + 8)).unwrap();
        a.clac().unwrap();
        a.mov(rdx, qword_ptr(rbx + 8)).unwrap();
        a.hlt().unwrap();
    });
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.error_code), (14, Some(1)));
    assert_eq!(guest.cpu().cr2, PAGE + 8);
}

/// A guest whose one-to-one mapping is the supervisor's alone.
fn supervisor_only() -> Guest {
    let guest = Guest::new();
    for index in 0..8 {
        let entry = index << 21 | LARGE | PRESENT | WRITABLE;
        guest.write(DIRECTORY + index * 8, &entry.to_le_bytes());
    }
    guest
}

#[test]
fn reserved_bits_fault_at_every_level() {
    let beyond_physical = 1 << 45;
    for (entry, bit) in [
        (PAGE_MAP, LARGE),
        (POINTERS + 8, beyond_physical),
        (WINDOW_DIRECTORY, beyond_physical),
        (WINDOW_TABLE + 3 * 8, beyond_physical),
    ] {
        let mut guest = Guest::new();
        guest.map(PAGE, FRAME, TABLE);
        let value = guest.read_u64(entry);
        guest.write(entry, &(value | bit).to_le_bytes());
        if entry == PAGE_MAP {
            // Not even the handler can be fetched.
            assert_eq!(guest.run(10).1, softcpu::Exit::Shutdown);
        } else {
            assert_eq!(fault_code(&mut guest, read), Some(9), "{entry:#x} {bit:#x}");
        }
    }
    // Low address bits of large pages.
    let mut guest = Guest::new();
    guest.map(PAGE, FRAME, TABLE);
    guest.write(WINDOW_DIRECTORY, &(0x20_0000 | 1 << 13 | LARGE | TABLE).to_le_bytes());
    assert_eq!(fault_code(&mut guest, read), Some(9));
}

#[test]
fn large_pages_of_both_sizes_translate() {
    let mut guest = Guest::new();
    guest.map(PAGE, FRAME, TABLE);
    guest.write(WINDOW_DIRECTORY, &(0x40_0000_u64 | LARGE | TABLE).to_le_bytes());
    guest.write(0x40_3000, &0x1122_3344_5566_7788_u64.to_le_bytes());
    assert_eq!(fault_code(&mut guest, read), None);
    assert_eq!(guest.cpu().registers[0], 0x1122_3344_5566_7788);

    let mut guest = Guest::new();
    guest.write(POINTERS + 8, &(LARGE | TABLE).to_le_bytes());
    guest.write(DATA, &0x8877_6655_4433_2211_u64.to_le_bytes());
    let read = |a: &mut CodeAssembler| {
        a.mov(rbx, WINDOW + DATA).unwrap();
        a.mov(rax, qword_ptr(rbx)).unwrap();
    };
    assert_eq!(fault_code(&mut guest, read), None);
    assert_eq!(guest.cpu().registers[0], 0x8877_6655_4433_2211);
}

#[test]
fn accessed_and_dirty_bits_follow_the_accesses() {
    let mut guest = Guest::new();
    guest.map(PAGE, FRAME, TABLE);
    assert_eq!(fault_code(&mut guest, read), None);
    assert_eq!(guest.read_u64(guest.entry(PAGE)) & (ACCESSED | DIRTY), ACCESSED);
    assert_eq!(guest.read_u64(WINDOW_DIRECTORY) & (ACCESSED | DIRTY), ACCESSED);
    guest.cpu().activity = Default::default();
    guest.cpu().set_rip(CODE);
    // The read has left a TLB entry, which must not keep the write from setting the bit.
    assert_eq!(fault_code(&mut guest, write), None);
    assert_eq!(guest.read_u64(guest.entry(PAGE)) & (ACCESSED | DIRTY), ACCESSED | DIRTY);
    assert_eq!(guest.read_u64(WINDOW_DIRECTORY) & DIRTY, 0);
}

#[test]
fn non_canonical_addresses_are_protection_faults() {
    let mut guest = Guest::new();
    let raised = guest.exception(|a| {
        a.mov(rbx, 0x8000_0000_0000_u64).unwrap();
        a.mov(rax, qword_ptr(rbx)).unwrap();
    });
    assert_eq!(raised, (13, Some(0)));
    let mut guest = Guest::new();
    let raised = guest.exception(|a| {
        a.mov(rbx, 0x8000_0000_0000_u64).unwrap();
        a.jmp(rbx).unwrap();
    });
    assert_eq!(raised, (13, Some(0)));
}

#[test]
fn stack_accesses_that_are_not_canonical_are_stack_faults() {
    let mut guest = Guest::new();
    // The handler needs a good stack.
    guest.set_gate(12, 0xe, 0, 1);
    let raised = guest.exception(|a| {
        a.mov(rsp, 0x8000_0000_1000_u64).unwrap();
        a.push(rax).unwrap();
    });
    assert_eq!(raised, (12, Some(0)));
    let mut guest = Guest::new();
    let raised = guest.exception(|a| {
        a.mov(rbp, 0x8000_0000_0000_u64).unwrap();
        a.mov(rax, qword_ptr(rbp + 8)).unwrap();
    });
    assert_eq!(raised, (12, Some(0)));
}

#[test]
fn an_access_across_pages_is_all_or_nothing() {
    let mut guest = Guest::new();
    guest.map(PAGE, FRAME, TABLE);
    guest.map(PAGE + 0x1000, FRAME + 0x5000, PRESENT | USER);
    guest.write(FRAME + 0xff8, &[0x11; 8]);
    let code = fault_code(&mut guest, |a| {
        a.mov(rbx, PAGE + 0xffc).unwrap();
        a.mov(qword_ptr(rbx), rax).unwrap();
    });
    assert_eq!(code, Some(3));
    assert_eq!(guest.cpu().cr2, PAGE + 0x1000, "the second page is the one that faults");
    assert_eq!(guest.read_u64(FRAME + 0xff8), 0x1111_1111_1111_1111);

    let mut guest = Guest::new();
    guest.map(PAGE, FRAME, TABLE);
    guest.map(PAGE + 0x1000, FRAME + 0x5000, TABLE);
    let code = fault_code(&mut guest, |a| {
        a.mov(rbx, PAGE + 0xffc).unwrap();
        a.mov(rax, 0x8877_6655_4433_2211_u64).unwrap();
        a.mov(qword_ptr(rbx), rax).unwrap();
        a.mov(rcx, qword_ptr(rbx)).unwrap();
        a.lock().add(qword_ptr(rbx), rcx).unwrap();
    });
    assert_eq!(code, None);
    assert_eq!(guest.cpu().registers[1], 0x8877_6655_4433_2211);
    assert_eq!(guest.read_u64(FRAME + 0xff8) >> 32, 0x8866_4422);
    assert_eq!(guest.read_u64(FRAME + 0x5000) & 0xffff_ffff, 0x10ee_ccaa);
}

#[test]
fn translations_are_kept_until_flushed() {
    // Read through PAGE, change its entry, and read again: INVLPG and CR3 writes make the change visible.
    for (flush, flags, seen) in
        [("invlpg", TABLE, 2), ("cr3", TABLE, 2), ("cr3", TABLE | GLOBAL, 1), ("cr4", TABLE | GLOBAL, 2)]
    {
        let mut guest = Guest::new();
        guest.map(PAGE, FRAME, flags);
        guest.write(FRAME, &1_u64.to_le_bytes());
        guest.write(FRAME + 0x1000, &2_u64.to_le_bytes());
        let entry = guest.entry(PAGE);
        guest.program(CODE, |a| {
            read(a);
            a.mov(rcx, entry).unwrap();
            a.mov(rdx, (FRAME + 0x1000) | flags).unwrap();
            a.mov(qword_ptr(rcx), rdx).unwrap();
            match flush {
                "invlpg" => a.invlpg(byte_ptr(rbx + 0x123)).unwrap(),
                "cr3" => {
                    a.mov(rdx, cr3).unwrap();
                    a.mov(cr3, rdx).unwrap();
                }
                _ => {
                    a.mov(rdx, cr4).unwrap();
                    a.xor(rdx, CR4_PGE as i32).unwrap();
                    a.mov(cr4, rdx).unwrap();
                }
            }
            a.mov(rax, qword_ptr(rbx)).unwrap();
            a.hlt().unwrap();
        });
        guest.run_to_halt();
        assert_eq!(guest.cpu().registers[0], seen, "{flush} {flags:#x}");
    }
}

#[test]
fn invlpg_anywhere_in_a_large_page_drops_all_of_it() {
    let mut guest = Guest::new();
    guest.map(PAGE, FRAME, TABLE);
    guest.write(WINDOW_DIRECTORY, &(0x40_0000_u64 | LARGE | TABLE).to_le_bytes());
    guest.write(0x40_3000, &1_u64.to_le_bytes());
    guest.write(0x60_3000, &2_u64.to_le_bytes());
    guest.program(CODE, |a| {
        read(a);
        a.mov(rcx, WINDOW_DIRECTORY).unwrap();
        a.mov(rdx, 0x60_0000 | LARGE | TABLE).unwrap();
        a.mov(qword_ptr(rcx), rdx).unwrap();
        a.mov(rcx, WINDOW + 0x1f_0000).unwrap();
        a.invlpg(byte_ptr(rcx)).unwrap();
        a.mov(rax, qword_ptr(rbx)).unwrap();
        a.hlt().unwrap();
    });
    guest.run_to_halt();
    assert_eq!(guest.cpu().registers[0], 2);
}

#[test]
fn memory_that_is_not_ram_is_the_buss() {
    let mut guest = Guest::new();
    guest.map(PAGE, 0xfee0_0000, TABLE);
    guest.program(CODE, |a| {
        a.mov(rbx, PAGE).unwrap();
        a.nop().unwrap();
        a.mov(dword_ptr(rbx + 0xb0), 7).unwrap();
        a.mov(eax, dword_ptr(rbx + 0x20)).unwrap();
        a.hlt().unwrap();
    });
    guest.run_to_halt();
    assert_eq!(guest.bus.memory_writes, [(2, 0xfee0_00b0, vec![7, 0, 0, 0])]);
    assert_eq!(guest.bus.memory_reads, [(3, 0xfee0_0020, 4)]);
    assert_eq!(guest.cpu().registers[0], 0xabab_abab);
}
