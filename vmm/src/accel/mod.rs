//! What runs the CPUs.
//!
//! A backend drives a [`Machine`]: it runs guest code, hands the guest's accesses to the machine, lets time pass
//! and delivers interrupts. The rest of the program sees only [`Accelerator`]: *run until something happens*,
//! look at the CPUs, go on.

mod choice;
pub mod cpuid;
pub mod kvm;
pub mod leaks;
pub mod soft;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use nicvisor_core::{Duration, Time};
use serde_json::Value;
pub use softcpu::BlockRun;

pub use choice::{Backend, Choice, Chosen};

use crate::boot::Entry;
use crate::machine::{CpuState, Machine};

/// A way to run guest code.
pub trait Accelerator {
    /// The backend's name, as the command line has it.
    fn name(&self) -> &'static str;

    /// Prepares the first CPU for its first instruction; the others wait for their start-up IPI.
    ///
    /// # Errors
    /// When the backend does not take the state.
    fn start(&mut self, entry: &Entry) -> Result<(), BackendError>;

    /// Runs until something happens that the caller should know of.
    fn run(&mut self, machine: &mut Machine, control: &RunControl<'_>) -> RunEvent;

    /// The machine's time now.
    fn now(&self) -> Time;

    /// The state of CPU `cpu`. All CPUs are stopped from this call to the next of [`Self::run`].
    fn cpu_state(&self, cpu: usize) -> CpuState;

    /// How many instructions all CPUs have executed, where the backend counts them.
    fn instructions(&self) -> Option<u64>;

    /// Whether a run depends on nothing but the guest and its input.
    fn is_reproducible(&self) -> bool;

    /// How many points of the run the backend has passed at which it looks for input: the exact moment of an input,
    /// to be repeated with [`RunControl::stop_at`]. `None` where no run is like another.
    fn position(&self) -> Option<u64> {
        None
    }

    /// The state of all CPUs and of the clock, as JSON; `None` from a backend that does not have it at hand. RAM and
    /// the machine's own state ([`Machine::save`]) are apart. What CPUs remember of page tables is forgotten, so that
    /// the run goes on as one that takes the state over.
    fn save(&mut self) -> Option<Value> {
        None
    }

    /// Takes over a state that [`Self::save`] returned, after RAM was restored by writers that mark what they write
    /// (all of `vm-memory`'s do).
    ///
    /// # Errors
    /// When the backend cannot, or `state` is not such a state; nothing has changed then.
    fn restore(&mut self, _state: &Value) -> Result<(), BackendError> {
        Err(BackendError(format!(
            "the {} backend cannot restore a saved state: use --accel soft",
            self.name()
        )))
    }

    /// To be called after [`nicvisor_memory::DIRTY`] was cleared anywhere, so that writes are noticed again.
    fn page_flags_cleared(&mut self) {}

    /// Tells `observer` of all code that is executed from now on, for coverage; `None` ends that.
    ///
    /// # Errors
    /// When the backend does not know what is executed.
    fn observe(&mut self, _observer: Option<Observer>) -> Result<(), BackendError> {
        Err(BackendError(format!("the {} backend cannot report coverage: use --accel soft", self.name())))
    }

    /// What happened on the way, where the backend has anything to tell.
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

/// Is told of every run of instructions that a CPU has executed one behind the other.
pub type Observer = Box<dyn FnMut(BlockRun) + Send>;

/// What a backend could not do, and what the user can do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BackendError(pub String);

/// Counters of a backend, for reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// How often CPUs left the guest, by kind.
    pub exits: BTreeMap<String, u64>,
    /// How often the emulation assist executed which instruction.
    pub assists: BTreeMap<String, u64>,
    /// Those among them that the machine's CPUID table does not show, but the host's CPU does.
    pub assists_beyond_baseline: BTreeMap<String, u64>,
}

/// The CPU that guests see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuModel {
    /// The same on every backend and host: see [`cpuid`].
    #[default]
    Baseline,
    /// All that the host's CPU can do; only where guests run on it.
    Host,
}

/// When to give up, and what else the caller wants to know.
#[derive(Clone, Copy, Debug)]
pub struct RunControl<'a> {
    /// Set from a signal handler: end the run.
    pub interrupted: &'a AtomicBool,
    /// End the run at this moment of the host's clock.
    pub host_deadline: Option<Instant>,
    /// Return at this machine time. CPUs run up to it and not beyond, so that the run may go on in another order than
    /// without.
    pub until: Option<Time>,
    /// Return at this [`Accelerator::position`]; the run goes on as if it had not.
    pub stop_at: Option<u64>,
    /// At least this machine time has come: the caller has slept on [`RunEvent::Idle`] and wants time to have
    /// passed for the guest too. Nothing where time is the host's.
    pub since: Time,
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
    /// The machine has something for the host ([`Machine::take_output`], [`Machine::take_events`]).
    Output,
    /// All CPUs are halted until this time, or until input comes when there is none.
    Idle(Option<Time>),
    /// [`RunControl::until`] or [`RunControl::stop_at`] is reached.
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
    /// The backend cannot go on; the text says where, why, and what to do.
    Failed(String),
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
