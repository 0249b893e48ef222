//! From what a user asks for to a guest that runs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use agent_protocol::Session;
use nicvisor_core::Time;
use nicvisor_net::network::{LinkConfig, SharedMedium};
use nicvisor_virtio::{Console as VirtioConsole, VirtioPci};
use thiserror::Error;

use super::names::NameSource;
use super::{Console, Guest};
use crate::accel::{BackendError, Choice, Chosen};
use crate::boot::{ImageError, Kernel};
use crate::machine::{Machine, MachineConfig, MachineError};
use crate::nic::{NicError, NicSpec};
use crate::outside::{self, OutsideError};

/// Everything that decides how a guest runs.
pub struct Plan {
    /// The kernel image.
    pub kernel: PathBuf,
    /// The kernel's System.map, where there is one.
    pub system_map: Option<PathBuf>,
    /// The archives of the initramfs, in order.
    pub initramfs: Vec<PathBuf>,
    /// Appended to the kernel's command line.
    pub append: String,
    /// Memory, CPUs and seed.
    pub machine: MachineConfig,
    /// What runs the CPUs.
    pub accel: Choice,
    /// The NICs, in order.
    pub nics: Vec<NicSpec>,
    /// The NICs of other guests on the same medium whose names come before.
    pub nics_before: Vec<NicSpec>,
    /// What the frames go through.
    pub medium: SharedMedium,
    /// Whether the kernel's log is shown as it comes.
    pub verbose: bool,
    /// End the run at this moment.
    pub deadline: Option<Instant>,
    /// Set to end the run.
    pub interrupted: Arc<AtomicBool>,
}

/// Starts a guest. Nothing of it has run yet when this returns.
///
/// # Errors
/// When the kernel cannot be used or the machine cannot be built.
pub fn boot(plan: Plan) -> Result<Guest, BootError> {
    let kernel = Kernel::read(&plan.kernel)
        .map_err(|source| BootError::Kernel { path: plan.kernel.clone(), source })?;
    let mut initramfs = Vec::new();
    for path in &plan.initramfs {
        let failed = |source| BootError::Initramfs { path: path.clone(), source };
        initramfs.extend(std::fs::read(path).map_err(failed)?);
    }
    let mut machine = Machine::new(plan.machine, plan.medium)?;
    let agent_link = machine.network().add_link(LinkConfig::named("none"));
    let agent =
        machine.add_device("agent", Box::new(VirtioPci::new(VirtioConsole::for_agent())), agent_link)?;
    add_nics(&mut machine, &plan.nics, &plan.nics_before)?;
    let Chosen { mut accelerator, reason, warning, slowdown, leaky } = plan.accel.carry_out(&mut machine)?;
    let command_line = command_line(plan.verbose, slowdown >= SLOW, leaky, &plan.append);
    let entry = machine.boot(&kernel, &command_line, Some(&initramfs))?;
    accelerator.start(&entry)?;
    Ok(Guest {
        machine,
        accelerator,
        backend_reason: reason,
        backend_warning: warning,
        agent,
        session: Session::new(),
        console: Console::new(plan.verbose),
        names: NameSource { kernel: plan.kernel, system_map: plan.system_map },
        kernel_release: String::new(),
        trouble: Vec::new(),
        findings: Vec::new(),
        finished: BTreeMap::new(),
        answers: BTreeMap::new(),
        saying_goodbye: false,
        interrupted: plan.interrupted,
        deadline: plan.deadline,
        since: Time::ZERO,
    })
}

/// Puts the NICs on the bus, and on links that carry what the largest of their MTUs asks for. They are named by
/// their kind and number, counted from those `before`.
pub(crate) fn add_nics(machine: &mut Machine, nics: &[NicSpec], before: &[NicSpec]) -> Result<(), BootError> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    before.iter().for_each(|nic| *counts.entry(nic.kind()).or_default() += 1);
    for nic in nics {
        let mut network = machine.network();
        let mtu = usize::from(nic.mtu());
        let known = network.find_link(&nic.link);
        let link = known
            .unwrap_or_else(|| network.add_link(LinkConfig { mtu, ..LinkConfig::named(nic.link.clone()) }));
        if let Some(config) = network.link_mut(link) {
            config.mtu = config.mtu.max(mtu);
        }
        drop(network);
        if known.is_none()
            && let Some(wire) = outside::open(&nic.link)?
        {
            machine.add_outside(link, &nic.link, wire);
        }
        let count = counts.entry(nic.kind()).or_default();
        machine.add_device(format!("{}{count}", nic.kind()), nic.build()?, link)?;
        *count += 1;
    }
    Ok(())
}

/// The kernel's command line.
fn command_line(verbose: bool, slow: bool, leaky: bool, append: &str) -> String {
    let pieces = [
        (true, COMMAND_LINE),
        (!verbose, "quiet"),
        (slow, SLOW_COMMAND_LINE),
        (leaky, LEAKY_COMMAND_LINE),
        (!append.is_empty(), append),
    ];
    let pieces: Vec<&str> =
        pieces.into_iter().filter(|(wanted, _)| *wanted).map(|(_, piece)| piece).collect();
    pieces.join(" ")
}

/// A panic restarts the machine at once, which ends the run; a kernel that notices that it makes no progress
/// panics. Interface names are the kernel's own.
pub const COMMAND_LINE: &str =
    "console=ttyS0 panic=-1 softlockup_panic=1 hung_task_panic=1 net.ifnames=0 mitigations=off";

/// A kernel that runs at a fiftieth of its speed takes itself for stuck.
const SLOW_COMMAND_LINE: &str = "nowatchdog hung_task_panic=0 rcupdate.rcu_cpu_stall_suppress=1";
/// Where CPUID shows what the baseline does not have and nobody can emulate, the kernel is told not to use it. What
/// it does not know goes to its first process as an environment variable: the C library looks at CPUID too.
const LEAKY_COMMAND_LINE: &str = "noxsave clearcpuid=smap,smep,umip,pcid,invpcid,fsgsbase,rdpid,serialize,\
arch_capabilities,la57 GLIBC_TUNABLES=glibc.cpu.hwcaps=-XSAVE,-XSAVEC,-AVX,-AVX2,-AVX512F,-AVX512VL,-AVX512BW,\
-ERMS,-BMI2,-MOVBE";
const SLOW: u32 = 10;

/// Why a guest could not be started.
#[derive(Debug, Error)]
pub enum BootError {
    /// The kernel image is not one that can be booted.
    #[error("cannot boot {}: {source}", path.display())]
    Kernel {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ImageError,
    },
    /// The initramfs cannot be read.
    #[error("cannot read the initramfs {}: {source}", path.display())]
    Initramfs {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The machine cannot be built.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A NIC cannot be built.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// A link does not lead where it should.
    #[error(transparent)]
    Outside(#[from] OutsideError),
    /// Nothing runs the CPUs.
    #[error(transparent)]
    Backend(#[from] BackendError),
}
