//! Receiving.

use nicvisor_core::{Device, DropReason, Effects, Fate, FrameId};
use nicvisor_net::parse::IpVersion;
use nicvisor_net::testing::Packet;
use proptest::prelude::*;

use super::{RECEIVER, assert_clean, broken, config, counter, open, open_with};
use crate::Config;
use crate::testing::{Driver, Received, Setup};
use crate::vport::Coalescing;
use crate::wire::completion::{CqeType, RxFlags, hash_type};

fn frame(version: IpVersion, payload: usize) -> Vec<u8> {
    Packet::new(version, payload).build()
}

fn received(driver: &mut Driver) -> Vec<Received> {
    let queues = driver.ports[0].receive.len();
    (0..queues).flat_map(|queue| driver.received(0, queue)).collect()
}

fn fates(effects: &Effects) -> Vec<(u64, &Fate)> {
    effects.fates.iter().map(|(frame, fate)| (frame.0, fate)).collect()
}

#[test]
fn a_frame_arrives_with_hash_and_verdicts() {
    for (version, udp, hash) in [
        (IpVersion::V4, false, hash_type::TCP_IPV4),
        (IpVersion::V6, false, hash_type::TCP_IPV6),
        (IpVersion::V4, true, hash_type::UDP_IPV4),
        (IpVersion::V6, true, hash_type::UDP_IPV6),
    ] {
        let bytes = Packet { udp, ..Packet::new(version, 777) }.build();
        let mut driver = open(RECEIVER);
        driver.harness.arrive(0, 7, bytes.clone());
        let effects = driver.effects();
        assert_clean(&effects);
        assert_eq!(fates(&effects), [(7, &Fate::Delivered)]);
        assert_eq!(effects.vectors.len(), 1);
        let packets = received(&mut driver);
        let verdict = Some(true);
        let flags = RxFlags {
            hash_type: hash,
            iphdr_csum: verdict,
            tcp_csum: verdict.filter(|_| !udp),
            udp_csum: verdict.filter(|_| udp),
            ..RxFlags::default()
        };
        assert_eq!(packets.len(), 1);
        assert_eq!((packets[0].kind, packets[0].flags), (CqeType::RxOkay as u8, flags));
        assert!(packets[0].bytes == bytes && packets[0].hash != 0);
    }
}

#[test]
fn wrong_checksums_are_said_to_be_wrong() {
    let mut bytes = frame(IpVersion::V4, 100);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let mut driver = open(RECEIVER);
    driver.harness.arrive(0, 1, bytes.clone());
    bytes[22] ^= 1;
    driver.harness.arrive(0, 2, bytes);
    let packets = received(&mut driver);
    assert_eq!((packets[0].flags.iphdr_csum, packets[0].flags.tcp_csum), (Some(true), Some(false)));
    assert_eq!((packets[1].flags.iphdr_csum, packets[1].flags.tcp_csum), (Some(false), Some(false)));
    assert_eq!(counter(&driver, "rx_bad_checksum"), 2);
}

#[test]
fn a_vlan_tag_is_taken_out() {
    let packet = Packet::new(IpVersion::V6, 300);
    let tagged = Packet { vlan: Some(0xe064), ..packet.clone() }.build();
    let mut driver = open(RECEIVER);
    driver.harness.arrive(0, 1, tagged);
    let packets = received(&mut driver);
    assert_eq!(packets[0].flags.vlan_id, Some(0x064));
    assert_eq!(packets[0].bytes, packet.build());
    assert_eq!(packets[0].flags.tcp_csum, Some(true));
}

#[test]
fn flows_are_spread_over_the_queues() {
    let mut driver = open_with(config(RECEIVER), Setup { queues: 4, ..Setup::default() });
    for port in 0..64 {
        let packet = Packet { ports: (40_000 + port, 5201), ..Packet::new(IpVersion::V4, 10) };
        driver.harness.arrive(0, u64::from(port), packet.build());
    }
    let counts: Vec<usize> = (0..4).map(|queue| driver.received(0, queue).len()).collect();
    assert_eq!(counts.iter().sum::<usize>(), 64);
    assert!(counts.iter().all(|count| *count > 4), "{counts:?}");
}

#[test]
fn jumbo_frames_take_large_buffers_in_any_number_of_pieces() {
    for pieces in [1, 3, 15] {
        let setup = Setup { buffers: 128, buffer_size: 9216, pieces, ..Setup::default() };
        let mut driver = open_with(Config { mtu: 9000, ..config(RECEIVER) }, setup);
        let bytes = frame(IpVersion::V6, 8900);
        driver.harness.arrive(0, 1, bytes.clone());
        assert_eq!(received(&mut driver)[0].bytes, bytes);
        assert_clean(&driver.effects());
    }
}

