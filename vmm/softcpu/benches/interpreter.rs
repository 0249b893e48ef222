//! How many guest instructions a second: the same machine code as a guest, and on the host itself.
//!
//! The mixes are what kernel code consists of, each on its own and all together. `guest` reports elements a
//! second, which are instructions; `native` is the reference.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use iced_x86::IcedError;
use iced_x86::code_asm::*;
use softcpu::cpu::{RBX, RCX, RSP};
use softcpu::{Bus, CpuidTable, Engine, Event, Exit, GeneralProtection, Position};
use vm_memory::{Bytes, GuestAddress};

type Mix = fn(&mut CodeAssembler) -> Result<(), IcedError>;

/// Bodies of a loop that counts RCX down; RBX points at a page of data.
const MIXES: [(&str, Mix); 5] =
    [("alu", arithmetic), ("memory", memory), ("branches", branches), ("calls", calls), ("all", all)];

fn arithmetic(a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.lea(rdx, qword_ptr(rax + rsi * 4 + 7))?;
    a.add(rax, rdx)?;
    a.xor(esi, eax)?;
    a.shr(rdx, 3)?;
    a.and(edx, 0xfff)?;
    a.sub(rsi, rdx)?;
    a.imul_2(rdx, rsi)?;
    a.movzx(edi, al)
}

fn memory(a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.mov(rax, qword_ptr(rbx + 8))?;
    a.mov(edx, dword_ptr(rbx + 0x104))?;
    a.mov(qword_ptr(rbx + 0x208), rax)?;
    a.add(qword_ptr(rbx + 0x308), rdx)?;
    a.cmp(byte_ptr(rbx + 0x17), 3)?;
    a.push(rax)?;
    a.movzx(esi, word_ptr(rbx + rcx * 2 + 2))?;
    a.pop(rdi)
}

fn branches(a: &mut CodeAssembler) -> Result<(), IcedError> {
    for bit in [1, 2, 4] {
        let mut skip = a.create_label();
        a.test(ecx, bit)?;
        a.jz(skip)?;
        a.inc(eax)?;
        a.set_label(&mut skip)?;
        a.nop()?;
    }
    Ok(())
}

fn calls(a: &mut CodeAssembler) -> Result<(), IcedError> {
    let mut function = a.create_label();
    let mut behind = a.create_label();
    a.call(function)?;
    a.call(function)?;
    a.jmp(behind)?;
    a.set_label(&mut function)?;
    a.inc(rax)?;
    a.ret()?;
    a.set_label(&mut behind)?;
    a.zero_bytes()
}

fn all(a: &mut CodeAssembler) -> Result<(), IcedError> {
    arithmetic(a)?;
    memory(a)?;
    branches(a)?;
    calls(a)
}

/// The loop around `mix`. RBX and RCX are set up by the caller.
fn assemble(mix: Mix, at: u64, native: bool) -> Result<Vec<u8>, IcedError> {
    let mut a = CodeAssembler::new(64)?;
    if native {
        a.push(rbx)?;
        a.mov(rbx, rdi)?;
        a.mov(rcx, rsi)?;
    }
    let mut again = a.create_label();
    a.set_label(&mut again)?;
    mix(&mut a)?;
    a.mov(ecx, r8d)?;
    a.and(ecx, 0x3ff)?;
    a.dec(r8)?;
    a.jnz(again)?;
    if native {
        a.pop(rbx)?;
        a.ret()?;
    } else {
        a.hlt()?;
    }
    a.assemble(at)
}

struct Guest {
    engine: Engine,
    bus: Silent,
}

impl Guest {
    fn new(mix: Mix) -> Guest {
        let ram = nicvisor_memory::allocate(1 << 20).expect("1 MiB is always there");
        ram.write_slice(&assemble(mix, CODE, false).expect("valid code"), GuestAddress(CODE))
            .expect("in RAM");
        Guest { engine: Engine::new(ram, 1, CpuidTable::default()), bus: Silent }
    }

