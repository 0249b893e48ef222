//! What is said of the checksums of packets in tunnels.

use nicvisor_net::parse::IpVersion;
use nicvisor_net::testing::Packet;
use nicvisor_net::wire::UdpHeader;
use proptest::prelude::*;

use super::{RECEIVER, broken, counter, open};
use crate::wire::completion::RxFlags;

/// A packet in a tunnel, and what is wrong with it.
#[derive(Clone, Copy, Debug)]
struct Tunnel {
    geneve: bool,
    outer: IpVersion,
    inner: IpVersion,
    /// UDP inside rather than TCP.
    udp: bool,
    /// No checksum in the outer UDP header.
    unsummed: bool,
    wrong: Wrong,
}

/// Which checksums are wrong; those of headers only where they are IPv4's.
#[derive(Clone, Copy, Debug, Default)]
struct Wrong {
    outer_ip: bool,
    outer_udp: bool,
    ip: bool,
    transport: bool,
}

const GOOD: Tunnel = Tunnel {
    geneve: false,
    outer: IpVersion::V4,
    inner: IpVersion::V4,
    udp: false,
    unsummed: false,
    wrong: Wrong { outer_ip: false, outer_udp: false, ip: false, transport: false },
};

impl Tunnel {
    fn build(&self) -> Vec<u8> {
        let inside = Packet { udp: self.udp, ..Packet::new(self.inner, 700) };
        let mut payload = match self.geneve {
            true => vec![0, 0, 0x65, 0x58, 0, 0, 9, 0],
            false => vec![8, 0, 0, 0, 0, 0, 9, 0],
        };
        let start = payload.len();
        payload.extend(inside.build());
        // Changed before the outer checksum is computed, which covers it.
        payload[start + inside.ip_offset() + HEADER_CHECKSUM] ^= u8::from(self.wrong_ip());
        *payload.last_mut().unwrap() ^= u8::from(self.wrong.transport);
        let port = if self.geneve { UdpHeader::GENEVE_PORT } else { UdpHeader::VXLAN_PORT };
        let outside = Packet { udp: true, ports: (55_555, port), payload, ..Packet::new(self.outer, 0) };
        let mut frame = outside.build();
        let checksum = outside.transport_offset() + UdpHeader::CHECKSUM;
        frame[checksum] ^= u8::from(self.wrong.outer_udp);
        if self.unsummed {
            frame[checksum..checksum + 2].fill(0);
        }
        frame[outside.ip_offset() + HEADER_CHECKSUM] ^= u8::from(self.wrong_outer_ip());
        frame
    }

    fn wrong_ip(&self) -> bool {
        self.wrong.ip && self.inner == IpVersion::V4
    }

    fn wrong_outer_ip(&self) -> bool {
        self.wrong.outer_ip && self.outer == IpVersion::V4
    }

    fn wrong_outer_udp(&self) -> bool {
        self.wrong.outer_udp && !self.unsummed
    }

    fn any_wrong(&self) -> bool {
        self.wrong_outer_ip() || self.wrong_outer_udp() || self.wrong_ip() || self.wrong.transport
    }
}

/// What the completion of a frame says, and how many frames the device counts as wrong.
fn judged(bytes: Vec<u8>) -> (RxFlags, u64) {
    let mut driver = open(RECEIVER);
    driver.harness.arrive(0, 1, bytes);
    assert_eq!(broken(&driver.effects()), Vec::<&str>::new());
    let packets: Vec<_> = (0..2).flat_map(|queue| driver.received(0, queue)).collect();
    assert_eq!(packets.len(), 1);
    (RxFlags { hash_type: 0, ..packets[0].flags }, counter(&driver, "rx_bad_checksum"))
}

#[test]
fn each_verdict_has_its_place() {
    let right = RxFlags {
        outer_iphdr_csum: Some(true),
        iphdr_csum: Some(true),
        tcp_csum: Some(true),
        ..RxFlags::default()
    };
    let udp = RxFlags { tcp_csum: None, udp_csum: Some(true), ..right };
    let wrong = |wrong| Tunnel { wrong, ..GOOD };
    for (tunnel, expected) in [
        (GOOD, right),
        (Tunnel { unsummed: true, ..GOOD }, right),
        (Tunnel { geneve: true, inner: IpVersion::V6, udp: true, ..GOOD }, udp),
        (
            wrong(Wrong { outer_ip: true, ..Wrong::default() }),
            RxFlags { outer_iphdr_csum: Some(false), ..right },
        ),
        (wrong(Wrong { ip: true, ..Wrong::default() }), RxFlags { iphdr_csum: Some(false), ..right }),
        (wrong(Wrong { transport: true, ..Wrong::default() }), RxFlags { tcp_csum: Some(false), ..right }),
        // There is no place for this one, so that nothing may be taken on trust.
        (wrong(Wrong { outer_udp: true, ..Wrong::default() }), RxFlags { tcp_csum: None, ..right }),
    ] {
        assert_eq!(judged(tunnel.build()), (expected, u64::from(tunnel.any_wrong())), "{tunnel:?}");
    }
}

#[test]
fn what_is_no_ip_packet_inside_is_judged_from_outside() {
    let payload = [&[8, 0, 0, 0, 0, 0, 9, 0][..], &[2; 12], &[8, 6], &[0; 28]].concat();
    let ports = (55_555, UdpHeader::VXLAN_PORT);
    let frame = Packet { udp: true, ports, payload, ..Packet::new(IpVersion::V4, 0) }.build();
    let (flags, wrong) = judged(frame);
    assert_eq!((flags.outer_iphdr_csum, flags.iphdr_csum, flags.udp_csum), (None, Some(true), Some(true)));
    assert_eq!(wrong, 0);
}

fn version() -> impl Strategy<Value = IpVersion> {
    prop_oneof![Just(IpVersion::V4), Just(IpVersion::V6)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Linux leaves out the sum of the outermost transport checksum where `rx_iphdr_csum_succeed` comes with
    /// `rx_tcp_csum_succeed` or `rx_udp_csum_succeed`.
    #[test]
    fn a_wrong_checksum_is_never_taken_on_trust(
        geneve: bool, outer in version(), inner in version(), udp: bool, unsummed: bool, wrong: [bool; 4],
    ) {
        let [outer_ip, outer_udp, ip, transport] = wrong;
        let wrong = Wrong { outer_ip, outer_udp, ip, transport };
        let tunnel = Tunnel { geneve, outer, inner, udp, unsummed, wrong };
        let (flags, count) = judged(tunnel.build());
        prop_assert_eq!(count, u64::from(tunnel.any_wrong()));
        prop_assert_eq!(flags.outer_iphdr_csum, Some(!tunnel.wrong_outer_ip()));
        prop_assert_eq!(flags.iphdr_csum, Some(!tunnel.wrong_ip()));
        let said = if udp { flags.udp_csum } else { flags.tcp_csum };
        let expected = match (transport, tunnel.wrong_outer_udp()) {
            (true, _) => Some(false),
            (false, true) => None,
            (false, false) => Some(true),
        };
        prop_assert_eq!(said, expected);
    }
}

/// Where an IPv4 header has its checksum.
const HEADER_CHECKSUM: usize = 10;
