//! The backend on our own CPU: all CPUs on one host thread, one after the other, in virtual time.
//!
//! The CPUs take turns of at most `QUANTUM` instructions. A turn ends early when the CPU halts, spins (`PAUSE`),
//! sends an IPI, or when something is due: so timers fire at their exact time and a run depends on nothing but
//! the guest and its input. When all CPUs are halted, time jumps to the next event.

mod bus;
mod clock;
mod watchdog;

use std::sync::atomic::Ordering;
use std::time::Instant;

use nicvisor_core::{Duration, PowerEvent, Time};
use nicvisor_platform::Startup;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use softcpu::cpu::Activity;
use softcpu::segment::{CS, DescriptorTable, FS, GS, SS};
use softcpu::{Cpu, Engine, Exit};

use super::{Accelerator, BackendError, Observer, RunControl, RunEvent, Stuck, cpuid};
use crate::boot::layout::{GDT, PAGE_TABLES};
use crate::boot::{Entry, EntryMode};
use crate::machine::{CpuActivity, CpuState, Machine};
use bus::SoftBus;
use clock::Clock;
use watchdog::Watchdog;

/// The software CPUs of one machine.
#[derive(Debug)]
pub struct Soft {
    engine: Engine,
    clock: Clock,
    /// The CPU whose turn is next.
    turn: usize,
    /// CPUs that are halted although something is pending for them, with interrupts off.
    asleep: Vec<bool>,
    instructions: u64,
    /// Points passed at which input is looked for.
    position: u64,
    watchdog: Watchdog,
}

/// What is up to the user of the software CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftConfig {
    /// How many instructions take a second of virtual time.
    pub instructions_per_second: u64,
}

impl Default for SoftConfig {
    fn default() -> Self {
        SoftConfig { instructions_per_second: 1_000_000_000 }
    }
}

impl Soft {
    /// CPUs in power-on state for `machine`.
    pub fn new(machine: &Machine, config: SoftConfig) -> Soft {
        let cpus = machine.config().cpus;
        Soft {
            engine: Engine::new(machine.ram().clone(), cpus, cpuid::of(machine)),
            clock: Clock::new(config.instructions_per_second),
            turn: 0,
            asleep: vec![false; cpus],
            instructions: 0,
            position: 0,
            watchdog: Watchdog::new(cpus),
        }
    }

    /// Carries out INIT and start-up IPIs.
    fn start_cpus(&mut self, machine: &mut Machine) {
        for cpu in 0..self.engine.cpu_count() {
            while let Some(startup) = machine.platform_mut().interrupts.take_startup(cpu) {
                match startup {
                    Startup::Init => self.engine.cpu_mut(cpu).init(cpu == 0),
                    Startup::Begin(page) => self.engine.cpu_mut(cpu).start_up(page),
                }
                self.asleep[cpu] = false;
            }
        }
    }

    fn is_runnable(&self, machine: &Machine, cpu: usize) -> bool {
        match self.engine.cpu(cpu).activity {
            Activity::Running => true,
            Activity::Halted => !self.asleep[cpu] && machine.platform().interrupts.pending(cpu),
            Activity::WaitForStartUp | Activity::Shutdown => false,
        }
    }

    /// The CPU to run now and how many have something to do.
    fn next_runnable(&self, machine: &Machine) -> Option<(usize, usize)> {
        let cpus = self.engine.cpu_count();
        let mut first = None;
        let mut count = 0;
        for cpu in (self.turn..cpus).chain(0..self.turn) {
            if self.is_runnable(machine, cpu) {
                first = first.or(Some(cpu));
                count += 1;
            }
        }
        Some((first?, count))
    }

    /// All CPUs are halted: goes to the next event, or says why not.
    fn idle(&mut self, machine: &Machine, control: &RunControl<'_>) -> Option<RunEvent> {
        self.watchdog.progress(self.clock.now());
        let next = machine.next_deadline();
        if control.report_idle {
            return Some(RunEvent::Idle(next));
        }
        let next = next.into_iter().chain(control.until).min();
        let next = match next {
            _ if machine.has_outside() => self.wait_for_outside(machine, next),
            Some(next) => next,
            None => return Some(RunEvent::Stuck(Stuck::Dead)),
        };
        self.clock.jump(next);
        self.asleep.fill(false);
        None
    }

