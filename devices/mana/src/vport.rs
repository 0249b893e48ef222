//! Virtual ports: what the driver configured about each, as the data path needs it.

use nicvisor_net::rss::{Fields, Key, Rss};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::statistics::Statistics;

/// One virtual port, which is a port of the machine's network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VPort {
    /// Its number, from 0; also the number of the device's port.
    pub index: u16,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Number that its packets carry in their OOB: `vp_offset`.
    pub offset: u16,
    /// Whether the link is up.
    pub link_up: bool,
    /// The driver registered it for IP and ARP only (`allow_all_ether_types`).
    pub known_types_only: bool,
    /// Whether the host lets the function send and receive.
    pub function_enabled: bool,
    /// Set by `MANA_CONFIG_VPORT_TX`: whose packets may leave by this vPort.
    pub transmit: Option<Transmit>,
    /// Set by `MANA_CONFIG_VPORT_RX`: where received frames go.
    pub steering: Steering,
    /// Limit of the bandwidth in Mb/s that the driver asked for by `MANA_SET_BW_CLAMP`.
    pub bandwidth_clamp: Option<u32>,
    /// What went through it.
    pub statistics: Statistics,
}

/// Whose packets may leave by a vPort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transmit {
    /// Protection domain of the send queues.
    pub protection_domain: u32,
    /// Doorbell page of the send queues.
    pub doorbell_page: u32,
}

/// Where received frames go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steering {
    /// `rx_enable`: frames are dropped while it is off.
    pub enabled: bool,
    /// `rss_enable`: whether the indirection table is used. If not, all frames go to [`Self::default_queue`].
    pub rss: bool,
    /// The number of the receive queue behind `default_rxobj`, which also takes what has no hash.
    pub default_queue: Option<u32>,
    /// Hash key, hash types, and the indirection table: entry by entry the number of a receive queue, or
    /// [`NO_QUEUE`] where the queue is gone.
    pub hash: Rss,
    /// How many frames may share a receive completion.
    pub coalescing: Coalescing,
}

/// How many frames may share a receive completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Coalescing {
    /// Each has its own.
    #[default]
    Off,
    /// `cqe_coalescing_enable`: up to four (`CQE_RX_COALESCED_4`).
    Four,
    /// `cqe8_coalescing_enable`: up to eight (`CQE_RX_COALESCED_8`).
    Eight,
}

impl VPort {
    /// The vPort number `index` of a device at power-on, link up.
    pub fn new(config: &Config, index: u16) -> VPort {
        VPort {
            index,
            mac: config.port_mac(index),
            offset: config.vport_offset + index,
            link_up: true,
            known_types_only: false,
            function_enabled: true,
            transmit: None,
            steering: Steering::default(),
            bandwidth_clamp: None,
            statistics: Statistics::default(),
        }
    }

    /// The handle by which requests name it (`mana_handle_t vport`).
    pub fn handle(&self) -> u64 {
        FIRST_HANDLE + u64::from(self.index)
    }

    /// Forgets what the driver configured.
    pub fn reset(&mut self) {
        self.transmit = None;
        self.steering = Steering::default();
        self.bandwidth_clamp = None;
        self.known_types_only = false;
    }
}

impl Steering {
    /// The receive queue `queue` is gone: no frame may go there.
    pub fn forget(&mut self, queue: u32) {
        if self.default_queue == Some(queue) {
            self.default_queue = None;
        }
        for entry in self.hash.table.iter_mut().filter(|entry| **entry == queue) {
            *entry = NO_QUEUE;
        }
    }

    /// Whether frames can go to `queue`.
    pub fn uses(&self, queue: u32) -> bool {
        let in_table = self.rss && self.hash.table.contains(&queue);
        self.enabled && (self.default_queue == Some(queue) || in_table)
    }
}

impl Default for Steering {
    fn default() -> Steering {
        Steering {
            enabled: false,
            rss: false,
            default_queue: None,
            hash: Rss { key: Key::new([0; Key::LEN]), fields: Fields::default(), table: Vec::new() },
            coalescing: Coalescing::Off,
        }
    }
}

/// Stands in the indirection table for a queue that was destroyed.
pub const NO_QUEUE: u32 = u32::MAX;
/// Handle of the first vPort.
const FIRST_HANDLE: u64 = 0x1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_is_gone_gets_no_frames() {
        let mut steering =
            Steering { enabled: true, rss: true, default_queue: Some(3), ..Steering::default() };
        steering.hash.table = vec![3, 4, 3, 4];
        assert!(steering.uses(3) && steering.uses(4) && !steering.uses(5));
        steering.forget(3);
        assert!(!steering.uses(3) && steering.uses(4));
        assert_eq!((steering.default_queue, steering.hash.table), (None, vec![NO_QUEUE, 4, NO_QUEUE, 4]));
    }
}
