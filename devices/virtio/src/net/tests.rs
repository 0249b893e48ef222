use nicvisor_core::{Device, FrameId};
use nicvisor_net::testing::{Packet, assert_intact};
use proptest::prelude::*;

use super::*;
use crate::VirtioPci;
use crate::driver::Driver;
use crate::wire::DEVICE_CONFIG;
use wire::{GSO_TCP4, GSO_TCP6, Header, NEEDS_CHECKSUM};

use nicvisor_net::parse::IpVersion;

const TX: u16 = 1;
const RX: u16 = 0;
const CONTROL: u16 = 4;

fn config() -> NetConfig {
    NetConfig { mac: [2, 0, 0, 0, 0, 1], mtu: 1500, queue_pairs: 2 }
}

fn ready() -> Driver<Net> {
    Driver::ready(Net::new(config()))
}

fn receive(driver: &mut Driver<Net>, id: u64, bytes: Vec<u8>) {
    let device = &mut driver.device;
    driver.bench.call(|context| device.receive(context, 0, Frame { id: FrameId(id), bytes }));
}

fn send(driver: &mut Driver<Net>, header: Header, packet: &[u8]) {
    let bytes = [&header.to_bytes()[..], packet].concat();
    driver.add(TX, Ok(&bytes));
    driver.kick(TX);
}

fn frames(driver: &mut Driver<Net>) -> Vec<Vec<u8>> {
    driver.effects().frames.into_iter().map(|(_, frame)| frame.bytes).collect()
}

fn counter(driver: &Driver<Net>, name: &str) -> u64 {
    driver.device.counters().into_iter().find(|(known, _)| known == name).unwrap().1
}

#[test]
fn the_configuration_is_readable() {
    let mut driver = ready();
    assert_eq!(driver.read32(DEVICE_CONFIG).to_le_bytes(), [2, 0, 0, 0]);
    assert_eq!(driver.read32(DEVICE_CONFIG + 4), 0x0001_0100, "end of the MAC address, link up");
    assert_eq!(driver.read32(DEVICE_CONFIG + 8), 1500 << 16 | 2);
    driver.effects();
    let device = &mut driver.device;
    driver.bench.call(|context| device.set_link(context, 0, false));
    assert_eq!(driver.effects().vectors, [0]);
    assert_eq!(driver.read32(DEVICE_CONFIG + 4), 0x0000_0100);
}

#[test]
fn a_finished_packet_leaves_as_it_is() {
    let mut driver = ready();
    let packet = Packet::new(IpVersion::V6, 100).build();
    send(&mut driver, Header::default(), &packet);
    assert_eq!(frames(&mut driver), [packet]);
    assert_eq!(driver.used(TX).len(), 1);
}

#[test]
fn checksums_are_finished() {
    let mut driver = ready();
    for version in [IpVersion::V4, IpVersion::V6] {
        let packet = Packet::new(version, 100);
        let intact = packet.build();
        let mut partial = intact.clone();
        let start = packet.transport_offset();
        // What Linux leaves in the field: the pseudo header's sum.
        let field = start + 16;
        partial[field..field + 2].fill(0);
        let sum = nicvisor_net::checksum::Sum::of(&partial[start..]);
        let wanted = u16::from_be_bytes([intact[field], intact[field + 1]]);
        let seed = nicvisor_net::checksum::Sum::word(!wanted)
            .plus(nicvisor_net::checksum::Sum::word(!sum.fold()))
            .fold();
        partial[field..field + 2].copy_from_slice(&seed.to_be_bytes());
        let header = Header {
            flags: NEEDS_CHECKSUM,
            checksum_start: start as u16,
            checksum_offset: 16,
            ..Header::default()
        };
        send(&mut driver, header, &partial);
        let sent = frames(&mut driver);
        assert_eq!(sent.len(), 1);
        assert_intact(&sent[0]);
    }
    assert_eq!(counter(&driver, "tx_checksums"), 2);
}

#[test]
fn requests_that_were_not_offered_are_dropped() {
    let mut driver = ready();
    let packet = Packet::new(IpVersion::V4, 3000).build();
    let udp = Header { flags: NEEDS_CHECKSUM, gso_type: 3, gso_size: 1000, ..Header::default() };
    let unsummed = Header { gso_type: GSO_TCP4, gso_size: 1000, ..Header::default() };
    for header in [udp, unsummed] {
        send(&mut driver, header, &packet);
    }
    driver.add(TX, Ok(b"short"));
    driver.kick(TX);
    assert!(frames(&mut driver).is_empty());
    assert_eq!(counter(&driver, "tx_dropped"), 3);
    assert_eq!(driver.used(TX).len(), 3, "they are given back all the same");
}

