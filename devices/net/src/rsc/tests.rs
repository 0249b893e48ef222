use proptest::prelude::*;

use super::*;
use crate::parse::{IpVersion, parse};
use crate::testing::{Packet, assert_intact};
use crate::tso::{LsoRequest, segment};

const LIMITS: Limits = Limits { max_packet: 65_535, max_flows: 4, hold: Duration::from_micros(20) };

fn rsc() -> Rsc {
    Rsc::new(LIMITS)
}

fn segments(packet: &Packet, mss: usize) -> Vec<Vec<u8>> {
    segment(&packet.build(), &LsoRequest::tcp(packet.header_len(), mss)).unwrap().collect()
}

fn offer_all(rsc: &mut Rsc, frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<Coalesced> {
    let frames = frames.into_iter().zip(1..).map(|(bytes, id)| Frame { id: FrameId(id), bytes });
    frames.flat_map(|frame| rsc.offer(Time::ZERO, frame)).collect()
}

#[test]
fn what_segmentation_cut_is_put_together_again() {
    for version in [IpVersion::V4, IpVersion::V6] {
        let packet = Packet::new(version, 20_000);
        let whole = packet.build();
        let mut rsc = rsc();
        let mut ready = offer_all(&mut rsc, segments(&packet, 1400));
        assert_eq!(ready.len(), 1, "a short segment is the last");
        let coalesced = ready.remove(0);
        assert!(coalesced.bytes == whole);
        assert_eq!(coalesced.frames.len(), 15);
        assert_eq!(coalesced.segment_len, Some(1400));
    }
}

#[test]
fn a_packet_waits_only_so_long() {
    let mut rsc = rsc();
    let packet = Packet::new(IpVersion::V4, 2800);
    assert!(offer_all(&mut rsc, segments(&packet, 1400)).is_empty());
    let due = rsc.next_deadline().unwrap();
    assert_eq!(due, Time::from_nanos(20_000));
    assert!(rsc.due(Time::from_nanos(19_999)).is_empty());
    assert_eq!(rsc.due(due)[0].bytes, packet.build());
    assert_eq!(rsc.next_deadline(), None);
}

#[test]
fn what_may_not_be_merged_passes_in_order() {
    let first = Packet { flags: 0x10, ..Packet::new(IpVersion::V4, 1000) };
    let next = Packet { sequence: first.sequence + 1000, ..first.clone() };
    for (second, why) in [
        (Packet { sequence: first.sequence + 999, ..first.clone() }, "sequence number"),
        (Packet { flags: 0x11, ..next.clone() }, "FIN"),
        (Packet { tcp_options: vec![1, 1, 1, 1], ..next.clone() }, "options"),
        (Packet { payload: vec![0; 1001], ..next.clone() }, "longer than the first"),
        (Packet { payload: Vec::new(), ..next.clone() }, "without payload"),
        (Packet { ip_options: vec![1, 1, 1, 1], ..next.clone() }, "IP options"),
        (Packet { udp: true, ..next.clone() }, "another protocol"),
    ] {
        let mut rsc = rsc();
        let mut ready = offer_all(&mut rsc, [first.build(), second.build()]);
        ready.extend(rsc.flush());
        let bytes: Vec<_> = ready.into_iter().map(|packet| packet.bytes).collect();
        assert!(bytes == [first.build(), second.build()], "{why}");
    }
    let mut broken = next.build();
    let last = broken.len() - 1;
    broken[last] ^= 1;
    let mut rsc = rsc();
    let mut ready = offer_all(&mut rsc, [first.build(), broken]);
    ready.extend(rsc.flush());
    assert_eq!(ready.len(), 2, "wrong checksum");
}

#[test]
fn push_ends_a_packet_and_is_kept() {
    let first = Packet::new(IpVersion::V6, 1000);
    let last = Packet { sequence: first.sequence + 1000, flags: 0x18, ..first.clone() };
    let ready = offer_all(&mut rsc(), [first.build(), last.build()]);
    assert_eq!(ready.len(), 1);
    let tcp = parse(&ready[0].bytes).tcp().unwrap().offset;
    assert_eq!(ready[0].bytes[tcp + 13], 0x18);
    assert_intact(&ready[0].bytes);
}

#[test]
fn the_latest_time_stamps_are_kept() {
    let stamps = |value: u8| vec![1, 1, 8, 10, 0, 0, 0, value, 0, 0, 0, 9];
    let first = Packet { tcp_options: stamps(1), ..Packet::new(IpVersion::V4, 500) };
    let second = Packet { tcp_options: stamps(2), sequence: first.sequence + 500, ..first.clone() };
    let mut rsc = rsc();
    offer_all(&mut rsc, [first.build(), second.build()]);
    let packet = rsc.flush().remove(0);
    assert_intact(&packet.bytes);
    assert_eq!(packet.bytes[54..66], stamps(2));
}

#[test]
fn many_flows_do_not_fill_memory() {
    let mut rsc = rsc();
    let flow = |port| Packet { ports: (port, 80), ..Packet::new(IpVersion::V4, 100) }.build();
    let ready = offer_all(&mut rsc, (0..100).map(flow));
    assert_eq!(ready.len(), 96);
    assert!(ready.iter().zip(0..).all(|(packet, port)| packet.bytes == flow(port)), "the oldest goes first");
}

proptest! {
    /// Against the plainest model there is: the payload of each flow, in order, and every frame once.
    #[test]
    fn flows_keep_their_payload_and_their_order(
        steps in prop::collection::vec((0..6_u16, 1..3000_usize, 0..40_u64, 0..10_u8), 1..80),
        max_packet in 2000..70_000_usize,
    ) {
        let mut rsc = Rsc::new(Limits { max_packet, ..LIMITS });
        let mut now = Time::ZERO;
        let mut sequences = [1000_u32; 6];
        let mut sent: Vec<Vec<u8>> = vec![Vec::new(); 6];
        let mut received = sent.clone();
        let mut ids = Vec::new();
        let mut take = |packets: Vec<Coalesced>, ids: &mut Vec<u64>| {
            for packet in packets {
                assert_intact(&packet.bytes);
                let layers = parse(&packet.bytes);
                let tcp = layers.tcp().unwrap().offset;
                let port = u16::from_be_bytes([packet.bytes[tcp], packet.bytes[tcp + 1]]);
                let end = layers.ip.unwrap().end;
                assert!(end - 14 <= max_packet || packet.segment_len.is_none());
                received[usize::from(port)].extend(&packet.bytes[layers.payload..end]);
                ids.extend(packet.frames.iter().map(|id| id.0));
            }
        };
        for (id, (flow, length, microseconds, oddity)) in steps.iter().enumerate() {
            now += Duration::from_micros(*microseconds);
            let packet = Packet {
                ports: (*flow, 80),
                sequence: sequences[usize::from(*flow)],
                flags: if *oddity == 0 { 0x18 } else { 0x10 },
                ..Packet::new(if flow % 2 == 0 { IpVersion::V4 } else { IpVersion::V6 }, *length)
            };
            sequences[usize::from(*flow)] += *length as u32;
            sent[usize::from(*flow)].extend(&packet.payload);
            let frame = Frame { id: FrameId(id as u64), bytes: packet.build() };
            take(rsc.offer(now, frame), &mut ids);
            prop_assert!(rsc.next_deadline().is_none_or(|due| due > now));
        }
        take(rsc.flush(), &mut ids);
        ids.sort_unstable();
        prop_assert_eq!(ids, (0..steps.len() as u64).collect::<Vec<_>>());
        prop_assert!(sent == received);
    }

    #[test]
    fn nothing_that_arrives_upsets_it(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 0..20), at in 0..60_usize, byte: u8,
    ) {
        let mut rsc = rsc();
        let mut twisted = Packet::new(IpVersion::V4, 10).build();
        twisted[at] = byte;
        let count = frames.len() + 1;
        let mut ready = offer_all(&mut rsc, frames.into_iter().chain([twisted]));
        ready.extend(rsc.flush());
        prop_assert_eq!(ready.iter().map(|packet| packet.frames.len()).sum::<usize>(), count);
    }
}