    /// Frames may come from outside: the host sleeps for as long as the guest does. Returns the time until which
    /// it did.
    fn wait_for_outside(&self, machine: &Machine, next: Option<Time>) -> Time {
        let now = self.clock.now();
        let longest = next.map_or(LONGEST_SLEEP, |next| next.since(now)).min(LONGEST_SLEEP);
        let started = Instant::now();
        machine.wait_for_outside(longest);
        now + started.elapsed().min(longest)
    }

    /// Gives `cpu` its turn.
    fn run_cpu(
        &mut self,
        machine: &mut Machine,
        control: &RunControl<'_>,
        cpu: usize,
        runnable: usize,
    ) -> Option<RunEvent> {
        self.clock.share(runnable);
        let deadline = machine.next_deadline().into_iter().chain(control.until).min();
        let budget =
            deadline.map_or(QUANTUM, |deadline| self.clock.instructions_until(deadline).clamp(1, QUANTUM));
        let mut bus = SoftBus::new(machine, self.clock, budget);
        let (executed, exit) = self.engine.run(cpu, &mut bus, budget);
        let interrupted = bus.delivered();
        self.instructions += executed;
        // A spinning CPU waits for others or for time to pass: let some pass.
        let spent =
            if exit == Exit::Pause { (executed + PAUSE_COST).min(budget.max(executed)) } else { executed };
        self.clock.advance(spent);
        self.turn = (cpu + 1) % self.engine.cpu_count();
        if executed > 0 || interrupted {
            self.asleep.fill(false);
        }
        let now = self.clock.now();
        match exit {
            Exit::Shutdown => return Some(RunEvent::TripleFault { cpu }),
            Exit::Halt => {
                self.asleep[cpu] = executed == 0 && !interrupted;
                self.watchdog.progress(now);
            }
            Exit::Budget | Exit::Pause | Exit::Yield => {}
        }
        let blocked =
            exit != Exit::Halt && !interrupted && machine.platform().interrupts.interrupt_pending(cpu);
        self.watchdog.check(now, cpu, blocked, machine.activity(), &control.patience).map(RunEvent::Stuck)
    }
}

