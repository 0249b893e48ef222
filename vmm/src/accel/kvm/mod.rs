//! The backend on the host's own CPUs, by way of Linux's KVM.
//!
//! Every CPU of the guest has a thread, which enters the guest and comes back for what is not RAM or an interrupt
//! controller. The thread that calls [`Accelerator::run`] owns the machine, as with the software CPU: CPU threads
//! ask it (`requests`), it answers, and no lock is needed around the machine or any device. It sleeps in one event
//! loop (`events`) for requests, doorbells, timers and what the host has for the guest. While nobody calls `run`,
//! CPUs go on until they need the machine.
//!
//! Interrupt controllers are KVM's own. The rest of the machine, and what CPUID and model-specific registers say,
//! is as on the software CPU. Time is the host's.

mod assist;
mod capability;
mod counts;
mod cpuid;
mod error;
mod events;
mod msr;
mod probe;
mod requests;
mod run_page;
mod sink;
mod state;
mod system_calls;
mod vcpu;
mod vm;
mod watchdog;
mod world;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Instant;

use kvm_bindings::{KVM_VCPU_TSC_CTRL, KVM_VCPU_TSC_OFFSET, kvm_device_attr};
use kvm_ioctls::{IoEventAddress, NoDatamatch, VcpuFd};
use nicvisor_core::{Duration, PowerEvent, Time};
use softcpu::CpuidTable;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::{Accelerator, BackendError, CpuModel, Patience, RunControl, RunEvent, Statistics};
use crate::boot::Entry;
use crate::boot::layout::{
    ECAM_SIZE, ECAM_START, HYPERVISOR_HIGH_WINDOW_START, HYPERVISOR_WINDOW_SIZE, HYPERVISOR_WINDOW_START,
};
use crate::machine::{CpuState, Machine};
use assist::Assist;
use counts::Counts;
use events::Events;
use requests::{Access, Answer, Client, Ended, Message, Request};
use sink::KvmInterrupts;
use system_calls::SystemCalls;
use vcpu::{Shared, Vcpu};
use vm::Vm;
use watchdog::{Sample, Surroundings, Watchdog};
use world::World;

pub use capability::{Capability, EMULATION_FAILURE, GUEST_DEBUG, Host, REQUIRED, TSC_CONTROL, XSAVE};
pub use error::KvmError;
pub use probe::{Probe, Quality, STEPS, probe};

/// The CPUs of one machine.
pub struct Kvm {
    /// Declared before the virtual machine: CPUs go first.
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    requests: Receiver<Request>,
    answers: Vec<Sender<Answer>>,
    events: Events,
    doorbells: BTreeSet<u64>,
    watchdog: Watchdog,
    slowdown: u32,
    started: Option<Instant>,
    vm: Arc<Vm>,
}

/// What is up to the user of KVM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvmConfig {
    /// The CPU that guests see.
    pub model: CpuModel,
    /// How many times slower than ordinary the host runs guests: patience grows with it, and from ten times on their
    /// time passes more slowly too. See [`probe`].
    pub slowdown: u32,
    /// What CPUID says to guests where it is not what it was told: guests use it, so the emulation assist executes
    /// it. See [`probe`].
    pub visible: CpuidTable,
    /// KVM does not take SYSCALL and INT from user mode to the kernel, so the emulation assist has to. See [`probe`].
    pub assist_system_calls: bool,
}

impl Default for KvmConfig {
    fn default() -> Self {
        KvmConfig {
            model: CpuModel::Baseline,
            slowdown: 1,
            visible: CpuidTable::default(),
            assist_system_calls: false,
        }
    }
}

