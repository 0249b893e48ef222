//! Crossing privilege levels: fast system calls, gates, far returns, what user code may not do.

use iced_x86::code_asm::*;
use softcpu::Mode;
use softcpu::control::*;
use softcpu::cpu::RSP;
use softcpu::flags::*;
use softcpu::segment::*;

use crate::guest::*;

const KERNEL_ENTRY: u64 = 0x1_4000;

fn with_syscalls() -> Guest {
    let mut guest = Guest::new();
    let msrs = &mut guest.cpu().msrs;
    msrs.star = u64::from(KERNEL_CODE) << 32 | u64::from(USER_CODE_32 | 3) << 48;
    msrs.lstar = KERNEL_ENTRY;
    msrs.cstar = KERNEL_ENTRY + 0x100;
    msrs.sfmask = IF | TF | DF;
    guest.enter_user(CODE);
    guest
}

#[test]
fn syscall_and_sysret_go_there_and_back() {
    let mut guest = with_syscalls();
    guest.program(KERNEL_ENTRY, |a| {
        a.mov(eax, cs).unwrap();
        a.mov(ebx, ss).unwrap();
        a.pushfq().unwrap();
        a.pop(rdx).unwrap();
        a.sysretq().unwrap();
    });
    guest.program(CODE, |a| {
        a.std().unwrap();
        a.stc().unwrap();
        a.syscall().unwrap();
        a.ud2().unwrap();
    });
    guest.cpu().system_flags |= IF;
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.rip), (6, CODE + 4));
    assert_eq!((taken.cs, taken.ss), (u64::from(USER_CODE | 3), u64::from(USER_DATA | 3)));
    assert_eq!(taken.flags & (IF | DF | CF), IF | DF | CF);
    let registers = guest.cpu().registers;
    assert_eq!((registers[0], registers[3]), (u64::from(KERNEL_CODE), u64::from(KERNEL_DATA)));
    assert_eq!(registers[2] & (IF | DF | CF), CF);
    assert_eq!(registers[1], CODE + 4);
}

#[test]
fn sysret_can_return_to_32_bit_code() {
    let mut guest = with_syscalls();
    guest.program(KERNEL_ENTRY, |a| {
        a.mov(ecx, 0x1_5000).unwrap();
        a.sysret().unwrap();
    });
    guest.program(CODE, |a| a.syscall().unwrap());
    guest.program_for(32, 0x1_5000, |a| {
        a.inc(eax).unwrap();
        a.ud2().unwrap();
    });
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.rip, taken.cs), (6, 0x1_5001, u64::from(USER_CODE_32 | 3)));
}

#[test]
fn sysret_refuses_a_non_canonical_target() {
    let mut guest = with_syscalls();
    guest.program(KERNEL_ENTRY, |a| {
        a.mov(rcx, 1_u64 << 47).unwrap();
        a.mov(rsp, KERNEL_STACK).unwrap();
        a.sysretq().unwrap();
    });
    guest.program(CODE, |a| a.syscall().unwrap());
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.error_code, taken.cs), (13, Some(0), u64::from(KERNEL_CODE)));
}

#[test]
fn syscall_needs_to_be_enabled() {
    let mut guest = with_syscalls();
    guest.cpu().msrs.efer &= !EFER_SCE;
    assert_eq!(guest.exception(|a| a.syscall().unwrap()), (6, None));
    let mut guest = Guest::new();
    guest.enter_user(CODE);
    assert_eq!(guest.exception(|a| a.sysretq().unwrap()), (13, Some(0)));
}

#[test]
fn sysenter_and_sysexit_use_their_own_registers() {
    let mut guest = Guest::new();
    let msrs = &mut guest.cpu().msrs;
    msrs.sysenter_cs = u64::from(KERNEL_CODE);
    msrs.sysenter_eip = KERNEL_ENTRY;
    msrs.sysenter_esp = KERNEL_STACK;
    guest.program(KERNEL_ENTRY, |a| {
        a.mov(rax, rsp).unwrap();
        a.mov(rdx, CODE + 0x100).unwrap();
        a.mov(rcx, USER_STACK).unwrap();
        a.sysexitq().unwrap();
    });
    guest.program(CODE, |a| a.sysenter().unwrap());
    guest.program(CODE + 0x100, |a| a.ud2().unwrap());
    guest.enter_user(CODE);
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.rip, taken.rsp), (6, CODE + 0x100, USER_STACK));
    assert_eq!(taken.cs, u64::from((KERNEL_CODE + 32) | 3));
    assert_eq!(guest.cpu().registers[0], KERNEL_STACK);
}

