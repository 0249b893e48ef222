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
use super::{Console, Guest, command_line};
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
    let Chosen { mut accelerator, reason, warning, slowdown, leaks } = plan.accel.carry_out(&mut machine)?;
    let command_line = command_line::build(plan.verbose, slowdown, &leaks, &plan.append);
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
        let id = machine.add_device(format!("{}{count}", nic.kind()), nic.build()?, link)?;
        if nic.root_port {
            machine.add_root_port(id);
        }
        *count += 1;
    }
    Ok(())
}

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