impl Kvm {
    /// CPUs in power-on state for `machine`, whose interrupts go to KVM from now on.
    ///
    /// # Errors
    /// When the host cannot do it; the message says what it lacks.
    pub fn new(host: &Host, machine: &mut Machine, config: KvmConfig) -> Result<Kvm, KvmError> {
        let cpus = machine.config().cpus;
        host.check_cpus(cpus)?;
        world::install_signal_handler().map_err(KvmError::host("handle a signal"))?;
        let assist_system_calls = config.assist_system_calls && host.has(&XSAVE) && host.has(&GUEST_DEBUG);
        let vm = Arc::new(Vm::new(host, machine.ram(), assist_system_calls)?);
        let cpuid = super::cpuid::of(machine);
        let vcpus = (0..cpus)
            .map(|cpu| {
                let fd = create_vcpu(host, &vm, &config, &cpuid, cpu)?;
                let calls = assist_system_calls.then(|| SystemCalls::new(&fd, machine.ram()));
                let calls = calls.transpose().map_err(KvmError::refused("take an entry for system calls"))?;
                Ok(Vcpu::new(fd, calls))
            })
            .collect::<Result<Vec<Vcpu>, KvmError>>()?;
        let pages: Vec<_> = vcpus.iter().map(Vcpu::page).collect();
        let assist = host.has(&XSAVE).then(|| Assist::new(machine.ram(), cpus, cpuid, config.visible));
        let call_port = machine.hypervisor().map(|hypervisor| hypervisor.call_port());
        let (sender, requests) = mpsc::channel();
        let mut kvm = Kvm {
            shared: Arc::new(Shared {
                world: World::new(&pages),
                vcpus,
                counts: Counts::default(),
                assist,
                call_port,
            }),
            threads: Vec::new(),
            requests,
            answers: Vec::new(),
            events: Events::new()?,
            doorbells: BTreeSet::new(),
            watchdog: Watchdog::new(cpus),
            slowdown: config.slowdown.max(1),
            started: None,
            vm,
        };
        for cpu in 0..cpus {
            kvm.start_thread(cpu, sender.clone())?;
        }
        machine.set_interrupt_sink(Box::new(KvmInterrupts::new(Arc::clone(&kvm.vm))));
        Ok(kvm)
    }

    fn start_thread(&mut self, cpu: usize, requests: Sender<Request>) -> Result<(), KvmError> {
        let (answer, answers) = mpsc::channel();
        let client = Client { cpu, requests, wake: self.events.waker()?, answers };
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new()
            .name(format!("cpu{cpu}"))
            .spawn(move || vcpu::run(&shared, &client))
            .map_err(KvmError::host("start a thread"))?;
        self.threads.push(thread);
        self.answers.push(answer);
        Ok(())
    }

