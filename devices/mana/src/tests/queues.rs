//! Events, interrupts and doorbells.

use nicvisor_net::parse::IpVersion;
use nicvisor_net::testing::Packet;

use super::{RECEIVER, SENDER, assert_clean, broken, config, counter, open, open_with};
use crate::testing::{Send, Setup};
use crate::wire::doorbell::Doorbell;
use crate::wire::eqe::COMPLETION;
use crate::wire::hwc::EVENT_TEST;

#[test]
fn a_test_event_comes_on_the_queue_that_was_asked_about() {
    let mut driver = open(SENDER);
    assert_eq!(driver.test_event(0, 1), [EVENT_TEST]);
    assert!(driver.events(0, 0).is_empty());
    let vectors = driver.effects().vectors;
    assert!(vectors.contains(&2), "{vectors:?}");
}

#[test]
fn interrupts_come_only_while_the_driver_waits_for_them() {
    let mut driver = open_with(config(RECEIVER), Setup { queues: 1, ..Setup::default() });
    let bytes = Packet::new(IpVersion::V4, 100).build();
    (1..=10).for_each(|id| driver.harness.arrive(0, id, bytes.clone()));
    assert_eq!(driver.effects().vectors, [1], "one event for all");
    assert_eq!(driver.events(0, 0), [COMPLETION]);
    driver.harness.arrive(0, 11, bytes.clone());
    assert!(driver.effects().vectors.is_empty(), "the completion queue is not armed");
    assert_eq!(driver.received(0, 0).len(), 11);
    assert!(driver.effects().vectors.is_empty(), "everything was consumed");
    driver.harness.arrive(0, 12, bytes.clone());
    assert_eq!(driver.effects().vectors, [1]);
    driver.events(0, 0);
    let doorbell = driver.ports[0].receive[0].completions.doorbell(true);
    driver.ring(doorbell);
    assert_eq!(driver.effects().vectors, [1], "armed with something left");
}

#[test]
fn completion_queues_wrap_many_times() {
    let mut driver = open_with(config(SENDER), Setup { queues: 1, ..Setup::default() });
    let bytes = Packet::new(IpVersion::V4, 100).build();
    for round in 1..5000_u64 {
        driver.send(0, 0, &Send::plain(&bytes));
        if round.is_multiple_of(100) {
            assert_eq!(driver.completed(0, 0).len(), 100);
        }
    }
    driver.completed(0, 0);
    assert_clean(&driver.effects());
    assert_eq!(counter(&driver, "tx_completions"), 4999);
}

#[test]
fn doorbells_of_destroyed_queues_are_found() {
    let mut driver = open(SENDER);
    let doorbells = [
        driver.ports[0].send[0].work.doorbell(),
        driver.ports[0].receive[0].completions.doorbell(true),
        driver.ports[0].events[1].doorbell(true),
    ];
    driver.close();
    assert_clean(&driver.effects());
    doorbells.into_iter().for_each(|doorbell| driver.ring(doorbell));
    assert_eq!(broken(&driver.effects()), ["mana-doorbell-queue"; 3]);
}

#[test]
fn a_doorbell_that_runs_ahead_is_found() {
    let mut driver = open(SENDER);
    let Doorbell::Work { send, id, .. } = driver.ports[0].send[0].work.doorbell() else { panic!("work") };
    driver.ring(Doorbell::Work { send, id, wqe_count: 0, tail: 8192 + 32 });
    driver.ring(Doorbell::Work { send, id, wqe_count: 3, tail: 0 });
    assert_eq!(broken(&driver.effects()), ["mana-wq-doorbell", "mana-wq-doorbell-count"]);
}

#[test]
fn opening_and_closing_leaves_nothing() {
    let mut driver = open_with(config(SENDER), Setup::default());
    for _ in 0..5 {
        driver.close();
        driver.open(Setup::default());
    }
    driver.close();
    assert!(driver.channel.destroy(&mut driver.harness));
    assert_clean(&driver.effects());
}
