//! Packets as a driver hands them to its device.

use serde::{Deserialize, Serialize};

use super::{Breach, breach};
use crate::checksum::{Partial, Sum};
use crate::parse::{Ip, IpVersion, Layers, Transport, parse};
use crate::rules;
use crate::tso::{LsoKind, LsoRequest, Seed};
use crate::verdict::pseudo_header;
use crate::wire::{Ipv6Header, TcpHeader, flag, view};

/// What the descriptor of a packet asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handed {
    /// Segmentation.
    pub lso: Option<LsoRequest>,
    /// A checksum to be finished at a place that the descriptor names.
    pub checksum: Option<Partial>,
}

/// What the device allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Largest packet to be segmented, in bytes with its Ethernet header.
    pub max_lso: usize,
    /// Smallest segment size.
    pub min_mss: usize,
    /// Largest IP packet that the port's link carries.
    pub mtu: usize,
}

/// The rules that `packet`, handed over with the request `handed`, breaks. What its frames break is left to
/// [`super::check_wire`].
pub fn check_handed(packet: &[u8], handed: &Handed, limits: &Limits) -> Vec<Breach> {
    check_handed_with(packet, &parse(packet), handed, limits)
}

/// As [`check_handed`], where the headers have been found: `layers` are those of `packet`.
pub fn check_handed_with(packet: &[u8], layers: &Layers, handed: &Handed, limits: &Limits) -> Vec<Breach> {
    let mut breaches = Vec::new();
    if let Some(problem) = layers.problem {
        breach(&mut breaches, &rules::MALFORMED, problem.to_string());
    }
    check_jumbo(layers, &mut breaches);
    if let Some(partial) = handed.checksum {
        check_partial(packet, layers, partial, &mut breaches);
    }
    if let Some(request) = &handed.lso {
        check_lso(packet, layers, request, limits, &mut breaches);
    }
    breaches
}

fn check_jumbo(layers: &Layers, breaches: &mut Vec<Breach>) {
    if let Some(jumbo) = layers.ip.as_ref().and_then(|ip| ip.jumbo) {
        let message = format!(
            "the packet has a hop-by-hop header with a jumbo payload length of {} at offset {}",
            jumbo.payload_len, jumbo.header_offset
        );
        breach(breaches, &rules::IPV6_JUMBO_HEADER, message);
    }
    if let Some(inner) = &layers.inner {
        check_jumbo(&inner.layers, breaches);
    }
}

fn check_partial(packet: &[u8], layers: &Layers, partial: Partial, breaches: &mut Vec<Breach>) {
    let Partial { start, offset } = partial;
    let field = start.checked_add(offset).filter(|field| packet.len() >= 2 && *field <= packet.len() - 2);
    let Some(field) = field else {
        let message = format!("checksum at {start} + {offset} in a packet of {} bytes", packet.len());
        return breach(breaches, &rules::CHECKSUM_OFFSET, message);
    };
    let mut transports = Vec::new();
    let mut current = Some(layers);
    while let Some(layers) = current {
        transports.extend(layers.transport);
        current = layers.inner.as_ref().map(|inner| &inner.layers);
    }
    let known: Vec<_> = transports
        .iter()
        .filter_map(|transport| Some((transport.offset, transport.checksum_offset()?)))
        .collect();
    if !known.is_empty() && !known.contains(&(start, field)) {
        let message = format!(
            "checksum from {start} at {field}, but the transport header starts at {} with its checksum at {}",
            known[0].0, known[0].1
        );
        breach(breaches, &rules::CHECKSUM_OFFSET, message);
    }
}

