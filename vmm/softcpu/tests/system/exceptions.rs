//! Exceptions: what they push, where, and what happens when that fails.

use iced_x86::code_asm::*;
use softcpu::Exit;
use softcpu::control::*;
use softcpu::cpu::RSP;
use softcpu::flags::*;

use crate::guest::*;

#[test]
fn a_fault_points_at_its_instruction_and_a_trap_behind_it() {
    let mut guest = Guest::new();
    guest.program(CODE, |a| {
        a.nop().unwrap();
        a.ud2().unwrap();
    });
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.rip, taken.cs), (6, CODE + 1, u64::from(KERNEL_CODE)));
    assert_eq!((taken.rsp, taken.ss), (KERNEL_STACK, u64::from(KERNEL_DATA)));
    assert_ne!(taken.flags & RF, 0);

    let mut guest = Guest::new();
    guest.program(CODE, |a| {
        a.nop().unwrap();
        a.int3().unwrap();
    });
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.rip), (3, CODE + 2));
    assert_eq!(taken.flags & RF, 0);
}

#[test]
fn the_divide_error_is_a_fault() {
    let mut guest = Guest::new();
    assert_eq!(
        guest.exception(|a| {
            a.xor(ecx, ecx).unwrap();
            a.div(ecx).unwrap();
        }),
        (0, None)
    );
}

#[test]
fn interrupt_gates_clear_if_and_trap_gates_do_not() {
    for (kind, expected) in [(0xe, 0), (0xf, IF)] {
        let mut guest = Guest::new();
        guest.set_gate(0x40, kind, 0, 0);
        guest.cpu().system_flags |= IF;
        guest.program(CODE, |a| a.int(0x40).unwrap());
        let taken = guest.run_to_exception();
        assert_eq!(taken.vector, 0x40);
        assert_ne!(taken.flags & IF, 0);
        assert_eq!(guest.cpu().rflags() & IF, expected);
    }
}

#[test]
fn user_code_lands_on_the_inner_stack() {
    let mut guest = Guest::new();
    guest.enter_user(CODE);
    guest.program(CODE, |a| a.ud2().unwrap());
    let taken = guest.run_to_exception();
    assert_eq!(
        (taken.cs, taken.ss, taken.rsp),
        (u64::from(USER_CODE | 3), u64::from(USER_DATA | 3), USER_STACK)
    );
    assert_eq!(guest.cpu().registers[RSP as usize], INNER_STACK - 40);
    assert_eq!(guest.cpu().segments[softcpu::segment::SS].selector, 0);
    assert_eq!(guest.cpu().cpl(), 0);
}

#[test]
fn a_gate_can_name_a_stack_of_its_own() {
    let mut guest = Guest::new();
    guest.set_gate(6, 0xe, 0, 1);
    guest.cpu().registers[RSP as usize] = KERNEL_STACK - 3;
    guest.program(CODE, |a| a.ud2().unwrap());
    let taken = guest.run_to_exception();
    assert_eq!(taken.rsp, KERNEL_STACK - 3);
    assert_eq!(guest.cpu().registers[RSP as usize], IST_STACK - 40);
}

#[test]
fn the_stack_is_aligned_before_the_frame() {
    let mut guest = Guest::new();
    guest.cpu().registers[RSP as usize] = KERNEL_STACK - 5;
    guest.program(CODE, |a| a.ud2().unwrap());
    assert_eq!(guest.run_to_exception().rsp, KERNEL_STACK - 5);
    assert_eq!(guest.cpu().registers[RSP as usize], KERNEL_STACK - 16 - 40);
}

#[test]
fn software_interrupts_need_the_gates_privilege() {
    let mut guest = Guest::new();
    guest.enter_user(CODE);
    assert_eq!(guest.exception(|a| a.int(0x40).unwrap()), (13, Some(0x40 * 8 + 2)));
    let mut guest = Guest::new();
    guest.enter_user(CODE);
    guest.set_gate(0x40, 0xe, 3, 0);
    assert_eq!(guest.exception(|a| a.int(0x40).unwrap()), (0x40, None));
    // An exception does not.
    let mut guest = Guest::new();
    guest.enter_user(CODE);
    assert_eq!(guest.exception(|a| a.ud2().unwrap()), (6, None));
}

#[test]
fn gates_that_are_absent_or_beyond_the_table_are_reported() {
    let mut guest = Guest::new();
    guest.write(IDT + 0x40 * 16 + 5, &[0x0e]);
    assert_eq!(guest.exception(|a| a.int(0x40).unwrap()), (11, Some(0x40 * 8 + 2)));
    let mut guest = Guest::new();
    guest.cpu().idtr.limit = 0x3ff;
    assert_eq!(guest.exception(|a| a.int(0x40).unwrap()), (13, Some(0x40 * 8 + 2)));
    // From an exception, EXT is set.
    let mut guest = Guest::new();
    guest.write(IDT + 6 * 16 + 5, &[0x0e]);
    assert_eq!(guest.exception(|a| a.ud2().unwrap()), (11, Some(6 * 8 + 3)));
}

