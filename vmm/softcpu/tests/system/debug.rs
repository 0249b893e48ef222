//! Single-stepping and debug registers.

use iced_x86::code_asm::*;
use softcpu::control::*;
use softcpu::flags::*;

use crate::guest::*;

#[test]
fn the_trap_flag_stops_after_each_instruction() {
    let mut guest = Guest::new();
    guest.cpu().system_flags |= TF;
    guest.program(CODE, |a| {
        a.inc(eax).unwrap();
        a.inc(eax).unwrap();
        a.hlt().unwrap();
    });
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.rip), (1, CODE + 2));
    assert_ne!(taken.flags & TF, 0);
    assert_eq!(guest.cpu().rflags() & TF, 0);
    assert_eq!(guest.cpu().debug[6], DR6_ONES | DR6_BS);
}

#[test]
fn popf_with_the_trap_flag_traps_after_the_next_instruction() {
    let mut guest = Guest::new();
    guest.program(CODE, |a| {
        a.push(0x102).unwrap();
        a.popfq().unwrap();
        a.inc(eax).unwrap();
        a.inc(eax).unwrap();
        a.hlt().unwrap();
    });
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.rip), (1, CODE + 8));
    assert_eq!(guest.cpu().registers[0], 1);
}

#[test]
fn an_instruction_breakpoint_is_a_fault_that_rf_suppresses() {
    let mut guest = Guest::new();
    guest.program(CODE, |a| {
        a.inc(eax).unwrap();
        a.inc(eax).unwrap();
        a.hlt().unwrap();
    });
    guest.cpu().debug[1] = CODE + 2;
    guest.cpu().debug[7] = DR7_ONES | 1 << 2;
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.rip), (1, CODE + 2));
    assert_ne!(taken.flags & RF, 0);
    assert_eq!(guest.cpu().debug[6], DR6_ONES | 2);

    // The handler returns with the saved flags: the instruction executes once, without another fault.
    guest.program(handler(1), |a| {
        a.inc(ecx).unwrap();
        a.iretq().unwrap();
    });
    guest.cpu().activity = Default::default();
    guest.cpu().set_rip(handler(1));
    guest.run_to_halt();
    assert_eq!((guest.cpu().registers[0], guest.cpu().registers[1]), (2, 1));
}

#[test]
fn data_breakpoints_trap_after_the_access() {
    // Write-only, and read-write; lengths 1 and 8.
    for (kind, length, reads, expected) in
        [(1, 0, false, true), (1, 0, true, false), (3, 0, true, true), (3, 2, true, true)]
    {
        let mut guest = Guest::new();
        guest.write(DATA, &5_u64.to_le_bytes());
        guest.cpu().debug[2] = if length == 2 { DATA } else { DATA + 4 };
        guest.cpu().debug[7] = DR7_ONES | 1 << 4 | (kind | length << 2) << 24;
        guest.program(CODE, |a| {
            a.mov(rbx, DATA).unwrap();
            // Next to it.
            a.mov(rax, qword_ptr(rbx + 8)).unwrap();
            a.nop().unwrap();
            if reads {
                a.mov(eax, dword_ptr(rbx + 4)).unwrap();
            } else {
                a.mov(dword_ptr(rbx + 4), eax).unwrap();
            }
            a.inc(ecx).unwrap();
            a.ud2().unwrap();
        });
        let taken = guest.run_to_exception();
        assert_eq!(taken.vector == 1, expected, "{kind} {length} {reads}");
        if expected {
            assert_eq!(guest.cpu().registers[1], 0, "before the next instruction");
            assert_eq!(guest.cpu().debug[6], DR6_ONES | 4);
        }
    }
}

#[test]
fn debug_registers_can_be_guarded() {
    let mut guest = Guest::new();
    guest.cpu().debug[7] |= DR7_GD;
    guest.program(CODE, |a| a.mov(rax, dr0).unwrap());
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.rip), (1, CODE));
    assert_ne!(guest.cpu().debug[6] & DR6_BD, 0);
    assert_eq!(guest.cpu().debug[7] & DR7_GD, 0);
}

#[test]
fn debug_registers_four_and_five_are_aliases_unless_forbidden() {
    let mut guest = Guest::new();
    guest.program(CODE, |a| {
        a.mov(rax, dr4).unwrap();
        a.mov(rbx, dr5).unwrap();
        a.hlt().unwrap();
    });
    guest.run_to_halt();
    assert_eq!((guest.cpu().registers[0], guest.cpu().registers[3]), (DR6_ONES, DR7_ONES));
    let mut guest = Guest::new();
    guest.cpu().cr4 |= CR4_DE;
    assert_eq!(guest.exception(|a| a.mov(rax, dr4).unwrap()), (6, None));
}
