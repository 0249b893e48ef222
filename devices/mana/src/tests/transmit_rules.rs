//! What a driver must not hand over.

use nicvisor_net::parse::IpVersion;
use nicvisor_net::testing::{Packet, seed, vxlan};

use super::{SENDER, broken, config, open, open_with};
use crate::Config;
use crate::testing::{Offload, Send, Sent, Setup};
use crate::vport::Transmit;
use crate::wire::completion::CqeType;

/// Sends an entry after `change` had its way with it. Which rules that broke, and what became of the packet.
fn send_changed(send: &Send<'_>, change: impl Fn(&mut Vec<u8>)) -> (Vec<String>, Vec<Sent>) {
    let mut driver = open(SENDER);
    let mut entry = driver.entry(0, 0, send);
    change(&mut entry);
    driver.post_send(0, 0, &entry, false);
    let rules = broken(&driver.effects()).into_iter().map(str::to_owned).collect();
    (rules, driver.completed(0, 0))
}

fn assert_breaks(send: &Send<'_>, change: impl Fn(&mut Vec<u8>), rule: &str, kind: CqeType) {
    let (rules, sent) = send_changed(send, change);
    assert_eq!(rules, [rule]);
    assert_eq!(sent, [Sent { kind: kind as u8 }], "{rule}");
}

fn xor(at: usize, bits: u8) -> impl Fn(&mut Vec<u8>) {
    move |entry| entry[at] ^= bits
}

// Where things are in an entry: the header takes 8 bytes, the out-of-band data follows, then the list.
const LAST_VBYTES: usize = 3;
const DATA_UNIT: usize = 6;
const FORMAT: usize = 8;
const VCQ_NUM: usize = 9;
const TRANS_OFF: usize = 12;
const VSQ_FRAME: usize = 14;
const VP_OFFSET: usize = 15;
const SHORT_SGE: usize = 16;
const LONG: usize = 16;

const OUTER_IPV4: u8 = 1 << 2;
const OUTER_IPV6: u8 = 1 << 3;
const IP_CHECKSUM: u8 = 1 << 4;
const TCP_CHECKSUM: u8 = 1 << 5;
const UDP_CHECKSUM: u8 = 1 << 6;

#[test]
fn each_broken_rule_of_an_entry_has_its_finding() {
    let packet = Packet::new(IpVersion::V4, 5000);
    let mut bytes = packet.build();
    seed(&mut bytes, true);
    let lso = Send::lso(&bytes, packet.header_len(), 1400);
    let plain_bytes = Packet::new(IpVersion::V4, 100).build();
    let plain = Send::plain(&plain_bytes);
    let tagged = Send { vlan: Some(5), ..plain };
    let invalid = CqeType::TxInvalidOob;
    assert_breaks(&plain, xor(FORMAT, 1), "mana-tx-oob-size", invalid);
    assert_breaks(&plain, xor(FORMAT, 2), "mana-tx-oob-size", invalid);
    assert_breaks(&tagged, xor(FORMAT, 1), "mana-tx-oob-size", invalid);
    assert_breaks(&tagged, xor(LONG, 0x80), "mana-tx-oob-reserved", CqeType::TxOkay);
    assert_breaks(&plain, xor(VCQ_NUM, 1), "mana-tx-vcq-num", invalid);
    assert_breaks(&plain, xor(VSQ_FRAME, 1), "mana-tx-vsq-frame", invalid);
    assert_breaks(&plain, xor(VP_OFFSET, 0x40), "mana-tx-vp-offset", CqeType::TxVportIdxOutOfRange);
    assert_breaks(&plain, xor(DATA_UNIT, 9), "mana-tx-lso-request", invalid);
    let no_size = |entry: &mut Vec<u8>| {
        entry[DATA_UNIT] = 0;
        entry[DATA_UNIT + 1] = 0;
    };
    assert_breaks(&lso, no_size, "mana-tx-lso-request", invalid);
    assert_breaks(&lso, xor(LAST_VBYTES, 1), "mana-tx-lso-headers", invalid);
    assert_breaks(&plain, xor(LAST_VBYTES, 66), "mana-tx-lso-request", CqeType::TxOkay);
    assert_breaks(&lso, xor(FORMAT, OUTER_IPV6), "mana-tx-outer-ip", invalid);
    assert_breaks(&lso, xor(FORMAT, OUTER_IPV4 | OUTER_IPV6), "mana-tx-outer-ip", invalid);
    assert_breaks(&lso, xor(FORMAT, OUTER_IPV4), "mana-tx-outer-ip", invalid);
    assert_breaks(&lso, xor(TRANS_OFF, 2), "mana-tx-trans-off", invalid);
    let error = CqeType::TxHdrProcessingError;
    assert_breaks(&lso, xor(FORMAT, UDP_CHECKSUM), "mana-tx-checksum-request", error);
    assert_breaks(&lso, xor(FORMAT, IP_CHECKSUM), "mana-tx-checksum-request", error);
    assert_breaks(&plain, xor(SHORT_SGE + 7, 0x10), "mana-tx-buffer-address", error);
}

