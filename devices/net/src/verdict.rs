//! The checksums inside a packet as a NIC sees them: which are right on receive, and what a driver leaves in the
//! transport header's field for the NIC to go on from.

use serde::{Deserialize, Serialize};

use crate::checksum::{Sum, pseudo_ipv4, pseudo_ipv6};
use crate::parse::{Ip, IpVersion, Layers, Transport, TransportKind};
use crate::wire::{Ipv4Header, Ipv6Header, view};

/// Which checksums of a packet are right. `None` where there is none, or no telling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdicts {
    /// Of the IPv4 header.
    pub ip: Option<bool>,
    /// Of TCP, UDP, ICMP or ICMPv6. `None` for fragments, and for UDP without one over IPv4 (RFC 768) or around a
    /// tunnel (RFC 6935, 5).
    pub transport: Option<bool>,
}

impl Verdicts {
    /// The verdicts about the packet whose headers are `layers`, not about one in a tunnel inside.
    pub fn of(frame: &[u8], layers: &Layers) -> Verdicts {
        let Some(ip) = layers.ip.as_ref().filter(|_| layers.problem.is_none()) else {
            return Verdicts::default();
        };
        let header = frame.get(ip.offset..ip.transport_offset()).unwrap_or_default();
        let transport = layers.transport.filter(|_| ip.fragment.is_none());
        Verdicts {
            ip: (ip.version == IpVersion::V4).then(|| Sum::of(header).is_valid()),
            transport: transport
                .and_then(|transport| transport_verdict(frame, ip, transport, layers.inner.is_some())),
        }
    }

    /// Whether a checksum is wrong.
    pub fn any_wrong(&self) -> bool {
        self.ip == Some(false) || self.transport == Some(false)
    }
}

fn transport_verdict(frame: &[u8], ip: &Ip, transport: Transport, tunnel: bool) -> Option<bool> {
    let field = transport.checksum_offset()?;
    let unused = frame.get(field..field + 2) == Some(&[0, 0]);
    if unused && transport.kind == TransportKind::Udp {
        // Over IPv6 there has to be one (RFC 8200, 8.1), but for tunnels.
        return (ip.version == IpVersion::V6 && !tunnel).then_some(false);
    }
    let Some(segment) = frame.get(transport.offset..ip.end) else { return Some(false) };
    let pseudo = match transport.kind {
        TransportKind::Icmp => Sum::ZERO,
        _ => pseudo_header(frame, ip, segment.len() as u32),
    };
    Some(pseudo.plus(Sum::of(segment)).is_valid())
}

/// What the checksum field of `transport` holds, and what the stack leaves there for a NIC to go on from: the
/// pseudo header's sum. `None` if they are the same number or there is no such field.
pub fn wrong_seed(packet: &[u8], ip: &Ip, transport: &Transport) -> Option<(u16, u16)> {
    let field = packet.get(transport.checksum_offset()?..)?.first_chunk()?;
    let found = u16::from_be_bytes(*field);
    let expected = pseudo_header(packet, ip, ip.end.saturating_sub(transport.offset) as u32).fold();
    // Zero and all ones are the same number.
    (found % 0xffff != expected % 0xffff).then_some((found, expected))
}

/// The pseudo header's sum for `ip` and a transport header with `length` bytes from its start.
pub fn pseudo_header(packet: &[u8], ip: &Ip, length: u32) -> Sum {
    let sum = match ip.version {
        IpVersion::V4 => view::<Ipv4Header>(packet, ip.offset)
            .map(|header| pseudo_ipv4(header.source, header.destination, ip.protocol, length)),
        IpVersion::V6 => view::<Ipv6Header>(packet, ip.offset)
            .map(|header| pseudo_ipv6(&header.source, &header.destination, ip.protocol, length)),
    };
    sum.unwrap_or(Sum::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;
    use crate::testing::{Packet, seed, vxlan};

    fn verdicts(frame: &[u8]) -> (Option<bool>, Option<bool>) {
        let Verdicts { ip, transport } = Verdicts::of(frame, &parse(frame));
        (ip, transport)
    }

    #[test]
    fn intact_packets_are_right_and_each_changed_byte_is_seen() {
        for (version, udp) in
            [(IpVersion::V4, false), (IpVersion::V6, false), (IpVersion::V4, true), (IpVersion::V6, true)]
        {
            let packet = Packet { udp, ..Packet::new(version, 33) };
            let ip = (version == IpVersion::V4).then_some(true);
            let mut frame = packet.build();
            assert_eq!(verdicts(&frame), (ip, Some(true)));
            for at in packet.header_len()..frame.len() {
                frame[at] ^= 0x10;
                assert_eq!(verdicts(&frame), (ip, Some(false)), "byte {at}");
                frame[at] ^= 0x10;
            }
        }
        let mut frame = Packet::new(IpVersion::V4, 33).build();
        frame[22] ^= 1;
        assert_eq!(verdicts(&frame), (Some(false), Some(true)), "time to live is not in the pseudo header");
    }

    #[test]
    fn udp_may_go_without_a_checksum_over_ipv4_only() {
        for (version, expected) in [(IpVersion::V4, None), (IpVersion::V6, Some(false))] {
            let packet = Packet { udp: true, ..Packet::new(version, 33) };
            let mut frame = packet.build();
            frame[packet.transport_offset() + 6..packet.transport_offset() + 8].fill(0);
            assert_eq!(verdicts(&frame).1, expected);
        }
    }

    #[test]
    fn tunnels_may_go_without_a_checksum() {
        let mut frame = vxlan(IpVersion::V6, &Packet::new(IpVersion::V4, 33).build());
        assert_eq!(verdicts(&frame).1, Some(true));
        frame[60..62].fill(0);
        assert_eq!(verdicts(&frame).1, None);
        frame[60] = 1;
        assert_eq!(verdicts(&frame).1, Some(false));
    }

    #[test]
    fn there_is_no_telling_about_fragments_and_other_frames() {
        let mut frame = Packet::new(IpVersion::V4, 33).build();
        frame[20] = 0x20;
        assert_eq!(verdicts(&frame).1, None);
        assert_eq!(verdicts(&[0xff; 60]), (None, None));
    }

    #[test]
    fn a_finished_checksum_is_no_seed() {
        for (version, udp) in [(IpVersion::V4, false), (IpVersion::V6, true)] {
            let mut frame = Packet { udp, ..Packet::new(version, 100) }.build();
            let layers = parse(&frame);
            let (ip, transport) = (layers.ip.unwrap(), layers.transport.unwrap());
            assert!(wrong_seed(&frame, &ip, &transport).is_some());
            seed(&mut frame, false);
            assert_eq!(wrong_seed(&frame, &ip, &transport), None);
        }
    }
}