impl Accelerator for Soft {
    fn name(&self) -> &'static str {
        "soft"
    }

    fn start(&mut self, entry: &Entry) -> Result<(), BackendError> {
        let cpu = self.engine.cpu_mut(0);
        match entry.mode {
            EntryMode::Long => {
                cpu.enter_long(entry.ip, PAGE_TABLES, DescriptorTable { base: GDT, limit: 0x1f })
            }
            EntryMode::Protected => {
                cpu.enter_protected(entry.ip as u32);
                cpu.gdtr = DescriptorTable { base: GDT, limit: 0x1f };
            }
        }
        let registers = [
            (softcpu::cpu::RAX, entry.rax),
            (softcpu::cpu::RBX, entry.rbx),
            (softcpu::cpu::RSI, entry.rsi),
            (softcpu::cpu::RSP, entry.sp),
        ];
        for (register, value) in registers {
            cpu.registers[usize::from(register)] = value;
        }
        // As firmware leaves it: memory is cacheable unless the page tables say otherwise.
        cpu.msrs.mtrr_default_type = MTRR_ENABLED_WRITE_BACK;
        Ok(())
    }

    fn run(&mut self, machine: &mut Machine, control: &RunControl<'_>) -> RunEvent {
        if control.since > self.clock.now() {
            self.clock.jump(control.since);
            self.asleep.fill(false);
        }
        let mut round: u8 = 0;
        loop {
            if control.interrupted.load(Ordering::Relaxed) {
                return RunEvent::Interrupted;
            }
            if round.is_multiple_of(HOST_CLOCK_ROUNDS)
                && control.host_deadline.is_some_and(|deadline| Instant::now() >= deadline)
            {
                return RunEvent::TimedOut;
            }
            let now = self.clock.now();
            if machine.has_outside() && round.is_multiple_of(HOST_CLOCK_ROUNDS) {
                machine.receive_outside(now);
            }
            round = round.wrapping_add(1);
            machine.advance(now);
            if let Some(event) = machine.take_power_event() {
                return match event {
                    PowerEvent::PowerOff => RunEvent::PowerOff,
                    PowerEvent::Reset => RunEvent::Reset,
                    PowerEvent::DebugExit(status) => RunEvent::DebugExit(status),
                };
            }
            if machine.has_output() || machine.has_events() {
                return RunEvent::Output;
            }
            if control.until.is_some_and(|until| now >= until)
                || control.stop_at.is_some_and(|position| self.position >= position)
            {
                return RunEvent::Until;
            }
            self.position += 1;
            self.start_cpus(machine);
            let event = match self.next_runnable(machine) {
                Some((cpu, runnable)) => self.run_cpu(machine, control, cpu, runnable),
                None => self.idle(machine, control),
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    fn cpu_state(&self, cpu: usize) -> CpuState {
        let cpu = self.engine.cpu(cpu);
        let mut registers = [0; 16];
        registers.copy_from_slice(&cpu.registers[..16]);
        CpuState {
            registers,
            rip: cpu.rip(),
            rflags: cpu.rflags(),
            cs: cpu.segments[CS].selector,
            cs_base: cpu.segments[CS].base,
            ss_base: cpu.segments[SS].base,
            fs_base: cpu.segments[FS].base,
            gs_base: cpu.segments[GS].base,
            cr0: cpu.cr0,
            cr2: cpu.cr2,
            cr3: cpu.cr3,
            cr4: cpu.cr4,
            efer: cpu.msrs.efer,
            activity: match cpu.activity {
                Activity::Running | Activity::Shutdown => CpuActivity::Running,
                Activity::Halted => CpuActivity::Halted,
                Activity::WaitForStartUp => CpuActivity::Offline,
            },
        }
    }

    fn is_reproducible(&self) -> bool {
        true
    }

    fn instructions(&self) -> Option<u64> {
        Some(self.instructions)
    }

    fn position(&self) -> Option<u64> {
        Some(self.position)
    }

    fn page_flags_cleared(&mut self) {
        self.engine.page_flags_cleared();
    }

    fn save(&mut self) -> Option<Value> {
        self.engine.forget_translations();
        serde_json::to_value(SavedSoft {
            cpus: (0..self.engine.cpu_count()).map(|cpu| self.engine.cpu(cpu).clone()).collect(),
            clock: self.clock,
            turn: self.turn,
            asleep: self.asleep.clone(),
            instructions: self.instructions,
            position: self.position,
            watchdog: self.watchdog.clone(),
        })
        .ok()
    }

    fn restore(&mut self, state: &Value) -> Result<(), BackendError> {
        let saved = SavedSoft::deserialize(state)
            .map_err(|error| BackendError(format!("this is no state of software CPUs ({error})")))?;
        let cpus = self.engine.cpu_count();
        if saved.cpus.len() != cpus || saved.asleep.len() != cpus || saved.turn >= cpus {
            let theirs = saved.cpus.len();
            return Err(BackendError(format!("the state is of {theirs} CPUs, and the machine has {cpus}")));
        }
        for (index, cpu) in saved.cpus.into_iter().enumerate() {
            *self.engine.cpu_mut(index) = cpu;
        }
        self.clock = saved.clock;
        self.turn = saved.turn;
        self.asleep = saved.asleep;
        self.instructions = saved.instructions;
        self.position = saved.position;
        self.watchdog = saved.watchdog;
        Ok(())
    }

    fn observe(&mut self, observer: Option<Observer>) -> Result<(), BackendError> {
        self.engine.observe(observer);
        Ok(())
    }
}

/// All of [`Soft`] that does not follow from something else.
#[derive(Serialize, Deserialize)]
struct SavedSoft {
    cpus: Vec<Cpu>,
    clock: Clock,
    turn: usize,
    asleep: Vec<bool>,
    instructions: u64,
    position: u64,
    watchdog: Watchdog,
}

/// The longest turn, in instructions.
const QUANTUM: u64 = 20_000;
/// How many instructions' time a `PAUSE` takes.
const PAUSE_COST: u64 = 100;
/// How many turns between looks at the host's clock.
const HOST_CLOCK_ROUNDS: u8 = 16;
/// How long the host sleeps at most before it looks at whether the user wants it to end.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
const MTRR_ENABLED_WRITE_BACK: u64 = 0xc06;
