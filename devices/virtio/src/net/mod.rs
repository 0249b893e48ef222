//! The network device (virtio 1.2, section 5.1): a plain NIC to compare the cloud NICs with.
//!
//! Queue pairs come first (receive at 2n, transmit at 2n + 1), the control queue last. Offered are checksum
//! offload, TSO for both IP versions with ECN, mergeable receive buffers, several queue pairs and link status.
//! Received frames are spread over the pairs by flow. Everything is accepted, as in promiscuous mode: the
//! driver has no way to set filters, and the stack drops what is not for it.

mod receive;
mod transmit;
mod wire;

use std::collections::VecDeque;

use nicvisor_core::{DropReason, Fate, Frame, FrameId, Port, RestoreError, Sizes};
use nicvisor_net::stats::HandedStats;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::device::{Kind, VirtioDevice};
use crate::queue::Queues;
use wire::feature;

/// What a network device offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetConfig {
    /// The MAC address.
    pub mac: [u8; 6],
    /// Largest IP packet on the link.
    pub mtu: u16,
    /// Largest number of queue pairs, 1 to 64.
    pub queue_pairs: u16,
}

/// A network device.
#[derive(Debug)]
pub struct Net {
    config: NetConfig,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    link_up: bool,
    features: u64,
    /// Queue pairs in use.
    pairs: u16,
    /// Frames that wait for buffers, by pair: the NIC's own memory.
    waiting: Vec<VecDeque<Frame>>,
    counters: Counters,
    handed: HandedStats,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Counters {
    tx_frames: u64,
    tx_bytes: u64,
    tx_checksums: u64,
    tx_dropped: u64,
    tx_ipv4_above_64k: u64,
    tx_ipv6_above_64k: u64,
    rx_frames: u64,
    rx_bytes: u64,
    rx_dropped: u64,
}

impl Net {
    /// A device with its link up. The number of queue pairs is kept between 1 and 64.
    pub fn new(config: NetConfig) -> Net {
        let config = NetConfig { queue_pairs: config.queue_pairs.clamp(1, MOST_PAIRS), ..config };
        let state = State {
            link_up: true,
            features: 0,
            pairs: 1,
            waiting: vec![VecDeque::new(); config.queue_pairs.into()],
            counters: Counters::default(),
            handed: HandedStats::default(),
        };
        Net { config, state }
    }

    /// What drivers have handed over so far.
    pub fn handed(&self) -> &HandedStats {
        &self.state.handed
    }

    fn agreed(&self, feature: u64) -> bool {
        self.state.features & feature != 0
    }

    /// The control queue comes after all pairs that the driver knows of.
    fn control_queue(&self) -> u16 {
        if self.agreed(feature::MULTIQUEUE) { 2 * self.config.queue_pairs } else { 2 }
    }

    fn control(&mut self, queues: &mut Queues<'_, '_>, queue: u16) {
        let mut answered = false;
        while let Some(chain) = queues.pop(queue) {
            let Some(command) = chain.read(LONGEST_COMMAND) else { return queues.fail() };
            let answer = if self.carry_out(&command) { wire::CONTROL_OK } else { wire::CONTROL_ERROR };
            let Some(written) = chain.write(&[answer]) else { return queues.fail() };
            queues.complete(queue, &chain, written as u32);
            answered = true;
        }
        if answered {
            queues.interrupt(queue);
        }
    }

    fn carry_out(&mut self, command: &[u8]) -> bool {
        let &[class, command, low, high] = command else { return false };
        let pairs = u16::from_le_bytes([low, high]);
        let known = [class, command] == wire::CONTROL_PAIRS && self.agreed(feature::MULTIQUEUE);
        let valid = known && (1..=self.config.queue_pairs).contains(&pairs);
        if valid {
            self.state.pairs = pairs;
        }
        valid
    }
}

impl VirtioDevice for Net {
    fn kind(&self) -> Kind {
        Kind { device_type: DEVICE_TYPE, class: CLASS }
    }

    fn features(&self) -> u64 {
        let several = if self.config.queue_pairs > 1 { feature::MULTIQUEUE } else { 0 };
        feature::CHECKSUM
            | feature::MTU
            | feature::MAC
            | feature::HOST_TSO4
            | feature::HOST_TSO6
            | feature::HOST_ECN
            | feature::MERGEABLE_BUFFERS
            | feature::STATUS
            | feature::CONTROL_QUEUE
            | several
    }