    /// Whatever has to be told to the caller now.
    fn due(&mut self, machine: &mut Machine, control: &RunControl<'_>) -> Option<RunEvent> {
        if control.interrupted.load(Ordering::Relaxed) {
            return Some(RunEvent::Interrupted);
        }
        if control.host_deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Some(RunEvent::TimedOut);
        }
        let now = self.now();
        machine.advance(now);
        if let Some(event) = machine.take_power_event() {
            return Some(match event {
                PowerEvent::PowerOff => RunEvent::PowerOff,
                PowerEvent::Reset => RunEvent::Reset,
                PowerEvent::DebugExit(status) => RunEvent::DebugExit(status),
            });
        }
        if machine.has_output() || machine.has_events() {
            return Some(RunEvent::Output);
        }
        if control.until.is_some_and(|until| now >= until) {
            return Some(RunEvent::Until);
        }
        if self.watchdog.is_due(now) {
            return self.look(machine, control);
        }
        None
    }

    /// Sleeps until something is due or comes.
    fn sleep(&mut self, machine: &Machine, control: &RunControl<'_>) {
        if machine.has_outside() {
            self.events.watch_only(&machine.outside_descriptors());
        }
        let now = self.now();
        let next = machine.next_deadline().into_iter().chain(control.until).min();
        let mut longest = next.map_or(LONGEST_SLEEP, |next| next.since(now)).min(LONGEST_SLEEP);
        if let Some(deadline) = control.host_deadline {
            longest = longest.min(deadline.saturating_duration_since(Instant::now()));
        }
        self.events.wait(longest);
    }

    /// Takes what has come from outside, and answers doorbells and requests.
    fn serve(&mut self, machine: &mut Machine) -> Option<RunEvent> {
        if machine.has_outside() {
            machine.receive_outside(self.now());
        }
        for address in self.events.take_rung() {
            self.shared.counts.doorbell();
            machine.write_memory(self.now(), 0, address, &[0; 2]);
        }
        while let Ok(Request { cpu, message }) = self.requests.try_recv() {
            match message {
                Message::Access(access) => {
                    let answer = perform(machine, self.now(), cpu, access);
                    if moves_registers(access) {
                        self.place_doorbells(machine);
                    }
                    if machine.has_power_event() {
                        self.shared.world.pause();
                    }
                    // A CPU that does not listen any more has said why.
                    let _ = self.answers[cpu].send(answer);
                }
                Message::Call { port, mut registers } => {
                    let called = machine.hypercall(self.now(), cpu, port, &mut registers);
                    self.place_doorbells(machine);
                    let _ =
                        self.answers[cpu].send(if called { Answer::Call(registers) } else { Answer::Fault });
                }
                Message::Ended(Ended::TripleFault) => return Some(RunEvent::TripleFault { cpu }),
                Message::Ended(Ended::Failed(what)) => return Some(RunEvent::Failed(what)),
            }
        }
        let silent = self.threads.iter().position(JoinHandle::is_finished);
        silent.map(|cpu| RunEvent::Failed(format!("the thread of CPU {cpu} has ended without a word")))
    }

    /// Listens to the doorbells where they are now.
    fn place_doorbells(&mut self, machine: &Machine) {
        let wanted: BTreeSet<u64> = machine.doorbells().into_iter().collect();
        for address in self.doorbells.difference(&wanted) {
            if let Some(bell) = self.events.remove_doorbell(*address) {
                let _ = self.vm.fd().unregister_ioevent(&bell, &IoEventAddress::Mmio(*address), NoDatamatch);
            }
        }
        let mut placed: BTreeSet<u64> = self.doorbells.intersection(&wanted).copied().collect();
        for address in wanted.difference(&self.doorbells) {
            // Where there is no doorbell the write comes as an exit: slower, nothing else.
            let Ok(bell) = EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC) else { continue };
            let place = IoEventAddress::Mmio(*address);
            if self.vm.fd().register_ioevent(&bell, &place, NoDatamatch).is_ok() {
                self.events.add_doorbell(*address, bell);
                placed.insert(*address);
            }
        }
        self.doorbells = placed;
    }

    /// Stops the CPUs for a look at whether they get anywhere.
    fn look(&mut self, machine: &Machine, control: &RunControl<'_>) -> Option<RunEvent> {
        self.shared.world.pause();
        let samples: Result<Vec<Sample>, _> =
            self.shared.vcpus.iter().map(|vcpu| Sample::of(&vcpu.fd())).collect();
        self.shared.world.resume();
        let patience = Patience {
            interrupts_blocked: control.patience.interrupts_blocked * self.slowdown,
            no_progress: control.patience.no_progress * self.slowdown,
        };
        let around = Surroundings {
            now: self.now(),
            wakeable: control.report_idle || machine.next_deadline().is_some() || machine.has_outside(),
            activity: machine.activity(),
            patience,
        };
        match samples {
            Ok(samples) => self.watchdog.look(&samples, around).map(RunEvent::Stuck),
            Err(error) => Some(RunEvent::Failed(format!("KVM does not show a CPU's state ({error})"))),
        }
    }
}

impl Accelerator for Kvm {
    fn name(&self) -> &'static str {
        "kvm"
    }

    fn start(&mut self, entry: &Entry) -> Result<(), BackendError> {
        state::enter(&self.shared.vcpus[0].fd(), entry).map_err(|error| {
            BackendError(format!("KVM refuses the state in which the guest starts ({error})"))
        })
    }

    fn run(&mut self, machine: &mut Machine, control: &RunControl<'_>) -> RunEvent {
        self.started.get_or_insert_with(Instant::now);
        // Devices may have been plugged in or out since the last run.
        self.place_doorbells(machine);
        self.shared.world.resume();
        let event = loop {
            if let Some(event) = self.due(machine, control) {
                break event;
            }
            self.sleep(machine, control);
            if let Some(event) = self.serve(machine) {
                break event;
            }
        };
        if !matches!(event, RunEvent::Output | RunEvent::Until) {
            self.shared.world.pause();
        }
        event
    }

    fn now(&self) -> Time {
        let elapsed = self.started.map_or(Duration::ZERO, |started| started.elapsed());
        Time::ZERO + elapsed
    }

    fn cpu_state(&self, cpu: usize) -> CpuState {
        self.shared.world.pause();
        state::report(&self.shared.vcpus[cpu].fd()).unwrap_or_default()
    }

    fn is_reproducible(&self) -> bool {
        false
    }

    fn instructions(&self) -> Option<u64> {
        None
    }

    fn statistics(&self) -> Statistics {
        let assists = self.shared.assist.as_ref().map(Assist::counts).unwrap_or_default();
        Statistics {
            exits: self.shared.counts.by_name(),
            assists: assists.all,
            assists_beyond_baseline: assists.beyond_baseline,
        }
    }
}

