//! What is left when a device is deregistered, its channel destroyed, or all of it reset.

use nicvisor_core::{Device, Severity};

use super::{ESTABLISH, NOTHING, SENDER, SHARED_MEMORY, assert_clean, broken, counter, open};
use crate::testing::write_establish;
use crate::wire::RequestType;

#[test]
fn a_device_that_is_deregistered_or_a_channel_that_is_destroyed_leaves_nothing() {
    let mut driver = open(SENDER);
    assert_eq!(driver.request(RequestType::DeregisterDevice, 1, &NOTHING).status, 0);
    assert_eq!(broken(&driver.effects()), ["mana-device-leftover"]);
    assert!(driver.channel.destroy(&mut driver.harness));
    assert_clean(&driver.effects());

    let mut driver = open(SENDER);
    assert!(driver.channel.destroy(&mut driver.harness));
    let effects = driver.effects();
    assert_eq!(broken(&effects), ["mana-hwc-leftover"]);
    let message = &effects.findings[0].message;
    assert!(message.contains("4 work queue objects, 2 event queues, 1 registered devices"), "{message}");
    assert!(!driver.channel.destroy(&mut driver.harness), "a second time");
    assert_eq!(broken(&driver.effects()), ["mana-hwc-setup"]);
}

#[test]
fn a_reset_takes_everything_apart() {
    let mut driver = open(SENDER);
    driver.harness.call(|device, context| device.reset(context));
    assert_clean(&driver.effects());
    assert_eq!(counter(&driver, "resets"), 1);
    let state = driver.harness.device.save();
    assert_eq!(state["objects"]["work_queues"], serde_json::json!({}));
    assert_eq!(state["queues"]["events"], serde_json::json!({}));
}

#[test]
fn a_channel_that_is_established_with_a_reset_replaces_the_old_one() {
    let mut driver = open(SENDER);
    for (reset, rule) in [(false, "mana-hwc-setup"), (true, "mana-reset-leftover")] {
        write_establish(&mut driver.harness, SHARED_MEMORY, &ESTABLISH, reset);
        let effects = driver.effects();
        assert_eq!(broken(&effects), [rule]);
        let expected = if reset { Severity::Note } else { Severity::Error };
        assert_eq!(effects.findings[0].severity, expected);
    }
    assert_eq!(driver.harness.device.state.queues.events.len(), 1);
}