fn check_lso(
    packet: &[u8],
    layers: &Layers,
    request: &LsoRequest,
    limits: &Limits,
    breaches: &mut Vec<Breach>,
) {
    if packet.len() > limits.max_lso {
        let message = format!("packet of {} bytes, the device takes {}", packet.len(), limits.max_lso);
        breach(breaches, &rules::LSO_TOO_LARGE, message);
    }
    if request.mss < limits.min_mss {
        let message =
            format!("segment size of {} bytes, the device's minimum is {}", request.mss, limits.min_mss);
        breach(breaches, &rules::LSO_MSS_TOO_SMALL, message);
    }
    let segment_len = request.header_len.saturating_sub(layers.network_offset).saturating_add(request.mss);
    let whole_len = packet.len().saturating_sub(layers.network_offset);
    if segment_len.min(whole_len) > limits.mtu {
        let message = format!(
            "IP packets of {segment_len} bytes (segment size {}) on a link with an MTU of {}",
            request.mss, limits.mtu
        );
        breach(breaches, &rules::LSO_MSS_TOO_LARGE, message);
    }
    let target = if request.inner { layers.innermost() } else { layers };
    let transport = target.transport.filter(|transport| transport.kind == request.kind.transport());
    let (Some(ip), Some(transport), false) = (&target.ip, transport, target.is_fragment()) else {
        let found = target.ip.as_ref().map_or_else(
            || format!("Ethernet type {:#06x}", target.ethertype),
            |ip| {
                format!(
                    "IP protocol {}{}",
                    ip.protocol,
                    if ip.fragment.is_some() { ", a fragment" } else { "" }
                )
            },
        );
        let message = format!("{:?} segmentation of a packet with {found}", request.kind);
        return breach(breaches, &rules::LSO_PROTOCOL, message);
    };
    if request.header_len != transport.end() {
        let message = format!(
            "the descriptor says {} bytes of headers, the headers end after {}",
            request.header_len,
            transport.end()
        );
        breach(breaches, &rules::LSO_HEADER_LENGTH, message);
    }
    check_lengths(packet, layers, request.inner, breaches);
    check_seed(packet, ip, &transport, request, breaches);
    if request.kind == LsoKind::Tcp
        && let Some(header) = view::<TcpHeader>(packet, transport.offset)
        && header.flags & (flag::SYN | flag::RST | flag::URG) != 0
    {
        breach(breaches, &rules::LSO_FLAGS, format!("TCP flags {:#04x}", header.flags));
    }
}

/// The IP length fields that segmentation concerns: zero, or the length of what is there.
fn check_lengths(packet: &[u8], layers: &Layers, inner: bool, breaches: &mut Vec<Breach>) {
    if let Some(ip) = &layers.ip {
        let actual = match ip.version {
            IpVersion::V4 => packet.len() - ip.offset,
            IpVersion::V6 => packet.len() - ip.offset - Ipv6Header::LEN,
        };
        if ip.stated_len != 0 && usize::from(ip.stated_len) != actual {
            let message =
                format!("the IP header states a length of {}, the packet has {actual}", ip.stated_len);
            breach(breaches, &rules::LSO_LENGTH, message);
        }
    }
    if let Some(next) = layers.inner.as_ref().filter(|_| inner) {
        check_lengths(packet, &next.layers, inner, breaches);
    }
}

