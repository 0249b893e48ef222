//! The emulation assist: instructions that KVM's own emulator lacks are executed by the software CPU.
//!
//! Ordinary hosts run guest code on the CPU itself and never come here. A KVM without hardware virtualisation
//! interprets supervisor code, and stops at what its interpreter does not know (`CMPXCHG16B`, `INT3`, `UD2`, ...).
//! Then the CPU's state is loaded into the software CPU, one instruction is executed there, and the state is
//! loaded back. The caller sees to it that no other CPU runs meanwhile.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use kvm_bindings::{kvm_regs, kvm_sregs, kvm_vcpu_events, kvm_xsave};
use nicvisor_memory::GuestRam;
use softcpu::cpu::{Activity, Msrs};
use softcpu::decode::Instruction;
use softcpu::extensions::Extension;
use softcpu::fp::FpuState;
use softcpu::segment::{CS, SS};
use softcpu::{Bus, Cpu, CpuidEntry, CpuidTable, Engine, Event, GeneralProtection, Position};

use super::requests::{Access, Client};
use super::system_calls::{SystemCall, SystemCalls};
use super::vcpu::Vcpu;
use super::{msr, state};

/// The software CPUs that stand in, and how often they did.
#[derive(Debug)]
pub(super) struct Assist {
    engine: Mutex<Engine>,
    /// What the machine shows.
    baseline: CpuidTable,
    counts: Mutex<Counts>,
}

/// How often which instruction was executed.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) all: BTreeMap<String, u64>,
    /// Those that belong to an extension that the machine does not show.
    pub(super) beyond_baseline: BTreeMap<String, u64>,
}

/// How an assisted instruction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The CPU goes on.
    Done,
    /// It caused a triple fault.
    TripleFault,
}

/// A CPU's state as KVM had it.
struct Before {
    general: kvm_regs,
    system: kvm_sregs,
    floating: kvm_xsave,
    events: kvm_vcpu_events,
    msrs: Vec<u64>,
    fpu: FpuState,
}

impl Assist {
    /// Stand-ins for `cpus` CPUs that report `baseline`, except where `visible` says what guests see instead.
    pub(super) fn new(ram: &GuestRam, cpus: usize, baseline: CpuidTable, visible: CpuidTable) -> Assist {
        let mut seen = visible;
        let told = baseline.entries.iter();
        let others = told.filter(|entry| seen.find(entry.leaf, entry.subleaf.unwrap_or(0)).is_none());
        let others: Vec<CpuidEntry> = others.copied().collect();
        seen.entries.extend(others);
        let engine = Mutex::new(Engine::new(ram.clone(), cpus, seen));
        Assist { engine, baseline, counts: Mutex::default() }
    }

    /// How often each instruction was executed here.
    pub(super) fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Executes the next instruction of `vcpu`, which is CPU `client.cpu`, or the system call to which it goes back.
    /// Its file descriptor is not locked while the machine is asked, whose thread may want to look at it.
    pub(super) fn step(
        &self,
        vcpu: &Vcpu,
        client: &Client,
        call: Option<SystemCall>,
    ) -> Result<Outcome, kvm_ioctls::Error> {
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let before = load(&mut engine, vcpu, client.cpu)?;
        if let Some(call) = call {
            go_back(engine.cpu_mut(client.cpu), call);
        }
        self.count(next_instruction(engine.ram(), &before.system, engine.cpu(client.cpu)));
        // Guest code and page tables may have changed since the last time, and nobody told the engine.
        engine.forget_everything();
        let mut bus = Machine { client, vcpu, priority: before.system.cr8 as u8 };
        engine.run(client.cpu, &mut bus, 1);
        if engine.cpu(client.cpu).activity == Activity::Shutdown {
            return Ok(Outcome::TripleFault);
        }
        let priority = bus.priority;
        store(vcpu, engine.cpu(client.cpu), priority, before)?;
        Ok(Outcome::Done)
    }

    fn count(&self, instruction: Option<Instruction>) {
        let name = instruction.map_or_else(
            || UNREADABLE.into(),
            |instruction| format!("{:?}", instruction.mnemonic()).to_lowercase(),
        );
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let extension = instruction.as_ref().and_then(Extension::of);
        if extension.is_some_and(|extension| !extension.is_shown(&self.baseline)) {
            *counts.beyond_baseline.entry(name.clone()).or_default() += 1;
        }
        *counts.all.entry(name).or_default() += 1;
    }
}