#[test]
fn segmentation_needs_at_least_two_elements() {
    let packet = Packet::new(IpVersion::V4, 0);
    let mut bytes = packet.build();
    seed(&mut bytes, true);
    let send = Send::lso(&bytes, packet.header_len(), 1400);
    assert_breaks(&send, |_| (), "mana-tx-lso-headers", CqeType::TxInvalidOob);
}

#[test]
fn each_broken_rule_of_a_packet_has_its_finding() {
    let packet = Packet::new(IpVersion::V6, 20_000);
    let header_len = packet.header_len();
    let complete = packet.build();
    let mut seeded = complete.clone();
    seed(&mut seeded, true);
    let small = Packet::new(IpVersion::V4, 1000).build();
    let long = Packet::new(IpVersion::V4, 1461).build();
    let very_long = Packet::new(IpVersion::V4, 3000).build();
    let fragment = {
        let mut bytes = small.clone();
        bytes[20] = 0x20;
        bytes
    };
    let checksum = |packet| Send { offload: Offload::Checksum, ..Send::plain(packet) };
    let no_change = |_: &mut Vec<u8>| ();
    let error = CqeType::TxHdrProcessingError;
    let too_long = CqeType::TxMtuDrop;
    assert_breaks(
        &Send::lso(&complete, header_len, 1400),
        no_change,
        "net-lso-checksum-seed",
        CqeType::TxOkay,
    );
    assert_breaks(&Send::lso(&seeded, header_len, 1441), no_change, "net-lso-mss-too-large", too_long);
    assert_breaks(&Send::lso(&seeded, header_len, 7), no_change, "net-lso-mss-too-small", too_long);
    assert_breaks(
        &Send::lso(&seeded, header_len + 4, 1400),
        no_change,
        "net-lso-header-length",
        CqeType::TxOkay,
    );
    assert_breaks(&checksum(&small), no_change, "mana-tx-checksum-seed", CqeType::TxOkay);
    assert_breaks(&Send::plain(&long), no_change, "mana-tx-frame-size", too_long);
    assert_breaks(&Send::plain(&very_long), no_change, "mana-tx-frame-size", too_long);
    assert_breaks(&Send::plain(&small[..13]), no_change, "net-malformed", error);
    assert_breaks(&checksum(&fragment), no_change, "mana-tx-checksum-request", error);
    let other = xor(FORMAT, TCP_CHECKSUM | UDP_CHECKSUM);
    assert_breaks(&checksum(&small), other, "mana-tx-checksum-request", error);
    let cut = Send::lso(&seeded, header_len - 8, 1400);
    assert_breaks(&cut, no_change, "net-lso-header-length", error);
}

#[test]
fn a_packet_above_the_limit_is_dropped_unread() {
    let packet = Packet::new(IpVersion::V6, 66_000);
    let mut bytes = packet.build();
    seed(&mut bytes, true);
    let mut driver = open_with(Config { tso_limit: 65_536, ..config(SENDER) }, Setup::default());
    driver.send(0, 0, &Send::lso(&bytes, packet.header_len(), 1400));
    assert_eq!(broken(&driver.effects()), ["net-lso-too-large"]);
    assert_eq!(driver.completed(0, 0), [Sent { kind: CqeType::TxMtuDrop as u8 }]);
}

#[test]
fn a_tunnel_is_where_the_driver_says() {
    let packet = Packet::new(IpVersion::V4, 5000);
    let bytes = vxlan(IpVersion::V4, &packet.build());
    let send = Send { encap: true, ..Send::lso(&bytes, bytes.len() - 5000, 1300) };
    let invalid = CqeType::TxInvalidOob;
    assert_breaks(&send, xor(LONG, 2), "mana-tx-encap", invalid);
    assert_breaks(&send, xor(LONG, 4), "mana-tx-encap", invalid);
    assert_breaks(&send, xor(LONG + 4, 1), "mana-tx-encap", invalid);
    assert_breaks(&send, xor(LONG + 5, 4), "mana-tx-encap", invalid);
}

#[test]
fn a_vport_sends_for_the_domain_it_was_configured_for() {
    let bytes = Packet::new(IpVersion::V4, 100).build();
    for transmit in [None, Some(Transmit { protection_domain: 77, doorbell_page: 1 })] {
        let mut driver = open(SENDER);
        driver.harness.device.state.vports[0].transmit = transmit;
        driver.send(0, 0, &Send::plain(&bytes));
        assert_eq!(broken(&driver.effects()), ["mana-tx-vport"]);
        assert_eq!(driver.completed(0, 0), [Sent { kind: CqeType::TxVportDisabled as u8 }]);
    }
}

#[test]
fn the_short_format_is_used_where_it_is_allowed() {
    let mut refusing = config(SENDER);
    refusing.capabilities.short_form = false;
    let mut driver = open_with(refusing, Setup::default());
    driver.send(0, 0, &Send::plain(&Packet::new(IpVersion::V4, 100).build()));
    assert_eq!(broken(&driver.effects()), ["mana-tx-oob-size"]);
}