    /// Runs the loop and returns how many instructions that took.
    fn run(&mut self) -> u64 {
        let cpu = self.engine.cpu_mut(0);
        cpu.enter_flat_long(CODE);
        cpu.registers[RBX as usize] = DATA;
        cpu.registers[RCX as usize] = 0;
        cpu.registers[8] = ITERATIONS;
        cpu.registers[RSP as usize] = STACK;
        let (executed, exit) = self.engine.run(0, &mut self.bus, u64::MAX);
        assert_eq!(exit, Exit::Halt);
        executed
    }
}

/// The same code on the host.
struct Native {
    code: *mut libc::c_void,
    data: Box<[u8; 8192]>,
}

impl Native {
    fn new(mix: Mix) -> Native {
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping at an address of the host's choice.
        let code = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
        assert_ne!(code, libc::MAP_FAILED, "no executable memory");
        let bytes = assemble(mix, code as u64, true).expect("valid code");
        assert!(bytes.len() <= 4096);
        // SAFETY: the mapping is ours and large enough.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), code.cast(), bytes.len()) };
        Native { code, data: Box::new([0; 8192]) }
    }

    fn run(&mut self) {
        // SAFETY: `code` holds a function that keeps the callee-saved registers, stays within `data` and
        // returns; what it clobbers besides is caller-saved.
        unsafe {
            std::arch::asm!(
                "call {code}",
                code = in(reg) self.code,
                inout("rdi") self.data.as_mut_ptr() => _,
                inout("rsi") 0_u64 => _,
                inout("r8") ITERATIONS => _,
                out("rax") _, out("rcx") _, out("rdx") _, out("r9") _, out("r10") _, out("r11") _,
            );
        }
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: nobody executes or refers to the mapping any more.
        unsafe { libc::munmap(self.code, 4096) };
    }
}

/// A machine without anything in it.
struct Silent;

impl Bus for Silent {
    fn read_memory(&mut self, _at: Position, _address: u64, data: &mut [u8]) {
        data.fill(0xff);
    }

    fn write_memory(&mut self, _at: Position, _address: u64, _data: &[u8]) {}

    fn read_port(&mut self, _at: Position, _port: u16, data: &mut [u8]) {
        data.fill(0xff);
    }

    fn write_port(&mut self, _at: Position, _port: u16, _data: &[u8]) {}

    fn read_msr(&mut self, _at: Position, _index: u32) -> Result<u64, GeneralProtection> {
        Err(GeneralProtection)
    }

    fn write_msr(&mut self, _at: Position, _index: u32, _value: u64) -> Result<(), GeneralProtection> {
        Err(GeneralProtection)
    }

    fn time_stamp(&mut self, at: Position) -> u64 {
        at.executed
    }

    fn task_priority(&mut self, _at: Position) -> u8 {
        0
    }

    fn set_task_priority(&mut self, _at: Position, _priority: u8) {}

    fn attention(&self, _cpu: usize) -> bool {
        false
    }

    fn take_event(&mut self, _cpu: usize, _interruptible: bool) -> Option<Event> {
        None
    }
}

fn instructions_a_second(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("instructions");
    for (name, mix) in MIXES {
        let mut guest = Guest::new(mix);
        group.throughput(Throughput::Elements(guest.run()));
        group.bench_function(BenchmarkId::new("guest", name), |bencher| {
            bencher.iter(|| black_box(guest.run()))
        });
        let mut native = Native::new(mix);
        group.bench_function(BenchmarkId::new("native", name), |bencher| bencher.iter(|| native.run()));
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = instructions_a_second
}
criterion_main!(benches);

const ITERATIONS: u64 = 100_000;
const CODE: u64 = 0x1_0000;
const DATA: u64 = 0x2_0000;
const STACK: u64 = 0x4_0000;