#[test]
fn swapgs_exchanges_the_bases() {
    let mut guest = Guest::new();
    guest.cpu().msrs.kernel_gs_base = DATA;
    guest.cpu().segments[GS].base = 0x1234;
    guest.write(DATA + 8, &77_u64.to_le_bytes());
    guest.program(CODE, |a| {
        a.swapgs().unwrap();
        a.mov(rax, qword_ptr(8).gs()).unwrap();
        a.hlt().unwrap();
    });
    guest.run_to_halt();
    assert_eq!(guest.cpu().registers[0], 77);
    assert_eq!(guest.cpu().msrs.kernel_gs_base, 0x1234);
    let mut guest = Guest::new();
    guest.enter_user(CODE);
    assert_eq!(guest.exception(|a| a.swapgs().unwrap()), (13, Some(0)));
}

#[test]
fn bases_can_be_accessed_by_everybody_once_enabled() {
    let mut guest = Guest::new();
    assert_eq!(guest.exception(|a| a.rdfsbase(rax).unwrap()), (6, None));
    let mut guest = Guest::new();
    guest.cpu().cr4 |= CR4_FSGSBASE;
    guest.enter_user(CODE);
    guest.program(CODE, |a| {
        a.mov(rax, 0x1234_5678_9abc_u64).unwrap();
        a.wrfsbase(rax).unwrap();
        a.rdfsbase(rbx).unwrap();
        a.wrgsbase(eax).unwrap();
        a.rdgsbase(rcx).unwrap();
        a.ud2().unwrap();
    });
    assert_eq!(guest.run_to_exception().vector, 6);
    let registers = guest.cpu().registers;
    assert_eq!((registers[3], registers[1]), (0x1234_5678_9abc, 0x5678_9abc));
}

#[test]
fn user_code_may_not_touch_the_system() {
    type Program = fn(&mut CodeAssembler);
    let programs: [Program; 14] = [
        |a| a.hlt().unwrap(),
        |a| a.cli().unwrap(),
        |a| a.sti().unwrap(),
        |a| a.in_(al, 0x60).unwrap(),
        |a| a.mov(rax, cr0).unwrap(),
        |a| a.mov(cr3, rax).unwrap(),
        |a| a.mov(dr7, rax).unwrap(),
        |a| a.rdmsr().unwrap(),
        |a| a.wrmsr().unwrap(),
        |a| a.clts().unwrap(),
        |a| a.invlpg(byte_ptr(rax)).unwrap(),
        |a| a.lgdt(ptr(rsp)).unwrap(),
        |a| a.ltr(ax).unwrap(),
        |a| a.wbinvd().unwrap(),
    ];
    for (index, program) in programs.into_iter().enumerate() {
        let mut guest = Guest::new();
        guest.enter_user(CODE);
        assert_eq!(guest.exception(program), (13, Some(0)), "program {index}");
    }
}

#[test]
fn umip_hides_the_tables() {
    let program = |a: &mut CodeAssembler| {
        a.sidt(ptr(rsp - 64)).unwrap();
        a.ud2().unwrap();
    };
    let mut guest = Guest::new();
    guest.enter_user(CODE);
    assert_eq!(guest.exception(program).0, 6);
    let mut guest = Guest::new();
    guest.cpu().cr4 |= CR4_UMIP;
    guest.enter_user(CODE);
    assert_eq!(guest.exception(program), (13, Some(0)));
}

#[test]
fn the_io_map_opens_ports() {
    for (bit, expected) in [(0_u8, 6), (1 << 3, 13)] {
        let mut guest = Guest::new();
        guest.cpu().tr.limit = 0x68 + 0x20;
        guest.write(TSS + 0x68, &[0xff; 0x20]);
        guest.write(TSS + 0x68 + 0x60 / 8, &[bit]);
        guest.enter_user(CODE);
        let raised = guest.exception(|a| {
            a.in_(al, 0x63).unwrap();
            a.ud2().unwrap();
        });
        assert_eq!(raised.0, expected);
    }
}

