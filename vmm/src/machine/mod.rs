//! The machine around the CPUs: memory, platform devices, the PCI bus with its devices, and the network that
//! connects their ports.
//!
//! A backend ([`crate::accel`]) calls into the machine for every access that is not to RAM and when a deadline
//! has come. Every call into a device leaves [`Effects`], which the machine carries out before the call returns:
//! interrupts go to the interrupt controllers, frames to the network, findings and host bytes into queues that
//! the program empties between runs. Nothing here depends on the host's clock or on anything unordered: the same
//! calls give the same results.

mod config;
mod inspect;
mod report;

use std::collections::BTreeMap;
use std::io;

use nicvisor_core::pci::{Function, Root, Slot, Windows};
use nicvisor_core::{Context, Effects, Finding, Frame, PciDevice, PowerEvent, Time};
use nicvisor_memory::{GuestRam, HIGH_RAM_START, PCI_HOLE_START};
use nicvisor_net::network::{LinkId, Medium, Network, PortId, Random};
use nicvisor_platform::{Platform, PlatformConfig};

pub use config::{MOST_CPUS, MachineConfig, MachineError};
pub use inspect::{CpuActivity, CpuState};
pub use report::{CpuReport, Frame as BacktraceFrame};

use crate::acpi;
use crate::boot::layout::{
    ECAM_SIZE, ECAM_START, PCI_HIGH_WINDOW_SIZE, PCI_HIGH_WINDOW_START, PCI_WINDOW_SIZE, PCI_WINDOW_START,
};
use crate::boot::{BootOptions, Entry, Kernel};

/// A machine without its CPUs.
pub struct Machine {
    config: MachineConfig,
    ram: GuestRam,
    platform: Platform,
    root: Root,
    medium: Box<dyn Medium>,
    devices: BTreeMap<Slot, Attached>,
    ports: BTreeMap<PortId, (Slot, u16)>,
    effects: Effects,
    findings: Vec<Finding>,
    output: Vec<HostOutput>,
    power: Option<PowerEvent>,
    activity: u64,
}

/// What the machine keeps about a device on the bus.
#[derive(Debug)]
struct Attached {
    name: String,
    ports: Vec<PortId>,
}

/// Bytes from the guest for the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostOutput {
    /// From the serial port.
    Serial(Vec<u8>),
    /// From a device with a host side, such as a console port.
    Device {
        /// The device's slot.
        slot: Slot,
        /// The device's channel.
        channel: u16,
        /// The bytes.
        bytes: Vec<u8>,
    },
}

/// Whose effects are carried out.
#[derive(Clone, Copy)]
enum Source {
    Platform,
    Device(Slot),
}

impl Machine {
    /// A machine without PCI devices, whose ports will be on `medium`.
    ///
    /// # Errors
    /// When the configuration is impossible or the host has not enough address space.
    pub fn new(config: MachineConfig, medium: Box<dyn Medium>) -> Result<Machine, MachineError> {
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
        Ok(Machine {
            config,
            ram,
            platform,
            root: Root::new(),
            medium,
            devices: BTreeMap::new(),
            ports: BTreeMap::new(),
            effects: Effects::default(),
            findings: Vec::new(),
            output: Vec::new(),
            power: None,
            activity: 0,
        })
    }

