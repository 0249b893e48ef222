//! Frames on their way in, and from one device to another.

use nicvisor_core::{Device, DropReason, Duration, Fate, FrameId};
use nicvisor_net::parse::IpVersion;
use nicvisor_net::testing::{Packet, seed};
use nicvisor_net::tso::{LsoRequest, segment};

use super::{assert_clean, config, counter, open};
use crate::Config;
use crate::config::Defect;
use crate::interrupts::{ENABLE, INTERVAL_SHIFT, ITR_NO_UPDATE};
use crate::testing::{Driver, Offload};
use crate::wire::rx::CompletionStatus;

fn received(driver: &mut Driver) -> Vec<crate::testing::Received> {
    (0..2).flat_map(|queue| driver.received(queue)).collect()
}

#[test]
fn a_frame_arrives_with_type_verdict_and_hash() {
    for version in [IpVersion::V4, IpVersion::V6] {
        let frame = Packet::new(version, 1000).build();
        let mut driver = open(config());
        driver.arrive(7, frame.clone());
        let effects = driver.effects();
        assert_clean(&effects);
        assert_eq!(effects.fates, [(FrameId(7), Fate::Delivered)]);
        assert_eq!(effects.vectors.len(), 1);
        let [packet] = &received(&mut driver)[..] else { panic!("one packet") };
        assert_eq!(packet.bytes, frame);
        let l3 = if version == IpVersion::V4 { 2 } else { 3 };
        assert_eq!(packet.completion.packet_type, l3 * 8 + 2);
        let good = CompletionStatus::DESCRIPTOR_DONE
            | CompletionStatus::END_OF_PACKET
            | CompletionStatus::L3_L4_PROCESSED;
        assert_eq!(packet.completion.status, good);
        assert_ne!(packet.completion.hash, 0);
    }
}

#[test]
fn wrong_checksums_are_reported_to_the_driver() {
    let good = Packet::new(IpVersion::V4, 100).build();
    for (byte, error) in
        [(24, CompletionStatus::CHECKSUM_IP_ERROR), (60, CompletionStatus::CHECKSUM_L4_ERROR)]
    {
        let mut driver = open(config());
        let mut frame = good.clone();
        frame[byte] ^= 0x40;
        driver.arrive(1, frame);
        assert!(received(&mut driver)[0].completion.status.contains(error));
        assert_eq!(counter(&driver, "rx_bad_checksum"), 1);
    }
}

#[test]
fn a_long_frame_takes_several_buffers() {
    let frame = Packet::new(IpVersion::V6, 8000).build();
    let mut driver = open(Config { mtu: 8896, ..config() });
    driver.arrive(1, frame.clone());
    let [packet] = &received(&mut driver)[..] else { panic!("one packet") };
    assert_eq!((packet.buffers, &packet.bytes), (4, &frame));
}

#[test]
fn frames_wait_for_buffers_and_are_dropped_only_when_memory_is_full() {
    let frame = Packet::new(IpVersion::V4, 1400).build();
    let room = 20_000;
    let mut driver = open(Config { receive_memory: room, ..config() });
    let length = frame.len() as u32;
    let fit = u64::from(511 + room / length);
    for id in 1..=fit + 3 {
        driver.arrive(id, frame.clone());
    }
    let dropped = Fate::Dropped(DropReason::NO_BUFFER);
    let effects = driver.effects();
    let drops: Vec<_> =
        effects.fates.iter().filter(|(_, fate)| *fate == dropped).map(|(id, _)| id.0).collect();
    assert_eq!(drops, [fit + 1, fit + 2, fit + 3]);
    assert_eq!(counter(&driver, "rx_dropped_no_buffer"), 3);

    assert_eq!(received(&mut driver).len(), 511);
    for queue in 0..2 {
        driver.post(queue, u16::MAX);
    }
    assert_eq!(received(&mut driver).len(), (room / length) as usize);
    assert_eq!(driver.effects().fates.len(), (room / length) as usize);
}

#[test]
fn every_frame_has_a_fate() {
    let frame = Packet::new(IpVersion::V4, 100).build();
    let mut foreign = frame.clone();
    foreign[5] = 9;
    let mut driver = open(config());
    for (id, frame) in [
        (1, frame.clone()),
        (2, foreign),
        (3, frame[..13].to_vec()),
        (4, Packet::new(IpVersion::V4, 1500).build()),
    ] {
        driver.arrive(id, frame);
    }
    driver.harness.bench.call(|context| driver.harness.device.set_link(context, 0, false));
    driver.arrive(5, frame.clone());
    let fates: Vec<_> = driver.effects().fates.into_iter().map(|(_, fate)| fate).collect();
    let dropped = [DropReason::FILTERED, DropReason::MALFORMED, DropReason::TOO_LONG, DropReason::NOT_READY];
    assert_eq!(fates[0], Fate::Delivered);
    assert_eq!(fates[1..], dropped.map(Fate::Dropped));
}

#[test]
fn frames_inside_a_device_that_is_reset_are_dropped() {
    let frame = Packet::new(IpVersion::V4, 100).build();
    let mut driver = open(config());
    for id in 1..=600 {
        driver.arrive(id, frame.clone());
    }
    driver.effects();
    driver.harness.bench.call(|context| driver.harness.device.reset(context));
    let effects = driver.effects();
    assert_eq!(effects.fates.len(), 600 - 511);
    assert!(effects.fates.iter().all(|(_, fate)| *fate == Fate::Dropped(DropReason::RESET)));
    assert_eq!(driver.harness.device.next_deadline(), None);
}

