//! What the device finds out about a frame as it arrives: VLAN tag, checksum verdicts, hash.

use nicvisor_core::Frame;
use nicvisor_net::parse::{IpVersion, Layers, TransportKind, parse};
use nicvisor_net::rss::Hash;
use nicvisor_net::verdict::Verdicts;
use nicvisor_net::wire::ethertype;
use serde::{Deserialize, Serialize};

use crate::vport::{NO_QUEUE, Steering};
use crate::wire::completion::{RxFlags, hash_type};

/// A frame in the NIC's memory, with all that its completion will say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Arrival {
    /// Without its VLAN tag.
    pub(super) frame: Frame,
    pub(super) flags: RxFlags,
    pub(super) hash: u32,
}

impl Arrival {
    /// Judges `frame` and picks its receive queue; no queue where the steering has none for it.
    pub(super) fn new(mut frame: Frame, steering: &Steering) -> (Arrival, Option<u32>) {
        let layers = parse(&frame.bytes);
        let hash = steering.hash.hash(&frame.bytes, &layers).filter(|_| steering.rss);
        let in_table = hash.and_then(|hash| steering.hash.queue(hash.value));
        let queue = in_table.filter(|queue| *queue != NO_QUEUE).or(steering.default_queue);
        let mut flags = verdicts(&frame.bytes, &layers);
        flags.hash_type = hash.map_or(0, type_of);
        flags.vlan_id = strip_tag(&mut frame.bytes);
        (Arrival { frame, flags, hash: hash.map_or(0, |hash| hash.value) }, queue)
    }

    /// Bytes without the VLAN tag.
    pub(super) fn length(&self) -> u32 {
        self.frame.bytes.len() as u32
    }

    pub(super) fn has_bad_checksum(&self) -> bool {
        let RxFlags { iphdr_csum, tcp_csum, udp_csum, .. } = self.flags;
        [iphdr_csum, tcp_csum, udp_csum].contains(&Some(false))
    }
}

/// An IPv6 header has no checksum that could be wrong: Linux takes a transport checksum for right only if the
/// header's is said to be right too (`mana_en.c`: `mana_rx_skb`).
fn verdicts(frame: &[u8], layers: &Layers) -> RxFlags {
    let Verdicts { ip, transport } = Verdicts::of(frame, layers);
    let version = layers.ip.as_ref().filter(|_| layers.problem.is_none()).map(|ip| ip.version);
    let kind = layers.transport.map(|transport| transport.kind);
    RxFlags {
        iphdr_csum: if version == Some(IpVersion::V6) { Some(true) } else { ip },
        tcp_csum: transport.filter(|_| kind == Some(TransportKind::Tcp)),
        udp_csum: transport.filter(|_| kind == Some(TransportKind::Udp)),
        ..RxFlags::default()
    }
}

fn type_of(hash: Hash) -> u16 {
    match (hash.version, hash.transport) {
        (IpVersion::V4, Some(TransportKind::Tcp)) => hash_type::TCP_IPV4,
        (IpVersion::V4, Some(TransportKind::Udp)) => hash_type::UDP_IPV4,
        (IpVersion::V4, _) => hash_type::IPV4,
        (IpVersion::V6, Some(TransportKind::Tcp)) => hash_type::TCP_IPV6,
        (IpVersion::V6, Some(TransportKind::Udp)) => hash_type::UDP_IPV6,
        (IpVersion::V6, _) => hash_type::IPV6,
    }
}

/// Takes a customer VLAN tag out of a frame. The completion has no room for its priority.
fn strip_tag(frame: &mut Vec<u8>) -> Option<u16> {
    let [a, b, c, d] = *frame.get(ADDRESSES..)?.first_chunk()?;
    if u16::from_be_bytes([a, b]) != ethertype::VLAN {
        return None;
    }
    frame.drain(ADDRESSES..ADDRESSES + TAG);
    Some(u16::from_be_bytes([c, d]) & 0xfff)
}

/// Bytes of both addresses at a frame's start.
const ADDRESSES: usize = 12;
/// Bytes of a VLAN tag.
const TAG: usize = 4;
