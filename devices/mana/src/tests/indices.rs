//! Ring indices that faults move.

use nicvisor_core::fault::{Fault, FaultError};
use nicvisor_core::{Device, Fate};
use nicvisor_net::parse::IpVersion;
use nicvisor_net::testing::Packet;
use proptest::prelude::*;
use serde_json::json;

use super::{RECEIVER, assert_clean, broken, config, open_with};
use crate::testing::{Driver, Send, Setup, header_of};
use crate::wire::RequestType;
use crate::wire::doorbell::Doorbell;

fn inject(driver: &mut Driver, name: &str, value: serde_json::Value) -> Result<(), FaultError> {
    inject_uses(driver, name, value, json!({}))
}

fn inject_uses(
    driver: &mut Driver,
    name: &str,
    value: serde_json::Value,
    uses: serde_json::Value,
) -> Result<(), FaultError> {
    let fault = json!({ "override": { "name": name, "value": value, "uses": uses } });
    let fault: Fault = serde_json::from_value(fault).unwrap();
    driver.harness.call(|device, context| device.inject(context, &fault))
}

fn setup() -> Setup {
    Setup { queues: 2, ..Setup::default() }
}

fn open() -> Driver {
    open_with(config(RECEIVER), setup())
}

fn frame() -> Vec<u8> {
    let mut bytes = Packet::new(IpVersion::V4, 100).build();
    bytes[6..12].copy_from_slice(&RECEIVER);
    bytes
}

fn send(driver: &mut Driver, queue: usize) {
    driver.send(0, queue, &Send::plain(&frame()));
}

fn hits(driver: &Driver) -> u64 {
    driver.harness.device.fault_status().iter().map(|status| status.hit).sum()
}

#[test]
fn indices_are_named_by_kind_or_by_queue() {
    let mut driver = open();
    for name in
        ["tx.cq_head", "tx 15.sq_tail", "rx 0.rq_tail_ptr", "hwc.cq_tail_ptr", "hwc 0.rq_tail", "eq 3.head"]
    {
        inject(&mut driver, name, json!({ "add": 0 })).unwrap();
    }
    for (name, complaint) in [
        ("tx 16.cq_head", "use tx 0 to tx 15"),
        ("tx 0.rq_tail", "did you mean"),
        ("eq.heads", "did you mean \"eq.head\"?"),
    ] {
        let message = inject(&mut driver, name, json!(0)).unwrap_err().to_string();
        assert!(message.contains(complaint), "{message}");
    }
    send(&mut driver, 0);
    assert_eq!(driver.completed(0, 0).len(), 1, "nothing has changed");
    assert_clean(&driver.effects());
}

#[test]
fn a_completion_is_written_elsewhere_as_if_it_belonged_there() {
    let mut driver = open();
    inject_uses(&mut driver, "tx 0.cq_head", json!({ "add": 1 }), json!({ "nth": 1 })).unwrap();
    (0..2).for_each(|_| send(&mut driver, 0));
    send(&mut driver, 1);
    assert!(driver.completed(0, 0).is_empty(), "the first place is empty, the second written twice");
    assert_eq!(driver.completed(0, 1).len(), 1);
    assert_eq!((hits(&driver), driver.effects().frames.len()), (1, 3));
    assert_clean(&driver.effects());
}

#[test]
fn an_event_is_written_elsewhere() {
    let mut driver = open();
    let name = format!("eq {}.head", driver.ports[0].events[0].id);
    inject(&mut driver, &name, json!({ "add": 1 })).unwrap();
    assert!(driver.test_event(0, 0).is_empty());
    assert_eq!(driver.test_event(0, 1).len(), 1);
    assert_clean(&driver.effects());
}

