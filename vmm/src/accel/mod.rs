//! What runs the CPUs.
//!
//! A backend drives a [`Machine`]: it runs guest code, hands the guest's accesses to the machine, lets time pass
//! and delivers interrupts. The rest of the program sees only [`Accelerator`]: *run until something happens*,
//! look at the CPUs, go on.

pub mod cpuid;
pub mod soft;

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use nicvisor_core::{Duration, Time};

use crate::boot::Entry;
use crate::machine::{CpuState, Machine};

/// A way to run guest code.
pub trait Accelerator {
    /// The backend's name, as the command line has it.
    fn name(&self) -> &'static str;

    /// Prepares the first CPU for its first instruction; the others wait for their start-up IPI.
    fn start(&mut self, entry: &Entry);

    /// Runs until something happens that the caller should know of.
    fn run(&mut self, machine: &mut Machine, control: &RunControl<'_>) -> RunEvent;

    /// The machine's time now.
    fn now(&self) -> Time;

    /// Lets time pass while all CPUs are halted, at most up to the next event.
    fn skip_to(&mut self, time: Time);

    /// The state of CPU `cpu`, which is stopped while [`Self::run`] is not being called.
    fn cpu_state(&self, cpu: usize) -> CpuState;

    /// How many instructions all CPUs have executed, where the backend counts them.
    fn instructions(&self) -> Option<u64>;
}

/// When to give up, and what else the caller wants to know.
#[derive(Clone, Copy, Debug)]
pub struct RunControl<'a> {
    /// Set from a signal handler: end the run.
    pub interrupted: &'a AtomicBool,
    /// End the run at this moment of the host's clock.
    pub host_deadline: Option<Instant>,
    /// Return at this machine time.
    pub until: Option<Time>,
    /// Return [`RunEvent::Idle`] instead of jumping to the next event when all CPUs are halted: for a caller
    /// that waits for input from outside and wants time to pass as on the wall.
    pub report_idle: bool,
    /// How many instructions (or the time they would take) a guest may go without any sign of progress.
    pub patience: Patience,
}

/// How long a guest may be busy with nothing before it counts as stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Machine time that a CPU may ignore a pending interrupt.
    pub interrupts_blocked: Duration,
    /// Machine time without a halted CPU, output, or access to a PCI device.
    pub no_progress: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { interrupts_blocked: Duration::from_secs(2), no_progress: Duration::from_secs(30) }
    }
}

/// Why [`Accelerator::run`] returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEvent {
    /// The machine has output for the host ([`Machine::take_output`]).
    Output,
    /// All CPUs are halted until this time, or until input comes when there is none.
    Idle(Option<Time>),
    /// [`RunControl::until`] is reached.
    Until,
    /// The guest powered the machine off.
    PowerOff,
    /// The guest reset the machine.
    Reset,
    /// The guest wrote to the debug-exit port; the status is that of the whole program.
    DebugExit(u32),
    /// A CPU could not deliver an exception, not even a double fault.
    TripleFault {
        /// The CPU.
        cpu: usize,
    },
    /// The guest makes no progress.
    Stuck(Stuck),
    /// [`RunControl::host_deadline`] has passed.
    TimedOut,
    /// [`RunControl::interrupted`] was set.
    Interrupted,
}

/// How a guest is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stuck {
    /// All CPUs are halted and nothing can wake them.
    #[error("all CPUs are halted and no interrupt can come")]
    Dead,
    /// A CPU has kept interrupts off for too long while one was pending.
    #[error("CPU {cpu} has ignored a pending interrupt for {time:?}")]
    InterruptsBlocked {
        /// The CPU.
        cpu: usize,
        /// For how long, in machine time.
        time: Duration,
    },
    /// No CPU has halted, and no device or console was used, for too long.
    #[error("no CPU has been idle and no device was used for {time:?}")]
    NoProgress {
        /// For how long, in machine time.
        time: Duration,
    },
}
