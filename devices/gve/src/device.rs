//! The device as a whole: its state, and the PCI function around it.

use std::collections::BTreeMap;

use nicvisor_core::fault::{Fault, FaultError, FaultPoints, FaultState, FaultStatus};
use nicvisor_core::pci::{Bar, BarKind, Identity};
use nicvisor_core::{
    Context, Device, DeviceEvent, DropReason, EventKind, Frame, FrameId, KernelVersion, PciDevice, Port,
    RestoreError, Sizes, Time,
};
use nicvisor_net::stats::HandedStats;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::admin::{self, AdminQueue, AdminRing, Capabilities, FlowRules, Resources, RssState, StatsReport};
use crate::buffers::PageList;
use crate::config::{Config, ConfigError};
use crate::counters::Counters;
use crate::doorbells;
use crate::registers::{self, DeviceStatus, Registers};
use crate::rx::RxQueue;
use crate::tx::TxQueue;

/// A Google virtual NIC.
#[derive(Clone, Debug)]
pub struct Gve {
    pub(crate) config: Config,
    pub(crate) state: State,
}

impl Gve {
    /// A device at power-on, link up.
    ///
    /// # Errors
    /// When `config` describes no possible device.
    pub fn new(config: Config) -> Result<Gve, ConfigError> {
        config.validate()?;
        let mut state = State::power_on(&config);
        if config.previous_owner {
            state.hand_over();
        }
        Ok(Gve { config, state })
    }

    /// What the device is.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Takes everything apart: queues, resources, admin queue. What the device counted and its link remain.
    pub(crate) fn stop(&mut self, context: &mut Context<'_>) {
        self.drop_received(context, &DropReason::RESET);
        let old = std::mem::replace(&mut self.state, State::power_on(&self.config));
        self.state.registers = old.registers.after_reset();
        self.state.counters = old.counters;
        self.state.handed = old.handed;
        self.state.counters.resets += 1;
        self.state.admin.executed = old.admin.executed;
        self.state.admin.failed = old.admin.failed;
        self.state.faults = old.faults;
        context.observe(EventKind::State, || DeviceEvent::new(EventKind::State, "reset"));
    }

    /// Drops findings about queues of which faults moved an index: what the driver does there may not be its fault.
    fn excuse(&self, context: &mut Context<'_>) {
        let is_disturbed = |name: &str| match name.split_once(' ') {
            Some(("tx", id)) => find(&self.state.tx, id).is_some_and(|queue| queue.disturbed),
            Some(("rx", id)) => find(&self.state.rx, id).is_some_and(|queue| queue.disturbed),
            _ => name == admin::CHANNEL && self.state.admin.disturbed,
        };
        context.effects.findings.retain(|finding| !is_disturbed(&finding.queue));
    }

    /// An event on a queue of notification block `block`.
    pub(crate) fn notify(&mut self, context: &mut Context<'_>, block: u32) {
        let Some(resources) = &mut self.state.resources else { return };
        let vector = resources.first_vector + block as u16;
        if resources.blocks.get_mut(block as usize).is_some_and(|block| block.event(context.now)) {
            self.state.counters.interrupts += 1;
            context.raise(vector);
        }
    }
}

/// Everything that changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) registers: Registers,
    pub(crate) admin: AdminQueue,
    pub(crate) capabilities: Capabilities,
    /// The release of Linux that the driver says it is from.
    pub(crate) kernel: Option<KernelVersion>,
    /// The MTU that the driver last set, if it did.
    pub(crate) driver_mtu: Option<u16>,
    pub(crate) resources: Option<Resources>,
    /// By id.
    pub(crate) page_lists: BTreeMap<u32, PageList>,
    pub(crate) stats: Option<StatsReport>,
    pub(crate) rss: RssState,
    pub(crate) flow_rules: FlowRules,
    /// By queue id.
    pub(crate) tx: Vec<Option<TxQueue>>,
    /// By queue id.
    pub(crate) rx: Vec<Option<RxQueue>>,
    /// Bytes of the NIC's memory taken by frames that wait for buffers.
    pub(crate) memory_used: u32,
    pub(crate) counters: Counters,
    /// Packets that the driver handed over.
    pub(crate) handed: HandedStats,
    pub(crate) faults: FaultState,
}

impl State {
    fn power_on(config: &Config) -> State {
        State {
            registers: Registers::power_on(DeviceStatus::LINK),
            admin: AdminQueue::default(),
            capabilities: Capabilities::default(),
            kernel: None,
            driver_mtu: None,
            resources: None,
            page_lists: BTreeMap::new(),
            stats: None,
            rss: RssState::default(),
            flow_rules: FlowRules::new(),
            tx: vec![None; config.max_queues.into()],
            rx: vec![None; config.max_queues.into()],
            memory_used: 0,
            counters: Counters::default(),
            handed: HandedStats::default(),
            faults: FaultState::default(),
        }
    }

    /// As somebody leaves it who does not take the device back: with an admin queue and device resources.
    fn hand_over(&mut self) {
        self.registers.hand_over();
        self.admin.ring = Some(AdminRing { address: PREVIOUS_ADMIN, entries: 64 });
        self.resources = Some(Resources::of_previous_owner());
    }

    /// The queues that exist, in words; empty if there are none.
    pub(crate) fn leftovers(&self) -> String {
        let (tx, rx) = (self.tx.iter().flatten().count(), self.rx.iter().flatten().count());
        if tx + rx == 0 { String::new() } else { format!("{tx} TX and {rx} RX queues") }
    }

    pub(crate) fn link_is_up(&self) -> bool {
        self.registers.device_status.contains(DeviceStatus::LINK)
    }
}

