//! A guest of 16 MiB in 64-bit mode: flat segments for both privileges, a task state segment, an interrupt
//! descriptor table whose handlers halt, and page tables that tests change.

use std::collections::VecDeque;

use iced_x86::code_asm::CodeAssembler;
use softcpu::control::*;
use softcpu::cpu::RSP;
use softcpu::segment::{CS, DescriptorTable, SS, Segment};
use softcpu::{Bus, Cpu, CpuidEntry, CpuidTable, Engine, Event, Exit, GeneralProtection, Position};
use vm_memory::{Bytes, GuestAddress};

pub(crate) struct Guest {
    pub(crate) engine: Engine,
    pub(crate) bus: TestBus,
}

/// Records what reaches it.
#[derive(Default)]
pub(crate) struct TestBus {
    pub(crate) events: VecDeque<Event>,
    /// Instruction count, port, data.
    pub(crate) port_writes: Vec<(u64, u16, Vec<u8>)>,
    pub(crate) memory_writes: Vec<(u64, u64, Vec<u8>)>,
    pub(crate) memory_reads: Vec<(u64, u64, usize)>,
    pub(crate) priority: u8,
    /// What a write to port 1 makes pending.
    pub(crate) raise_on_port: Option<Event>,
}

/// An exception or interrupt that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) vector: u8,
    pub(crate) error_code: Option<u64>,
    pub(crate) rip: u64,
    pub(crate) cs: u64,
    pub(crate) flags: u64,
    pub(crate) rsp: u64,
    pub(crate) ss: u64,
}

impl Guest {
    /// In 64-bit mode at privilege 0, about to execute at [`CODE`].
    pub(crate) fn new() -> Guest {
        Guest::with_cpus(1)
    }

    pub(crate) fn with_cpus(cpus: usize) -> Guest {
        Guest::with(cpus, cpuid())
    }

    /// One CPU that shows the features of `extra` besides the usual ones.
    pub(crate) fn with_cpuid(extra: CpuidTable) -> Guest {
        let mut table = cpuid();
        for entry in &mut table.entries {
            let more = extra.find(entry.leaf, 0).copied().unwrap_or_default();
            entry.ebx |= more.ebx;
            entry.ecx |= more.ecx;
            entry.edx |= more.edx;
        }
        Guest::with(1, table)
    }

    fn with(cpus: usize, cpuid: CpuidTable) -> Guest {
        let ram = nicvisor_memory::allocate(RAM_BYTES).unwrap();
        let mut guest = Guest { engine: Engine::new(ram, cpus, cpuid), bus: TestBus::default() };
        guest.write_tables();
        for cpu in 0..cpus {
            let gdt = DescriptorTable { base: GDT, limit: 0x7f };
            let state = guest.engine.cpu_mut(cpu);
            state.enter_long(CODE, PAGE_MAP, gdt);
            state.cr0 |= CR0_AM;
            state.cr4 |= CR4_OSFXSR | CR4_PGE;
            state.msrs.efer |= EFER_NXE | EFER_SCE;
            state.idtr = DescriptorTable { base: IDT, limit: 0xfff };
            state.tr = Segment { selector: TASK, base: TSS, limit: 0x67, attributes: 0x8b };
            state.segments[CS] = Segment::flat(KERNEL_CODE, 0xb, softcpu::segment::ATTRIBUTE_LONG);
            state.segments[SS] = Segment::flat(KERNEL_DATA, 3, softcpu::segment::ATTRIBUTE_32_BIT);
            state.registers[RSP as usize] = KERNEL_STACK - cpu as u64 * 0x1000;
        }
        guest
    }

    fn write_tables(&mut self) {
        // The first 16 MiB one to one in 2 MiB pages, for everybody.
        self.write(PAGE_MAP, &(POINTERS | TABLE).to_le_bytes());
        self.write(POINTERS, &(DIRECTORY | TABLE).to_le_bytes());
        for index in 0..8 {
            self.write(DIRECTORY + index * 8, &(index << 21 | LARGE | TABLE).to_le_bytes());
        }
        let segment = |access: u64, flags: u64| 0xffff | access << 40 | 0xf << 48 | flags << 52;
        let descriptors = [
            (KERNEL_CODE, segment(0x9b, 0xa)),
            (KERNEL_DATA, segment(0x93, 0xc)),
            (USER_CODE_32, segment(0xfb, 0xc)),
            (USER_DATA, segment(0xf3, 0xc)),
            (USER_CODE, segment(0xfb, 0xa)),
            (KERNEL_CODE_32, segment(0x9b, 0xc)),
            (ABSENT, segment(0x13, 0xc)),
        ];
        for (selector, descriptor) in descriptors {
            self.set_descriptor(selector, descriptor);
        }
        self.set_descriptor(TASK, 0x67 | (TSS & 0xff_ffff) << 16 | 0x89 << 40);
        for vector in 0..=255 {
            self.set_gate(vector, 0xe, 0, 0);
            self.write(handler(vector), &[0xf4]);
        }
        self.write(TSS + 4, &INNER_STACK.to_le_bytes());
        self.write(TSS + 0x24, &IST_STACK.to_le_bytes());
        self.write(TSS + 0x66, &0x68_u16.to_le_bytes());
    }

