//! From what a user asks for to a guest that runs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use agent_protocol::Session;
use nicvisor_net::network::{LinkConfig, SharedMedium};
use nicvisor_virtio::{Console as VirtioConsole, VirtioPci};
use thiserror::Error;

use super::names::NameSource;
use super::{Console, Guest};
use crate::accel::Accelerator;
use crate::accel::soft::{Soft, SoftConfig};
use crate::boot::{ImageError, Kernel};
use crate::machine::{Machine, MachineConfig, MachineError};
use crate::nic::{NicError, NicSpec};

/// Everything that decides how a guest runs.
pub struct Plan {
    /// The kernel image.
    pub kernel: PathBuf,
    /// The kernel's System.map, where there is one.
    pub system_map: Option<PathBuf>,
    /// The initramfs.
    pub initramfs: PathBuf,
    /// Appended to the kernel's command line.
    pub append: String,
    /// Memory, CPUs and seed.
    pub machine: MachineConfig,
    /// The NICs, in order.
    pub nics: Vec<NicSpec>,
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
    let initramfs = std::fs::read(&plan.initramfs)
        .map_err(|source| BootError::Initramfs { path: plan.initramfs.clone(), source })?;
    let mut machine = Machine::new(plan.machine, plan.medium)?;
    let agent_link = machine.network().add_link(LinkConfig::named("none"));
    let agent =
        machine.add_device("agent", Box::new(VirtioPci::new(VirtioConsole::for_agent())), agent_link)?;
    add_nics(&mut machine, &plan.nics)?;
    let entry = machine.boot(&kernel, &command_line(plan.verbose, &plan.append), Some(&initramfs))?;
    let mut accelerator = Soft::new(&machine, SoftConfig::default());
    accelerator.start(&entry);
    Ok(Guest {
        machine,
        accelerator: Box::new(accelerator),
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
    })
}

/// Puts the NICs on the bus, and on links that carry what the largest of their MTUs asks for.
pub(crate) fn add_nics(machine: &mut Machine, nics: &[NicSpec]) -> Result<(), BootError> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for nic in nics {
        let mut network = machine.network();
        let mtu = usize::from(nic.mtu());
        let link = match network.find_link(&nic.link) {
            Some(link) => link,
            None => network.add_link(LinkConfig { mtu, ..LinkConfig::named(nic.link.clone()) }),
        };
        if let Some(config) = network.link_mut(link) {
            config.mtu = config.mtu.max(mtu);
        }
        drop(network);
        let count = counts.entry(nic.kind()).or_default();
        machine.add_device(format!("{}{count}", nic.kind()), nic.build()?, link)?;
        *count += 1;
    }
    Ok(())
}

/// The kernel's command line.
fn command_line(verbose: bool, append: &str) -> String {
    let loudness = if verbose { "" } else { " quiet" };
    format!("{COMMAND_LINE}{loudness} {append}").trim_end().to_owned()
}

/// A panic restarts the machine at once, which ends the run; a kernel that notices that it makes no progress
/// panics. Interface names are the kernel's own.
pub const COMMAND_LINE: &str =
    "console=ttyS0 panic=-1 softlockup_panic=1 hung_task_panic=1 net.ifnames=0 mitigations=off";

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
}
