//! Sending.

use nicvisor_core::{Device, Duration, FrameId};
use nicvisor_net::check::check_wire;
use nicvisor_net::parse::{IpVersion, parse};
use nicvisor_net::testing::{Packet, assert_intact, seed, vxlan};
use proptest::prelude::*;

use super::{SENDER, assert_clean, broken, config, counter, open, open_with};
use crate::Config;
use crate::config::Enforcement;
use crate::testing::{Driver, Offload, SEND_AREA, Send, Sent, Setup};
use crate::wire::RequestType;
use crate::wire::completion::CqeType;
use crate::wire::mana_requests::SetBandwidthClamp;

const OKAY: Sent = Sent { kind: CqeType::TxOkay as u8 };

/// The packet as a driver leaves it for segmentation.
fn lso_packet(packet: &Packet) -> Vec<u8> {
    let mut bytes = packet.build();
    seed(&mut bytes, true);
    bytes
}

/// The frames that left since the last call.
fn frames(driver: &mut Driver) -> Vec<Vec<u8>> {
    let effects = driver.effects();
    assert_clean(&effects);
    effects.frames.into_iter().map(|(_, frame)| frame.bytes).collect()
}

fn big_tcp() -> Config {
    Config { tso_limit: 524_280, ..config(SENDER) }
}

#[test]
fn packets_of_half_a_megabyte_leave_as_valid_frames_with_all_payload() {
    for version in [IpVersion::V4, IpVersion::V6] {
        let header_len = Packet::new(version, 0).header_len();
        let packet = Packet::new(version, 524_280 - header_len);
        let mut driver = open_with(big_tcp(), Setup::default());
        driver.send(0, 1, &Send::lso(&lso_packet(&packet), header_len, 1400));
        let mut payload: Vec<u8> = Vec::new();
        for frame in frames(&mut driver) {
            assert_intact(&frame);
            assert!(frame.len() <= 1514);
            payload.extend(&frame[header_len..]);
        }
        assert!(payload == packet.payload);
        assert_eq!(driver.completed(0, 1), [OKAY]);
        let above = if version == IpVersion::V4 { "tx_ipv4_above_64k" } else { "tx_ipv6_above_64k" };
        assert_eq!((counter(&driver, above), counter(&driver, "tx_tso_packets")), (1, 1));
        assert_eq!(driver.harness.device.state.vports[0].statistics.hc_tx_ucast_pkts, 375);
    }
}

#[test]
fn checksums_are_filled_in_where_asked_for() {
    for (version, udp) in [(IpVersion::V4, false), (IpVersion::V6, false), (IpVersion::V6, true)] {
        let mut bytes = Packet { udp, ..Packet::new(version, 333) }.build();
        seed(&mut bytes, false);
        let mut driver = open(SENDER);
        driver.send(0, 0, &Send { offload: Offload::Checksum, piece: 40, ..Send::plain(&bytes) });
        let frames = frames(&mut driver);
        assert_eq!(frames.len(), 1);
        assert_intact(&frames[0]);
        assert_eq!(counter(&driver, "tx_checksums"), 1);
    }
}

#[test]
fn the_ipv4_header_checksum_is_filled_in_where_asked_for() {
    let mut driver = open(SENDER);
    let mut bytes = Packet::new(IpVersion::V4, 50).build();
    bytes[24..26].fill(0x77);
    let mut entry = driver.entry(0, 0, &Send::plain(&bytes));
    entry[8] |= 1 << 2 | 1 << 4;
    driver.post_send(0, 0, &entry, false);
    assert_intact(&frames(&mut driver)[0]);
}

#[test]
fn a_vlan_tag_is_inserted_into_every_frame() {
    let packet = Packet::new(IpVersion::V6, 5000);
    let header_len = packet.header_len();
    let mut driver = open(SENDER);
    driver.send(0, 0, &Send { vlan: Some(0xa123), ..Send::lso(&lso_packet(&packet), header_len, 1400) });
    let frames = frames(&mut driver);
    assert_eq!(frames.len(), 4);
    for frame in &frames {
        assert_eq!(parse(frame).vlan, Some(0xa123));
        assert_intact(frame);
    }
}

#[test]
fn the_packet_inside_a_tunnel_is_segmented() {
    for (outer, inside) in [(IpVersion::V4, IpVersion::V6), (IpVersion::V6, IpVersion::V4)] {
        let packet = Packet::new(inside, 100_000);
        let bytes = vxlan(outer, &packet.build());
        let header_len = bytes.len() - packet.payload.len();
        let mut driver = open_with(big_tcp(), Setup::default());
        let send = Send { encap: true, ..Send::lso(&bytes, header_len, 1300) };
        driver.send(0, 0, &send);
        let frames = frames(&mut driver);
        assert_eq!(frames.len(), 77);
        let mut payload: Vec<u8> = Vec::new();
        for frame in &frames {
            assert_eq!(check_wire(frame, 1500), []);
            let inner = parse(frame).inner.expect("a tunnel").layers;
            assert_intact(&frame[inner.ethernet.unwrap()..]);
            payload.extend(&frame[header_len..]);
        }
        assert!(payload == packet.payload);
        assert_eq!(driver.completed(0, 0), [OKAY]);
    }
}