#[test]
fn a_frame_that_does_not_fit_is_truncated() {
    let setup = Setup { buffer_size: 1024, ..Setup::default() };
    let mut driver = open_with(config(RECEIVER), setup);
    let bytes = frame(IpVersion::V4, 1400);
    driver.harness.arrive(0, 1, bytes.clone());
    driver.harness.arrive(0, 2, bytes[..1000].to_vec());
    let effects = driver.effects();
    assert_eq!(fates(&effects), [(1, &Fate::Dropped(DropReason::TOO_LONG)), (2, &Fate::Delivered)]);
    let packets = received(&mut driver);
    assert_eq!(packets[0].kind, CqeType::RxTruncated as u8);
    assert_eq!(packets[0].bytes, bytes[..1024]);
    assert_eq!(packets[1].kind, CqeType::RxOkay as u8);
    driver.harness.arrive(0, 3, frame(IpVersion::V4, 1500));
    assert_eq!(fates(&driver.effects()), [(3, &Fate::Dropped(DropReason::TOO_LONG))], "above the MTU");
}

#[test]
fn frames_wait_for_buffers_until_the_memory_is_full() {
    let setup = Setup { queues: 1, ..Setup::default() };
    let mut driver = open_with(Config { receive_memory: 1 << 16, ..config(RECEIVER) }, setup);
    let bytes = frame(IpVersion::V4, 1400);
    (1..=128 + 46).for_each(|id| driver.harness.arrive(0, id, bytes.clone()));
    let effects = driver.effects();
    let dropped: Vec<_> = fates(&effects).into_iter().filter(|(_, fate)| **fate != Fate::Delivered).collect();
    assert_eq!(dropped, [(174, &Fate::Dropped(DropReason::NO_BUFFER))]);
    assert_eq!(driver.harness.device.state.vports[0].statistics.rx_discards_nowqe, 1);
    let held: Vec<u64> = driver.harness.device.frames_held().iter().map(|frame| frame.0).collect();
    assert_eq!(held, (129..=173).collect::<Vec<_>>());
    assert_eq!(driver.received(0, 0).len(), 128);
    driver.post(0, 0);
    assert_eq!(driver.received(0, 0).len(), 45);
    assert_eq!(driver.effects().fates.len(), 45);
    assert!(driver.harness.device.frames_held().is_empty());
}

#[test]
fn up_to_four_or_eight_packets_share_a_completion() {
    for (coalescing, most, kind) in
        [(Coalescing::Four, 4, CqeType::RxCoalesced4), (Coalescing::Eight, 8, CqeType::RxCoalesced8)]
    {
        let mut config = config(RECEIVER);
        config.capabilities.coalescing_8 = true;
        let timeout = config.coalescing_timeout_ns;
        let mut driver = open_with(config, Setup { queues: 1, coalescing, ..Setup::default() });
        let bytes: Vec<_> = (0..most + 2).map(|index| frame(IpVersion::V4, 100 + index)).collect();
        for (id, bytes) in (1..).zip(&bytes) {
            driver.harness.arrive(0, id, bytes.clone());
        }
        assert_eq!(driver.effects().fates.len(), most, "the others wait for more");
        assert_eq!(driver.harness.device.frames_held().len(), 2);
        let packets = driver.received(0, 0);
        assert!(packets.iter().all(|packet| packet.kind == kind as u8));
        assert!(packets.iter().map(|packet| &packet.bytes).eq(&bytes[..most]));
        driver.harness.advance(std::time::Duration::from_nanos(timeout.into()));
        let packets = driver.received(0, 0);
        assert!(packets.iter().map(|packet| &packet.bytes).eq(&bytes[most..]));
        driver.harness.arrive(0, 90, bytes[0].clone());
        driver.harness.advance(std::time::Duration::from_nanos(timeout.into()));
        assert_eq!(driver.received(0, 0)[0].kind, CqeType::RxOkay as u8, "one alone");
        assert_eq!(counter(&driver, "rx_coalesced"), most as u64 + 2);
        assert_eq!(driver.effects().fates.len(), 3);
    }
}

#[test]
fn packets_of_different_flags_do_not_share_a_completion() {
    let setup = Setup { queues: 1, coalescing: Coalescing::Four, ..Setup::default() };
    let mut driver = open_with(config(RECEIVER), setup);
    driver.harness.arrive(0, 1, frame(IpVersion::V4, 100));
    driver.harness.arrive(0, 2, frame(IpVersion::V6, 100));
    let packets = driver.received(0, 0);
    assert_eq!((packets.len(), packets[0].kind), (1, CqeType::RxOkay as u8));
}