    pub(crate) fn set_descriptor(&mut self, selector: u16, descriptor: u64) {
        self.write(GDT + u64::from(selector & !7), &descriptor.to_le_bytes());
    }

    /// Points `vector`'s gate at its handler.
    pub(crate) fn set_gate(&mut self, vector: u8, kind: u64, dpl: u64, ist: u64) {
        let target = handler(vector);
        let low = target & 0xffff
            | u64::from(KERNEL_CODE) << 16
            | ist << 32
            | (kind | dpl << 5 | 0x80) << 40
            | (target >> 16 & 0xffff) << 48;
        self.write(IDT + u64::from(vector) * 16, &low.to_le_bytes());
        self.write(IDT + u64::from(vector) * 16 + 8, &(target >> 32).to_le_bytes());
    }

    pub(crate) fn write(&self, address: u64, data: &[u8]) {
        self.engine.ram().write_slice(data, GuestAddress(address)).unwrap();
    }

    pub(crate) fn read_u64(&self, address: u64) -> u64 {
        self.engine.ram().read_obj(GuestAddress(address)).unwrap()
    }

    pub(crate) fn cpu(&mut self) -> &mut Cpu {
        self.engine.cpu_mut(0)
    }

    /// Writes a program for 64-bit mode.
    pub(crate) fn program(&mut self, at: u64, build: impl FnOnce(&mut CodeAssembler)) {
        self.program_for(64, at, build);
    }

    pub(crate) fn program_for(&mut self, bits: u32, at: u64, build: impl FnOnce(&mut CodeAssembler)) {
        let mut assembler = CodeAssembler::new(bits).unwrap();
        build(&mut assembler);
        let code = assembler.assemble(at).unwrap();
        self.write(at, &code);
    }

    pub(crate) fn run(&mut self, budget: u64) -> (u64, Exit) {
        self.engine.run(0, &mut self.bus, budget)
    }

    /// Runs until `HLT` in the program itself.
    pub(crate) fn run_to_halt(&mut self) {
        assert_eq!(self.run(10_000).1, Exit::Halt);
        let rip = self.cpu().rip();
        assert!(!(HANDLERS..HANDLERS + 0x1000).contains(&rip), "exception {}", (rip - HANDLERS) / 16);
        self.cpu().activity = Default::default();
    }

    /// Runs until an exception or interrupt is taken.
    pub(crate) fn run_to_exception(&mut self) -> Taken {
        let (_, exit) = self.run(10_000);
        assert_eq!(exit, Exit::Halt);
        let rip = self.cpu().rip();
        assert!((HANDLERS..HANDLERS + 0x1000).contains(&rip), "no exception, halted at {rip:#x}");
        let vector = ((rip - HANDLERS) / 16) as u8;
        let mut frame = self.cpu().registers[RSP as usize];
        let error_code = matches!(vector, 8 | 10..=14 | 17).then(|| {
            frame += 8;
            self.read_u64(frame - 8)
        });
        let mut next = || {
            frame += 8;
            self.read_u64(frame - 8)
        };
        Taken { vector, error_code, rip: next(), cs: next(), flags: next(), rsp: next(), ss: next() }
    }

    /// The exception that the instructions at [`CODE`] raise.
    pub(crate) fn exception(&mut self, build: impl FnOnce(&mut CodeAssembler)) -> (u8, Option<u64>) {
        self.program(CODE, build);
        let taken = self.run_to_exception();
        (taken.vector, taken.error_code)
    }

    /// Makes the CPU execute at `rip` with privilege 3.
    pub(crate) fn enter_user(&mut self, rip: u64) {
        let cpu = self.cpu();
        cpu.segments[CS] = Segment::flat(USER_CODE | 3, 0xb, softcpu::segment::ATTRIBUTE_LONG);
        cpu.segments[SS] = Segment::flat(USER_DATA | 3, 3, softcpu::segment::ATTRIBUTE_32_BIT);
        cpu.registers[RSP as usize] = USER_STACK;
        cpu.set_rip(rip);
    }

    /// Maps the 4 KiB page at `linear` (in the second GiB's first 2 MiB) to `physical` with `flags`.
    pub(crate) fn map(&mut self, linear: u64, physical: u64, flags: u64) {
        assert!((WINDOW..WINDOW + (2 << 20)).contains(&linear));
        self.write(POINTERS + 8, &(WINDOW_DIRECTORY | TABLE).to_le_bytes());
        self.write(WINDOW_DIRECTORY, &(WINDOW_TABLE | TABLE).to_le_bytes());
        self.write(self.entry(linear), &(physical | flags).to_le_bytes());
    }

    /// The physical address of the page-table entry of `linear` (see [`Self::map`]).
    pub(crate) fn entry(&self, linear: u64) -> u64 {
        WINDOW_TABLE + (linear >> 12 & 0x1ff) * 8
    }
}

