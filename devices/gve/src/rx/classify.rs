//! What the device finds out about a frame as it arrives: packet type, checksum verdicts, hash.

use nicvisor_core::{Frame, FrameId};
use nicvisor_net::parse::{Ip, IpVersion, Layers, TransportKind, parse};
use nicvisor_net::rsc::Coalesced;
use nicvisor_net::verdict::Verdicts;
use serde::{Deserialize, Serialize};

use super::ptype::{self, L3, L4};
use crate::admin::{Flow, Packet, RssState};
use crate::wire::gqi::{RXF_FRAG, RXF_IPV4, RXF_IPV6, RXF_TCP, RXF_UDP};
use crate::wire::rx::CompletionStatus;

/// A frame in the NIC's memory, with all that its completion will say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Arrival {
    pub(crate) frame: Frame,
    /// The frames behind it that were merged with it.
    pub(crate) others: Vec<FrameId>,
    /// Payload bytes of each of them, if there are any.
    pub(crate) rsc_seg_len: Option<u16>,
    pub(crate) packet_type: u16,
    /// Bits of [`CompletionStatus`].
    status: u8,
    pub(crate) ipv6_ex_add: bool,
    /// Flags of a GQI descriptor.
    pub(crate) gqi_flags: u16,
    /// RSS hash, if anything in the packet is to be hashed.
    pub(crate) hash: Option<u32>,
}

impl Arrival {
    pub(crate) fn new(frame: Frame, rss: &RssState) -> Arrival {
        let layers = parse(&frame.bytes);
        let (l3, l4) = types(&layers);
        Arrival {
            packet_type: ptype::number(l3, l4),
            status: status(&frame.bytes, &layers).bits(),
            ipv6_ex_add: layers.ip.as_ref().is_some_and(|ip| has_routing_or_destination(&frame.bytes, ip)),
            gqi_flags: gqi_flags(&layers),
            hash: rss.hash(&frame.bytes, &layers),
            frame,
            others: Vec::new(),
            rsc_seg_len: None,
        }
    }

    /// The same for a packet of several frames.
    pub(crate) fn coalesced(packet: Coalesced, rss: &RssState) -> Arrival {
        let mut ids = packet.frames.into_iter();
        let frame = Frame { id: ids.next().unwrap_or(FrameId::UNASSIGNED), bytes: packet.bytes };
        Arrival { others: ids.collect(), rsc_seg_len: packet.segment_len, ..Arrival::new(frame, rss) }
    }

    /// All frames in it.
    pub(crate) fn frames(&self) -> impl Iterator<Item = FrameId> {
        std::iter::once(self.frame.id).chain(self.others.iter().copied())
    }

    pub(crate) fn status(&self) -> CompletionStatus {
        CompletionStatus::from_bits_truncate(self.status)
    }

    pub(crate) fn has_bad_checksum(&self) -> bool {
        self.status().intersects(CompletionStatus::CHECKSUM_IP_ERROR | CompletionStatus::CHECKSUM_L4_ERROR)
    }
}

fn types(layers: &Layers) -> (L3, L4) {
    let Some(ip) = &layers.ip else { return (L3::Unknown, L4::Unknown) };
    let l3 = match ip.version {
        IpVersion::V4 => L3::Ipv4,
        IpVersion::V6 => L3::Ipv6,
    };
    if ip.fragment.is_some() || layers.problem.is_some() {
        return (l3, L4::Unknown);
    }
    let l4 = match layers.transport.map(|transport| transport.kind) {
        Some(TransportKind::Tcp) => L4::Tcp,
        Some(TransportKind::Udp) => L4::Udp,
        Some(TransportKind::Icmp | TransportKind::Icmpv6) => L4::Icmp,
        Some(TransportKind::Gre) | None => L4::Other,
    };
    (l3, l4)
}

fn gqi_flags(layers: &Layers) -> u16 {
    let (l3, l4) = types(layers);
    let fragment = layers.ip.as_ref().is_some_and(|ip| ip.fragment.is_some());
    let l3 = match l3 {
        L3::Ipv4 => RXF_IPV4,
        L3::Ipv6 => RXF_IPV6,
        _ => 0,
    };
    let l4 = match l4 {
        L4::Tcp => RXF_TCP,
        L4::Udp => RXF_UDP,
        _ => 0,
    };
    l3 | l4 | if fragment { RXF_FRAG } else { 0 }
}

fn status(frame: &[u8], layers: &Layers) -> CompletionStatus {
    let processed = layers.ip.is_some() && layers.problem.is_none();
    let Verdicts { ip, transport } = Verdicts::of(frame, layers);
    let mut status = CompletionStatus::empty();
    status.set(CompletionStatus::L3_L4_PROCESSED, processed);
    status.set(CompletionStatus::CHECKSUM_IP_ERROR, ip == Some(false));
    status.set(CompletionStatus::CHECKSUM_L4_ERROR, transport == Some(false));
    status
}

/// Whether an IPv6 packet has a routing or destination options header.
fn has_routing_or_destination(frame: &[u8], ip: &Ip) -> bool {
    if ip.version != IpVersion::V6 {
        return false;
    }
    let Some(mut next) = frame.get(ip.offset + 6).copied() else { return false };
    let mut at = ip.offset + 40;
    while at < ip.transport_offset() {
        if next == ROUTING || next == DESTINATION {
            return true;
        }
        let Some(header) = frame.get(at..at + 2) else { return false };
        at += match next {
            FRAGMENT => 8,
            AUTHENTICATION => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        next = header[0];
    }
    false
}

/// The packet as flow rules see it; `None` if no rule can match it.
pub(crate) fn flow(frame: &[u8]) -> Option<Packet> {
    let layers = parse(frame);
    let ip = layers.ip.as_ref().filter(|ip| ip.fragment.is_none())?;
    let header = frame.get(ip.offset..)?;
    let mut flow = Flow::default();
    match ip.version {
        IpVersion::V4 => {
            flow.source[..4].copy_from_slice(header.get(12..16)?);
            flow.destination[..4].copy_from_slice(header.get(16..20)?);
            flow.class = *header.get(1)?;
        }
        IpVersion::V6 => {
            flow.source.copy_from_slice(header.get(8..24)?);
            flow.destination.copy_from_slice(header.get(24..40)?);
            flow.class = header.first()? << 4 | header.get(1)? >> 4;
        }
    }
    // Ports, or the security parameter index; behind an authentication header's first four bytes.
    let skip = if ip.protocol == AUTHENTICATION { 4 } else { 0 };
    let ports = frame.get(ip.transport_offset() + skip..)?.first_chunk()?;
    flow.ports = u32::from_be_bytes(*ports);
    Some(Packet { ipv6: ip.version == IpVersion::V6, protocol: ip.protocol, flow })
}

const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
