//! Interrupts, NMIs, halting, shadows, start-up of further CPUs.

use iced_x86::code_asm::*;
use softcpu::cpu::Activity;
use softcpu::flags::IF;
use softcpu::{Event, Exit, Mode};

use crate::guest::*;

#[test]
fn an_interrupt_waits_for_the_flag_and_sti_for_one_instruction_more() {
    let mut guest = Guest::new();
    guest.program(CODE, |a| {
        a.nop().unwrap();
        a.sti().unwrap();
        a.inc(eax).unwrap();
        a.inc(eax).unwrap();
        a.hlt().unwrap();
    });
    guest.bus.events.push_back(Event::Interrupt(0x31));
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.rip), (0x31, CODE + 4));
    assert_eq!(guest.cpu().registers[0], 1);
}

#[test]
fn loading_ss_holds_interrupts_off_for_one_instruction() {
    let mut guest = Guest::new();
    guest.cpu().system_flags |= IF;
    guest.bus.raise_on_port = Some(Event::Interrupt(0x31));
    guest.program(CODE, |a| {
        a.mov(ecx, i32::from(KERNEL_DATA)).unwrap();
        a.mov(ss, ecx).unwrap();
        // Raises the interrupt in the shadow, where it is not taken before the instruction completes.
        a.out(1, al).unwrap();
        a.inc(eax).unwrap();
        a.hlt().unwrap();
    });
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.rip), (0x31, CODE + 9));
    assert_eq!(guest.cpu().registers[0], 0);
}

#[test]
fn what_a_port_write_raises_is_taken_before_the_next_instruction() {
    let mut guest = Guest::new();
    guest.cpu().system_flags |= IF;
    guest.bus.raise_on_port = Some(Event::Interrupt(0x77));
    guest.program(CODE, |a| {
        a.nop().unwrap();
        a.out(1, al).unwrap();
        a.inc(eax).unwrap();
        a.hlt().unwrap();
    });
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.rip), (0x77, CODE + 3));
}

#[test]
fn popf_lets_a_waiting_interrupt_in_at_once() {
    let mut guest = Guest::new();
    guest.bus.events.push_back(Event::Interrupt(0x31));
    guest.program(CODE, |a| {
        a.push(0x202).unwrap();
        a.popfq().unwrap();
        a.inc(eax).unwrap();
        a.hlt().unwrap();
    });
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.rip), (0x31, CODE + 6));
}

#[test]
fn halt_ends_with_an_interrupt() {
    let mut guest = Guest::new();
    guest.program(CODE, |a| {
        a.sti().unwrap();
        a.hlt().unwrap();
        a.hlt().unwrap();
    });
    assert_eq!(guest.run(100), (2, Exit::Halt));
    assert_eq!(guest.run(100), (0, Exit::Halt));
    guest.bus.events.push_back(Event::Interrupt(0x20));
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.rip), (0x20, CODE + 2));
}

#[test]
fn a_halted_cpu_without_the_flag_sleeps_on() {
    let mut guest = Guest::new();
    guest.program(CODE, |a| a.hlt().unwrap());
    assert_eq!(guest.run(100).1, Exit::Halt);
    guest.bus.events.push_back(Event::Interrupt(0x20));
    assert_eq!(guest.run(100), (0, Exit::Halt));
    guest.bus.events.push_front(Event::Nmi);
    assert_eq!(guest.run_to_exception().vector, 2);
}

#[test]
fn nmis_wait_for_iret() {
    let mut guest = Guest::new();
    guest.program(handler(2), |a| {
        a.inc(eax).unwrap();
        a.out(1, al).unwrap();
        a.iretq().unwrap();
    });
    guest.bus.events.push_back(Event::Nmi);
    guest.bus.raise_on_port = Some(Event::Nmi);
    guest.program(CODE, |a| a.ud2().unwrap());
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.rip), (6, CODE));
    assert_eq!(guest.cpu().registers[0], 2);
    assert_eq!(guest.bus.port_writes.len(), 2);
}

#[test]
fn the_bus_can_end_a_run() {
    let mut guest = Guest::new();
    guest.bus.raise_on_port = Some(Event::Yield);
    guest.program(CODE, |a| {
        a.out(1, al).unwrap();
        a.inc(eax).unwrap();
        a.hlt().unwrap();
    });
    assert_eq!(guest.run(100), (1, Exit::Yield));
    assert_eq!(guest.run(100), (2, Exit::Halt));
}

#[test]
fn pause_gives_way() {
    let mut guest = Guest::new();
    guest.program(CODE, |a| {
        a.pause().unwrap();
        a.hlt().unwrap();
    });
    assert_eq!(guest.run(100), (1, Exit::Pause));
    assert_eq!(guest.run(100), (1, Exit::Halt));
}

#[test]
fn the_task_priority_is_the_machines() {
    let mut guest = Guest::new();
    guest.program(CODE, |a| {
        a.mov(eax, 9).unwrap();
        a.mov(cr8, rax).unwrap();
        a.mov(rcx, cr8).unwrap();
        a.hlt().unwrap();
    });
    guest.run_to_halt();
    assert_eq!((guest.bus.priority, guest.cpu().registers[1]), (9, 9));
    let mut guest = Guest::new();
    assert_eq!(
        guest.exception(|a| {
            a.mov(eax, 16).unwrap();
            a.mov(cr8, rax).unwrap();
        }),
        (13, Some(0))
    );
}

#[test]
fn a_further_cpu_starts_where_the_start_up_ipi_says() {
    let mut guest = Guest::with_cpus(2);
    guest.engine.cpu_mut(1).init(false);
    guest.program_for(16, 0x9_2000 - 0x8_0000, |a| {
        a.mov(ax, cs).unwrap();
        a.hlt().unwrap();
    });
    let Guest { engine, bus } = &mut guest;
    assert_eq!(engine.run(1, bus, 10), (0, Exit::Halt));
    engine.cpu_mut(1).start_up(0x12);
    assert_eq!(engine.cpu(1).mode(), Mode::Real);
    assert_eq!(engine.run(1, bus, 10), (2, Exit::Halt));
    assert_eq!(engine.cpu(1).registers[0] & 0xffff, 0x1200);
    // A second one is ignored.
    engine.cpu_mut(1).start_up(0x13);
    assert_eq!(engine.cpu(1).activity, Activity::Halted);
}
