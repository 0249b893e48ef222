//! The engine against a reading of its frames that shares no code with it.

use proptest::prelude::*;

use super::*;
use crate::parse::IpVersion::{V4, V6};
use crate::testing::{Packet, assert_intact, vxlan};

fn word(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

fn long(frame: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(frame[at..at + 4].try_into().unwrap())
}

/// Segments `packet` and checks every frame field by field.
fn check(packet: &Packet, mss: usize) -> Result<(), TestCaseError> {
    let whole = packet.build();
    let header_len = packet.header_len();
    let request = LsoRequest {
        kind: if packet.udp { LsoKind::Udp } else { LsoKind::Tcp },
        ..LsoRequest::tcp(header_len, mss)
    };
    let frames: Vec<_> = segment(&whole, &request).unwrap().collect();
    prop_assert_eq!(frames.len(), packet.payload.len().div_ceil(mss).max(1));
    let (ip, transport) = (packet.ip_offset(), packet.transport_offset());
    let mut payload = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        let (first, last) = (index == 0, index + 1 == frames.len());
        assert_intact(frame);
        prop_assert_eq!(&frame[..ip], &whole[..ip]);
        if packet.version == V4 {
            prop_assert_eq!(word(frame, ip + 4), packet.ip_id.wrapping_add(index as u16));
        }
        if !packet.udp {
            prop_assert_eq!(long(frame, transport + 4), packet.sequence.wrapping_add(payload.len() as u32));
            let mut flags = packet.flags;
            if !last {
                flags &= !0x09;
            }
            if !first {
                flags &= !0x80;
            }
            prop_assert_eq!(frame[transport + 13], flags);
            prop_assert_eq!(&frame[transport + 20..header_len], &packet.tcp_options[..]);
        }
        prop_assert!(last || frame.len() == header_len + mss);
        payload.extend_from_slice(&frame[header_len..]);
    }
    prop_assert!(payload == packet.payload, "payload differs");
    Ok(())
}

fn packets(payload_len: impl Strategy<Value = usize>) -> impl Strategy<Value = Packet> {
    let headers = (any::<bool>(), any::<bool>(), any::<Option<u16>>(), 0usize..=10, 0usize..=10);
    let fields = (any::<u16>(), any::<u32>(), any::<u8>(), any::<(u16, u16)>());
    (headers, fields, payload_len).prop_map(|(headers, fields, payload_len)| {
        let (v6, udp, vlan, ip_words, tcp_words) = headers;
        let (ip_id, sequence, flags, ports) = fields;
        Packet {
            udp,
            vlan,
            ip_options: vec![1; ip_words * 4],
            tcp_options: vec![1; tcp_words * 4],
            ip_id,
            sequence,
            flags,
            // A destination port of a tunnel would make the headers something else.
            ports: (ports.0, if matches!(ports.1, 4789 | 6081) { 1 } else { ports.1 }),
            ..Packet::new(if v6 { V6 } else { V4 }, payload_len)
        }
    })
}

