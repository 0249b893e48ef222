use proptest::prelude::*;

use super::*;
use crate::testing::{Packet, vxlan};

#[test]
fn a_plain_tcp_packet() {
    for version in [IpVersion::V4, IpVersion::V6] {
        let packet = Packet { vlan: Some(0x2005), tcp_options: vec![1; 12], ..Packet::new(version, 100) };
        let frame = packet.build();
        let layers = parse(&frame);
        assert_eq!(layers.problem, None);
        assert_eq!(layers.vlan, Some(0x2005));
        let ip = layers.ip.as_ref().unwrap();
        assert_eq!((ip.version, ip.offset, ip.end), (version, packet.ip_offset(), frame.len()));
        let tcp = layers.tcp().unwrap();
        assert_eq!((tcp.offset, tcp.end()), (packet.transport_offset(), packet.header_len()));
        assert_eq!(layers.payload, packet.header_len());
    }
}

#[test]
fn a_jumbo_payload_option_is_found_and_its_length_used() {
    let packet = Packet { jumbo_header: true, ..Packet::new(IpVersion::V6, 100_000) };
    let mut frame = packet.build();
    let end = frame.len();
    frame.extend([0; 7]);
    let layers = parse(&frame);
    let ip = layers.ip.as_ref().unwrap();
    assert_eq!(ip.jumbo, Some(Jumbo { header_offset: 54, payload_len: (end - 54) as u32 }));
    assert_eq!((ip.header_len, ip.protocol, ip.end), (48, protocol::TCP, end));
    assert_eq!(layers.tcp().unwrap().offset, 62);
}

#[test]
fn options_before_the_jumbo_option_are_skipped() {
    assert_eq!(jumbo_payload_len(&[6, 1, 0, 1, 2, 0, 0, 0, 0xc2, 4, 0, 1, 0, 0, 0, 0]), Some(0x1_0000));
    assert_eq!(jumbo_payload_len(&[6, 0, 1, 4, 0, 0, 0, 0]), None);
    assert_eq!(jumbo_payload_len(&[6, 0, 1, 0, 0xc2, 4, 0, 1]), None, "cut short");
    assert_eq!(jumbo_payload_len(&[6, 0, 1, 200, 0, 0, 0, 0]), None, "option longer than its header");
}

#[test]
fn later_fragments_have_no_transport_header() {
    let mut frame = Packet::new(IpVersion::V4, 100).build();
    frame[20..22].copy_from_slice(&0x2000u16.to_be_bytes());
    let first = parse(&frame);
    assert!(first.tcp().is_some());
    assert_eq!(first.ip.unwrap().fragment, Some(Fragment { offset: 0, more: true }));
    frame[20..22].copy_from_slice(&0x0003u16.to_be_bytes());
    let last = parse(&frame);
    assert_eq!(last.transport, None);
    assert_eq!(last.ip.unwrap().fragment, Some(Fragment { offset: 24, more: false }));
}

#[test]
fn a_fragment_header_is_followed() {
    let packet = Packet::new(IpVersion::V6, 10);
    let mut frame = packet.build();
    frame[20] = protocol::FRAGMENT;
    frame.splice(54..54, [protocol::TCP, 0, 0, 1, 0, 0, 0, 9]);
    let layers = parse(&frame);
    assert_eq!(layers.tcp().unwrap().offset, 62);
    assert_eq!(layers.ip.unwrap().fragment, Some(Fragment { offset: 0, more: true }));
}

#[test]
fn tunnels_are_entered() {
    let inner = Packet::new(IpVersion::V4, 60);
    let frame = vxlan(IpVersion::V6, &inner.build());
    let layers = parse(&frame);
    assert_eq!(layers.transport.unwrap().kind, TransportKind::Udp);
    assert_eq!(layers.inner.as_ref().unwrap().tunnel, Tunnel::Vxlan);
    let start = 14 + 40 + 8 + 8;
    let innermost = layers.innermost();
    assert_eq!(innermost.ethernet, Some(start));
    assert_eq!(innermost.tcp().unwrap().offset, start + inner.transport_offset());
}

#[test]
fn geneve_and_gre_options_are_skipped() {
    let inner = Packet::new(IpVersion::V6, 60);
    let mut payload = vec![2, 0, 0x65, 0x58, 0, 0, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    payload.extend(inner.build());
    let outer = Packet { udp: true, ports: (1, 6081), payload, ..Packet::new(IpVersion::V4, 0) };
    let layers = parse(&outer.build());
    assert_eq!(layers.inner.as_ref().unwrap().tunnel, Tunnel::Geneve);
    assert_eq!(layers.innermost().tcp().unwrap().offset, 42 + 16 + inner.transport_offset());

    let mut frame = Packet::new(IpVersion::V4, 0).build();
    frame.truncate(34);
    frame[23] = protocol::GRE;
    frame.extend([0x20, 0, 0x86, 0xdd, 0, 0, 0, 7]);
    frame.extend(&inner.build()[14..]);
    let layers = parse(&frame);
    assert_eq!(layers.inner.as_ref().unwrap().tunnel, Tunnel::Gre);
    assert_eq!(layers.innermost().ethernet, None);
    assert_eq!(layers.innermost().tcp().unwrap().offset, 34 + 8 + 40);
}

#[test]
fn each_truncation_is_named() {
    let frame = Packet::new(IpVersion::V6, 0).build();
    for (length, header) in [(13, Header::Ethernet), (53, Header::Ipv6), (73, Header::Tcp)] {
        assert_eq!(parse(&frame[..length]).problem, Some(Problem::Truncated(header)));
    }
}

#[test]
fn endless_extension_headers_are_given_up() {
    let mut frame = Packet::new(IpVersion::V6, 0).build();
    frame[20] = protocol::DESTINATION;
    frame.truncate(54);
    for _ in 0..40 {
        frame.extend([protocol::DESTINATION, 0, 1, 4, 0, 0, 0, 0]);
    }
    assert_eq!(parse(&frame).problem, Some(Problem::TooMany(Header::Extension)));
}

/// All offsets lie inside the frame and in order, whatever the frame holds.
fn assert_sound(frame: &[u8], layers: &Layers) {
    assert!(
        layers.network_offset <= layers.payload && layers.payload <= frame.len().max(layers.network_offset)
    );
    if let Some(ip) = &layers.ip {
        assert!(ip.transport_offset() <= frame.len() && ip.end <= frame.len());
        assert!(ip.end >= ip.transport_offset());
    }
    if let Some(transport) = layers.transport {
        assert!(transport.end() <= frame.len());
    }
    if let Some(inner) = &layers.inner {
        assert_sound(frame, &inner.layers);
    }
}

proptest! {
    #[test]
    fn noise_never_panics(frame in proptest::collection::vec(any::<u8>(), 0..200)) {
        assert_sound(&frame, &parse(&frame));
    }

    #[test]
    fn damaged_packets_never_panic(
        v6 in any::<bool>(), tunnel in any::<bool>(), udp in any::<bool>(), jumbo_header in any::<bool>(),
        noise in proptest::collection::vec(any::<(u8, u8)>(), 0..8), cut in 0usize..260
    ) {
        let version = if v6 { IpVersion::V6 } else { IpVersion::V4 };
        let packet = Packet { udp, jumbo_header, ..Packet::new(version, 80) };
        let mut frame = packet.build();
        if tunnel {
            frame = vxlan(version, &frame);
        }
        for (at, value) in noise {
            let at = usize::from(at) % frame.len();
            frame[at] = value;
        }
        frame.truncate(cut);
        assert_sound(&frame, &parse(&frame));
    }
}
