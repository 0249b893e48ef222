//! Frames as they are on a link.

use super::{Breach, breach};
use crate::checksum::{Sum, pseudo_ipv4, pseudo_ipv6};
use crate::parse::{Header, Ip, IpVersion, Layers, Problem, Transport, TransportKind, parse};
use crate::rules;
use crate::wire::{EthernetHeader, Ipv4Header, Ipv6Header, UdpHeader, view};

/// The rules that `frame` breaks on a link whose largest IP packet is `mtu` bytes.
pub fn check_wire(frame: &[u8], mtu: usize) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let layers = parse(frame);
    let packet_len = frame.len().saturating_sub(layers.network_offset);
    if packet_len > mtu {
        let message = format!("packet of {packet_len} bytes on a link with an MTU of {mtu}");
        breach(&mut breaches, &rules::WIRE_MTU, message);
    }
    if let Some(header) = view::<EthernetHeader>(frame, 0)
        && (header.source[0] & 1 != 0 || header.source == [0; 6])
    {
        breach(&mut breaches, &rules::WIRE_SOURCE, format!("source address {:02x?}", header.source));
    }
    if let Some(problem) = layers.problem.filter(|problem| !concerns_tunnel(*problem)) {
        breach(&mut breaches, &rules::MALFORMED, problem.to_string());
    }
    check_packet(frame, &layers, frame.len(), &mut breaches);
    breaches
}

/// A UDP port or an IP protocol number alone does not make a tunnel, so what does not parse as one is payload.
fn concerns_tunnel(problem: Problem) -> bool {
    let (Problem::Truncated(header)
    | Problem::BadHeaderLength(header)
    | Problem::BadVersion(header)
    | Problem::TooMany(header)) = problem;
    matches!(header, Header::Gre | Header::Geneve | Header::Vxlan | Header::Tunnel)
}

/// Checks one IP packet and those inside it; what carries it ends at `limit`.
fn check_packet(frame: &[u8], layers: &Layers, limit: usize, breaches: &mut Vec<Breach>) {
    let Some(ip) = &layers.ip else { return };
    if ip.jumbo.is_some() {
        breach(breaches, &rules::WIRE_JUMBO_HEADER, "the frame has an IPv6 jumbo payload header");
    }
    let lengths_agree = check_ip_length(layers, ip, limit, breaches);
    if ip.version == IpVersion::V4 && !Sum::of(&frame[ip.offset..ip.transport_offset()]).is_valid() {
        breach(breaches, &rules::WIRE_CHECKSUM, "the IPv4 header checksum is wrong");
    }
    if let Some(transport) = layers.transport.filter(|_| lengths_agree && !layers.is_fragment()) {
        check_transport(frame, layers, ip, &transport, breaches);
    }
    if let Some(inner) = layers.inner.as_ref().filter(|inner| inner.layers.any_problem().is_none()) {
        check_packet(frame, &inner.layers, ip.end, breaches);
    }
}

/// Whether the IP length field agrees with what is there.
fn check_ip_length(layers: &Layers, ip: &Ip, limit: usize, breaches: &mut Vec<Breach>) -> bool {
    let start = match ip.version {
        IpVersion::V4 => ip.offset,
        IpVersion::V6 => ip.offset + Ipv6Header::LEN,
    };
    let (stated, actual) = (usize::from(ip.stated_len), limit.saturating_sub(start));
    // Short Ethernet frames are padded.
    let padded = layers.ethernet.is_some_and(|ethernet| limit.saturating_sub(ethernet) <= MIN_FRAME);
    let headers_len = ip.transport_offset() - start;
    let agrees = stated >= headers_len && (stated == actual || stated < actual && padded);
    if !agrees {
        let message =
            format!("the {:?} header states a length of {stated}, the frame has {actual}", ip.version);
        breach(breaches, &rules::WIRE_LENGTH, message);
    }
    agrees
}

fn check_transport(
    frame: &[u8],
    layers: &Layers,
    ip: &Ip,
    transport: &Transport,
    breaches: &mut Vec<Breach>,
) {
    // Headers that do not fit in what IP says is there.
    if transport.end() > ip.end {
        let message = format!("the {:?} header ends behind its IP packet", transport.kind);
        return breach(breaches, &rules::WIRE_LENGTH, message);
    }
    let part = &frame[transport.offset..ip.end];
    if transport.kind == TransportKind::Udp
        && let Some(udp) = view::<UdpHeader>(frame, transport.offset)
    {
        if usize::from(udp.length.get()) != part.len() {
            let message =
                format!("the UDP header states a length of {}, the packet has {}", udp.length, part.len());
            return breach(breaches, &rules::WIRE_LENGTH, message);
        }
        // RFC 6935 lets tunnels over IPv6 go without.
        if udp.checksum.get() == 0 && (ip.version == IpVersion::V4 || layers.inner.is_some()) {
            return;
        }
    }
    let pseudo = match transport.kind {
        TransportKind::Gre => return,
        TransportKind::Icmp => Some(Sum::ZERO),
        // The pseudo header has the final destination, which a routing header hides.
        _ if ip.routing_header => return,
        _ => pseudo_header(frame, ip, part.len() as u32),
    };
    if pseudo.is_some_and(|pseudo| !pseudo.plus(Sum::of(part)).is_valid()) {
        breach(breaches, &rules::WIRE_CHECKSUM, format!("the {:?} checksum is wrong", transport.kind));
    }
}

