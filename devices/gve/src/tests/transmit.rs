//! Packets on their way out.

use nicvisor_core::FrameId;
use nicvisor_net::check::check_wire;
use nicvisor_net::parse::IpVersion;
use nicvisor_net::testing::{Packet, assert_intact, seed};
use proptest::prelude::*;

use super::{assert_clean, broken, config, counter, open};
use crate::Config;
use crate::config::Defect;
use crate::testing::{Completed, Driver, Offload};
use crate::wire::tx::{PacketDescriptor, TsoContext};

fn tso(packet: &Packet, mss: u16) -> (Vec<u8>, Offload) {
    let mut frame = packet.build();
    seed(&mut frame, true);
    (frame, Offload::Tso { header_len: packet.header_len(), mss })
}

/// Sends one big packet and returns the frames on the link.
fn send_big(driver: &mut Driver, version: IpVersion, payload: usize) -> Vec<Vec<u8>> {
    let (frame, offload) = tso(&Packet::new(version, payload), 1400);
    driver.send(0, &frame, offload, 16_000);
    driver.effects().frames.into_iter().map(|(_, frame)| frame.bytes).collect()
}

#[test]
fn big_tcp_packets_leave_as_valid_frames_with_all_payload() {
    for version in [IpVersion::V4, IpVersion::V6] {
        let packet = Packet::new(version, 185_000);
        let (frame, offload) = tso(&packet, 1400);
        let mut driver = open(config());
        let tag = driver.send(0, &frame, offload, 16_000);
        let effects = driver.effects();
        assert_clean(&effects);
        let mut payload: Vec<u8> = Vec::new();
        for (_, frame) in &effects.frames {
            assert_intact(&frame.bytes);
            assert!(frame.bytes.len() <= 1514);
            payload.extend(&frame.bytes[packet.header_len()..]);
        }
        assert_eq!(payload, packet.payload);
        assert_eq!(driver.completed(0), [Completed::Packet(tag)]);
        assert_eq!(effects.vectors, [0]);
        let above = if version == IpVersion::V4 { "tx_ipv4_above_64k" } else { "tx_ipv6_above_64k" };
        assert_eq!(counter(&driver, above), 1);
        assert_eq!(counter(&driver, "tx_tso_packets"), 1);
    }
}

#[test]
fn a_checksum_is_filled_in_where_asked_for() {
    for udp in [false, true] {
        let packet = Packet { udp, ..Packet::new(IpVersion::V6, 333) };
        let mut frame = packet.build();
        seed(&mut frame, false);
        let mut driver = open(config());
        driver.send(1, &frame, Offload::Checksum, 100);
        let effects = driver.effects();
        assert_clean(&effects);
        assert_intact(&effects.frames[0].1.bytes);
        assert_eq!(counter(&driver, "tx_checksums"), 1);
    }
}

