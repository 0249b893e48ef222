//! The device as a whole: its state, and the PCI function around it.

use nicvisor_core::fault::{Fault, FaultError, FaultPoints, FaultStatus};
use nicvisor_core::pci::{Bar, BarKind, Identity};
use nicvisor_core::{
    Context, Device, DeviceEvent, DropReason, EventKind, Fate, Frame, FrameId, PciDevice, Port, RestoreError,
    Sizes, Time,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{Config, ConfigError};
use crate::control::DriverVersion;
use crate::data::DataPath;
use crate::features::Feature;
use crate::hwc::Channel;
use crate::objects::{Objects, Taker};
use crate::queue::{Queues, Rung};
use crate::registers;
use crate::shared_memory::SharedMemory;
use crate::vport::VPort;
use crate::wire::gdma_requests::DEVICE_MANA;
use crate::wire::hwc::Reconfiguration;

/// A Microsoft Azure Network Adapter.
#[derive(Clone, Debug)]
pub struct Mana {
    pub(crate) config: Config,
    pub(crate) state: State,
}

/// Everything that changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) shared_memory: SharedMemory,
    pub(crate) channel: Channel,
    /// What the driver said about itself, once it did.
    pub(crate) driver: Option<DriverVersion>,
    pub(crate) objects: Objects,
    pub(crate) queues: Queues,
    /// By number.
    pub(crate) vports: Vec<VPort>,
    /// By vPort number.
    pub(crate) data: Vec<DataPath>,
    /// Resets by the bus since power-on.
    pub(crate) resets: u64,
    /// The driver handed the shared memory over, and the device has not taken the message yet.
    pub(crate) message_pending: bool,
    /// The device lost everything by itself; until the driver establishes the channel anew, it cannot know.
    pub(crate) forgotten: bool,
    /// Until then the device reacts to nothing.
    pub(crate) silent_until: Option<Time>,
}

impl State {
    fn power_on(config: &Config) -> State {
        State {
            shared_memory: SharedMemory::default(),
            channel: Channel::default(),
            driver: None,
            objects: Objects::new(config),
            queues: Queues::default(),
            vports: (0..config.ports).map(|index| VPort::new(config, index)).collect(),
            data: vec![DataPath::default(); config.ports.into()],
            resets: 0,
            message_pending: false,
            forgotten: false,
            silent_until: None,
        }
    }
}

impl Mana {
    /// A device at power-on, links up.
    ///
    /// # Errors
    /// When `config` describes no possible device.
    pub fn new(config: Config) -> Result<Mana, ConfigError> {
        config.validate()?;
        let state = State::power_on(&config);
        Ok(Mana { config, state })
    }

    /// What the device is.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The driver rang: `value` at `offset` of doorbell page `page`.
    pub(crate) fn ring(&mut self, context: &mut Context<'_>, page: u32, offset: u64, value: u64) {
        if self.is_silent(context) || self.state.forgotten {
            return;
        }
        match self.state.queues.doorbell(context, page, offset, value) {
            Some(Rung::Send(queue)) if queue == self.state.channel.send_queue() => self.run_channel(context),
            Some(Rung::Send(queue) | Rung::Receive(queue)) => self.run_work_queue(context, queue),
            None => (),
        }
    }

    /// Takes everything apart: queues, objects, channel. What was counted and the links remain.
    pub(crate) fn stop(&mut self, context: &mut Context<'_>) {
        self.destroy_ethernet_objects(context);
        let old = std::mem::replace(&mut self.state, State::power_on(&self.config));
        let state = &mut self.state;
        state.channel.requests = old.channel.requests;
        state.channel.failures = old.channel.failures;
        state.queues.counters = old.queues.counters;
        state.queues.faults = old.queues.faults;
        state.resets = old.resets;
        state.silent_until = old.silent_until;
        state.data = old.data;
        state.vports = old.vports;
        state.vports.iter_mut().for_each(VPort::reset);
    }

    /// What the driver created and did not destroy, in words.
    pub(crate) fn leftovers(&self) -> String {
        let channel = usize::from(self.state.channel.established);
        let completions = self.state.queues.completions.values().filter(|queue| queue.is_by_itself()).count();
        self.state.objects.leftovers(self.state.queues.events.len() - channel, completions)
    }

