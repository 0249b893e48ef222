//! The machine around the CPUs: memory, platform devices, the PCI bus with its devices, and its place on the
//! network that connects their ports.
//!
//! A backend ([`crate::accel`]) calls into the machine for every access that is not to RAM and when a deadline
//! has come ([`Machine::advance`]). Every call into a device leaves [`Effects`], which the machine carries out
//! before the call returns: interrupts go to the interrupt controllers, frames to the network, findings and host
//! bytes into queues that the program empties between runs. Nothing here depends on the host's clock or on
//! anything unordered: the same calls give the same results.

mod access;
mod config;
mod devices;
mod effects;
mod hypervisor;
mod input;
mod inspect;
mod interrupts;
mod msr;
mod outside;
mod plug;
mod report;
mod save;

use std::collections::BTreeMap;

use nicvisor_core::pci::{Root, Slot, Windows};
use nicvisor_core::{Context, DeviceId, Effects, EventKinds, Finding, PowerEvent, Time};
use nicvisor_memory::{GuestRam, HIGH_RAM_START, PCI_HOLE_START};
use nicvisor_net::network::{NetworkGuard, PortId, Random, SharedMedium, Station};
use nicvisor_platform::{Platform, PlatformConfig};

pub use config::{MOST_CPUS, MachineConfig, MachineError};
pub use devices::UNPLUGGED;
pub use effects::{HostOutput, Observed};
pub use input::{Input, InputError};
pub use inspect::{CpuActivity, CpuState};
pub use interrupts::InterruptSink;
pub use outside::NO_PEER;
pub use plug::PlugError;
pub use report::{CpuReport, Frame as BacktraceFrame};

use crate::acpi;
use crate::boot::layout::{PCI_HIGH_WINDOW_SIZE, PCI_HIGH_WINDOW_START, PCI_WINDOW_SIZE, PCI_WINDOW_START};
use crate::boot::{BootOptions, Entry, Kernel};
use crate::outside::Wire;
use devices::Attached;
use effects::Source;
use hypervisor::Hypervisor;

/// A machine without its CPUs.
pub struct Machine {
    config: MachineConfig,
    ram: GuestRam,
    platform: Platform,
    root: Root,
    hypervisor: Option<Hypervisor>,
    interrupt_sink: Option<Box<dyn InterruptSink>>,
    medium: SharedMedium,
    station: Station,
    devices: BTreeMap<DeviceId, Attached>,
    slots: BTreeMap<Slot, DeviceId>,
    ports: BTreeMap<PortId, (DeviceId, u16)>,
    /// Pairs of bonded ports, the one whose device chooses first.
    bonds: Vec<(PortId, PortId)>,
    /// Devices that want to be unplugged.
    leaving: Vec<DeviceId>,
    /// Ports that lead out of the program.
    outside: BTreeMap<PortId, Box<dyn Wire>>,
    effects: Effects,
    findings: Vec<Finding>,
    events: Vec<Observed>,
    output: Vec<HostOutput>,
    power: Option<PowerEvent>,
    activity: u64,
}

impl Machine {
    /// A machine without PCI devices, whose ports will be on `medium`.
    ///
    /// # Errors
    /// When the configuration is impossible or the host has not enough address space.
    pub fn new(config: MachineConfig, medium: SharedMedium) -> Result<Machine, MachineError> {
        config.check()?;
        let ram = nicvisor_memory::allocate(config.memory)
            .map_err(|source| MachineError::Allocate { mib: config.memory >> 20, source })?;
        let low_memory = config.memory.min(PCI_HOLE_START);
        let platform = Platform::new(PlatformConfig {
            cpus: config.cpus,
            start_time: config.start_time,
            low_memory,
            high_memory: config.memory - low_memory,
            ..PlatformConfig::default()
        });
        let station = medium.network().add_station();
        Ok(Machine {
            config,
            ram,
            platform,
            root: Root::new(),
            hypervisor: None,
            interrupt_sink: None,
            medium,
            station,
            devices: BTreeMap::new(),
            slots: BTreeMap::new(),
            ports: BTreeMap::new(),
            bonds: Vec::new(),
            leaving: Vec::new(),
            outside: BTreeMap::new(),
            effects: Effects::default(),
            findings: Vec::new(),
            events: Vec::new(),
            output: Vec::new(),
            power: None,
            activity: 0,
        })
    }

