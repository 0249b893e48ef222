//! Executes an instruction in softcpu.

use nicvisor_memory::GuestRam;
use softcpu::control::{CR0_NE, CR4_OSFXSR, CR4_OSXMMEXCPT, EFER_NXE};
use softcpu::fp::Extended;
use softcpu::segment::*;
use softcpu::{Bus, Cpu, CpuidEntry, CpuidTable, Engine, Event, Exit, GeneralProtection, Position};
use vm_memory::{Bytes, GuestAddress};

use crate::state::*;

/// A machine with one CPU that runs user code with paging, and an interrupt table.
pub(crate) struct Machine {
    engine: Engine,
    ram: GuestRam,
}

impl Machine {
    pub(crate) fn new() -> Machine {
        let ram = nicvisor_memory::allocate(RAM_BYTES).unwrap();
        for (selector, descriptor) in [(0x10, CODE_DESCRIPTOR), (0x18, DATA_DESCRIPTOR)] {
            ram.write_obj(descriptor, GuestAddress(GDT + selector)).unwrap();
        }
        for vector in 0..32 {
            // An interrupt gate to selector 0x10 on interrupt stack 1.
            let gate = (HANDLERS + HANDLER_BYTES * vector) & 0xffff | 0x10 << 16 | 1 << 32 | 0x8e << 40;
            ram.write_obj(gate, GuestAddress(IDT + 16 * vector)).unwrap();
        }
        ram.write_obj(TRAP_STACK, GuestAddress(TSS + 0x24)).unwrap();
        for (table, next) in
            [(PML4, PML4 + 0x1000), (PML4 + 0x1000, PML4 + 0x2000), (PML4 + 0x2000, PAGE_TABLE)]
        {
            ram.write_obj(next | USER | WRITABLE | PRESENT, GuestAddress(table)).unwrap();
        }
        map(&ram, GDT, 8 << 12, WRITABLE);
        map(&ram, CODE, CODE_BYTES, USER);
        map(&ram, DATA, DATA_BYTES, USER | WRITABLE);
        map(&ram, READ_ONLY, READ_ONLY_BYTES, USER);
        Machine { engine: Engine::new(ram.clone(), 1, everything()), ram }
    }

    /// Executes `code` from `state` in a code segment of `bits`.
    pub(crate) fn run(&mut self, code: &[u8], bits: u32, state: &State) -> Outcome {
        self.run_adjusted(code, bits, state, |_| ())
    }

    /// As [`Self::run`], with changes to what user code cannot change.
    pub(crate) fn run_adjusted(
        &mut self,
        code: &[u8],
        bits: u32,
        state: &State,
        adjust: impl FnOnce(&mut Cpu),
    ) -> Outcome {
        let mut page = [INT3; CODE_BYTES];
        page[..code.len()].copy_from_slice(code);
        self.ram.write_slice(&page, GuestAddress(CODE)).unwrap();
        self.ram.write_slice(&state.memory, GuestAddress(DATA)).unwrap();
        self.load(state, bits);
        adjust(self.engine.cpu_mut(0));
        // A repeated string instruction may need several goes.
        while self.engine.cpu(0).rip() == state.rip {
            self.step();
        }
        // The host notices at once that there is no code at the target of a branch.
        let pages = [CODE >> 12, HANDLERS >> 12];
        if !pages.contains(&(self.engine.cpu(0).rip() >> 12)) {
            self.step();
        }
        self.outcome()
    }

    fn step(&mut self) {
        let (_, exit) = self.engine.run(0, &mut NoBus, 1);
        assert_eq!(exit, Exit::Budget, "the CPU stopped");
    }

    fn load(&mut self, state: &State, bits: u32) {
        let cpu = self.engine.cpu_mut(0);
        cpu.enter_long(state.rip, PML4, DescriptorTable { base: GDT, limit: 0x1f });
        cpu.cr0 |= CR0_NE;
        cpu.cr4 |= CR4_OSFXSR | CR4_OSXMMEXCPT;
        cpu.msrs.efer |= EFER_NXE;
        let readable_code = TYPE_CODE | TYPE_WRITABLE | TYPE_ACCESSED;
        cpu.segments = [Segment::flat(0x2b, TYPE_WRITABLE | TYPE_ACCESSED, ATTRIBUTE_32_BIT); 6];
        cpu.segments[CS] = if bits == 64 {
            Segment::flat(0x33, readable_code, ATTRIBUTE_LONG)
        } else {
            Segment::flat(0x23, readable_code, ATTRIBUTE_32_BIT)
        };
        cpu.idtr = DescriptorTable { base: IDT, limit: 32 * 16 - 1 };
        cpu.tr.base = TSS;
        cpu.tr.limit = 0x67;
        cpu.registers[..16].copy_from_slice(&state.registers);
        cpu.set_rflags(state.flags | 2);
        let (fpu, fx) = (&mut cpu.fpu, &state.fx);
        fpu.control = fx.control();
        fpu.set_status_word(fx.status());
        fpu.occupied = fx.occupied();
        fpu.mxcsr = fx.mxcsr();
        for number in 0..8 {
            fpu.registers[(fpu.top as usize + number) % 8] = Extended::from_bytes(fx.st(number));
        }
        for number in 0..16 {
            fpu.xmm[number] = fx.xmm(number);
        }
    }

