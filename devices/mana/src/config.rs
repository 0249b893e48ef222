//! What the device is and offers. Nothing about it is decided anywhere else.

mod parse;

use std::collections::BTreeSet;

use nicvisor_core::Profile;
use serde::{Deserialize, Serialize};

pub use parse::{ConfigError, KEYS};

/// Everything that can be chosen about a MANA function. The defaults are those of an Azure virtual machine with
/// one virtual port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// Which of the functions that the driver knows this is.
    pub function: FunctionKind,
    /// The first vPort's MAC address. The others' addresses follow it.
    pub mac: [u8; 6],
    /// Number of vPorts, each of which is a port of the machine's network.
    pub ports: u16,
    /// Largest IP packet that the network carries, in bytes.
    pub mtu: u16,
    /// Largest frame that the device says it takes (`adapter_mtu`), in bytes, if it is not [`Self::mtu`] and an
    /// Ethernet header.
    pub adapter_mtu: Option<u16>,
    /// Send and receive queues of each vPort.
    pub queues: u16,
    /// Entries of a vPort's indirection table that the device proposes.
    pub indirection_entries: u16,
    /// Size of the MSI-X table, and how many of its vectors event queues may use.
    pub vectors: u16,
    /// How many objects of each kind can exist.
    pub limits: Limits,
    /// How queues of the hardware channel may be used.
    pub channel: ChannelLimits,
    /// What is offered to drivers, as far as the device is young enough for it.
    pub capabilities: Capabilities,
    /// How old the device is.
    pub profile: Profile,
    /// Most bytes that a packet to be segmented may have, with its Ethernet header.
    pub tso_limit: u32,
    /// Number that packets of the first vPort carry in their OOB (`vp_offset`). Those of the others follow it.
    pub vport_offset: u16,
    /// Link speed in Mb/s.
    pub link_speed: u32,
    /// Bytes of memory on the NIC that hold received frames until the driver posts buffers.
    pub receive_memory: u32,
    /// How long a coalesced receive completion may wait for more frames, in nanoseconds.
    pub coalescing_timeout_ns: u32,
    /// Which packets the switch behind the device refuses.
    pub enforcement: Enforcement,
    /// Rules that are not reported, by their ids.
    pub ignored_rules: BTreeSet<String>,
}

/// Which function it is (Linux `include/net/mana/gdma.h`: `MANA_*_DEVICE_ID`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FunctionKind {
    /// A virtual function, which is what a virtual machine sees: 1414:00ba.
    #[default]
    Vf,
    /// A physical function: 1414:00b9. Its register file is another.
    Pf,
    /// A physical function with the register file of a virtual one: 1414:00c1. Linux knows it since 7.0.
    Pf2,
}

impl FunctionKind {
    /// PCI device id.
    pub fn device_id(self) -> u16 {
        match self {
            FunctionKind::Vf => 0x00ba,
            FunctionKind::Pf => 0x00b9,
            FunctionKind::Pf2 => 0x00c1,
        }
    }

    /// Whether the driver uses the privileged requests on it.
    pub fn is_physical(self) -> bool {
        self != FunctionKind::Vf
    }
}

/// How many objects of each kind can exist at a time, for all vPorts together
/// (`struct gdma_query_max_resources_resp`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Limits {
    /// Send queues.
    pub send_queues: u32,
    /// Receive queues.
    pub receive_queues: u32,
    /// Completion queues. Their numbers are below this.
    pub completion_queues: u32,
    /// Event queues.
    pub event_queues: u32,
    /// Doorbell pages, 4 KiB of BAR0 each; a power of two.
    pub doorbell_pages: u32,
    /// Memory regions (`max_mst`): also the most DMA regions.
    pub memory_regions: u32,
    /// Bytes that a DMA region may have.
    pub region_length: u64,
}

/// What the hardware channel announces in its initialisation events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ChannelLimits {
    /// Requests in flight.
    pub depth: u16,
    /// Longest request in bytes.
    pub max_request: u32,
    /// Longest response in bytes.
    pub max_response: u32,
    /// Time until the driver gives a request up, in milliseconds, where it asks for it.
    pub timeout_ms: u32,
}

/// What is offered to drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Capabilities {
    /// Whether packets with the short OOB are allowed.
    pub short_form: bool,
    /// Whether the RDMA device is listed beside the Ethernet device.
    pub rdma: bool,
    /// Whether the device list has holes, for drivers that announce that they skip them.
    pub device_list_holes: bool,
    /// Whether the driver may ask for the channel's timeout.
    pub timeout_query: bool,
    /// Whether the moderation of a completion queue can be changed while it runs.
    pub dynamic_moderation: bool,
    /// Whether eight packets can share a receive completion (four always can).
    pub coalescing_8: bool,
    /// Whether the link's configuration can be asked for and its bandwidth limited.
    pub link_config: bool,
    /// Whether the statistics of the physical port can be asked for.
    pub phy_statistics: bool,
    /// Whether a physical function is used without a virtual port of its own (`bm_hostmode`).
    pub host_mode: bool,
}