    /// Places `kernel`, its initrd and command line and the ACPI tables in memory, and gives the devices their
    /// addresses: what firmware would have done. Returns how the first CPU starts.
    ///
    /// # Errors
    /// When the kernel or the initrd do not fit, or the devices' registers do not.
    pub fn boot(
        &mut self,
        kernel: &Kernel,
        command_line: &str,
        initrd: Option<&[u8]>,
    ) -> Result<Entry, MachineError> {
        let description = acpi::Description {
            cpus: self.config.cpus,
            numbered_slots: self.numbered_slots(),
            devices: self.hypervisor().map(|hypervisor| hypervisor.firmware()).unwrap_or_default(),
        };
        let rsdp = acpi::write(&self.ram, &description).map_err(crate::boot::LoadError::from)?;
        let windows = Windows {
            low: PCI_WINDOW_START..PCI_WINDOW_START + PCI_WINDOW_SIZE,
            high: PCI_HIGH_WINDOW_START..PCI_HIGH_WINDOW_START + PCI_HIGH_WINDOW_SIZE,
        };
        self.root.assign_bars(&windows)?;
        let options = BootOptions { command_line, initrd, rsdp, rng_seed: rng_seed(self.config.seed) };
        Ok(kernel.load(&self.ram, &options)?)
    }

    /// What the machine was made from.
    pub fn config(&self) -> &MachineConfig {
        &self.config
    }

    /// Guest memory.
    pub fn ram(&self) -> &GuestRam {
        &self.ram
    }

    /// The platform devices, among them the interrupt controllers.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// The platform devices, for a backend that delivers interrupts.
    pub fn platform_mut(&mut self) -> &mut Platform {
        &mut self.platform
    }

    /// The network that the devices' ports are on. Use [`Input::Port`] for what devices must notice.
    pub fn network(&self) -> NetworkGuard<'_> {
        self.medium.network()
    }

    /// What the ports are on, to be shared with another machine.
    pub fn medium(&self) -> &SharedMedium {
        &self.medium
    }

    /// Broken rules since the last call.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    /// From now on devices tell about events of these kinds, and of no others. Take them often: nobody else does.
    pub fn listen(&mut self, kinds: EventKinds) {
        self.effects.wanted = kinds;
    }

    /// Whether [`Self::take_events`] has anything.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// What the guest did to the devices since the last call, in order, of the kinds that are listened to.
    pub fn take_events(&mut self) -> Vec<Observed> {
        std::mem::take(&mut self.events)
    }

    /// Whether [`Self::take_output`] has anything.
    #[inline]
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Bytes for the host since the last call, in order.
    pub fn take_output(&mut self) -> Vec<HostOutput> {
        std::mem::take(&mut self.output)
    }

    /// A power event that a device asked for, once.
    #[inline]
    pub fn take_power_event(&mut self) -> Option<PowerEvent> {
        self.power.take()
    }

    /// Whether a power event waits to be taken.
    #[inline]
    pub fn has_power_event(&self) -> bool {
        self.power.is_some()
    }

    /// Grows with every sign that the guest does something that the world can see.
    #[inline]
    pub fn activity(&self) -> u64 {
        self.activity
    }

    /// When something happens by itself next.
    pub fn next_deadline(&self) -> Option<Time> {
        [
            self.platform.next_deadline(),
            self.root.next_deadline(),
            self.hypervisor().and_then(|hypervisor| hypervisor.next_deadline()),
            self.medium.next_deadline(self.station),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Does everything that is due at `now`.
    pub fn advance(&mut self, now: Time) {
        // A model whose deadline stays in the past would hold up the machine for ever.
        for _ in 0..MOST_CALLS_AT_ONCE {
            if !self.advance_once(now) {
                return;
            }
        }
        tracing::warn!(%now, "a device asks to be called again and again at the same time");
    }

    /// Does the first thing that is due; returns whether there was one.
    fn advance_once(&mut self, now: Time) -> bool {
        let is_due = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= now);
        if is_due(self.platform.next_deadline()) {
            self.platform.deadline(&mut Context::new(now, &self.ram, true, &mut self.effects));
            self.carry_out(Source::Platform, now);
        } else if is_due(self.hypervisor().and_then(|hypervisor| hypervisor.next_deadline())) {
            self.call_hypervisor(now, |hypervisor, context| hypervisor.deadline(context));
        } else if is_due(self.medium.next_deadline(self.station)) {
            for (port, frame) in self.medium.poll(self.station, now) {
                self.hand_over(port, frame, now);
            }
        } else if let Some(slot) = self.root.due(now) {
            if let Some(function) = self.root.function_mut(slot) {
                function.deadline(&mut Context::new(now, &self.ram, true, &mut self.effects));
            }
            self.carry_out(self.in_slot(slot), now);
        } else {
            return false;
        }
        true
    }
}

/// The guest's own randomness, from the seed of the run.
fn rng_seed(seed: u64) -> [u8; 32] {
    let mut random = Random::new(seed);
    let mut bytes = [0; 32];
    for word in bytes.chunks_exact_mut(8) {
        word.copy_from_slice(&random.next_u64().to_le_bytes());
    }
    bytes
}

const MOST_CALLS_AT_ONCE: usize = 100_000;
const _: () = assert!(config::MOST_MEMORY + HIGH_RAM_START <= PCI_HIGH_WINDOW_START);