#[test]
fn a_lost_frame_has_no_fate() {
    let mut driver = open(Config { defect: Some(Defect::LostFrame), ..config() });
    for id in 1..=200 {
        driver.arrive(id, Packet::new(IpVersion::V4, 100).build());
    }
    assert_eq!(driver.effects().fates.len(), 198);
}

#[test]
fn flows_spread_over_queues_and_stay_there() {
    let mut driver = open(config());
    for id in 0..100_u16 {
        let packet = Packet { ports: (1000 + id % 20, 80), ..Packet::new(IpVersion::V4, 10) };
        driver.arrive(id.into(), packet.build());
    }
    let queues = [driver.received(0), driver.received(1)];
    assert_eq!(queues[0].len() + queues[1].len(), 100);
    assert!(queues.iter().all(|queue| queue.len() >= 10), "{} and {}", queues[0].len(), queues[1].len());
    assert!(queues[0].iter().all(|first| queues[1].iter().all(|second| first.bytes != second.bytes)));
}

/// Two devices, one link: everything that one driver sends arrives at the other, with both rings wrapping many
/// times.
#[test]
fn big_packets_cross_from_one_device_to_another() {
    let mut sender = open(Config { mac: [2, 0, 0, 0, 0, 1], ..config() });
    let mut receiver = open(config());
    let packet = Packet::new(IpVersion::V6, 180_000);
    let mut frame = packet.build();
    seed(&mut frame, true);
    let (mut next_id, mut delivered) = (1, 0);
    for _ in 0..40 {
        let tag = sender.send(0, &frame, Offload::Tso { header_len: packet.header_len(), mss: 1400 }, 16_000);
        assert!(sender.completed(0).contains(&crate::testing::Completed::Packet(tag)));
        let effects = sender.effects();
        assert_clean(&effects);
        let mut payload: Vec<u8> = Vec::new();
        for (_, frame) in effects.frames {
            receiver.arrive(next_id, frame.bytes);
            next_id += 1;
            for packet in received(&mut receiver) {
                payload.extend(packet.bytes[74..].to_vec());
            }
            (0..2).for_each(|queue| receiver.post(queue, 32));
        }
        assert!(payload == packet.payload);
        let effects = receiver.effects();
        assert!(effects.findings.iter().all(|finding| finding.rule == "gve-rx-doorbell-step"));
        delivered += effects.fates.iter().filter(|(_, fate)| *fate == Fate::Delivered).count() as u64;
    }
    assert_eq!(delivered, next_id - 1);
    assert_eq!(counter(&receiver, "rx_frames"), counter(&sender, "tx_frames"));
    assert_eq!(counter(&receiver, "rx_bytes"), counter(&sender, "tx_bytes"));
}

#[test]
fn interrupts_of_a_queue_keep_the_distance_that_the_driver_set() {
    let mut driver = open(Config { queues: 1, ..config() });
    let frame = Packet::new(IpVersion::V4, 100).build();
    let rearm = |driver: &mut Driver| {
        for index in driver.interrupts.clone() {
            driver.ring(index, ENABLE | ITR_NO_UPDATE);
        }
    };
    for index in driver.interrupts.clone() {
        driver.ring(index, ENABLE | 25 << INTERVAL_SHIFT);
    }
    driver.arrive(1, frame.clone());
    let raised = driver.effects().vectors;
    assert_eq!(raised.len(), 1);
    rearm(&mut driver);
    driver.arrive(2, frame.clone());
    driver.arrive(3, frame);
    assert!(driver.effects().vectors.is_empty(), "within 50 us of the last");
    let due = driver.harness.device.next_deadline().unwrap();
    assert_eq!(due.as_nanos(), 50_000);
    driver.harness.bench.now = due;
    driver.harness.bench.call(|context| driver.harness.device.deadline(context));
    assert_eq!(driver.effects().vectors, raised);
    assert_eq!(driver.harness.device.next_deadline(), None);
    rearm(&mut driver);
    assert!(driver.effects().vectors.is_empty(), "nothing new");
}

#[test]
fn segments_are_merged_where_the_driver_asks_for_it() {
    let packet = Packet::new(IpVersion::V6, 30_000);
    let request = LsoRequest::tcp(packet.header_len(), 1400);
    let mut driver = Driver::new(config()).unwrap();
    driver.lro = true;
    driver.open(1);
    for (frame, id) in segment(&packet.build(), &request).unwrap().zip(1..) {
        driver.arrive(id, frame);
    }
    let received = driver.received(0);
    assert_eq!(received.len(), 1);
    assert!(received[0].bytes == packet.build());
    assert_eq!(driver.effects().fates.len(), 22);
    assert_eq!(counter(&driver, "rx_coalesced"), 21);

    // What is merged waits for more, and not for ever.
    for (frame, id) in segment(&packet.build(), &request).unwrap().take(3).zip(30..) {
        driver.arrive(id, frame);
    }
    assert!(driver.received(0).is_empty());
    driver.harness.pass(Duration::from_micros(20));
    assert_eq!(driver.received(0)[0].bytes.len(), packet.header_len() + 3 * 1400);
    driver.arrive(40, segment(&packet.build(), &request).unwrap().next().unwrap());
    driver.harness.call(|device, context| device.reset(context));
    let fates = driver.effects().fates;
    assert_eq!(fates.last().unwrap().1, Fate::Dropped(DropReason::RESET));
    assert_eq!(fates.len(), 4);
}