impl Drop for Kvm {
    /// Nothing of the guest runs any more when this returns.
    fn drop(&mut self) {
        // CPUs that wait for an answer find that nobody will give one.
        self.answers.clear();
        self.shared.world.quit();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A CPU as it is after power-on, but with the time-stamp counter of the host, which user code reads on hosts that
/// cannot keep it from that: so all CPUs and all code see the same one.
fn create_vcpu(
    host: &Host,
    vm: &Vm,
    config: &KvmConfig,
    cpuid: &CpuidTable,
    cpu: usize,
) -> Result<VcpuFd, KvmError> {
    let vcpu = vm.create_vcpu(cpu)?;
    if host.has(&TSC_CONTROL) {
        vcpu.set_tsc_khz(super::cpuid::CLOCK_HERTZ / 1000)
            .map_err(KvmError::refused("run the time-stamp counter at 1 GHz"))?;
    }
    let tsc_khz = vcpu.get_tsc_khz().map_err(KvmError::refused("tell the time-stamp counter's rate"))?;
    let told_khz = cpuid::told_rate(tsc_khz, config.slowdown);
    let answers = cpuid::answers(host, config.model, cpuid, cpu, told_khz)?;
    vcpu.set_cpuid2(&answers).map_err(KvmError::refused("take what CPUID is to say"))?;
    msr::initialise(&vcpu).map_err(KvmError::refused("take the registers' first values"))?;
    let offset: u64 = 0;
    let no_offset = kvm_device_attr {
        group: KVM_VCPU_TSC_CTRL,
        attr: KVM_VCPU_TSC_OFFSET.into(),
        addr: &raw const offset as u64,
        ..kvm_device_attr::default()
    };
    // Before Linux 5.16 there was no such thing; counters then start at zero, which is as good elsewhere.
    // SAFETY: the structure is the one that the request takes, and points to 8 bytes that live longer.
    unsafe { vmm_sys_util::ioctl::ioctl_with_ref(&vcpu, SET_DEVICE_ATTR, &no_offset) };
    Ok(vcpu)
}

fn perform(machine: &mut Machine, now: Time, cpu: usize, access: Access) -> Answer {
    let mut data = [0xff; 8];
    match access {
        Access::ReadMemory { address, length } => {
            machine.read_memory(now, cpu, address, &mut data[..length]);
        }
        Access::WriteMemory { address, length, value } => {
            machine.write_memory(now, cpu, address, &value.to_le_bytes()[..length]);
        }
        Access::ReadPort { port, length } => machine.read_port(now, cpu, port, &mut data[..length]),
        Access::WritePort { port, length, value } => {
            machine.write_port(now, cpu, port, &value.to_le_bytes()[..length]);
        }
        Access::ReadMsr { index } => {
            return machine.read_msr(now, cpu, index).map_or(Answer::Fault, Answer::Value);
        }
        Access::WriteMsr { index, value } => {
            return machine.write_msr(now, cpu, index, value).map_or(Answer::Fault, |()| Answer::Value(0));
        }
    }
    Answer::Value(u64::from_le_bytes(data))
}

/// Whether `access` may move a device's registers: a write to configuration space, of which a hypervisor's bus has its
/// own.
fn moves_registers(access: Access) -> bool {
    const _: () = assert!(HYPERVISOR_WINDOW_START == ECAM_START + ECAM_SIZE);
    match access {
        Access::WriteMemory { address, .. } => {
            (ECAM_START..HYPERVISOR_WINDOW_START + HYPERVISOR_WINDOW_SIZE).contains(&address)
                || address >= HYPERVISOR_HIGH_WINDOW_START
        }
        Access::WritePort { port, .. } => (0xcf8..=0xcff).contains(&port),
        _ => false,
    }
}

/// `KVM_SET_DEVICE_ATTR`, which kvm-ioctls has for devices only (`linux/kvm.h`).
const SET_DEVICE_ATTR: std::ffi::c_ulong = vmm_sys_util::ioctl::ioctl_expr(
    vmm_sys_util::ioctl::_IOC_WRITE,
    kvm_bindings::KVMIO,
    0xe1,
    size_of::<kvm_device_attr>() as u32,
);

/// Without anything due, this long.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