#[test]
fn completions_keep_their_generation_over_many_rounds() {
    let mut driver = open(config());
    let frame = Packet::new(IpVersion::V4, 100).build();
    let (mut packets, mut descriptors) = (0, 0_usize);
    for _ in 0..2000 {
        let tag = driver.send(0, &frame, Offload::None, 1000);
        for completed in driver.completed(0) {
            match completed {
                Completed::Packet(completed) => {
                    assert_eq!(completed, tag);
                    packets += 1;
                }
                Completed::Descriptors(head) => {
                    assert_eq!(head, driver.tx[0].tail());
                    descriptors += 1;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_clean(&driver.effects());
    assert_eq!(packets, 2000);
    // Two descriptors a packet, one completion for every 32 from descriptor 33 on.
    assert_eq!(descriptors, (4000 - 33_usize).div_ceil(32));
}

#[test]
fn completions_may_come_last_packet_first() {
    let mut driver = open(Config { reverse_completions: true, ..config() });
    let dma = driver.harness.bench.dma();
    let piece =
        |tag| PacketDescriptor { compl_tag: tag, end_of_packet: true, buf_size: 64, ..Default::default() };
    for tag in 0..3 {
        driver.tx[0].push(&dma, &piece(tag).encode());
    }
    let doorbell = driver.tx[0].doorbell;
    driver.ring(doorbell, 3);
    assert_eq!(driver.completed(0), [2, 1, 0].map(Completed::Packet));
}

#[test]
fn a_jumbo_header_that_the_driver_left_is_found() {
    let packet = Packet { jumbo_header: true, ..Packet::new(IpVersion::V6, 100_000) };
    let (frame, offload) = tso(&packet, 1400);
    let mut driver = open(config());
    driver.send(0, &frame, offload, 16_000);
    let effects = driver.effects();
    assert_eq!(broken(&effects), ["net-ipv6-jumbo-header"]);
    assert_eq!(effects.findings[0].queue, "tx 0");
    assert!(!effects.findings[0].packet.is_empty() && !effects.findings[0].descriptor.is_empty());
    let ids = [FrameId(5), FrameId(6)];
    assert_eq!(effects.findings[0].frame.and_then(|frame| frame.resolve(&ids)), Some(FrameId(5)));

    let ignored = ["net-ipv6-jumbo-header".to_owned()].into();
    let mut driver = open(Config { ignored_rules: ignored, ..config() });
    driver.send(0, &frame, offload, 16_000);
    assert_clean(&driver.effects());
}

#[test]
fn each_broken_rule_of_a_packet_has_its_finding() {
    let packet = Packet::new(IpVersion::V4, 20_000);
    let (frame, offload) = tso(&packet, 1400);
    let header_len = packet.header_len();
    let complete = packet.build();
    let half = Offload::Tso { header_len, mss: 80 };
    let small = Packet::new(IpVersion::V4, 1000).build();
    let long = Packet::new(IpVersion::V4, 9700).build();
    for (frame, offload, piece, rule) in [
        (&frame, Offload::Tso { header_len: header_len + 4, mss: 1400 }, 16_000, "net-lso-header-length"),
        (&frame, half, 16_000, "net-lso-mss-too-small"),
        (&complete, offload, 16_000, "net-lso-checksum-seed"),
        (&frame, offload, 100, "gve-tx-segment-buffers"),
        (&small, Offload::None, 100, "gve-tx-packet-buffers"),
        (&small, Offload::Checksum, 2000, "gve-tx-checksum-seed"),
        (&long, Offload::None, 16_000, "gve-tx-frame-size"),
    ] {
        let mut driver = open(config());
        let tag = driver.send(0, frame, offload, piece);
        assert_eq!(broken(&driver.effects()), [rule]);
        let completed = driver.completed(0);
        assert!(completed.contains(&Completed::Packet(tag)), "{rule}: the driver gets its packet back");
    }
}

#[test]
fn a_wrong_tso_length_is_found() {
    let (frame, _) = tso(&Packet::new(IpVersion::V4, 3000), 1400);
    let mut driver = open(config());
    let dma = driver.harness.bench.dma();
    dma.write(0x1f_0000, &frame).unwrap();
    let context = TsoContext { tso_total_len: 2999, mss: 1400, header_len: 54, tso: true };
    let length = frame.len() as u16;
    let piece =
        PacketDescriptor { buf_addr: 0x1f_0000, buf_size: length, end_of_packet: true, ..Default::default() };
    driver.tx[0].push(&dma, &context.encode());
    driver.tx[0].push(&dma, &piece.encode());
    let doorbell = driver.tx[0].doorbell;
    driver.ring(doorbell, 2);
    assert_eq!(broken(&driver.effects()), ["gve-tx-tso-length"]);
}

#[test]
fn a_queue_that_hardware_would_stop_stands_still() {
    let mut driver = open(config());
    let dma = driver.harness.bench.dma();
    driver.tx[0].push(&dma, &[0xff; 16]);
    let doorbell = driver.tx[0].doorbell;
    driver.ring(doorbell, 1);
    assert_eq!(broken(&driver.effects()), ["gve-tx-descriptor-type"]);
    driver.send(0, &Packet::new(IpVersion::V4, 100).build(), Offload::None, 2000);
    let effects = driver.effects();
    assert!(effects.frames.is_empty() && driver.completed(0).is_empty());
}

#[test]
fn defects_spoil_what_leaves() {
    let mut driver = open(Config { defect: Some(Defect::NoSegmentation), ..config() });
    let frames = send_big(&mut driver, IpVersion::V6, 70_000);
    assert_eq!(frames.len(), 1);
    assert!(frames[0].len() > 70_000);

    let mut driver = open(Config { defect: Some(Defect::BadTcpChecksum), ..config() });
    for frame in send_big(&mut driver, IpVersion::V4, 70_000) {
        let rules: Vec<_> = check_wire(&frame, 1500).into_iter().map(|breach| breach.rule.id).collect();
        assert_eq!(rules, ["net-wire-checksum"]);
    }

    let mut driver = open(Config { defect: Some(Defect::BadPayload), ..config() });
    let frames = send_big(&mut driver, IpVersion::V6, 70_001);
    let packet = Packet::new(IpVersion::V6, 70_001);
    let payload: Vec<u8> = frames.iter().flat_map(|frame| frame[packet.header_len()..].to_vec()).collect();
    assert_eq!(payload.len(), packet.payload.len());
    assert_ne!(payload, packet.payload);
    frames.iter().for_each(|frame| assert_intact(frame));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_packet_leaves_whole(
        v6: bool, payload in 1..200_000_usize, mss in 100..1440_u16, piece in 1500..20_000_usize,
    ) {
        let packet = Packet::new(if v6 { IpVersion::V6 } else { IpVersion::V4 }, payload);
        let (frame, offload) = tso(&packet, mss);
        let mut driver = open(config());
        driver.send(0, &frame, offload, piece);
        let effects = driver.effects();
        prop_assert_eq!(broken(&effects), Vec::<&str>::new());
        let sent: Vec<u8> =
            effects.frames.iter().flat_map(|(_, frame)| frame.bytes[packet.header_len()..].to_vec()).collect();
        prop_assert!(sent == packet.payload);
    }
}