#[test]
fn a_frame_takes_as_many_buffers_as_it_needs() {
    let mut driver = ready();
    let frame = Packet::new(IpVersion::V4, 400).build();
    driver.add(RX, Err(200));
    receive(&mut driver, 7, frame.clone());
    assert!(driver.used(RX).is_empty() && driver.effects().fates.is_empty(), "not enough room yet");
    assert_eq!(driver.device.frames_held(), [FrameId(7)]);
    for _ in 0..3 {
        driver.add(RX, Err(200));
    }
    driver.kick(RX);
    let used = driver.used(RX);
    let bytes = used.concat();
    assert_eq!(usize::from(u16::from_le_bytes([bytes[10], bytes[11]])), used.len());
    assert_eq!(bytes[Header::LENGTH..], frame);
    assert_eq!(driver.effects().fates, [(FrameId(7), Fate::Delivered)]);
    assert_eq!(driver.device.frames_held(), []);
}

#[test]
fn frames_that_cannot_be_delivered_have_a_reason() {
    let mut driver = Driver::idle(Net::new(config()));
    receive(&mut driver, 1, vec![0; 60]);
    driver.start();
    receive(&mut driver, 2, vec![0; 1523]);
    receive(&mut driver, 3, vec![0; 60]);
    driver.start();
    let fates = driver.effects().fates;
    let reasons = [DropReason::NOT_READY, DropReason::TOO_LONG, DropReason::RESET];
    let expected: Vec<_> = (1..).map(FrameId).zip(reasons.map(Fate::Dropped)).collect();
    assert_eq!(fates, expected);
}

#[test]
fn flows_spread_over_the_pairs_that_the_driver_asks_for() {
    let mut driver = ready();
    driver.add(CONTROL, Ok(&[4, 0, 2, 0]));
    driver.kick(CONTROL);
    for queue in [0, 2] {
        for _ in 0..64 {
            driver.add(queue, Err(2000));
        }
    }
    for index in 0..32 {
        let mut frame = Packet::new(IpVersion::V4, 10).build();
        let port = Packet::new(IpVersion::V4, 10).transport_offset();
        frame[port] = index;
        receive(&mut driver, index.into(), frame);
    }
    let (first, second) = (driver.used(0).len(), driver.used(2).len());
    assert_eq!(first + second, 32);
    assert!(first > 4 && second > 4, "{first} and {second}");
}

#[test]
fn a_saved_state_comes_back() {
    let mut driver = ready();
    receive(&mut driver, 1, vec![0; 60]);
    let state = driver.device.save();
    let mut other = VirtioPci::new(Net::new(config()));
    other.restore(&state).unwrap();
    assert_eq!(other.save(), state);
    let mut smaller = VirtioPci::new(Net::new(NetConfig { queue_pairs: 1, ..config() }));
    assert!(smaller.restore(&state).is_err());
}

proptest! {
    #[test]
    fn large_packets_leave_as_intact_frames(
        v6 in any::<bool>(),
        // The test driver's buffers hold 8 KiB.
        length in 1_usize..7_900,
        mss in 1_u16..1_440,
    ) {
        let mut driver = ready();
        let version = if v6 { IpVersion::V6 } else { IpVersion::V4 };
        let packet = Packet::new(version, length);
        let mut bytes = packet.build();
        let field = packet.transport_offset() + 16;
        let layers = nicvisor_net::parse::parse(&bytes);
        let ip = layers.ip.unwrap();
        let transport_length = (bytes.len() - packet.transport_offset()) as u32;
        let seed = match version {
            IpVersion::V4 => {
                let address = |at: usize| <[u8; 4]>::try_from(&bytes[at..at + 4]).unwrap();
                let (source, destination) = (address(ip.offset + 12), address(ip.offset + 16));
                nicvisor_net::checksum::pseudo_ipv4(source, destination, 6, transport_length)
            }
            IpVersion::V6 => {
                let address = |at: usize| <[u8; 16]>::try_from(&bytes[at..at + 16]).unwrap();
                let (source, destination) = (address(ip.offset + 8), address(ip.offset + 24));
                nicvisor_net::checksum::pseudo_ipv6(&source, &destination, 6, transport_length)
            }
        };
        bytes[field..field + 2].copy_from_slice(&seed.fold().to_be_bytes());
        let header = Header {
            flags: NEEDS_CHECKSUM,
            gso_type: if v6 { GSO_TCP6 } else { GSO_TCP4 },
            gso_size: mss,
            checksum_start: packet.transport_offset() as u16,
            checksum_offset: 16,
            ..Header::default()
        };
        send(&mut driver, header, &bytes);
        let effects = driver.effects();
        prop_assert_eq!(&effects.findings, &[]);
        prop_assert_eq!(effects.frames.len(), length.div_ceil(mss.into()));
        let mut payload = Vec::new();
        for (_, frame) in effects.frames {
            assert_intact(&frame.bytes);
            payload.extend_from_slice(&frame.bytes[packet.header_len()..]);
        }
        prop_assert_eq!(&payload, &bytes[packet.header_len()..]);
    }

    #[test]
    fn no_packet_or_frame_panics(
        packets in prop::collection::vec((0_u16..5, prop::collection::vec(any::<u8>(), 0..200), any::<bool>()), 1..60),
    ) {
        let mut driver = ready();
        for (queue, bytes, readable) in packets {
            driver.add(queue, if readable { Ok(&bytes) } else { Err(bytes.len() as u32) });
            driver.kick(queue);
            receive(&mut driver, 1, bytes);
        }
    }
}
