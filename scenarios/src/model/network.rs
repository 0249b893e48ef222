//! Links, and what is set up on them inside the guests.

use nicvisor_core::Duration;
use nicvisor_net::network::LinkConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::interface::interface;
use crate::schema::rules;
use crate::units::{BitRate, Share, Size, Span};

/// A link between NICs: a switch, and what its cables do to frames. What is left out is as usual: 2 us, 100
/// Gb/s, nothing lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// Time from the end of sending to arrival.
    pub delay: Option<Span>,
    /// Bits a second, the same for all ports; 0 takes no time at all.
    pub bandwidth: Option<BitRate>,
    /// Share of frames that are lost.
    pub loss: Option<Share>,
    /// Share of frames that arrive twice.
    pub duplicate: Option<Share>,
    /// Share of frames that are held back, so that later ones overtake them.
    pub reorder: Option<Share>,
    /// For how long they are held back.
    pub reorder_delay: Option<Span>,
    /// Largest IP packet that the link carries; the largest MTU of its NICs if left out.
    #[schemars(range(min = 68))]
    pub mtu: Option<u32>,
    /// Bytes that may be under way to one port.
    pub queue: Option<Size>,
    /// Decides which frames are lost, doubled and held back.
    pub seed: Option<u64>,
}

impl LinkSpec {
    /// Changes `config` to what is said here.
    pub fn apply(&self, config: &mut LinkConfig) {
        fn set<T>(target: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *target = value;
            }
        }
        let time = |span: Option<Span>| -> Option<Duration> { span.map(|span| span.0) };
        set(&mut config.delay, time(self.delay));
        set(&mut config.bandwidth, self.bandwidth.map(|rate| rate.0));
        set(&mut config.faults.loss, self.loss.map(|share| share.0));
        set(&mut config.faults.duplicate, self.duplicate.map(|share| share.0));
        set(&mut config.faults.reorder, self.reorder.map(|share| share.0));
        set(&mut config.faults.reorder_delay, time(self.reorder_delay));
        set(&mut config.mtu, self.mtu.map(|mtu| mtu as usize));
        set(&mut config.queue_bytes, self.queue.map(|size| usize::try_from(size.0).unwrap_or(usize::MAX)));
        set(&mut config.seed, self.seed);
    }
}

/// A change of a link, or of one port's place on it, while the guests run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(transform = rules::link_change)]
#[serde(deny_unknown_fields)]
pub struct LinkChange {
    /// The link; or `port`.
    #[schemars(with = "Option<String>")]
    pub name: Option<Spanned<String>>,
    /// One NIC's port, such as `gve0`.
    #[schemars(with = "Option<String>")]
    pub port: Option<Spanned<String>>,
    /// Whether it is up.
    pub up: Option<bool>,
    /// New settings of the link; others stay as they are.
    #[serde(default)]
    pub set: LinkSpec,
}

interface! {
    /// A network namespace with a NIC in it, and devices on top of that.
    #[derive(Default)]
    pub struct Namespace {
        /// The guest that it is in, where there are two.
        #[schemars(with = "Option<String>")]
        pub guest: Option<Spanned<String>>,
        /// The interface that is moved into it.
        #[schemars(with = "String", regex(pattern = rules::INTERFACE))]
        pub interface: Option<Spanned<String>>,
        /// Devices on top of the interface, in order.
        #[serde(default, rename = "device")]
        #[schemars(with = "Vec<Device>")]
        pub devices: Vec<Spanned<Device>>,
    }
}

interface! {
    /// A device on top of a namespace's interface.
    #[schemars(transform = rules::device)]
    pub struct Device {
        /// Its name in the guest.
        #[schemars(with = "String", regex(pattern = rules::INTERFACE))]
        pub name: Spanned<String>,
        /// What it is.
        pub kind: DeviceKind,
        /// VLAN id or tunnel network id.
        pub id: u32,
        /// The tunnel's other end.
        #[schemars(with = "Option<String>", regex(pattern = rules::ADDRESS))]
        pub remote: Option<Spanned<String>>,
        /// The tunnel's own end.
        #[schemars(with = "Option<String>", regex(pattern = rules::ADDRESS))]
        pub local: Option<Spanned<String>>,
        /// The tunnel's UDP port; the one that IANA assigned if left out.
        pub port: Option<u16>,
        /// Words for `ip link add` besides, such as `"udpcsum"`.
        #[serde(default)]
        pub options: String,
    }
}

/// Kinds of devices on top of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// IEEE 802.1Q.
    Vlan,
    /// RFC 7348.
    Vxlan,
    /// RFC 8926.
    Geneve,
}

impl DeviceKind {
    /// The kind as `ip link` has it.
    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Vlan => "vlan",
            DeviceKind::Vxlan => "vxlan",
            DeviceKind::Geneve => "geneve",
        }
    }

    /// The kernel module behind it.
    pub fn module(self) -> &'static str {
        match self {
            DeviceKind::Vlan => "8021q",
            DeviceKind::Vxlan => "vxlan",
            DeviceKind::Geneve => "geneve",
        }
    }

    /// Whether it has a far end.
    pub fn is_tunnel(self) -> bool {
        self != DeviceKind::Vlan
    }
}
