//! What the device counts, word by word as `struct mana_query_gf_stat_resp` has it.

use nicvisor_core::fault::Fault;
use nicvisor_core::{Device, DropReason, Fate};
use nicvisor_net::parse::IpVersion;
use nicvisor_net::testing::Packet;
use serde_json::json;
use zerocopy::little_endian::U64;

use super::{RECEIVER, assert_clean, broken, config, open_with};
use crate::Config;
use crate::config::Enforcement;
use crate::testing::{Driver, Send, Sent, Setup};
use crate::wire::RequestType;
use crate::wire::completion::CqeType;
use crate::wire::gdma_requests::Handle;
use crate::wire::mana_requests::PhyStatistics;

fn open() -> Driver {
    let enforcement = Enforcement { source_address: false, ..Enforcement::default() };
    open_with(Config { enforcement, ..config(RECEIVER) }, Setup { queues: 1, ..Setup::default() })
}

/// All statistics by their places in the answer.
fn statistics(driver: &mut Driver) -> [u64; 28] {
    let all = Handle { handle: u64::MAX.into() };
    let words: [U64; 28] = driver.request(RequestType::QueryGfStat, 1, &all).get();
    words.map(U64::get)
}

fn port(driver: &mut Driver) -> PhyStatistics {
    driver.request(RequestType::QueryPhyStat, 1, &Handle { handle: 0.into() }).get()
}

/// A frame of `length` bytes to `address`.
fn frame(address: [u8; 6], length: usize) -> Vec<u8> {
    let mut bytes = Packet::new(IpVersion::V4, length - 54).build();
    bytes[..6].copy_from_slice(&address);
    bytes
}

const ALL: [u8; 6] = [0xff; 6];
const SOME: [u8; 6] = [1, 0, 0x5e, 0, 0, 1];

#[test]
fn each_statistic_is_where_the_driver_reads_it() {
    let mut driver = open();
    let frames = [(RECEIVER, 100), (ALL, 101), (ALL, 102), (SOME, 103), (SOME, 104), (SOME, 105)];
    for (id, (address, length)) in (1..).zip(frames) {
        driver.harness.arrive(0, id, frame(address, length));
        driver.send(0, 0, &Send::plain(&frame(address, length + 100)));
    }
    let words = statistics(&mut driver);
    assert_eq!(words[0], (1 << 27) - 1);
    // Bytes, then unicast, broadcast and multicast packets with their bytes.
    assert_eq!(words[3..10], [615, 1, 100, 2, 203, 3, 312]);
    assert_eq!(words[20..27], [1215, 1, 200, 2, 403, 3, 612]);
    assert_eq!((&words[1..3], &words[10..20], words[27]), (&[0; 2][..], &[0; 10][..], 0));
    let port = port(&mut driver);
    assert_eq!(port.packets[0].map(U64::get), [6, 6]);
    assert_eq!(port.bytes[0].map(U64::get), [615, 1215]);
    assert_clean(&driver.effects());
}

#[test]
fn a_disabled_function_sends_and_receives_nothing() {
    let mut driver = open();
    let function = |driver: &mut Driver, enabled: u8| {
        let event = json!({ "event": { "name": "function", "arguments": { "enabled": enabled } } });
        let fault: Fault = serde_json::from_value(event).unwrap();
        driver.harness.call(|device, context| device.inject(context, &fault)).unwrap();
    };
    let bytes = frame(RECEIVER, 100);
    for (enabled, kind, fate) in [
        (0, CqeType::TxVfDisabled, Fate::Dropped(DropReason::NOT_READY)),
        (1, CqeType::TxOkay, Fate::Delivered),
    ] {
        function(&mut driver, enabled);
        driver.send(0, 0, &Send::plain(&bytes));
        assert_eq!(driver.completed(0, 0), [Sent { kind: kind as u8 }]);
        driver.harness.arrive(0, 1, bytes.clone());
        let effects = driver.effects();
        assert_clean(&effects);
        assert_eq!(effects.fates[0].1, fate);
        assert_eq!(effects.frames.len(), usize::from(enabled));
    }
    let words = statistics(&mut driver);
    assert_eq!((words[2], words[10]), (1, 1));
}

#[test]
fn a_completion_queue_of_another_domain_is_counted_for_itself() {
    let mut driver = open();
    let mut entry = driver.entry(0, 0, &Send::plain(&frame(RECEIVER, 100)));
    entry[9..12].fill(0); // vcq_num: the hardware channel's
    driver.post_send(0, 0, &entry, false);
    assert_eq!(broken(&driver.effects()), ["mana-tx-vcq-num"]);
    let words = statistics(&mut driver);
    assert_eq!((words[17], words[19]), (1, 0));
}

#[test]
fn what_the_port_drops_is_counted() {
    let mut driver = open();
    driver.harness.arrive(0, 1, frame(RECEIVER, 1600));
    driver.harness.call(|device, context| device.set_link(context, 0, false));
    driver.send(0, 0, &Send::plain(&frame(RECEIVER, 100)));
    let port = port(&mut driver);
    assert_eq!((port.rx_pkt_drop_phy.get(), port.tx_pkt_drop_phy.get()), (1, 1));
}