proptest! {
    #[test]
    fn small_packets(packet in packets(0usize..4000), mss in 1usize..2000) {
        check(&packet, mss)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn big_packets(packet in packets(60_000usize..MAX_PACKET), mss in 500usize..65_400) {
        check(&packet, mss)?;
    }
}

proptest! {
    #[test]
    fn nothing_panics(
        packet in packets(0usize..200), noise in proptest::collection::vec(any::<(u8, u8)>(), 0..12),
        cut in 0usize..300, header_len in 0usize..160, mss in 0usize..70_000,
        udp in any::<bool>(), inner in any::<bool>(), tunnel in any::<bool>(), place in any::<(u8, u8)>()
    ) {
        let mut bytes = packet.build();
        if tunnel {
            bytes = vxlan(packet.version, &bytes);
        }
        for (at, value) in noise {
            let at = usize::from(at) % bytes.len();
            bytes[at] = value;
        }
        bytes.truncate(cut);
        let kind = if udp { LsoKind::Udp } else { LsoKind::Tcp };
        let request = LsoRequest { kind, inner, seed: Seed::WithLength, ..LsoRequest::tcp(header_len, mss) };
        if let Ok(segments) = segment(&bytes, &request) {
            prop_assert_eq!(segments.len(), segments.count());
        }
        let plan = Plan::at(packet.version, place.0.into(), kind, place.1.into());
        if let Ok(segments) = segment_with(&bytes, &request, plan) {
            prop_assert_eq!(segments.len(), segments.count());
        }
    }
}

#[test]
fn the_largest_big_tcp_packets() {
    for version in [V4, V6] {
        let mut packet = Packet { flags: 0x99, ..Packet::new(version, 0) };
        for payload_len in [65_536, 131_073, 185_000, 262_143, 524_280, MAX_PACKET] {
            packet.payload = Packet::new(version, payload_len - packet.header_len()).payload;
            check(&packet, 1448).unwrap();
            check(&packet, 8948).unwrap();
        }
    }
}

#[test]
fn a_seed_is_summed_on_from_right_or_wrong() {
    let packet = Packet::new(V6, 100_000);
    let mut bytes = packet.build();
    let transport = packet.transport_offset();
    let transport_len = (bytes.len() - transport) as u32;
    let mut addresses = [0u8; 32];
    addresses.copy_from_slice(&bytes[22..54]);
    for (seed, length) in [(Seed::WithoutLength, 0), (Seed::WithLength, transport_len)] {
        let request = LsoRequest { seed, ..LsoRequest::tcp(packet.header_len(), 1400) };
        let sum = crate::checksum::Sum::of(&addresses)
            .plus(crate::checksum::Sum::word(6))
            .plus(crate::checksum::Sum::long(length));
        bytes[transport + 16..transport + 18].copy_from_slice(&sum.fold().to_be_bytes());
        segment(&bytes, &request).unwrap().for_each(|frame| assert_intact(&frame));

        bytes[transport + 16] ^= 1;
        let wrong = segment(&bytes, &request).unwrap().next().unwrap();
        assert!(std::panic::catch_unwind(|| assert_intact(&wrong)).is_err(), "{seed:?}");
    }
}

#[test]
fn accurate_ecn_keeps_cwr_and_a_fixed_id_stays() {
    let packet = Packet { flags: 0x90, ..Packet::new(V4, 5000) };
    let request =
        LsoRequest { cwr: Cwr::Every, ip_id: IpId::Fixed, ..LsoRequest::tcp(packet.header_len(), 1000) };
    for frame in segment(&packet.build(), &request).unwrap() {
        assert_intact(&frame);
        assert_eq!(frame[packet.transport_offset() + 13], 0x90);
        assert_eq!(word(&frame, packet.ip_offset() + 4), packet.ip_id);
    }
}

#[test]
fn a_jumbo_header_left_in_is_repeated_in_every_segment() {
    let packet = Packet { jumbo_header: true, ..Packet::new(V6, 70_000) };
    let whole = packet.build();
    let frames: Vec<_> = segment(&whole, &LsoRequest::tcp(packet.header_len(), 1400)).unwrap().collect();
    assert_eq!(frames.len(), 50);
    for frame in frames {
        assert_eq!(frame[54..62], whole[54..62]);
        assert_intact(&frame);
    }
}

#[test]
fn the_packet_in_a_tunnel_is_segmented_and_the_outer_headers_follow() {
    for outer in [V4, V6] {
        let packet = Packet::new(V6, 129_000);
        let whole = vxlan(outer, &packet.build());
        let inner_offset = whole.len() - packet.build().len();
        let request = LsoRequest { inner: true, ..LsoRequest::tcp(inner_offset + packet.header_len(), 1300) };
        let mut payload = Vec::new();
        for frame in segment(&whole, &request).unwrap() {
            assert_intact(&frame[inner_offset..]);
            payload.extend_from_slice(&frame[inner_offset + packet.header_len()..]);
            match outer {
                V6 => assert_intact(&frame),
                V4 => {
                    assert_eq!(word(&frame, 16), (frame.len() - 14) as u16);
                    assert_eq!(word(&frame, 14 + 20 + 4), (frame.len() - 34) as u16);
                    assert_eq!(word(&frame, 14 + 20 + 6), 0, "no UDP checksum before, none after");
                }
            }
        }
        assert_eq!(payload, packet.payload);
    }
}

#[test]
fn impossible_requests_are_refused() {
    let packet = Packet::new(V4, 70_000);
    let whole = packet.build();
    let refusal = |request: LsoRequest| segment(&whole, &request).unwrap_err();
    assert_eq!(refusal(LsoRequest::tcp(54, 0)), LsoError::ZeroMss);
    assert_eq!(refusal(LsoRequest::tcp(53, 1000)), LsoError::HeadersCut { needed: 54, header_len: 53 });
    assert_eq!(refusal(LsoRequest::udp(54, 1000)), LsoError::NoTransport(LsoKind::Udp));
    assert_eq!(refusal(LsoRequest::tcp(54, 65_500)), LsoError::SegmentTooLong(65_554));
    let beyond = LsoError::HeadersBeyondPacket { header_len: 80_000, packet_len: 70_054 };
    assert_eq!(refusal(LsoRequest::tcp(80_000, 1000)), beyond);
}