/// Has the tunnel at the start of the memory for packets go to a port that no tunnel usually has.
fn move_to_another_port(driver: &Driver, tunnel: &[u8]) {
    let field = parse(tunnel).transport.expect("UDP").offset + 2;
    driver.harness.write(SEND_AREA + field as u64, &12_345_u16.to_be_bytes());
}

#[test]
fn the_packet_inside_is_where_the_driver_says_whatever_the_port() {
    let packet = Packet::new(IpVersion::V6, 5000);
    let bytes = vxlan(IpVersion::V4, &packet.build());
    let header_len = bytes.len() - packet.payload.len();
    let mut driver = open(SENDER);
    let entry = driver.entry(0, 0, &Send { encap: true, ..Send::lso(&bytes, header_len, 1300) });
    move_to_another_port(&driver, &bytes);
    driver.post_send(0, 0, &entry, false);
    let frames = frames(&mut driver);
    assert_eq!(frames.len(), 4);
    let start = bytes.len() - packet.build().len();
    let mut payload: Vec<u8> = Vec::new();
    for frame in &frames {
        assert!(parse(frame).inner.is_none(), "nothing in the frame tells of a tunnel");
        assert_eq!(check_wire(&frame[start..], 1500), []);
        assert_intact(&frame[start..]);
        payload.extend(&frame[header_len..]);
    }
    assert!(payload == packet.payload);
    assert_eq!(driver.completed(0, 0), [OKAY]);
}

#[test]
fn a_wrong_place_inside_is_found_whatever_the_port() {
    let packet = Packet::new(IpVersion::V6, 5000);
    let bytes = vxlan(IpVersion::V4, &packet.build());
    let mut driver = open(SENDER);
    let send = Send { encap: true, ..Send::lso(&bytes, bytes.len() - packet.payload.len(), 1300) };
    let mut entry = driver.entry(0, 0, &send);
    entry[20] ^= 2; // inner_frame_offset
    move_to_another_port(&driver, &bytes);
    driver.post_send(0, 0, &entry, false);
    assert_eq!(broken(&driver.effects()), ["mana-tx-encap"]);
    assert_eq!(driver.completed(0, 0), [Sent { kind: CqeType::TxInvalidOob as u8 }]);
}

#[test]
fn a_checksum_inside_a_tunnel_is_filled_in() {
    let mut inner = Packet::new(IpVersion::V4, 700).build();
    seed(&mut inner, false);
    let bytes = vxlan(IpVersion::V4, &inner);
    let mut driver = open(SENDER);
    driver.send(0, 0, &Send { encap: true, offload: Offload::Checksum, ..Send::plain(&bytes) });
    let frames = frames(&mut driver);
    assert_intact(&frames[0][bytes.len() - inner.len()..]);
}

#[test]
fn a_completion_that_is_not_wanted_is_not_written() {
    let bytes = Packet::new(IpVersion::V4, 100).build();
    let mut driver = open(SENDER);
    driver.send(0, 0, &Send { suppress: true, ..Send::plain(&bytes) });
    assert_eq!(driver.completed(0, 0), []);
    driver.send(0, 0, &Send::plain(&bytes));
    assert_eq!(driver.completed(0, 0), [OKAY]);
    assert_eq!(frames(&mut driver).len(), 2);
    assert_eq!(counter(&driver, "tx_suppressed"), 1);
}

#[test]
fn long_numbers_of_vports_take_the_long_format() {
    let config = Config { vport_offset: 300, ..config(SENDER) };
    let mut driver = open_with(config, Setup::default());
    let bytes = Packet::new(IpVersion::V4, 100).build();
    driver.send(0, 0, &Send::plain(&bytes));
    assert_eq!(driver.completed(0, 0), [OKAY]);
    assert_clean(&driver.effects());
}

#[test]
fn a_link_that_is_down_loses_packets_and_completes_them() {
    let mut driver = open(SENDER);
    driver.harness.call(|device, context| device.set_link(context, 0, false));
    driver.send(0, 0, &Send::plain(&Packet::new(IpVersion::V4, 100).build()));
    assert_eq!(driver.completed(0, 0), [OKAY]);
    assert!(frames(&mut driver).is_empty());
    assert_eq!(counter(&driver, "tx_link_down"), 1);
}

#[test]
fn what_the_host_does_not_allow_is_dropped_and_said_so() {
    let tagged = Packet { vlan: Some(5), ..Packet::new(IpVersion::V4, 100) }.build();
    let plain = Packet::new(IpVersion::V4, 100).build();
    let other = { [&plain[..12], &[0x88, 0xcc], &plain[14..]].concat() };
    let mut foreign = plain.clone();
    foreign[11] ^= 1;
    let enforcement = Enforcement { source_address: true, vlan: true, ether_type: true };
    for (bytes, vlan, kind) in [
        (&tagged, None, CqeType::TxVlanTaggingViolation),
        (&plain, Some(7), CqeType::TxVlanTaggingViolation),
        (&other, None, CqeType::TxInvalidEthType),
        (&foreign, None, CqeType::TxSaDrop),
        (&plain, None, CqeType::TxOkay),
    ] {
        let mut driver = open_with(Config { enforcement, ..config(SENDER) }, Setup::default());
        driver.send(0, 0, &Send { vlan, suppress: false, ..Send::plain(bytes) });
        assert_eq!(driver.completed(0, 0), [Sent { kind: kind as u8 }]);
        assert_eq!(frames(&mut driver).len(), usize::from(kind == CqeType::TxOkay));
    }
}