/// Gives the software CPU number `index` the state of `vcpu`.
fn load(engine: &mut Engine, vcpu: &Vcpu, index: usize) -> Result<Before, kvm_ioctls::Error> {
    let fd = vcpu.fd();
    let mut before = Before {
        general: fd.get_regs()?,
        system: fd.get_sregs()?,
        floating: fd.get_xsave()?,
        events: fd.get_vcpu_events()?,
        msrs: msr::read(&fd, &MSRS)?,
        fpu: FpuState::default(),
    };
    if let (Some(calls), Some(entry)) = (vcpu.system_calls(), before.msrs.get_mut(LSTAR_INDEX)) {
        *entry = calls.entry();
    }
    let debug = fd.get_debug_regs()?;
    let cpu = engine.cpu_mut(index);
    state::from_kvm(cpu, &before.general, &before.system, &debug);
    cpu.fpu = FpuState::from_image(&legacy_image(&before.floating));
    cpu.nmi_blocked = before.events.nmi.masked != 0;
    (cpu.activity, cpu.interrupt_shadow, cpu.debug_trap) = (Activity::Running, false, 0);
    for (index, value) in before.msrs.iter().enumerate() {
        if let Some(register) = own_msr(&mut cpu.msrs, index) {
            *register = *value;
        }
    }
    let fpu = cpu.fpu.clone();
    Ok(Before { fpu, ..before })
}

/// Takes `cpu` back to `call`. The rest of what went before it does not matter to the instruction.
fn go_back(cpu: &mut Cpu, call: SystemCall) {
    cpu.set_rip(call.rip);
    cpu.set_rflags(call.rflags);
    cpu.registers[usize::from(softcpu::cpu::RSP)] = call.rsp;
    for (segment, selector) in [(CS, call.cs), (SS, call.ss)] {
        cpu.segments[segment].selector = selector;
        cpu.segments[segment].attributes |= USER_PRIVILEGE;
    }
}

/// The instruction that is to be executed; `None` when its bytes cannot be read.
fn next_instruction(ram: &GuestRam, system: &kvm_sregs, cpu: &Cpu) -> Option<Instruction> {
    let view = state::memory_view(system);
    let bits = match (system.cs.l, system.cs.db) {
        (1, _) => 64,
        (_, 1) => 32,
        _ => 16,
    };
    let linear = system.cs.base.wrapping_add(cpu.rip());
    let mut bytes = [0; LONGEST_INSTRUCTION];
    let readable =
        (1..=bytes.len()).rev().find(|&length| view.read(ram, linear, &mut bytes[..length]).is_some());
    let (_, instruction) = softcpu::decode::decode(&bytes[..readable?], cpu.rip(), bits)?;
    Some(instruction)
}

/// Gives `vcpu` what has changed.
fn store(vcpu: &Vcpu, cpu: &Cpu, priority: u8, before: Before) -> Result<(), kvm_ioctls::Error> {
    let fd = vcpu.fd();
    let Before { general, mut system, mut floating, mut events, msrs, fpu } = before;
    let general_after = state::general_to_kvm(cpu);
    let system_before = system;
    state::system_to_kvm(cpu, &mut system);
    system.cr8 = priority.into();
    if system != system_before {
        fd.set_sregs(&system)?;
    }
    if general_after != general {
        fd.set_regs(&general_after)?;
    }
    if cpu.fpu != fpu {
        replace_legacy_image(&mut floating, &cpu.fpu.to_image());
        // SAFETY: the structure is whole, 4096 bytes, and no feature with larger state is enabled for guests.
        unsafe { fd.set_xsave(&floating)? };
    }
    let mut changed = Vec::new();
    let mut own = cpu.msrs;
    for (index, (register, before)) in MSRS.iter().zip(&msrs).enumerate() {
        if let Some(after) = own_msr(&mut own, index).filter(|after| **after != *before) {
            changed.push((*register, *after));
        }
    }
    keep_entry(&mut changed, vcpu.system_calls());
    if !changed.is_empty() {
        msr::write(&fd, &changed)?;
    }
    // KVMs that cannot say which instruction it was have queued an invalid-opcode exception for it.
    let queued = events.exception.injected | events.exception.pending != 0;
    if queued || (events.nmi.masked != 0) != cpu.nmi_blocked {
        events.exception.injected = 0;
        events.exception.pending = 0;
        events.nmi.masked = cpu.nmi_blocked.into();
        fd.set_vcpu_events(&events)?;
    }
    Ok(())
}

/// Takes LSTAR out of what is written to KVM where it is not KVM's.
fn keep_entry(changed: &mut Vec<(u32, u64)>, calls: Option<&SystemCalls>) {
    let Some(calls) = calls else { return };
    changed.retain(|&(register, value)| register != msr::LSTAR || !calls.set_entry(value));
}