    /// Puts `device` into the next free slot and its ports on `link`. `name` is what reports call it.
    ///
    /// # Errors
    /// When the bus is full or the device describes itself in an impossible way.
    pub fn add_device(
        &mut self,
        name: impl Into<String>,
        device: Box<dyn PciDevice>,
        link: LinkId,
    ) -> Result<Slot, MachineError> {
        let name = name.into();
        let Some(slot) = self.root.free_slot() else { return Err(MachineError::NoSlot { name }) };
        let count = device.ports().len();
        let function =
            Function::new(device).map_err(|source| MachineError::Device { name: name.clone(), source })?;
        if self.root.insert(slot, function).is_err() {
            return Err(MachineError::NoSlot { name });
        }
        let mut ports = Vec::with_capacity(count);
        for index in 0..count {
            let port_name = if count == 1 { name.clone() } else { format!("{name}.{index}") };
            let port = self.medium.network_mut().add_port(link, port_name);
            self.ports.insert(port, (slot, index as u16));
            ports.push(port);
        }
        self.devices.insert(slot, Attached { name, ports });
        Ok(slot)
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
        let numbered_slots = self
            .devices
            .iter()
            .filter(|(_, device)| !device.ports.is_empty())
            .map(|(slot, _)| (*slot, u32::from(slot.device)))
            .collect();
        let description = acpi::Description { cpus: self.config.cpus, numbered_slots };
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

    /// The PCI bus.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The network that the devices' ports are on.
    pub fn network(&self) -> &Network {
        self.medium.network()
    }

    /// The network, to change links while the guest runs. Use [`Self::set_port_link`] for what devices must
    /// notice.
    pub fn network_mut(&mut self) -> &mut Network {
        self.medium.network_mut()
    }

    /// Devices in slot order with their names.
    pub fn devices(&self) -> impl Iterator<Item = (Slot, &str)> {
        self.devices.iter().map(|(slot, device)| (*slot, &*device.name))
    }

    /// The network ports of the device in `slot`, in the device's order.
    pub fn device_ports(&self, slot: Slot) -> &[PortId] {
        self.devices.get(&slot).map_or(&[], |device| &device.ports)
    }

    /// Broken rules since the last call.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
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

    /// Bytes typed at the serial console.
    pub fn serial_input(&mut self, now: Time, bytes: &[u8]) {
        let mut context = Context::new(now, &self.ram, true, &mut self.effects);
        self.platform.serial_input(&mut context, bytes);
        self.carry_out(Source::Platform, now);
    }

    /// Bytes from the host for channel `channel` of the device in `slot`.
    pub fn host_input(&mut self, now: Time, slot: Slot, channel: u16, bytes: &[u8]) {
        let mut context = Context::new(now, &self.ram, true, &mut self.effects);
        if let Some(function) = self.root.function_mut(slot) {
            function.host_input(&mut context, channel, bytes);
            self.carry_out(Source::Device(slot), now);
        }
    }

    /// Plugs or unplugs a network port, and tells its device when that changes the link's state.
    pub fn set_port_link(&mut self, now: Time, port: PortId, up: bool) {
        if !self.medium.network_mut().set_port(port, up) {
            return;
        }
        let Some(&(slot, index)) = self.ports.get(&port) else { return };
        let mut context = Context::new(now, &self.ram, true, &mut self.effects);
        if let Some(function) = self.root.function_mut(slot) {
            function.set_link(&mut context, index, up);
            self.carry_out(Source::Device(slot), now);
        }
    }

    /// The run is over: devices settle the frames inside, the network those on its links. Afterwards the ledger
    /// must balance.
    pub fn close(&mut self, now: Time) {
        let slots: Vec<Slot> = self.devices.keys().copied().collect();
        for slot in slots {
            let mut context = Context::new(now, &self.ram, true, &mut self.effects);
            self.root.reset(&mut context, slot);
            self.carry_out(Source::Device(slot), now);
        }
        self.medium.network_mut().close();
    }

    /// Ends what is written down about the frames.
    ///
    /// # Errors
    /// When it could not be written.
    pub fn finish_capture(&mut self) -> io::Result<()> {
        self.medium.finish()
    }

    /// When something happens by itself next.
    pub fn next_deadline(&self) -> Option<Time> {
        [self.platform.next_deadline(), self.root.next_deadline(), self.medium.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does everything that is due at `now`.
    pub fn advance(&mut self, now: Time) {
        // A model whose deadline stays in the past would hold up the machine for ever.
        for _ in 0..MOST_CALLS_AT_ONCE {
            if self.platform.next_deadline().is_some_and(|deadline| deadline <= now) {
                let mut context = Context::new(now, &self.ram, true, &mut self.effects);
                self.platform.deadline(&mut context);
                self.carry_out(Source::Platform, now);
            } else if self.medium.next_deadline().is_some_and(|deadline| deadline <= now) {
                for (port, frame) in self.medium.poll(now) {
                    self.hand_over(port, frame, now);
                }
            } else if let Some(slot) = self.root.due(now) {
                let mut context = Context::new(now, &self.ram, true, &mut self.effects);
                if let Some(function) = self.root.function_mut(slot) {
                    function.deadline(&mut context);
                }
                self.carry_out(Source::Device(slot), now);
            } else {
                return;
            }
        }
        tracing::warn!(%now, "a device asks to be called again and again at the same time");
    }

    /// CPU `cpu` reads memory that is not RAM; `data` comes filled with ones.
    pub fn read_memory(&mut self, now: Time, cpu: usize, address: u64, data: &mut [u8]) {
        let mut context = Context::new(now, &self.ram, true, &mut self.effects);
        if self.platform.memory_read(&mut context, cpu, address, data) {
            self.carry_out(Source::Platform, now);
        } else if let Some(offset) = ecam_offset(address, data.len()) {
            self.root.ecam_read(offset, data);
            self.activity += 1;
        } else if let Some(slot) = self.root.memory_read(&mut context, address, data) {
            self.activity += 1;
            self.carry_out(Source::Device(slot), now);
        }
    }

    /// CPU `cpu` writes memory that is not RAM.
    pub fn write_memory(&mut self, now: Time, cpu: usize, address: u64, data: &[u8]) {
        let mut context = Context::new(now, &self.ram, true, &mut self.effects);
        if self.platform.memory_write(&mut context, cpu, address, data) {
            self.carry_out(Source::Platform, now);
        } else if let Some(offset) = ecam_offset(address, data.len()) {
            self.activity += 1;
            if let Some(slot) = self.root.ecam_write(&mut context, offset, data) {
                self.carry_out(Source::Device(slot), now);
            }
        } else if let Some(slot) = self.root.memory_write(&mut context, address, data) {
            self.activity += 1;
            self.carry_out(Source::Device(slot), now);
        }
    }

    /// A CPU reads an I/O port; `data` comes filled with ones.
    pub fn read_port(&mut self, now: Time, port: u16, data: &mut [u8]) {
        let mut context = Context::new(now, &self.ram, true, &mut self.effects);
        if self.platform.port_read(&mut context, port, data) {
            self.carry_out(Source::Platform, now);
        } else if PCI_PORTS.contains(&port) {
            self.root.port_read(port, data);
        }
    }

    /// A CPU writes an I/O port.
    pub fn write_port(&mut self, now: Time, port: u16, data: &[u8]) {
        let mut context = Context::new(now, &self.ram, true, &mut self.effects);
        // The reset control register lies among the PCI ports, and is one byte wide.
        if self.platform.port_write(&mut context, port, data) {
            self.carry_out(Source::Platform, now);
        } else if PCI_PORTS.contains(&port)
            && let Some(slot) = self.root.port_write(&mut context, port, data)
        {
            self.carry_out(Source::Device(slot), now);
        }
    }

    fn hand_over(&mut self, port: PortId, frame: Frame, now: Time) {
        let Some(&(slot, index)) = self.ports.get(&port) else { return };
        let mut context = Context::new(now, &self.ram, true, &mut self.effects);
        if let Some(function) = self.root.function_mut(slot) {
            function.receive(&mut context, index, frame);
        }
        self.activity += 1;
        self.carry_out(Source::Device(slot), now);
    }

    /// Carries out what the last call into a device asked for.
    fn carry_out(&mut self, source: Source, now: Time) {
        if self.effects.is_empty() {
            return;
        }
        let mut effects = std::mem::take(&mut self.effects);
        self.platform.route_interrupts(&mut effects);
        for (index, frame) in effects.frames.drain(..) {
            self.transmit(source, index, frame, now);
        }
        for (frame, fate) in effects.fates.drain(..) {
            self.medium.settle(frame, &fate);
        }
        for mut finding in effects.findings.drain(..) {
            finding.device = self.name(source).to_owned();
            self.medium.record_finding(&finding);
            self.findings.push(finding);
        }
        for message in effects.host.drain(..) {
            self.activity += 1;
            self.output.push(match source {
                Source::Platform => HostOutput::Serial(message.bytes),
                Source::Device(slot) => {
                    HostOutput::Device { slot, channel: message.channel, bytes: message.bytes }
                }
            });
        }
        if let Some(power) = effects.power.take() {
            self.power = Some(power);
        }
        // Keep the allocations.
        self.effects = effects;
    }

    fn transmit(&mut self, source: Source, index: u16, frame: Frame, now: Time) {
        let Source::Device(slot) = source else { return };
        let Some(device) = self.devices.get(&slot) else { return };
        let Some(&port) = device.ports.get(usize::from(index)) else { return };
        let injected = self.medium.inject(port, frame.bytes, now);
        for mut finding in injected.findings {
            finding.device.clone_from(&device.name);
            self.findings.push(finding);
        }
    }

    fn name(&self, source: Source) -> &str {
        match source {
            Source::Platform => "platform",
            Source::Device(slot) => self.devices.get(&slot).map_or("", |device| &device.name),
        }
    }
}

/// The offset in the ECAM of an access that lies inside.
fn ecam_offset(address: u64, length: usize) -> Option<u64> {
    let offset = address.checked_sub(ECAM_START)?;
    (offset + length as u64 <= ECAM_SIZE).then_some(offset)
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

const PCI_PORTS: std::ops::RangeInclusive<u16> = 0xcf8..=0xcff;
const MOST_CALLS_AT_ONCE: usize = 100_000;
const _: () = assert!(config::MOST_MEMORY + HIGH_RAM_START <= PCI_HIGH_WINDOW_START);
