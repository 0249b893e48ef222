//! The block cache must not be noticeable: code that changes, exact counts, instructions across pages.

use iced_x86::code_asm::*;
use softcpu::{BlockRun, Exit};
use std::sync::{Arc, Mutex};
use vm_memory::{Bytes, GuestAddress};

use crate::guest::*;

#[test]
fn an_instruction_can_change_the_next_one() {
    let mut guest = Guest::new();
    guest.program(CODE, |a| {
        let mut patched = a.create_label();
        a.lea(rbx, ptr(patched)).unwrap();
        // mov eax, 1 becomes mov eax, 0x22222222
        a.mov(dword_ptr(rbx + 1), 0x2222_2222).unwrap();
        a.set_label(&mut patched).unwrap();
        a.mov(eax, 1).unwrap();
        a.hlt().unwrap();
    });
    guest.run_to_halt();
    assert_eq!(guest.cpu().registers[0], 0x2222_2222);
}

#[test]
fn code_patched_by_the_cpu_is_seen_by_the_next_call() {
    let mut guest = Guest::new();
    let function = 0x1_2000;
    guest.program(function, |a| {
        a.mov(eax, 1).unwrap();
        a.ret().unwrap();
    });
    guest.program(CODE, |a| {
        a.mov(rbx, function).unwrap();
        a.call(rbx).unwrap();
        a.mov(ecx, eax).unwrap();
        a.mov(byte_ptr(rbx + 1), 7).unwrap();
        a.call(rbx).unwrap();
        a.mov(byte_ptr(rbx + 1), 9).unwrap();
        a.mov(edx, eax).unwrap();
        a.call(rbx).unwrap();
        a.hlt().unwrap();
    });
    guest.run_to_halt();
    let registers = guest.cpu().registers;
    assert_eq!((registers[1], registers[2], registers[0]), (1, 7, 9));
}

#[test]
fn code_patched_through_another_mapping_is_seen() {
    let mut guest = Guest::new();
    let function = 0x1_2000;
    guest.map(WINDOW, function, TABLE);
    guest.program(function, |a| {
        a.mov(eax, 1).unwrap();
        a.ret().unwrap();
    });
    guest.program(CODE, |a| {
        a.mov(rdi, WINDOW).unwrap();
        // The page is in the TLB for writing before it holds code.
        a.mov(byte_ptr(rdi + 0x800), 0).unwrap();
        a.mov(rbx, function).unwrap();
        a.call(rbx).unwrap();
        a.mov(ecx, eax).unwrap();
        a.mov(byte_ptr(rdi + 1), 7).unwrap();
        a.call(rbx).unwrap();
        a.hlt().unwrap();
    });
    guest.run_to_halt();
    assert_eq!((guest.cpu().registers[1], guest.cpu().registers[0]), (1, 7));
}

#[test]
fn code_changed_by_a_device_is_seen() {
    let mut guest = Guest::new();
    guest.program(CODE, |a| {
        a.mov(eax, 1).unwrap();
        a.hlt().unwrap();
    });
    guest.run_to_halt();
    guest.engine.ram().write_slice(&[0x33], GuestAddress(CODE + 1)).unwrap();
    guest.cpu().set_rip(CODE);
    guest.run_to_halt();
    assert_eq!(guest.cpu().registers[0], 0x33);
}

#[test]
fn code_changed_by_another_cpu_is_seen() {
    let mut guest = Guest::with_cpus(2);
    let function = 0x1_2000;
    guest.program(function, |a| {
        a.mov(eax, 1).unwrap();
        a.hlt().unwrap();
    });
    guest.program(CODE, |a| {
        a.mov(rbx, function).unwrap();
        a.mov(byte_ptr(rbx + 0x100), 0).unwrap();
        a.hlt().unwrap();
        a.mov(byte_ptr(rbx + 1), 5).unwrap();
        a.hlt().unwrap();
    });
    // CPU 1 can write the page directly; then CPU 0 executes from it; then CPU 1 writes again.
    let Guest { engine, bus } = &mut guest;
    assert_eq!(engine.run(1, bus, 100).1, Exit::Halt);
    engine.cpu_mut(0).set_rip(function);
    assert_eq!(engine.run(0, bus, 100).1, Exit::Halt);
    assert_eq!(engine.cpu(0).registers[0], 1);
    engine.cpu_mut(1).activity = Default::default();
    assert_eq!(engine.run(1, bus, 100).1, Exit::Halt);
    engine.cpu_mut(0).activity = Default::default();
    engine.cpu_mut(0).set_rip(function);
    assert_eq!(engine.run(0, bus, 100).1, Exit::Halt);
    assert_eq!(engine.cpu(0).registers[0], 5);
}