#[test]
fn flags_keep_what_the_privilege_does_not_reach() {
    let mut guest = Guest::new();
    guest.enter_user(CODE);
    guest.cpu().system_flags |= IF;
    guest.program(CODE, |a| {
        a.push(0x3000 | (CF | NT | ID) as i32).unwrap();
        a.popfq().unwrap();
        a.ud2().unwrap();
    });
    let flags = guest.run_to_exception().flags;
    assert_eq!(flags & (IF | IOPL | CF | NT | ID), IF | CF | NT | ID);
}

#[test]
fn a_call_gate_leads_inwards_and_retf_outwards() {
    let mut guest = Guest::new();
    let gate = KERNEL_ENTRY & 0xffff | u64::from(KERNEL_CODE) << 16 | 0xec << 40 | (KERNEL_ENTRY >> 16) << 48;
    guest.set_descriptor(0x50, gate);
    guest.set_descriptor(0x58, 0);
    guest.program(KERNEL_ENTRY, |a| {
        a.mov(eax, cs).unwrap();
        a.mov(rbx, rsp).unwrap();
        a.db(&[0x48, 0xcb]).unwrap();
    });
    guest.write(DATA, &[0, 0, 0, 0, 0x53, 0]);
    guest.enter_user(CODE);
    guest.program(CODE, |a| {
        a.mov(rcx, DATA).unwrap();
        a.call(fword_ptr(rcx)).unwrap();
        a.ud2().unwrap();
    });
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.rsp, taken.cs), (6, USER_STACK, u64::from(USER_CODE | 3)));
    let registers = guest.cpu().registers;
    assert_eq!((registers[0], registers[3]), (u64::from(KERNEL_CODE), INNER_STACK - 32));
}

#[test]
fn compatibility_mode_runs_32_bit_code_in_long_mode() {
    let mut guest = Guest::new();
    guest.program_for(32, 0x1_5000, |a| {
        a.mov(eax, 0xffff_ffff_u32).unwrap();
        a.inc(eax).unwrap();
        a.push(eax).unwrap();
        a.hlt().unwrap();
    });
    guest.program(CODE, |a| {
        a.push(i32::from(KERNEL_CODE_32)).unwrap();
        a.push(0x1_5000).unwrap();
        a.db(&[0x48, 0xcb]).unwrap();
    });
    guest.run_to_halt();
    assert_eq!(guest.cpu().mode(), Mode::Compatibility32);
    assert_eq!(guest.cpu().registers[RSP as usize], KERNEL_STACK - 4);
    // And an exception from there is delivered as in 64-bit mode.
    guest.program_for(32, 0x1_6000, |a| a.ud2().unwrap());
    guest.cpu().set_rip(0x1_6000);
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.cs, taken.rsp), (6, u64::from(KERNEL_CODE_32), KERNEL_STACK - 4));
}

#[test]
fn control_registers_refuse_what_makes_no_sense() {
    let set = |register: AsmRegisterCr, value: u64| {
        move |a: &mut CodeAssembler| {
            a.mov(rax, value).unwrap();
            a.mov(register, rax).unwrap();
        }
    };
    for (register, value) in [
        (cr0, CR0_PG),
        (cr0, CR0_PE | CR0_PG | CR0_NW),
        (cr0, 1 << 32),
        (cr0, CR0_PE),
        (cr4, 0),
        (cr4, CR4_PAE | 1 << 30),
        (cr4, CR4_PAE | 1 << 17),
        (cr3, 1 << 45),
    ] {
        let mut guest = Guest::new();
        assert_eq!(guest.exception(set(register, value)), (13, Some(0)), "{value:#x}");
    }
}