    fn queue_sizes(&self) -> Vec<u16> {
        let mut sizes = vec![QUEUE_SIZE; 2 * usize::from(self.config.queue_pairs)];
        sizes.push(CONTROL_QUEUE_SIZE);
        sizes
    }

    fn config_read(&self, offset: u64, data: &mut [u8]) {
        let mut config = [0; wire::CONFIG_LENGTH];
        config[..6].copy_from_slice(&self.config.mac);
        let status = if self.state.link_up { wire::LINK_UP } else { 0 };
        config[6..8].copy_from_slice(&status.to_le_bytes());
        config[8..10].copy_from_slice(&self.config.queue_pairs.to_le_bytes());
        config[10..].copy_from_slice(&self.config.mtu.to_le_bytes());
        for (position, byte) in (offset as usize..).zip(data) {
            *byte = config.get(position).copied().unwrap_or(0);
        }
    }

    fn activate(&mut self, _queues: &mut Queues<'_, '_>, features: u64) {
        self.state.features = features;
        self.state.pairs = 1;
    }

    fn notify(&mut self, queues: &mut Queues<'_, '_>, queue: u16) {
        if self.agreed(feature::CONTROL_QUEUE) && queue == self.control_queue() {
            self.control(queues, queue);
        } else if queue.is_multiple_of(2) {
            self.deliver(queues, queue / 2);
        } else {
            self.send(queues, queue);
        }
    }

    fn receive(&mut self, queues: &mut Queues<'_, '_>, _port: u16, frame: Frame) {
        self.accept(queues, frame);
    }

    fn set_link(&mut self, queues: &mut Queues<'_, '_>, _port: u16, up: bool) {
        if self.state.link_up != up {
            self.state.link_up = up;
            queues.config_changed();
        }
    }

    fn reset(&mut self, queues: &mut Queues<'_, '_>) {
        for frame in self.state.waiting.iter_mut().flat_map(|waiting| waiting.drain(..)) {
            queues.context.settle(frame.id, Fate::Dropped(DropReason::RESET));
        }
        self.state.features = 0;
        self.state.pairs = 1;
    }

    fn ports(&self) -> Vec<Port> {
        vec![Port { mac: self.config.mac, mtu: self.config.mtu }]
    }

    fn counters(&self) -> Vec<(String, u64)> {
        let Counters {
            tx_frames,
            tx_bytes,
            tx_checksums,
            tx_dropped,
            tx_ipv4_above_64k,
            tx_ipv6_above_64k,
            rx_frames,
            rx_bytes,
            rx_dropped,
        } = self.state.counters;
        let handed = &self.state.handed;
        let counters = [
            ("tx_frames", tx_frames),
            ("tx_bytes", tx_bytes),
            ("tx_packets", handed.packets),
            ("tx_tso_packets", handed.segmented),
            ("tx_ipv4_above_64k", tx_ipv4_above_64k),
            ("tx_ipv6_above_64k", tx_ipv6_above_64k),
            ("tx_checksums", tx_checksums),
            ("tx_dropped", tx_dropped),
            ("rx_frames", rx_frames),
            ("rx_bytes", rx_bytes),
            ("rx_dropped", rx_dropped),
        ];
        counters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn handed_sizes(&self, _port: u16) -> Option<&Sizes> {
        Some(&self.state.handed.sizes)
    }

    fn frames_held(&self) -> Vec<FrameId> {
        self.state.waiting.iter().flatten().map(|frame| frame.id).collect()
    }

    fn save(&self) -> Value {
        serde_json::to_value(&self.state).unwrap_or(Value::Null)
    }

    fn restore(&mut self, state: &Value) -> Result<(), RestoreError> {
        let state = State::deserialize(state).map_err(|error| RestoreError(error.to_string()))?;
        let fits = state.waiting.len() == self.state.waiting.len()
            && (1..=self.config.queue_pairs).contains(&state.pairs);
        if !fits {
            return Err(RestoreError("the devices have different queues".into()));
        }
        self.state = state;
        Ok(())
    }
}

const DEVICE_TYPE: u16 = 1;
/// Ethernet controller.
const CLASS: u32 = 0x02_00_00;
const QUEUE_SIZE: u16 = 256;
const CONTROL_QUEUE_SIZE: u16 = 64;
const MOST_PAIRS: u16 = 64;
/// No command that is offered is longer; one that is gets an error.
const LONGEST_COMMAND: usize = 4096;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