    /// The same, of the queues of a device that was registered.
    pub(crate) fn queues_left(&self, kind: u16) -> String {
        let objects = if kind == DEVICE_MANA { self.state.objects.work_queues.len() } else { 0 };
        let (events, completions) = (self.event_queues_of(kind).len(), self.completion_queues_of(kind).len());
        if objects + events + completions == 0 {
            return String::new();
        }
        format!("{objects} work queue objects, {events} event queues and {completions} completion queues")
    }

    /// Destroys the queues of the Ethernet device.
    pub(crate) fn destroy_ethernet_objects(&mut self, context: &mut Context<'_>) {
        let handles: Vec<u64> = self.state.objects.work_queues.keys().copied().collect();
        for handle in handles {
            self.remove_work_queue_object(context, handle);
        }
        self.destroy_queues_of(DEVICE_MANA);
    }

    /// Destroys the event queues of a device and its completion queues without a work queue.
    pub(crate) fn destroy_queues_of(&mut self, kind: u16) {
        for id in self.completion_queues_of(kind) {
            self.state.queues.completions.remove(&id);
            self.state.objects.regions.release(Taker::CompletionQueue(id));
        }
        for id in self.event_queues_of(kind) {
            self.state.queues.events.remove(&id);
            self.state.objects.regions.release(Taker::EventQueue(id));
        }
    }

    fn event_queues_of(&self, kind: u16) -> Vec<u32> {
        let events = self.state.queues.events.iter();
        let own = events.filter(|(_, queue)| queue.owner.protection_domain == u32::from(kind));
        own.map(|(id, _)| *id).collect()
    }

    fn completion_queues_of(&self, kind: u16) -> Vec<u32> {
        let completions = self.state.queues.completions.iter().filter(|(_, queue)| queue.is_by_itself());
        let own = completions.filter(|(_, queue)| queue.owner.protection_domain == u32::from(kind));
        own.map(|(id, _)| *id).collect()
    }

    /// Drops what is not to be reported, and what may come of ring indices that faults moved.
    fn ignore(&self, context: &mut Context<'_>) {
        let (ignored, queues) = (&self.config.ignored_rules, &self.state.queues);
        context
            .effects
            .findings
            .retain(|finding| !ignored.contains(&*finding.rule) && !queues.is_disturbed(&finding.queue));
    }

    /// Whether a frame is for vPort number `port`, as far as the address says. Those of a physical function get what
    /// the driver's filters lead to them.
    fn is_for(&self, port: u16, frame: &[u8]) -> bool {
        let Some(vport) = self.state.vports.get(usize::from(port)) else { return false };
        let Some(address) = frame.first_chunk::<6>().filter(|address| address[0] & 1 == 0) else {
            return true;
        };
        match self.needs_hardware_ports() {
            true => self.state.objects.has_filter(port, address),
            false => *address == vport.mac,
        }
    }
}

impl PciDevice for Mana {
    fn identity(&self) -> Identity {
        let vectors = self.config.vectors;
        let table = u64::from(vectors) * 16 + u64::from(vectors.div_ceil(64)) * 8;
        let bar = |index, size, kind| Bar { index, size, wide: true, prefetchable: true, kind };
        Identity {
            vendor: MICROSOFT,
            device: self.config.function.device_id(),
            subsystem_vendor: MICROSOFT,
            subsystem: self.config.function.device_id(),
            class: ETHERNET,
            revision: 0,
            bars: vec![
                bar(0, registers::bar_size(&self.config), BarKind::Device),
                bar(4, table.next_power_of_two().max(4096), BarKind::Msix),
            ],
            msix_vectors: vectors,
            vendor_capabilities: Vec::new(),
        }
    }

    fn read_bar(&mut self, context: &mut Context<'_>, bar: u8, offset: u64, data: &mut [u8]) {
        if bar == 0 {
            self.read_bar0(context, offset, data);
        }
    }

    fn write_bar(&mut self, context: &mut Context<'_>, bar: u8, offset: u64, data: &[u8]) {
        if bar == 0 {
            self.write_bar0(context, offset, data);
            self.ignore(context);
        }
    }
}