fn pseudo_header(frame: &[u8], ip: &Ip, length: u32) -> Option<Sum> {
    Some(match ip.version {
        IpVersion::V4 => {
            let header = view::<Ipv4Header>(frame, ip.offset)?;
            pseudo_ipv4(header.source, header.destination, ip.protocol, length)
        }
        IpVersion::V6 => {
            let header = view::<Ipv6Header>(frame, ip.offset)?;
            pseudo_ipv6(&header.source, &header.destination, ip.protocol, length)
        }
    })
}

/// Shortest Ethernet frame without its frame check sequence (IEEE 802.3, 4.2.3.3).
const MIN_FRAME: usize = 60;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{Packet, vxlan};

    fn ids(frame: &[u8]) -> Vec<&'static str> {
        check_wire(frame, 1500).iter().map(|breach| breach.rule.id).collect()
    }

    fn packets() -> Vec<Packet> {
        let mut packets = Vec::new();
        for version in [IpVersion::V4, IpVersion::V6] {
            for udp in [false, true] {
                for vlan in [None, Some(7)] {
                    packets.push(Packet { udp, vlan, ..Packet::new(version, 601) });
                }
            }
        }
        packets
    }

    #[test]
    fn good_frames_break_nothing() {
        for packet in packets() {
            assert!(ids(&packet.build()).is_empty(), "{packet:?}");
            for outer in [IpVersion::V4, IpVersion::V6] {
                assert!(ids(&vxlan(outer, &packet.build())).is_empty(), "{packet:?}");
            }
        }
        let mut padded = Packet { udp: true, ..Packet::new(IpVersion::V4, 1) }.build();
        padded.resize(60, 0);
        assert!(ids(&padded).is_empty());
    }

    #[test]
    fn any_damaged_bit_behind_the_ethernet_header_is_noticed_in_tcp() {
        for version in [IpVersion::V4, IpVersion::V6] {
            let frame = Packet::new(version, 31).build();
            // Not summed: IPv6's first word (but its version) and hop limit.
            let unsummed = |at: usize| version == IpVersion::V6 && matches!(at, 14..=17 | 21);
            for at in (14..frame.len()).filter(|at| !unsummed(*at)) {
                for bit in 0..8 {
                    let mut damaged = frame.clone();
                    damaged[at] ^= 1 << bit;
                    // A changed protocol number leaves nothing that this crate could sum.
                    let protocol = if version == IpVersion::V4 { 23 } else { 20 };
                    if at != protocol {
                        assert_ne!(ids(&damaged), [""; 0], "{version:?} byte {at} bit {bit}");
                    }
                }
            }
        }
    }

    #[test]
    fn each_rule_is_named() {
        let good = Packet::new(IpVersion::V4, 100).build();
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut frame = good.clone();
            change(&mut frame);
            ids(&frame)
        };
        assert_eq!(with(&|frame| frame[60] ^= 1), ["net-wire-checksum"]);
        assert_eq!(with(&|frame| frame[22] ^= 1), ["net-wire-checksum"]);
        assert_eq!(with(&|frame| frame.push(0)), ["net-wire-length"]);
        assert_eq!(with(&|frame| frame.truncate(100)), ["net-wire-length"]);
        assert_eq!(with(&|frame| frame.truncate(40)), ["net-malformed", "net-wire-length"]);
        assert_eq!(with(&|frame| frame[6] |= 1), ["net-wire-source"]);
        assert_eq!(ids(&Packet::new(IpVersion::V4, 1461).build()), ["net-wire-mtu"]);
        assert!(ids(&Packet::new(IpVersion::V4, 1460).build()).is_empty());
        let jumbo = Packet { jumbo_header: true, ..Packet::new(IpVersion::V6, 100) };
        let ids = ids(&jumbo.build());
        assert!(ids.contains(&"net-wire-jumbo-header"), "{ids:?}");
    }

    #[test]
    fn icmp_checksums_are_checked() {
        let mut frame = Packet::new(IpVersion::V6, 20).build();
        frame[20] = 58;
        frame[56..58].fill(0);
        let pseudo = pseudo_ipv6(
            frame[22..38].try_into().unwrap(),
            frame[38..54].try_into().unwrap(),
            58,
            (frame.len() - 54) as u32,
        );
        let checksum = pseudo.plus(Sum::of(&frame[54..])).checksum();
        frame[56..58].copy_from_slice(&checksum.to_be_bytes());
        assert!(ids(&frame).is_empty());
        frame[60] ^= 4;
        assert_eq!(ids(&frame), ["net-wire-checksum"]);
    }

    proptest! {
        #[test]
        fn noise_never_panics(
            which in 0usize..8, tunnel in any::<bool>(), cut in 0usize..700,
            noise in proptest::collection::vec(any::<(u8, u8)>(), 0..10)
        ) {
            let mut frame = packets()[which].build();
            if tunnel {
                frame = vxlan(IpVersion::V6, &frame);
            }
            for (at, value) in noise {
                frame[usize::from(at)] = value;
            }
            frame.truncate(cut);
            check_wire(&frame, 1500);
            super::super::check_handed(
                &frame,
                &super::super::Handed {
                    lso: Some(crate::tso::LsoRequest {
                        seed: crate::tso::Seed::WithLength, inner: tunnel, ..crate::tso::LsoRequest::tcp(cut, cut)
                    }),
                    checksum: Some(crate::checksum::Partial { start: cut, offset: cut }),
                },
                &super::super::Limits { max_lso: 65_536, min_mss: 88, mtu: 1500 },
            );
        }
    }
}