#[test]
fn a_fence_comes_after_everything_received() {
    let setup = Setup { queues: 1, coalescing: Coalescing::Four, ..Setup::default() };
    let mut driver = open_with(config(RECEIVER), setup);
    driver.harness.arrive(0, 1, frame(IpVersion::V4, 100));
    driver.fence(0, 0);
    assert_eq!(driver.received(0, 0).len(), 1);
    assert_eq!(driver.ports[0].receive[0].fences, 1);
    assert_clean(&driver.effects());
}

#[test]
fn frames_that_nobody_wants_are_dropped_with_a_reason() {
    let mut driver = open(RECEIVER);
    driver.harness.arrive(0, 1, vec![0; 13]);
    driver.harness.arrive(0, 2, [&[2; 6][..], &[0; 60]].concat());
    driver.steer(0, false, Coalescing::Off);
    driver.harness.arrive(0, 3, frame(IpVersion::V4, 9));
    driver.harness.arrive(9, 4, frame(IpVersion::V4, 9));
    let effects = driver.effects();
    let reasons: Vec<_> = fates(&effects).into_iter().map(|(_, fate)| fate.clone()).collect();
    let expected = [DropReason::FILTERED, DropReason::FILTERED, DropReason::NOT_READY, DropReason::FILTERED];
    assert_eq!(reasons, expected.map(Fate::Dropped));
}

#[test]
fn destroyed_queues_and_resets_drop_what_waits() {
    let setup = Setup { queues: 1, coalescing: Coalescing::Four, ..Setup::default() };
    let mut driver = open_with(config(RECEIVER), setup);
    (1..=130).for_each(|id| driver.harness.arrive(0, id, frame(IpVersion::V4, 100)));
    driver.close();
    let effects = driver.effects();
    assert_clean(&effects);
    assert_eq!(effects.fates.len(), 130);
    driver.open(setup);
    driver.harness.arrive(0, 131, frame(IpVersion::V4, 100));
    driver.harness.call(|device, context| device.reset(context));
    let effects = driver.effects();
    assert_eq!(effects.fates, [(FrameId(131), Fate::Dropped(DropReason::RESET))]);
    assert_clean(&effects);
}

#[test]
fn what_the_driver_must_not_post_is_found() {
    let mut driver = open_with(config(RECEIVER), Setup { queues: 1, ..Setup::default() });
    (0..128).for_each(|id| driver.harness.arrive(0, id, frame(IpVersion::V4, 100)));
    driver.received(0, 0);
    driver.effects();
    for (change, rule, delivered) in [
        ((6, 1), "mana-rx-wqe", true),
        ((3, 1), "mana-rx-wqe", true),
        ((23, 0x40), "mana-rx-buffer-address", false),
    ] {
        let mut entry = driver.receive_entry(0, 0);
        let (at, bits): (usize, u8) = change;
        entry[at] ^= bits;
        let work = &mut driver.ports[0].receive[0].work;
        work.push(&driver.harness.bench.dma(), &entry);
        let doorbell = work.doorbell();
        driver.ring(doorbell);
        driver.harness.arrive(0, 500, frame(IpVersion::V4, 100));
        let effects = driver.effects();
        assert_eq!(broken(&effects), [rule]);
        assert_eq!(effects.findings[0].frame, Some(FrameId(500)));
        assert_eq!(effects.fates[0].1 == Fate::Delivered, delivered);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn every_frame_arrives_once_and_in_order(
        steps in proptest::collection::vec((1..40_usize, 60..1400_usize, any::<bool>()), 1..20), four: bool,
    ) {
        let coalescing = if four { Coalescing::Four } else { Coalescing::Off };
        let setup = Setup { queues: 1, coalescing, ..Setup::default() };
        let mut driver = open_with(config(RECEIVER), setup);
        let (mut sent, mut got, mut id) = (Vec::new(), Vec::new(), 0);
        for (count, payload, v6) in steps {
            for _ in 0..count {
                id += 1;
                let mut packet = Packet::new(if v6 { IpVersion::V6 } else { IpVersion::V4 }, payload);
                packet.sequence = id as u32;
                sent.push(packet.build());
                driver.harness.arrive(0, id, packet.build());
            }
            driver.harness.advance(std::time::Duration::from_micros(10));
            got.extend(driver.received(0, 0).into_iter().map(|packet| packet.bytes));
            driver.post(0, 0);
        }
        driver.harness.advance(std::time::Duration::from_micros(10));
        got.extend(driver.received(0, 0).into_iter().map(|packet| packet.bytes));
        prop_assert!(got == sent);
        let effects = driver.effects();
        prop_assert_eq!(broken(&effects), Vec::<&str>::new());
        prop_assert_eq!(effects.fates.len() as u64, id);
    }
}