impl Device for Mana {
    fn receive(&mut self, context: &mut Context<'_>, port: u16, frame: Frame) {
        if !self.is_for(port, &frame.bytes) {
            return context.settle(frame.id, Fate::Dropped(DropReason::FILTERED));
        }
        self.receive_frame(context, port, frame);
        self.ignore(context);
    }

    fn set_link(&mut self, context: &mut Context<'_>, port: u16, up: bool) {
        let was_up = self.state.vports.iter().any(|vport| vport.link_up);
        if let Some(vport) = self.state.vports.get_mut(usize::from(port)).filter(|vport| vport.link_up != up)
        {
            vport.link_up = up;
            context.observe(EventKind::Link, || {
                DeviceEvent::new(EventKind::Link, "").with("port", port).with("up", u8::from(up))
            });
        }
        // The event is about all vPorts together.
        let is_up = self.state.vports.iter().any(|vport| vport.link_up);
        if was_up != is_up && self.offers(Feature::LinkEvents) {
            let event = if is_up { Reconfiguration::LinkConnect } else { Reconfiguration::LinkDisconnect };
            self.post_reconfiguration(context, event, 0);
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let queues = self.state.queues.next_deadline().into_iter().chain(self.data_deadline());
        queues.chain(self.request_deadline()).chain(self.state.silent_until).min()
    }

    fn deadline(&mut self, context: &mut Context<'_>) {
        self.end_silence(context);
        self.resume_requests(context);
        self.run_data_deadline(context);
        self.state.queues.deadline(context);
        self.ignore(context);
    }

    fn reset(&mut self, context: &mut Context<'_>) {
        self.stop(context);
        self.state.resets += 1;
    }

    fn ports(&self) -> Vec<Port> {
        self.state.vports.iter().map(|vport| Port { mac: vport.mac, mtu: self.config.mtu }).collect()
    }

    fn handed_sizes(&self, port: u16) -> Option<&Sizes> {
        Some(&self.state.data.get(usize::from(port))?.transmitter.handed.sizes)
    }

    fn frames_held(&self) -> Vec<FrameId> {
        self.state.data.iter().flat_map(|data| data.receiver.held()).collect()
    }

    fn counters(&self) -> Vec<(String, u64)> {
        let queues = &self.state.queues.counters;
        let own = [
            ("hwc_requests", self.state.channel.requests),
            ("hwc_failures", self.state.channel.failures),
            ("completions", queues.completions),
            ("events", queues.events),
            ("interrupts", queues.interrupts),
            ("resets", self.state.resets),
        ];
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        self.data_counters().into_iter().chain(own).collect()
    }

    fn fault_points(&self) -> FaultPoints {
        self.points()
    }

    fn inject(&mut self, context: &mut Context<'_>, fault: &Fault) -> Result<(), FaultError> {
        self.inject_fault(context, fault)
    }

    fn fault_status(&self) -> Vec<FaultStatus> {
        self.state.queues.faults.status()
    }

    fn save(&self) -> Value {
        serde_json::to_value(&self.state).unwrap_or(Value::Null)
    }

    fn restore(&mut self, state: &Value) -> Result<(), RestoreError> {
        let state = State::deserialize(state).map_err(|error| RestoreError(error.to_string()))?;
        state.check(&self.config).map_err(RestoreError)?;
        self.state = state;
        Ok(())
    }
}

impl State {
    /// Whether a state from outside could be one of a device with this configuration, as far as the code
    /// relies on it.
    fn check(&self, config: &Config) -> Result<(), String> {
        let indices = self.vports.iter().map(|vport| vport.index);
        if !indices.eq(0..config.ports) {
            return Err(format!("{} vPorts, not {}", self.vports.len(), config.ports));
        }
        if self.channel.established != self.queues.events.contains_key(&self.channel.event_queue()) {
            return Err("a hardware channel without its queues".to_owned());
        }
        if self.data.len() != self.vports.len() || !self.data.iter().all(|path| path.receiver.is_sound()) {
            return Err("vPorts whose received frames are miscounted".to_owned());
        }
        match self.queues.is_sound() {
            true => Ok(()),
            false => Err("a queue whose indices are outside its memory".to_owned()),
        }
    }
}

/// PCI vendor id.
const MICROSOFT: u16 = 0x1414;
/// Class code of an Ethernet controller.
const ETHERNET: u32 = 0x02_0000;
