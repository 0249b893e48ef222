//! What the device finds out about a frame as it arrives: VLAN tag, checksum verdicts, hash.

use nicvisor_core::Frame;
use nicvisor_net::parse::{IpVersion, TransportKind, parse};
use nicvisor_net::rss::Hash;
use nicvisor_net::wire::ethertype;
use serde::{Deserialize, Serialize};

use super::checksums::Checksums;
use crate::vport::{NO_QUEUE, Steering};
use crate::wire::completion::{RxFlags, hash_type};

/// A frame in the NIC's memory, with all that its completion will say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Arrival {
    /// Without its VLAN tag.
    pub(super) frame: Frame,
    pub(super) flags: RxFlags,
    pub(super) hash: u32,
    /// Whether one of its checksums was found wrong, also where the completion has no place to say so.
    pub(super) bad_checksum: bool,
}

impl Arrival {
    /// Judges `frame` and picks its receive queue; no queue where the steering has none for it.
    pub(super) fn new(mut frame: Frame, steering: &Steering) -> (Arrival, Option<u32>) {
        let layers = parse(&frame.bytes);
        let hash = steering.hash.hash(&frame.bytes, &layers).filter(|_| steering.rss);
        let in_table = hash.and_then(|hash| steering.hash.queue(hash.value));
        let queue = in_table.filter(|queue| *queue != NO_QUEUE).or(steering.default_queue);
        let Checksums { mut flags, any_wrong } = Checksums::of(&frame.bytes, &layers);
        flags.hash_type = hash.map_or(0, type_of);
        flags.vlan_id = strip_tag(&mut frame.bytes);
        let hash = hash.map_or(0, |hash| hash.value);
        (Arrival { frame, flags, hash, bad_checksum: any_wrong }, queue)
    }

    /// Bytes without the VLAN tag.
    pub(super) fn length(&self) -> u32 {
        self.frame.bytes.len() as u32
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