/// Which packets the switch behind the device refuses, with a completion that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Enforcement {
    /// Those from another source address than the vPort's.
    pub source_address: bool,
    /// Those with a VLAN tag.
    pub vlan: bool,
    /// Those that are neither IP nor ARP.
    pub ether_type: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            function: FunctionKind::Vf,
            mac: [0x00, 0x0d, 0x3a, 0x00, 0x00, 0x10],
            ports: 1,
            mtu: 9000,
            adapter_mtu: None,
            queues: 16,
            indirection_entries: 64,
            vectors: 65,
            limits: Limits::default(),
            channel: ChannelLimits::default(),
            capabilities: Capabilities::default(),
            profile: Profile::default(),
            tso_limit: MAX_TSO,
            vport_offset: 1,
            link_speed: 200_000,
            receive_memory: 4 << 20,
            coalescing_timeout_ns: 2048,
            enforcement: Enforcement::default(),
            ignored_rules: BTreeSet::new(),
        }
    }
}

impl Default for Enforcement {
    fn default() -> Enforcement {
        Enforcement { source_address: true, vlan: false, ether_type: false }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            send_queues: 1024,
            receive_queues: 1024,
            completion_queues: 4096,
            event_queues: 2048,
            doorbell_pages: 128,
            memory_regions: 8192,
            region_length: 1 << 30,
        }
    }
}

impl Default for ChannelLimits {
    fn default() -> ChannelLimits {
        ChannelLimits { depth: 1, max_request: 4096, max_response: 4096, timeout_ms: 30_000 }
    }
}

impl Default for Capabilities {
    fn default() -> Capabilities {
        Capabilities {
            short_form: true,
            rdma: false,
            device_list_holes: false,
            timeout_query: true,
            dynamic_moderation: true,
            coalescing_8: false,
            link_config: true,
            phy_statistics: true,
            host_mode: false,
        }
    }
}

impl Config {
    /// Whether such a device can exist.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.mac[0] & 1 != 0 || self.mac == [0; 6] {
            return Err(ConfigError::Conflict(format!("{:02x?} is not a unicast MAC address", self.mac)));
        }
        ConfigError::check("ports", self.ports, 1..=MAX_PORTS)?;
        ConfigError::check("mtu", self.mtu, MIN_MTU..=MAX_MTU)?;
        ConfigError::check("queues", self.queues, 1..=MAX_QUEUES)?;
        ConfigError::check("vectors", self.vectors, 2..=MAX_VECTORS)?;
        ConfigError::check("vport-offset", self.vport_offset, 0..=MAX_VPORT_OFFSET - MAX_PORTS)?;
        ConfigError::check("tso-limit", self.tso_limit, MAX_MTU.into()..=MAX_TSO)?;
        ConfigError::check("receive-memory", self.receive_memory, 1 << 16..=1 << 30)?;
        ConfigError::check("channel-depth", self.channel.depth, 1..=MAX_CHANNEL_DEPTH)?;
        ConfigError::check("channel-max-request", self.channel.max_request, MESSAGE_SIZES)?;
        ConfigError::check("channel-max-response", self.channel.max_response, MESSAGE_SIZES)?;
        ConfigError::check("doorbell-pages", self.limits.doorbell_pages, 4..=MAX_DOORBELL_PAGES)?;
        if !self.limits.doorbell_pages.is_power_of_two() {
            let message = format!("doorbell-pages={} is not a power of two", self.limits.doorbell_pages);
            return Err(ConfigError::Conflict(message));
        }
        if self.function.is_physical() && !self.capabilities.host_mode && self.ports > 1 {
            let message = "a physical function has one port, or host-mode=on".to_owned();
            return Err(ConfigError::Conflict(message));
        }
        if let Some(id) =
            self.ignored_rules.iter().find(|id| !id.starts_with("mana-") && !id.starts_with("net-"))
        {
            return Err(ConfigError::value("ignore-rule", id, "the id of a mana- or net- rule"));
        }
        Ok(())
    }

    /// The MAC address of vPort number `index`.
    pub fn port_mac(&self, index: u16) -> [u8; 6] {
        let mut mac = self.mac;
        let low = u32::from_be_bytes([0, mac[3], mac[4], mac[5]]).wrapping_add(index.into());
        mac[3..].copy_from_slice(&low.to_be_bytes()[1..]);
        mac
    }

    /// What the driver is told as the longest frame, in bytes.
    pub fn reported_adapter_mtu(&self) -> u16 {
        self.adapter_mtu.unwrap_or(self.mtu + 14)
    }

    /// Longest frame that the link carries: MTU, Ethernet header and one VLAN tag.
    pub fn max_frame(&self) -> usize {
        usize::from(self.mtu) + 18
    }
}

/// Most vPorts of a device.
pub const MAX_PORTS: u16 = 16;
/// Least MTU (`ETH_MIN_MTU`).
pub const MIN_MTU: u16 = 68;
/// Largest MTU.
pub const MAX_MTU: u16 = 9216;
/// Most send or receive queues of a vPort (`MANA_MAX_NUM_QUEUES`).
pub const MAX_QUEUES: u16 = 64;
/// Largest packet to be segmented: `GSO_MAX_SIZE`.
pub const MAX_TSO: u32 = 8 * 65_535;
/// Size of the largest MSI-X table.
const MAX_VECTORS: u16 = 2048;
/// The long OOB has 12 bits for it.
const MAX_VPORT_OFFSET: u16 = 0xfff;
/// The queues of the channel are a page each; the driver's bootstrap depth is 1.
const MAX_CHANNEL_DEPTH: u16 = 8;
/// From headers alone to what fits 24 bits of an event.
const MESSAGE_SIZES: std::ops::RangeInclusive<u32> = 64..=(1 << 24) - 1;
const MAX_DOORBELL_PAGES: u32 = 4096;