/// The FXSAVE image at the start of an XSAVE area.
fn legacy_image(area: &kvm_xsave) -> [u8; 512] {
    let mut image = [0; 512];
    for (bytes, word) in image.chunks_exact_mut(4).zip(&area.region) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    image
}

fn replace_legacy_image(area: &mut kvm_xsave, image: &[u8; 512]) {
    for (bytes, word) in image.as_chunks::<4>().0.iter().zip(&mut area.region) {
        *word = u32::from_le_bytes(*bytes);
    }
    // XSTATE_BV: x87 and SSE are not in their initial state.
    area.region[XSTATE_BV_WORD] |= 3;
}

/// The registers of [`MSRS`] in the software CPU.
fn own_msr(msrs: &mut Msrs, index: usize) -> Option<&mut u64> {
    Some(match index {
        0 => &mut msrs.star,
        1 => &mut msrs.lstar,
        2 => &mut msrs.cstar,
        3 => &mut msrs.sfmask,
        4 => &mut msrs.kernel_gs_base,
        5 => &mut msrs.tsc_aux,
        6 => &mut msrs.sysenter_cs,
        7 => &mut msrs.sysenter_esp,
        8 => &mut msrs.sysenter_eip,
        _ => return None,
    })
}

/// The machine as the assisted instruction reaches it: by way of the thread that owns it.
struct Machine<'a> {
    client: &'a Client,
    vcpu: &'a Vcpu,
    /// CR8.
    priority: u8,
}

impl Machine<'_> {
    fn read(&self, access: Access, data: &mut [u8]) {
        let value = self.client.ask(access).ok().flatten().unwrap_or(u64::MAX);
        let length = data.len();
        data.copy_from_slice(&value.to_le_bytes()[..length]);
    }

    fn write(&self, access: Access) -> Option<u64> {
        self.client.ask(access).ok().flatten()
    }
}

impl Bus for Machine<'_> {
    fn read_memory(&mut self, _at: Position, address: u64, data: &mut [u8]) {
        self.read(Access::ReadMemory { address, length: data.len() }, data);
    }

    fn write_memory(&mut self, _at: Position, address: u64, data: &[u8]) {
        self.write(Access::WriteMemory { address, length: data.len(), value: value(data) });
    }

    fn read_port(&mut self, _at: Position, port: u16, data: &mut [u8]) {
        self.read(Access::ReadPort { port, length: data.len() }, data);
    }

    fn write_port(&mut self, _at: Position, port: u16, data: &[u8]) {
        self.write(Access::WritePort { port, length: data.len(), value: value(data) });
    }

    fn read_msr(&mut self, _at: Position, index: u32) -> Result<u64, GeneralProtection> {
        self.write(Access::ReadMsr { index }).ok_or(GeneralProtection)
    }

    fn write_msr(&mut self, _at: Position, index: u32, value: u64) -> Result<(), GeneralProtection> {
        self.write(Access::WriteMsr { index, value }).map(drop).ok_or(GeneralProtection)
    }

    /// That of the guest's CPU, as user code reads it without help.
    fn time_stamp(&mut self, _at: Position) -> u64 {
        msr::read(&self.vcpu.fd(), &[TIME_STAMP]).ok().and_then(|values| values.first().copied()).unwrap_or(0)
    }

    fn task_priority(&mut self, _at: Position) -> u8 {
        self.priority
    }

    fn set_task_priority(&mut self, _at: Position, priority: u8) {
        self.priority = priority;
    }

    fn attention(&self, _cpu: usize) -> bool {
        false
    }

    fn take_event(&mut self, _cpu: usize, _interruptible: bool) -> Option<Event> {
        None
    }
}

fn value(data: &[u8]) -> u64 {
    data.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// STAR, LSTAR, CSTAR, FMASK, KERNEL_GS_BASE, TSC_AUX, SYSENTER_CS, SYSENTER_ESP, SYSENTER_EIP: what
/// instructions use besides the registers.
const MSRS: [u32; 9] =
    [0xc000_0081, msr::LSTAR, 0xc000_0083, 0xc000_0084, 0xc000_0102, 0xc000_0103, 0x174, 0x175, 0x176];
const LSTAR_INDEX: usize = 1;
/// Privilege level 3 in a descriptor's attributes.
const USER_PRIVILEGE: u16 = 3 << 5;
const TIME_STAMP: u32 = 0x10;
const XSTATE_BV_WORD: usize = 128;
const LONGEST_INSTRUCTION: usize = 15;
const UNREADABLE: &str = "unreadable";
