//! Ring indices that faults move.

use nicvisor_core::Device;
use nicvisor_core::testing::Bench;
use nicvisor_net::parse::IpVersion;
use nicvisor_net::testing::Packet;

use super::{assert_clean, broken, config, open};
use crate::ring::CompletionRing;
use crate::testing::{ALL_CAPABILITIES, Completed, Driver, Offload, PASSED};

fn open_with(fault: &str) -> Driver {
    let mut driver = open(config());
    driver.inject(fault).unwrap();
    driver
}

fn send(driver: &mut Driver, queue: usize) -> u16 {
    driver.send(queue, &Packet::new(IpVersion::V4, 100).build(), Offload::None, 1000)
}

/// How often faults were at work.
fn hits(driver: &Driver) -> u64 {
    driver.harness.device.fault_status().iter().map(|status| status.hit).sum()
}

#[test]
fn an_index_of_one_queue_leaves_the_others_alone() {
    let mut driver = open_with(r#"override = { name = "tx 1.complq_tail", value = { add = 1 } }"#);
    let tag = send(&mut driver, 0);
    assert_eq!(driver.completed(0), [Completed::Packet(tag)]);
    send(&mut driver, 1);
    assert_eq!(driver.completed(1), [], "it is one place further on");
    let message = driver.inject(r#"override = { name = "tx 16.tail", value = 0 }"#).unwrap_err().to_string();
    assert!(message.contains("use tx 0 to tx 15"), "{message}");
    let message = driver.inject(r#"override = { name = "tx 0.req", value = 0 }"#).unwrap_err().to_string();
    assert!(message.contains("tx.tail, tx.complq_tail, rx.bufq_tail, rx.complq_tail"), "{message}");
}

#[test]
fn a_completion_is_written_elsewhere_as_if_it_belonged_there() {
    let fault = r#"override = { name = "tx.complq_tail", uses = { nth = 1 }, value = { add = 1 } }"#;
    let mut driver = open_with(fault);
    (0..3).for_each(|_| _ = send(&mut driver, 0));
    assert_eq!(driver.completed(0), [], "the first place is empty, the second was written over");
    assert_eq!((hits(&driver), super::counter(&driver, "tx_completions")), (1, 3));
    assert_clean(&driver.effects());
}

#[test]
fn generations_are_those_of_the_place() {
    let mut bench = Bench::with_memory(1 << 16);
    let mut ring = CompletionRing::new(0x1000, 4);
    let generations = |ring: &CompletionRing| [0, 1, 2, 3].map(|place| ring.generation(place));
    assert_eq!(generations(&ring), [true; 4]);
    bench.call(|context| (0..2).for_each(|_| ring.push(context, ring.place(), &[1; 8]).unwrap()));
    assert_eq!(generations(&ring), [false, false, true, true], "the first two come again in the next round");
    assert_eq!((ring.generation(5), ring.generation(0xffff)), (false, true), "counted on past the end");
    bench.call(|context| (0..2).for_each(|_| ring.push(context, ring.place(), &[1; 8]).unwrap()));
    assert_eq!(generations(&ring), [false; 4]);
}

#[test]
fn what_a_moved_doorbell_makes_of_a_ring_is_not_the_drivers_fault() {
    for (value, sent) in [("{ add = 3 }", 1), ("256", 0), ("0xffffffff", 0)] {
        let fault = format!(r#"override = {{ name = "tx 0.tail", uses = {{ nth = 1 }}, value = {value} }}"#);
        let mut driver = open_with(&fault);
        send(&mut driver, 0);
        let effects = driver.effects();
        assert_clean(&effects);
        assert_eq!((effects.frames.len(), hits(&driver)), (sent, 1), "{value}");
        let doorbell = driver.tx[1].doorbell;
        driver.ring(doorbell, 256);
        assert_eq!(broken(&driver.effects()), ["gve-tx-doorbell"], "on another queue it is");
    }
}

#[test]
fn buffers_are_posted_as_the_moved_doorbell_says() {
    let mut driver = Driver::new(config()).unwrap();
    driver.inject(r#"override = { name = "rx 0.bufq_tail", value = 0 }"#).unwrap();
    driver.open(2);
    let posted =
        |driver: &Driver, queue: usize| driver.harness.device.state.rx[queue].as_ref().unwrap().posted();
    assert_eq!((posted(&driver, 0), posted(&driver, 1)), (0, 511));
    assert_clean(&driver.effects());
}

#[test]
fn a_moved_admin_doorbell_hides_a_command() {
    let mut driver = Driver::new(config()).unwrap();
    driver.start_admin();
    let fault = r#"override = { name = "adminq_prod_cnt", uses = { nth = 1 }, value = { add = -1 } }"#;
    driver.inject(fault).unwrap();
    let address = driver.issue(0xf, &[0_u8; 16]);
    assert_eq!((driver.admin_status(address), driver.register(0x18)), (0, 0));
    driver.issue(0xf, &[0_u8; 16]);
    assert_eq!(driver.register(0x18), 2, "the next doorbell is for both");
    assert_clean(&driver.effects());
    assert!(driver.release());
    driver.start_admin();
    assert_eq!(driver.verify(ALL_CAPABILITIES), PASSED);
}