#[test]
fn an_instruction_across_pages_follows_both_mappings() {
    let mut guest = Guest::new();
    // mov eax, imm32 with two bytes on the first page.
    guest.map(WINDOW, 0x20_0000, TABLE);
    guest.map(WINDOW + 0x1000, 0x30_0000, TABLE);
    guest.write(0x20_0ffe, &[0xb8, 0x11]);
    guest.write(0x30_0000, &[0x22, 0x33, 0x44, 0xf4]);
    guest.write(0x40_0000, &[0x55, 0x66, 0x77, 0xf4]);
    guest.cpu().set_rip(WINDOW + 0xffe);
    guest.run_to_halt();
    assert_eq!(guest.cpu().registers[0], 0x4433_2211);
    // The second page moves.
    guest.map(WINDOW + 0x1000, 0x40_0000, TABLE);
    guest.cpu().cr3 = PAGE_MAP;
    guest.program(CODE, |a| {
        a.mov(rbx, WINDOW + 0x1000).unwrap();
        a.invlpg(byte_ptr(rbx)).unwrap();
        a.mov(rbx, WINDOW + 0xffe).unwrap();
        a.jmp(rbx).unwrap();
    });
    guest.cpu().set_rip(CODE);
    guest.run_to_halt();
    assert_eq!(guest.cpu().registers[0], 0x7766_5511);
    // The second page changes.
    guest.write(0x40_0000, &[0x99]);
    guest.cpu().set_rip(WINDOW + 0xffe);
    guest.run_to_halt();
    assert_eq!(guest.cpu().registers[0], 0x7766_9911);
    // The second page goes.
    guest.map(WINDOW + 0x1000, 0, 0);
    guest.cpu().set_rip(CODE);
    let taken = guest.run_to_exception();
    assert_eq!((taken.vector, taken.rip, taken.error_code), (14, WINDOW + 0xffe, Some(0x10)));
    assert_eq!(guest.cpu().cr2, WINDOW + 0x1000);
}

#[test]
fn data_beside_code_is_just_data() {
    let mut guest = Guest::new();
    guest.program(CODE, |a| {
        let mut again = a.create_label();
        a.mov(rbx, CODE + 0x800).unwrap();
        a.mov(ecx, 50).unwrap();
        a.set_label(&mut again).unwrap();
        a.inc(dword_ptr(rbx)).unwrap();
        a.dec(ecx).unwrap();
        a.jnz(again).unwrap();
        a.hlt().unwrap();
    });
    guest.run_to_halt();
    assert_eq!(guest.read_u64(CODE + 0x800), 50);
}

#[test]
fn budgets_are_exact() {
    let mut guest = Guest::new();
    guest.program(CODE, |a| {
        for _ in 0..100 {
            a.inc(rax).unwrap();
        }
        a.hlt().unwrap();
    });
    let mut total = 0;
    for budget in 1..13 {
        assert_eq!(guest.run(budget), (budget, Exit::Budget));
        total += budget;
        assert_eq!(guest.cpu().registers[0], total);
    }
    assert_eq!(guest.run(1000), (100 - total + 1, Exit::Halt));
}

#[test]
fn the_bus_is_told_the_exact_position() {
    let mut guest = Guest::new();
    guest.program(CODE, |a| {
        a.nop().unwrap();
        a.nop().unwrap();
        a.out(0x10, al).unwrap();
        a.nop().unwrap();
        a.rdtsc().unwrap();
        a.mov(ecx, eax).unwrap();
        a.rdtsc().unwrap();
        a.in_(eax, 0x20).unwrap();
        a.hlt().unwrap();
    });
    guest.run_to_halt();
    assert_eq!(guest.bus.port_writes[0].0, 2);
    let registers = guest.cpu().registers;
    assert_eq!(registers[1], 1_000_004);
    assert_eq!(registers[0], 7 << 16 | 0x20);
}

#[test]
fn an_observer_sees_every_edge_and_every_instruction() {
    let mut guest = Guest::new();
    guest.program(CODE, |a| {
        let mut again = a.create_label();
        a.mov(ecx, 3).unwrap();
        a.set_label(&mut again).unwrap();
        a.dec(ecx).unwrap();
        a.jnz(again).unwrap();
        a.hlt().unwrap();
    });
    let seen = Arc::new(Mutex::new(Vec::<BlockRun>::new()));
    let log = seen.clone();
    guest.engine.observe(Some(Box::new(move |run| log.lock().unwrap().push(run))));
    let (executed, _) = guest.run(100);
    let seen = seen.lock().unwrap();
    assert_eq!(executed, 8);
    assert_eq!(seen.iter().map(|run| run.instructions).sum::<u64>(), executed);
    assert!(seen.windows(2).all(|pair| pair[0].next == pair[1].start));
    assert_eq!(seen.iter().filter(|run| run.next == CODE + 5).count(), 2);
}

#[test]
fn code_outside_ram_is_fetched_from_the_bus() {
    let mut guest = Guest::new();
    guest.map(WINDOW, 0xffff_f000, TABLE);
    guest.cpu().set_rip(WINDOW);
    // The bus answers 0xab: STOSD.
    guest.cpu().registers[7] = DATA;
    guest.cpu().registers[0] = 0x5a;
    assert_eq!(guest.run(3), (3, Exit::Budget));
    assert_eq!(guest.read_u64(DATA), 0x5a_0000_005a);
    assert_eq!(guest.bus.memory_reads.len(), 3);
}