#[test]
fn an_answer_is_written_where_the_driver_does_not_look() {
    let mut driver = open();
    inject(&mut driver, "hwc.cq_head", json!({ "add": 2 })).unwrap();
    let header = header_of(RequestType::QueryMaxResources as u32, 40);
    assert!(driver.channel.exchange(&mut driver.harness, zerocopy::IntoBytes::as_bytes(&header)).is_none());
    assert_clean(&driver.effects());
}

#[test]
fn what_a_moved_doorbell_makes_of_a_queue_is_not_the_drivers_fault() {
    for (value, sent) in [(json!({ "add": 64 }), 1), (json!(7), 0), (json!(-1), 0), (json!(0), 0)] {
        let mut driver = open();
        inject_uses(&mut driver, "tx 0.sq_tail_ptr", value.clone(), json!({ "nth": 1 })).unwrap();
        send(&mut driver, 0);
        let effects = driver.effects();
        assert_clean(&effects);
        assert_eq!((effects.frames.len(), hits(&driver)), (sent, 1), "{value}");
        let (send, id) = (true, driver.ports[0].send[1].work.id);
        driver.ring(Doorbell::Work { send, id, wqe_count: 0, tail: 7 });
        assert_eq!(broken(&driver.effects()), ["mana-wq-doorbell"], "on another queue it is");
    }
}

#[test]
fn what_the_driver_consumed_is_what_the_moved_doorbell_says() {
    for name in ["tx 0.cq_tail_ptr", "eq.tail_ptr"] {
        let mut driver = open();
        inject(&mut driver, name, json!(0xffff_ffff_u32)).unwrap();
        send(&mut driver, 0);
        driver.completed(0, 0);
        assert_clean(&driver.effects());
        assert!(hits(&driver) > 0);
    }
}

#[test]
fn buffers_are_taken_from_where_the_moved_index_points() {
    let mut driver = Driver::new(config(RECEIVER)).unwrap();
    inject(&mut driver, "rx 0.rq_tail", json!({ "add": 32 })).unwrap();
    driver.open(Setup { queues: 1, ..Setup::default() });
    driver.harness.arrive(0, 1, frame());
    assert_eq!(driver.effects().fates[0].1, Fate::Delivered);
    let received = driver.received(0, 0);
    assert_ne!(received[0].bytes, frame(), "it is in the second buffer");
    let second = driver.ports[0].receive[0].buffers + u64::from(Setup::default().buffer_size);
    assert_eq!(driver.harness.read::<[u8; 12]>(second)[6..], RECEIVER);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_index_breaks_the_device(
        moved in proptest::collection::vec((any::<prop::sample::Index>(), any::<bool>(), any::<u32>()), 1..4),
        acts in proptest::collection::vec((0..6_u8, 0..2_usize), 1..60),
    ) {
        let mut driver = open();
        let names: Vec<String> = driver.harness.device.fault_points().overrides.into_iter()
            .filter(|point| point.queues.is_some()).map(|point| point.value.name.into()).collect();
        for (name, add, value) in moved {
            let value = if add { json!({ "add": value }) } else { json!(value) };
            inject(&mut driver, name.get::<String>(&names), value).unwrap();
        }
        for (id, (act, queue)) in (1..).zip(acts) {
            match act {
                0 | 1 if driver.ports[0].send[queue].work.room() >= 256 => send(&mut driver, queue),
                2 | 3 => driver.harness.arrive(0, id, frame()),
                4 => driver.harness.advance(std::time::Duration::from_micros(10)),
                _ => {
                    let (send, receive) = (&driver.ports[0].send[queue], &driver.ports[0].receive[queue]);
                    let rings = [&send.completions, &receive.completions].map(|ring| ring.doorbell(true));
                    let work = receive.work.doorbell();
                    rings.into_iter().chain([work]).for_each(|doorbell| driver.ring(doorbell));
                }
            }
            driver.effects();
        }
        let state = driver.harness.device.save();
        prop_assert!(driver.harness.device.restore(&state).is_ok());
        driver.harness.call(|device, context| device.reset(context));
    }
}
