//! Completions as faults shape them.

use nicvisor_core::fault::{Fault, FaultPoints, Field, QueuePoint};
use nicvisor_core::{DropReason, Fate, Time};
use nicvisor_net::parse::IpVersion;
use nicvisor_net::testing::Packet;

use super::{RECEIVER, SENDER, assert_clean, config, open_with};
use crate::queue::Client;
use crate::testing::{Driver, Send, Sent, Setup};
use crate::wire::completion::CqeType;

fn open(mac: [u8; 6]) -> Driver {
    open_with(config(mac), Setup { queues: 1, ..Setup::default() })
}

fn points() -> FaultPoints {
    let point = |client: Client| QueuePoint {
        kind: client.kind().into(),
        count: 1,
        fields: Field::of(client.layout()),
    };
    let queues = [Client::Channel, Client::Send(0), Client::Receive(0)].map(point);
    FaultPoints { queues: queues.into(), ..FaultPoints::default() }
}

fn inject(driver: &mut Driver, fault: serde_json::Value) {
    let fault: Fault = serde_json::from_value(fault).unwrap();
    driver.harness.call(|device, context| {
        device.state.queues.faults.inject(context.now, &points(), &fault).unwrap();
        device.state.queues.lifted(context);
    });
}

fn send(driver: &mut Driver, count: usize) {
    let bytes = Packet::new(IpVersion::V4, 100).build();
    (0..count).for_each(|_| driver.send(0, 0, &Send::plain(&bytes)));
}

const OKAY: Sent = Sent { kind: CqeType::TxOkay as u8 };

#[test]
fn completions_are_withheld_and_come_in_order_later() {
    let mut driver = open(SENDER);
    let hold = serde_json::json!({ "completion": { "queue": "tx 0", "uses": { "nth": 2 }, "hold": "16s" } });
    inject(&mut driver, hold);
    send(&mut driver, 5);
    assert_eq!(driver.completed(0, 0), [OKAY]);
    use nicvisor_core::Device;
    let due = driver.harness.device.next_deadline();
    assert_eq!(due, Some(Time::from_nanos(16_000_000_000)));
    driver.effects();
    driver.harness.advance(std::time::Duration::from_secs(16));
    assert_eq!(driver.effects().vectors, [1], "the driver is told");
    assert_eq!(driver.completed(0, 0), [OKAY; 4]);
    assert_clean(&driver.effects());
}

#[test]
fn fields_of_completions_are_rewritten_by_name() {
    let mut driver = open(RECEIVER);
    let rewrite = serde_json::json!({ "completion": {
        "queue": "rx", "uses": { "nth": 1 }, "rewrite": { "cqe_type": "RX_COALESCED_4", "pkt_len": 0 }
    } });
    inject(&mut driver, rewrite);
    let bytes = Packet::new(IpVersion::V4, 100).build();
    driver.harness.arrive(0, 1, bytes.clone());
    driver.harness.arrive(0, 2, bytes.clone());
    let received = driver.received(0, 0);
    assert_eq!((received[0].kind, received[0].bytes.len()), (CqeType::RxCoalesced4 as u8, 0));
    assert_eq!((received[1].kind, &received[1].bytes), (CqeType::RxOkay as u8, &bytes));
}

#[test]
fn a_completion_that_is_lost_loses_its_frame() {
    let mut driver = open(RECEIVER);
    inject(
        &mut driver,
        serde_json::json!({ "completion": { "queue": "rx 0", "uses": { "nth": 1 }, "drop": true } }),
    );
    driver.harness.arrive(0, 1, Packet::new(IpVersion::V4, 100).build());
    let effects = driver.effects();
    assert_eq!(effects.fates[0].1, Fate::Dropped(DropReason::INJECTED));
    assert!(effects.vectors.is_empty());
}

#[test]
fn an_interrupt_is_suppressed_or_moved() {
    let mut driver = open(SENDER);
    let suppress = serde_json::json!({ "completion": {
        "queue": "tx", "uses": { "nth": 1 }, "interrupt": "suppress"
    } });
    let vector = serde_json::json!({ "completion": {
        "queue": "tx", "uses": { "nth": 2 }, "interrupt": { "vector": 9 }
    } });
    inject(&mut driver, suppress);
    inject(&mut driver, vector);
    send(&mut driver, 1);
    assert!(driver.effects().vectors.is_empty());
    assert_eq!(driver.completed(0, 0), [OKAY], "it is there all the same");
    send(&mut driver, 1);
    assert_eq!(driver.effects().vectors, [9]);
}

#[test]
fn responses_of_the_channel_can_name_another_entry() {
    let mut driver = open(SENDER);
    let rewrite = serde_json::json!({ "completion": {
        "queue": "hwc", "where": { "is_sq": 0 }, "uses": { "nth": 1 }, "rewrite": { "wqe_offset": 2048 }
    } });
    inject(&mut driver, rewrite);
    assert_eq!(driver.test_event(0, 0).len(), 1);
    assert_eq!(driver.harness.device.state.queues.faults.status()[0].hit, 1);
}