#[test]
fn contributory_faults_make_a_double_fault() {
    // A page fault whose gate is absent: not-present is contributory.
    let mut guest = Guest::new();
    guest.write(IDT + 14 * 16 + 5, &[0x0e]);
    let read_nothing = |a: &mut CodeAssembler| {
        a.mov(rbx, WINDOW).unwrap();
        a.mov(rax, qword_ptr(rbx)).unwrap();
    };
    assert_eq!(guest.exception(read_nothing), (8, Some(0)));
    assert_eq!(guest.cpu().cr2, WINDOW);

    // A benign exception followed by anything is just that.
    let mut guest = Guest::new();
    guest.write(IDT + 6 * 16 + 5, &[0x0e]);
    assert_eq!(guest.exception(|a| a.ud2().unwrap()).0, 11);

    // A protection fault followed by a page fault is handled one after the other.
    let mut guest = Guest::new();
    guest.set_gate(14, 0xe, 0, 1);
    let raised = guest.exception(|a| {
        a.mov(rsp, WINDOW + 0x800).unwrap();
        a.mov(eax, 0xffff).unwrap();
        a.mov(ds, eax).unwrap();
    });
    assert_eq!(raised, (14, Some(2)));

    // A page fault whose frame cannot be pushed.
    let mut guest = Guest::new();
    guest.set_gate(8, 0xe, 0, 1);
    let raised = guest.exception(|a| {
        a.mov(rsp, WINDOW + 0x800).unwrap();
        a.push(rax).unwrap();
    });
    assert_eq!(raised, (8, Some(0)));
}

#[test]
fn a_third_fault_shuts_the_cpu_down() {
    let mut guest = Guest::new();
    guest.program(CODE, |a| {
        a.mov(rsp, WINDOW + 0x800).unwrap();
        a.push(rax).unwrap();
    });
    assert_eq!(guest.run(100).1, Exit::Shutdown);
    // And it stays there.
    assert_eq!(guest.run(100), (0, Exit::Shutdown));
}

#[test]
fn iret_returns_to_where_it_came_from() {
    let mut guest = Guest::new();
    guest.set_gate(0x80, 0xe, 3, 0);
    guest.program(handler(0x80), |a| {
        a.mov(ebx, 5).unwrap();
        a.iretq().unwrap();
    });
    guest.enter_user(CODE);
    guest.cpu().system_flags |= IF;
    guest.program(CODE, |a| {
        a.int(0x80).unwrap();
        a.ud2().unwrap();
    });
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.rip, taken.rsp), (6, CODE + 2, USER_STACK));
    assert_ne!(taken.flags & IF, 0);
    assert_eq!(guest.cpu().registers[3], 5);
}

#[test]
fn iret_checks_what_it_returns_to() {
    let ret = |code: u16, stack: u16, target: u64| {
        move |a: &mut CodeAssembler| {
            a.push(i32::from(stack)).unwrap();
            a.push(0x7_0000).unwrap();
            a.push(2).unwrap();
            a.push(i32::from(code)).unwrap();
            a.mov(rax, target).unwrap();
            a.push(rax).unwrap();
            a.iretq().unwrap();
        }
    };
    for (code, stack, target, expected) in [
        (0, KERNEL_DATA, CODE, (13, Some(0))),
        (KERNEL_DATA, KERNEL_DATA, CODE, (13, Some(0x10))),
        (USER_CODE, USER_DATA | 3, CODE, (13, Some(0x28))),
        (USER_CODE | 3, KERNEL_DATA, CODE, (13, Some(0x10))),
        (USER_CODE | 3, 3, CODE, (13, Some(0))),
        (ABSENT, KERNEL_DATA, CODE, (13, Some(0x48))),
        (0x78, KERNEL_DATA, CODE, (13, Some(0x78))),
        (0x80, KERNEL_DATA, CODE, (13, Some(0x80))),
        (KERNEL_CODE, KERNEL_DATA, 1 << 47, (13, Some(0))),
    ] {
        let mut guest = Guest::new();
        assert_eq!(guest.exception(ret(code, stack, target)), expected, "{code:#x} {stack:#x} {target:#x}");
    }
    // A null stack is fine for 64-bit code, but not at privilege 3.
    let mut guest = Guest::new();
    guest.write(0x1_1000, &[0xf4]);
    guest.program(CODE, ret(KERNEL_CODE, 0, 0x1_1000));
    guest.run_to_halt();
    assert_eq!(guest.cpu().rip(), 0x1_1001);
    // Nested tasks do not exist in long mode.
    let mut guest = Guest::new();
    guest.cpu().system_flags |= NT;
    assert_eq!(guest.exception(ret(KERNEL_CODE, KERNEL_DATA, CODE)), (13, Some(0)));
}

#[test]
fn a_fault_of_the_handlers_pushes_leaves_no_trace() {
    let mut guest = Guest::new();
    guest.set_gate(14, 0xe, 0, 1);
    // The frame of INT3 does not fit: RSP and RIP are as if INT3 had not begun.
    let raised = guest.exception(|a| {
        a.mov(rsp, WINDOW + 0x800).unwrap();
        a.int3().unwrap();
    });
    assert_eq!(raised, (14, Some(2)));
    let taken_rip = guest.read_u64(IST_STACK - 40);
    assert_eq!(taken_rip, CODE + 10);
    assert_eq!(guest.read_u64(IST_STACK - 16), WINDOW + 0x800);
}

#[test]
fn alignment_is_checked_for_user_code_that_asks() {
    let program = |a: &mut CodeAssembler| {
        a.mov(rbx, DATA + 1).unwrap();
        a.mov(eax, dword_ptr(rbx)).unwrap();
        a.ud2().unwrap();
    };
    let mut guest = Guest::new();
    guest.enter_user(CODE);
    guest.cpu().system_flags |= AC;
    assert_eq!(guest.exception(program), (17, Some(0)));
    let mut guest = Guest::new();
    guest.cpu().system_flags |= AC;
    assert_eq!(guest.exception(program).0, 6, "not for the supervisor");
    let mut guest = Guest::new();
    guest.enter_user(CODE);
    guest.cpu().system_flags |= AC;
    guest.cpu().cr0 &= !CR0_AM;
    assert_eq!(guest.exception(program).0, 6);
}