    fn outcome(&self) -> Outcome {
        let cpu = self.engine.cpu(0);
        let mut state = State::new();
        state.registers.copy_from_slice(&cpu.registers[..16]);
        state.rip = cpu.rip();
        state.flags = cpu.rflags() & FLAGS;
        let fpu = &cpu.fpu;
        state.fx.set_control(fpu.control);
        state.fx.set_status(fpu.status_word());
        state.fx.set_occupied(fpu.occupied);
        state.fx.set_mxcsr(fpu.mxcsr);
        for number in 0..8 {
            state.fx.set_st(number, fpu.registers[(fpu.top as usize + number) % 8].to_bytes());
        }
        for number in 0..16 {
            state.fx.set_xmm(number, fpu.xmm[number]);
        }
        self.ram.read_slice(&mut state.memory, GuestAddress(DATA)).unwrap();
        if !(HANDLERS..HANDLERS + 32 * HANDLER_BYTES).contains(&state.rip) {
            return Outcome { state, trap: None };
        }
        let vector = ((state.rip - HANDLERS) / HANDLER_BYTES) as u8;
        let has_error = matches!(vector, 8 | 10..=14 | 17 | 21);
        let top = state.registers[4];
        let frame = if has_error { top + 8 } else { top };
        let word = |index: u64| self.ram.read_obj::<u64>(GuestAddress(frame + 8 * index)).unwrap();
        state.rip = word(0);
        state.flags = word(2) & FLAGS;
        state.registers[4] = word(3);
        let error = if has_error { self.ram.read_obj(GuestAddress(top)).unwrap() } else { 0 };
        let address = if vector == PAGE_FAULT { cpu.cr2 } else { 0 };
        Outcome { state, trap: Some(Trap { vector, error, address }) }
    }
}

/// A table that shows every extension.
fn everything() -> CpuidTable {
    let leaf = |leaf| CpuidEntry { leaf, ebx: u32::MAX, ecx: u32::MAX, edx: u32::MAX, ..Default::default() };
    CpuidTable { entries: vec![leaf(1), CpuidEntry { subleaf: Some(0), ..leaf(7) }] }
}

/// Maps `bytes` bytes at `address` to themselves.
fn map(ram: &GuestRam, address: u64, bytes: usize, rights: u64) {
    for page in (address..address + bytes as u64).step_by(4096) {
        ram.write_obj(page | rights | PRESENT, GuestAddress(PAGE_TABLE + 8 * (page >> 12))).unwrap();
    }
}

/// Instructions under test stay in RAM.
struct NoBus;

impl Bus for NoBus {
    fn read_memory(&mut self, _at: Position, address: u64, _data: &mut [u8]) {
        panic!("read outside RAM at {address:#x}");
    }

    fn write_memory(&mut self, _at: Position, address: u64, _data: &[u8]) {
        panic!("write outside RAM at {address:#x}");
    }

    fn read_port(&mut self, _at: Position, port: u16, _data: &mut [u8]) {
        panic!("read of port {port:#x}");
    }

    fn write_port(&mut self, _at: Position, port: u16, _data: &[u8]) {
        panic!("write of port {port:#x}");
    }

    fn read_msr(&mut self, _at: Position, _index: u32) -> Result<u64, GeneralProtection> {
        Err(GeneralProtection)
    }

    fn write_msr(&mut self, _at: Position, _index: u32, _value: u64) -> Result<(), GeneralProtection> {
        Err(GeneralProtection)
    }

    fn time_stamp(&mut self, _at: Position) -> u64 {
        0
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

const INT3: u8 = 0xcc;
const RAM_BYTES: u64 = 0x20_0000;
/// The other paging structures follow; the last one covers all of RAM.
const PML4: u64 = 0x1000;
const PAGE_TABLE: u64 = PML4 + 0x3000;
/// The first of eight pages that only exceptions use.
const GDT: u64 = 0x8000;
const IDT: u64 = 0x9000;
const TSS: u64 = 0xa000;
/// Top of the stack that exceptions use.
const TRAP_STACK: u64 = 0xc000;
/// Where exceptions lead to: their vector is told by the address.
const HANDLERS: u64 = 0xd000;
const HANDLER_BYTES: u64 = 16;
/// 64-bit code, ring 0.
const CODE_DESCRIPTOR: u64 = 0x00af_9b00_0000_ffff;
const DATA_DESCRIPTOR: u64 = 0x00cf_9300_0000_ffff;
const PRESENT: u64 = 1;
const WRITABLE: u64 = 2;
const USER: u64 = 4;
/// The flags that are compared: the arithmetic ones and DF.
const FLAGS: u64 = 0xcd5;