fn check_seed(
    packet: &[u8],
    ip: &Ip,
    transport: &Transport,
    request: &LsoRequest,
    breaches: &mut Vec<Breach>,
) {
    let length = match request.seed {
        Seed::Ignored => return,
        Seed::WithoutLength => 0,
        Seed::WithLength => (packet.len() - transport.offset) as u32,
    };
    let expected = pseudo_header(packet, ip, length);
    let found = transport
        .checksum_offset()
        .and_then(|at| Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?])));
    // All ones and zero are the same number in ones' complement.
    let differs = |found: u16| Sum::word(found).fold() % 0xffff != expected.fold() % 0xffff;
    if let Some(found) = found.filter(|found| differs(*found)) {
        let message =
            format!("the checksum field holds {found:#06x}, the device expects {:#06x}", expected.fold());
        breach(breaches, &rules::LSO_SEED, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::pseudo_ipv4;
    use crate::testing::{Packet, vxlan};

    const LIMITS: Limits = Limits { max_lso: 262_143, min_mss: 88, mtu: 1500 };

    fn ids(packet: &[u8], handed: Handed) -> Vec<&'static str> {
        check_handed(packet, &handed, &LIMITS).iter().map(|breach| breach.rule.id).collect()
    }

    fn lso(packet: &[u8], request: LsoRequest) -> Vec<&'static str> {
        ids(packet, Handed { lso: Some(request), checksum: None })
    }

    #[test]
    fn big_tcp_as_linux_hands_it_over_breaks_nothing() {
        for version in [IpVersion::V4, IpVersion::V6] {
            for payload_len in [5000, 65_000, 180_000] {
                let packet = Packet::new(version, payload_len);
                let request = LsoRequest::tcp(packet.header_len(), 1400);
                assert!(lso(&packet.build(), request).is_empty());
                let outer = vxlan(version, &packet.build());
                let request = LsoRequest { inner: true, ..LsoRequest::tcp(outer.len() - payload_len, 1300) };
                assert!(lso(&outer, request).is_empty());
            }
        }
    }

    #[test]
    fn each_rule_has_a_packet_that_breaks_just_it() {
        let packet = Packet::new(IpVersion::V6, 180_000);
        let (whole, header_len) = (packet.build(), packet.header_len());
        let jumbo = Packet { jumbo_header: true, ..packet.clone() };
        assert_eq!(lso(&jumbo.build(), LsoRequest::tcp(jumbo.header_len(), 1400)), ["net-ipv6-jumbo-header"]);
        assert_eq!(lso(&whole, LsoRequest::tcp(header_len - 8, 1400)), ["net-lso-header-length"]);
        assert_eq!(lso(&whole, LsoRequest::tcp(header_len, 87)), ["net-lso-mss-too-small"]);
        assert_eq!(lso(&whole, LsoRequest::tcp(header_len, 1441)), ["net-lso-mss-too-large"]);
        assert!(lso(&whole, LsoRequest::tcp(header_len, 1440)).is_empty());
        assert_eq!(lso(&whole, LsoRequest::udp(header_len, 1400)), ["net-lso-protocol"]);

        let large = Packet::new(IpVersion::V6, 262_144 - header_len);
        assert_eq!(lso(&large.build(), LsoRequest::tcp(header_len, 1400)), ["net-lso-too-large"]);

        let mut length = Packet::new(IpVersion::V4, 5000).build();
        length[16] ^= 1;
        assert_eq!(lso(&length, LsoRequest::tcp(54, 1400)), ["net-lso-length"]);

        let syn = Packet { flags: 0x02, ..Packet::new(IpVersion::V4, 5000) };
        assert_eq!(lso(&syn.build(), LsoRequest::tcp(54, 1400)), ["net-lso-flags"]);

        assert_eq!(ids(&whole[..60], Handed::default()), ["net-malformed"]);
    }

    #[test]
    fn a_complete_checksum_is_no_seed() {
        let packet = Packet::new(IpVersion::V4, 5000);
        let mut whole = packet.build();
        let request = LsoRequest { seed: Seed::WithoutLength, ..LsoRequest::tcp(54, 1400) };
        assert_eq!(lso(&whole, request), ["net-lso-checksum-seed"]);
        let seed = pseudo_ipv4([10, 0, 0, 1], [10, 0, 0, 2], 6, 0).fold();
        whole[50..52].copy_from_slice(&seed.to_be_bytes());
        assert!(lso(&whole, request).is_empty());
    }

    #[test]
    fn a_checksum_must_point_at_its_field() {
        let packet = Packet::new(IpVersion::V4, 100);
        let whole = packet.build();
        let partial =
            |start, offset| ids(&whole, Handed { lso: None, checksum: Some(Partial { start, offset }) });
        assert!(partial(34, 16).is_empty());
        for (start, offset) in [(34, 6), (30, 20), (200, 16), (34, 1000), (usize::MAX, 16)] {
            assert_eq!(partial(start, offset), ["net-checksum-offset"], "{start} {offset}");
        }
    }
}