impl PciDevice for Gve {
    fn identity(&self) -> Identity {
        let vectors = self.config.vectors();
        let table = u64::from(vectors) * 16 + u64::from(vectors.div_ceil(64)) * 8;
        let bar = |index, size, kind| Bar { index, size, wide: false, prefetchable: false, kind };
        Identity {
            vendor: GOOGLE,
            device: GVNIC,
            subsystem_vendor: GOOGLE,
            subsystem: GVNIC,
            class: ETHERNET,
            revision: self.config.revision,
            bars: vec![
                bar(0, registers::BAR_SIZE, BarKind::Device),
                bar(1, table.next_power_of_two().max(4096), BarKind::Msix),
                bar(2, doorbells::BAR_SIZE, BarKind::Device),
            ],
            msix_vectors: vectors,
            vendor_capabilities: Vec::new(),
        }
    }

    fn read_bar(&mut self, context: &mut Context<'_>, bar: u8, offset: u64, data: &mut [u8]) {
        if bar == 0 {
            self.read_register(context, offset, data);
        }
    }

    fn write_bar(&mut self, context: &mut Context<'_>, bar: u8, offset: u64, data: &[u8]) {
        match bar {
            0 => self.write_register(context, offset, data),
            2 => self.write_doorbell(context, offset, data),
            _ => (),
        }
        self.excuse(context);
    }
}

impl Device for Gve {
    fn receive(&mut self, context: &mut Context<'_>, _port: u16, frame: Frame) {
        self.receive_frame(context, frame);
        self.excuse(context);
    }

    fn set_link(&mut self, context: &mut Context<'_>, _port: u16, up: bool) {
        self.change_link(context, up);
    }

    fn next_deadline(&self) -> Option<Time> {
        let blocks = self.state.resources.iter().flat_map(|resources| &resources.blocks);
        let stats = self.state.stats.iter().map(|report| report.next);
        let tx = self.state.tx.iter().flatten().filter_map(|queue| queue.next_deadline());
        let rx = self.state.rx.iter().flatten().filter_map(RxQueue::next_deadline);
        let admin = self.state.admin.next_deadline();
        blocks.filter_map(|block| block.deadline()).chain(stats).chain(tx).chain(rx).chain(admin).min()
    }

    fn deadline(&mut self, context: &mut Context<'_>) {
        self.write_stats(context);
        self.write_due_completions(context);
        self.excuse(context);
        if self.state.admin.next_deadline().is_some_and(|due| due <= context.now) {
            self.resume_admin(context);
        }
        let Some(resources) = &mut self.state.resources else { return };
        for (block, vector) in resources.blocks.iter_mut().zip(resources.first_vector..) {
            if block.poll(context.now) {
                self.state.counters.interrupts += 1;
                context.raise(vector);
            }
        }
    }

    fn reset(&mut self, context: &mut Context<'_>) {
        self.stop(context);
        let registers = &mut self.state.registers;
        *registers = Registers::power_on(registers.device_status);
    }

    fn ports(&self) -> Vec<Port> {
        vec![Port { mac: self.config.mac, mtu: self.config.mtu }]
    }

    fn counters(&self) -> Vec<(String, u64)> {
        let handed = self.state.handed.list();
        let mut counters: Vec<_> = handed.map(|(name, value)| (name.to_owned(), value)).into();
        counters.extend(self.state.counters.list());
        counters.push(("admin_commands".to_owned(), self.state.admin.executed));
        counters.push(("admin_failures".to_owned(), self.state.admin.failed));
        counters
    }

    fn fault_points(&self) -> FaultPoints {
        self.points()
    }

    fn inject(&mut self, context: &mut Context<'_>, fault: &Fault) -> Result<(), FaultError> {
        self.inject_fault(context, fault)
    }

    fn fault_status(&self) -> Vec<FaultStatus> {
        self.state.faults.status()
    }

    fn handed_sizes(&self, _port: u16) -> Option<&Sizes> {
        Some(&self.state.handed.sizes)
    }

    fn frames_held(&self) -> Vec<FrameId> {
        self.state
            .rx
            .iter()
            .flatten()
            .flat_map(|queue| &queue.waiting)
            .map(|arrival| arrival.frame.id)
            .collect()
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
        let queues = usize::from(config.max_queues);
        if self.tx.len() != queues || self.rx.len() != queues {
            return Err(format!("{} TX and {} RX queues, not {queues}", self.tx.len(), self.rx.len()));
        }
        if self.admin.ring.is_some_and(|ring| !ring.entries.is_power_of_two()) {
            return Err("admin queue of no power of two".to_owned());
        }
        if !self.rss.is_sound() {
            return Err("RSS key or table of another size".to_owned());
        }
        let held: usize = self.rx.iter().flatten().map(RxQueue::bytes_waiting).sum();
        if held != self.memory_used as usize {
            return Err(format!("{held} bytes wait, not {}", self.memory_used));
        }
        match self.tx.iter().flatten().all(TxQueue::is_sound)
            && self.rx.iter().flatten().all(RxQueue::is_sound)
        {
            true => Ok(()),
            false => Err("a queue whose indices are outside its rings".to_owned()),
        }
    }
}

/// The queue whose id is the number in `id`.
fn find<'a, T>(queues: &'a [Option<T>], id: &str) -> Option<&'a T> {
    queues.get(id.parse::<usize>().ok()?)?.as_ref()
}

/// Where the admin queue of a previous owner was.
pub(crate) const PREVIOUS_ADMIN: u64 = 0x8000;
/// PCI vendor id (`gve.h`: `PCI_VENDOR_ID_GOOGLE`).
const GOOGLE: u16 = 0x1ae0;
/// PCI device id (`gve.h`: `PCI_DEV_ID_GVNIC`).
const GVNIC: u16 = 0x0042;
/// Class code of an Ethernet controller.
const ETHERNET: u32 = 0x02_0000;