impl Bus for TestBus {
    fn read_memory(&mut self, at: Position, address: u64, data: &mut [u8]) {
        self.memory_reads.push((at.executed, address, data.len()));
        data.fill(0xab);
    }

    fn write_memory(&mut self, at: Position, address: u64, data: &[u8]) {
        self.memory_writes.push((at.executed, address, data.to_vec()));
    }

    fn read_port(&mut self, at: Position, port: u16, data: &mut [u8]) {
        data.copy_from_slice(&(at.executed << 16 | u64::from(port)).to_le_bytes()[..data.len()]);
    }

    fn write_port(&mut self, at: Position, port: u16, data: &[u8]) {
        self.port_writes.push((at.executed, port, data.to_vec()));
        if port == 1 {
            self.events.extend(self.raise_on_port.take());
        }
    }

    fn read_msr(&mut self, _at: Position, index: u32) -> Result<u64, GeneralProtection> {
        if index == 0x1b { Ok(0xfee0_0900) } else { Err(GeneralProtection) }
    }

    fn write_msr(&mut self, _at: Position, _index: u32, _value: u64) -> Result<(), GeneralProtection> {
        Err(GeneralProtection)
    }

    fn time_stamp(&mut self, at: Position) -> u64 {
        1_000_000 + at.executed
    }

    fn task_priority(&mut self, _at: Position) -> u8 {
        self.priority
    }

    fn set_task_priority(&mut self, _at: Position, priority: u8) {
        self.priority = priority;
    }

    fn attention(&self, _cpu: usize) -> bool {
        !self.events.is_empty()
    }

    fn take_event(&mut self, _cpu: usize, interruptible: bool) -> Option<Event> {
        match self.events.front()? {
            Event::Interrupt(_) if !interruptible => None,
            _ => self.events.pop_front(),
        }
    }
}

/// Where `vector`'s handler is: a HLT.
pub(crate) fn handler(vector: u8) -> u64 {
    HANDLERS + u64::from(vector) * 16
}

fn cpuid() -> CpuidTable {
    let entry = |leaf, eax, ebx, ecx, edx| CpuidEntry { leaf, subleaf: None, eax, ebx, ecx, edx };
    CpuidTable {
        entries: vec![
            entry(0, 7, 0, 0, 0),
            entry(1, 0, 0, 0, 1 << 13),
            // FSGSBASE, SMEP, SMAP; UMIP
            entry(7, 0, 1 | 1 << 7 | 1 << 20, 1 << 2, 0),
            // SYSCALL, NX, 1 GiB pages, RDTSCP, long mode
            entry(0x8000_0001, 0, 0, 0, 1 << 11 | 1 << 20 | 1 << 26 | 1 << 27 | 1 << 29),
            entry(0x8000_0008, 0x3028, 0, 0, 0),
        ],
    }
}

pub(crate) const RAM_BYTES: u64 = 16 << 20;
pub(crate) const PAGE_MAP: u64 = 0x1000;
pub(crate) const POINTERS: u64 = 0x2000;
pub(crate) const DIRECTORY: u64 = 0x3000;
pub(crate) const WINDOW_DIRECTORY: u64 = 0x4000;
pub(crate) const WINDOW_TABLE: u64 = 0x5000;
pub(crate) const GDT: u64 = 0x6000;
pub(crate) const IDT: u64 = 0x7000;
pub(crate) const TSS: u64 = 0x8000;
pub(crate) const HANDLERS: u64 = 0x9000;
pub(crate) const CODE: u64 = 0x1_0000;
pub(crate) const DATA: u64 = 0x2_0000;
pub(crate) const KERNEL_STACK: u64 = 0x4_0000;
pub(crate) const INNER_STACK: u64 = 0x5_0000;
pub(crate) const IST_STACK: u64 = 0x6_0000;
pub(crate) const USER_STACK: u64 = 0x7_0000;
/// Linear addresses that [`Guest::map`] can map: the second GiB.
pub(crate) const WINDOW: u64 = 0x4000_0000;

pub(crate) const KERNEL_CODE: u16 = 0x08;
pub(crate) const KERNEL_DATA: u16 = 0x10;
pub(crate) const USER_CODE_32: u16 = 0x18;
pub(crate) const USER_DATA: u16 = 0x20;
pub(crate) const USER_CODE: u16 = 0x28;
pub(crate) const TASK: u16 = 0x30;
pub(crate) const KERNEL_CODE_32: u16 = 0x40;
pub(crate) const ABSENT: u16 = 0x48;

pub(crate) const PRESENT: u64 = 1;
pub(crate) const WRITABLE: u64 = 2;
pub(crate) const USER: u64 = 4;
pub(crate) const ACCESSED: u64 = 0x20;
pub(crate) const DIRTY: u64 = 0x40;
pub(crate) const LARGE: u64 = 0x80;
pub(crate) const GLOBAL: u64 = 0x100;
pub(crate) const NO_EXECUTE: u64 = 1 << 63;
/// Present, writable, user.
pub(crate) const TABLE: u64 = 7;