#[test]
fn model_specific_registers_are_the_cpus_or_the_machines() {
    let mut guest = Guest::new();
    guest.program(CODE, |a| {
        a.mov(ecx, 0x1b).unwrap();
        a.rdmsr().unwrap();
        a.mov(esi, eax).unwrap();
        a.mov(ecx, 0xc000_0102_u32).unwrap();
        a.mov(eax, 0x1234).unwrap();
        a.mov(edx, 0xffff_8000_u32).unwrap();
        a.wrmsr().unwrap();
        a.xor(eax, eax).unwrap();
        a.rdmsr().unwrap();
        a.hlt().unwrap();
    });
    guest.run_to_halt();
    let registers = guest.cpu().registers;
    assert_eq!((registers[6], registers[0], registers[2]), (0xfee0_0900, 0x1234, 0xffff_8000));
    // Unknown, not canonical, reserved.
    for (index, value) in
        [(0x5555, 0), (0xc000_0102_u32, 0x8000_0000_0000_u64), (0xc000_0080, 1 << 20), (0x277, 2)]
    {
        let mut guest = Guest::new();
        let raised = guest.exception(|a| {
            a.mov(ecx, index).unwrap();
            a.mov(eax, value as u32).unwrap();
            a.mov(edx, (value >> 32) as u32).unwrap();
            a.wrmsr().unwrap();
        });
        assert_eq!(raised, (13, Some(0)), "{index:#x}");
    }
}

#[test]
fn the_time_stamp_can_be_moved() {
    let mut guest = Guest::new();
    guest.program(CODE, |a| {
        a.mov(ecx, 0x10).unwrap();
        a.mov(eax, 5).unwrap();
        a.xor(edx, edx).unwrap();
        a.wrmsr().unwrap();
        a.rdtsc().unwrap();
        a.hlt().unwrap();
    });
    guest.run_to_halt();
    assert_eq!(guest.cpu().registers[0], 6);
    assert_eq!(guest.cpu().msrs.tsc_adjust as i64, 5 - 1_000_003);
}

#[test]
fn segments_are_checked_when_loaded() {
    let load = |selector: u16| {
        move |a: &mut CodeAssembler| {
            a.mov(eax, u32::from(selector)).unwrap();
            a.mov(fs, eax).unwrap();
            a.ud2().unwrap();
        }
    };
    for (selector, user, expected) in [
        (0, true, (6, None)),
        (USER_DATA | 3, true, (6, None)),
        (KERNEL_DATA, true, (13, Some(0x10))),
        (KERNEL_DATA, false, (6, None)),
        (ABSENT, false, (11, Some(0x48))),
        (TASK, false, (13, Some(0x30))),
        (0x80, false, (13, Some(0x80))),
        (0x14, false, (13, Some(0x14))),
    ] {
        let mut guest = Guest::new();
        if user {
            guest.enter_user(CODE);
        }
        assert_eq!(guest.exception(load(selector)), expected, "{selector:#x}");
    }
    let mut guest = Guest::new();
    let raised = guest.exception(|a| {
        a.mov(eax, u32::from(USER_DATA | 3)).unwrap();
        a.mov(ss, eax).unwrap();
    });
    assert_eq!(raised, (13, Some(0x20)));
}

#[test]
fn selectors_can_be_asked_about() {
    let mut guest = Guest::new();
    guest.program(CODE, |a| {
        a.mov(ecx, u32::from(KERNEL_DATA)).unwrap();
        a.lar(eax, ecx).unwrap();
        a.lsl(ebx, ecx).unwrap();
        a.setz(dl).unwrap();
        a.mov(ecx, 0x7f8).unwrap();
        a.lar(esi, ecx).unwrap();
        a.setz(dh).unwrap();
        a.hlt().unwrap();
    });
    guest.run_to_halt();
    let registers = guest.cpu().registers;
    assert_eq!((registers[0], registers[3], registers[2]), (0x00cf_9300, 0xffff_ffff, 1));
}

#[test]
fn the_task_register_marks_its_segment_busy() {
    let mut guest = Guest::new();
    guest.program(CODE, |a| {
        a.mov(ecx, u32::from(TASK)).unwrap();
        a.ltr(cx).unwrap();
        a.str(eax).unwrap();
        a.ltr(cx).unwrap();
    });
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.error_code), (13, Some(0x30)));
    assert_eq!(guest.read_u64(GDT + u64::from(TASK)) >> 40 & 0xff, 0x8b);
    assert_eq!(guest.cpu().registers[0], u64::from(TASK));
    assert_eq!(guest.cpu().tr.base, TSS);
}
