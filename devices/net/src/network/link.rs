//! One link: its settings, its faults and the addresses that its switch has learnt.

use std::collections::BTreeMap;

use nicvisor_core::Duration;
use serde::{Deserialize, Serialize};

use super::{PortId, Random};

/// What a link is like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkConfig {
    /// The link's name.
    pub name: String,
    /// Largest IP packet that it carries; longer frames are dropped.
    pub mtu: usize,
    /// Time from the end of sending to arrival.
    pub delay: Duration,
    /// Bits per second, the same for all ports; 0 for a link that takes no time to send.
    pub bandwidth: u64,
    /// How many bytes may be under way to one port; what comes on top is dropped.
    pub queue_bytes: usize,
    /// What goes wrong.
    pub faults: Faults,
    /// Decides which frames it goes wrong for.
    pub seed: u64,
}

impl LinkConfig {
    /// A link of that name with usual settings.
    pub fn named(name: impl Into<String>) -> LinkConfig {
        LinkConfig { name: name.into(), ..LinkConfig::default() }
    }

    /// How long a frame of `length` bytes takes to send.
    pub fn wire_time(&self, length: usize) -> Duration {
        let bits = (length.max(MIN_FRAME) + FRAME_OVERHEAD) as u128 * 8;
        let nanoseconds = (bits * 1_000_000_000).checked_div(self.bandwidth.into()).unwrap_or(0);
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }
}

impl Default for LinkConfig {
    fn default() -> Self {
        LinkConfig {
            name: "lan".into(),
            mtu: 1500,
            delay: Duration::from_micros(2),
            bandwidth: 100_000_000_000,
            queue_bytes: 64 << 20,
            faults: Faults::default(),
            seed: 0,
        }
    }
}

/// Times in a million.
pub type PerMillion = u32;

/// What goes wrong on a link, and how often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Faults {
    /// Frames lost.
    pub loss: PerMillion,
    /// Frames that arrive twice.
    pub duplicate: PerMillion,
    /// Frames held back so that later ones overtake them.
    pub reorder: PerMillion,
    /// For how long frames are held back.
    pub reorder_delay: Duration,
}

impl Default for Faults {
    fn default() -> Self {
        Faults { loss: 0, duplicate: 0, reorder: 0, reorder_delay: Duration::from_micros(20) }
    }
}

/// A link's settings and state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Link {
    pub(super) config: LinkConfig,
    pub(super) up: bool,
    random: Random,
    learnt: BTreeMap<u64, PortId>,
}

impl Link {
    pub(super) fn new(config: LinkConfig) -> Link {
        Link { random: Random::new(config.seed), config, up: true, learnt: BTreeMap::new() }
    }

    /// Remembers behind which port an address is.
    pub(super) fn learn(&mut self, source: [u8; 6], port: PortId) {
        let address = number(source);
        if is_group(source) || address == 0 {
            return;
        }
        if self.learnt.len() < MAX_ADDRESSES || self.learnt.contains_key(&address) {
            self.learnt.insert(address, port);
        }
    }

    /// The port behind which an address is, if known; group addresses are behind all.
    pub(super) fn lookup(&self, destination: [u8; 6]) -> Option<PortId> {
        self.learnt.get(&number(destination)).copied().filter(|_| !is_group(destination))
    }

    /// Draws what goes wrong for one frame; `None` when it is lost. Always draws the same number of times, so
    /// that changing one probability does not change which frames the others hit.
    pub(super) fn faults(&mut self) -> Option<Drawn> {
        let Faults { loss, duplicate, reorder, .. } = self.config.faults;
        let [lost, duplicate, held_back] = [loss, duplicate, reorder].map(|parts| self.random.happens(parts));
        (!lost).then_some(Drawn { duplicate, held_back })
    }
}

/// What goes wrong for one frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    pub(super) duplicate: bool,
    pub(super) held_back: bool,
}

fn is_group(address: [u8; 6]) -> bool {
    address[0] & 1 != 0
}

fn number(address: [u8; 6]) -> u64 {
    address.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// How many addresses a switch remembers: the guest decides what source addresses it sends.
const MAX_ADDRESSES: usize = 4096;
/// Shortest frame without its frame check sequence; shorter ones are padded on the wire.
const MIN_FRAME: usize = 60;
/// Preamble, frame check sequence and the gap between frames (IEEE 802.3, 3.1.1 and 4.4.2).
const FRAME_OVERHEAD: usize = 8 + 4 + 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_time_follows_length_and_bandwidth() {
        let link = LinkConfig { bandwidth: 1_000_000_000, ..LinkConfig::default() };
        assert_eq!(link.wire_time(1514), Duration::from_nanos((1514 + 24) * 8));
        assert_eq!(link.wire_time(20), Duration::from_nanos(84 * 8));
        assert_eq!(LinkConfig { bandwidth: 0, ..link }.wire_time(1514), Duration::ZERO);
    }

    #[test]
    fn a_flood_of_source_addresses_is_bounded() {
        let mut link = Link::new(LinkConfig::default());
        for number in 1..=2 * MAX_ADDRESSES as u32 {
            let [a, b, c, d] = number.to_be_bytes();
            link.learn([2, 0, a, b, c, d], PortId(0));
        }
        assert_eq!(link.learnt.len(), MAX_ADDRESSES);
        link.learn([2, 0, 0, 0, 0, 1], PortId(1));
        assert_eq!(link.lookup([2, 0, 0, 0, 0, 1]), Some(PortId(1)), "a known address may move");
    }
}