#[test]
fn a_jumbo_header_that_the_driver_left_is_found() {
    let packet = Packet { jumbo_header: true, ..Packet::new(IpVersion::V6, 300_000) };
    let mut driver = open_with(big_tcp(), Setup::default());
    driver.send(0, 0, &Send::lso(&lso_packet(&packet), packet.header_len(), 1400));
    let effects = driver.effects();
    assert_eq!(broken(&effects), ["net-ipv6-jumbo-header"]);
    assert!(effects.findings[0].queue.starts_with("sq ") && !effects.findings[0].packet.is_empty());
    let ids: Vec<FrameId> = (5..).map(FrameId).take(effects.frames.len()).collect();
    let named = effects.findings[0].frame.and_then(|frame| frame.resolve(&ids));
    assert_eq!(named, Some(FrameId(5)), "the capture shows the first frame of the packet");
    assert_eq!(driver.completed(0, 0), [OKAY], "hardware repeats whatever it is given");

    let ignored_rules = ["net-ipv6-jumbo-header".to_owned()].into();
    let mut driver = open_with(Config { ignored_rules, ..big_tcp() }, Setup::default());
    driver.send(0, 0, &Send::lso(&lso_packet(&packet), packet.header_len(), 1400));
    assert_clean(&driver.effects());
}

#[test]
fn a_clamped_vport_sends_as_fast_as_it_may_and_its_queues_take_turns() {
    let mut driver = open(SENDER);
    let bytes = Packet::new(IpVersion::V4, 1196).build();
    driver.harness.device.state.vports[0].bandwidth_clamp = Some(1000);
    let sent = |driver: &mut Driver| frames(driver).len();
    for queue in [0, 0, 0, 1, 1] {
        driver.send(0, queue, &Send::plain(&bytes));
    }
    assert_eq!(sent(&mut driver), 1, "the first packet leaves at once");
    let time = Duration::from_nanos(bytes.len() as u64 * 8);
    driver.harness.advance(time - Duration::from_nanos(1));
    assert_eq!(sent(&mut driver), 0);
    driver.harness.advance(Duration::from_nanos(1));
    assert_eq!(sent(&mut driver), 1);
    driver.harness.advance(time);
    assert_eq!(driver.completed(0, 1).len(), 1, "the second queue is not made to wait for all of the first");
    driver.harness.pass(2 * time);
    assert_eq!(sent(&mut driver), 3);
    assert!(counter(&driver, "tx_clamped") >= 4);
    assert_eq!(driver.harness.device.next_deadline(), None);
}

#[test]
fn a_lifted_clamp_lets_everything_go_that_waits() {
    let mut driver = open(SENDER);
    let bytes = Packet::new(IpVersion::V4, 1196).build();
    let vport = driver.ports[0].handle;
    let clamp = |driver: &mut Driver, enable: u32, speed: u32| {
        let request = SetBandwidthClamp {
            vport: vport.into(),
            enable_clamping: enable.into(),
            link_speed_mbps: speed.into(),
        };
        assert_eq!(driver.request(RequestType::SetBwClamp, 1, &request).status, 0);
    };
    clamp(&mut driver, 1, 1);
    for _ in 0..5 {
        driver.send(0, 0, &Send::plain(&bytes));
    }
    assert_eq!(frames(&mut driver).len(), 1);
    clamp(&mut driver, 0, 0);
    driver.harness.advance(Duration::ZERO);
    assert_eq!(frames(&mut driver).len(), 4);
    assert_eq!(driver.completed(0, 0).len(), 5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_packet_leaves_whole(
        v6: bool, payload in 1..200_000_usize, mss in 100..1440_u16, piece in 1500..20_000_usize,
        vlan: Option<u16>, rounds in 1..4,
    ) {
        let packet = Packet::new(if v6 { IpVersion::V6 } else { IpVersion::V4 }, payload);
        let mut driver = open_with(big_tcp(), Setup { send_queue: 4096, ..Setup::default() });
        for _ in 0..rounds {
            let bytes = lso_packet(&packet);
            driver.send(0, 0, &Send { vlan, piece, ..Send::lso(&bytes, packet.header_len(), mss) });
            let skip = packet.header_len() + if vlan.is_some() { 4 } else { 0 };
            let sent: Vec<u8> = frames(&mut driver).iter().flat_map(|frame| frame[skip..].to_vec()).collect();
            prop_assert!(sent == packet.payload);
            prop_assert_eq!(driver.completed(0, 0), [OKAY]);
        }
    }
}
