//! What the device does when a scenario tells it to, apart from completions.

use nicvisor_core::fault::Fault;
use nicvisor_core::{Device, Duration, EventKind, EventKinds};
use serde_json::{Value, json};
use zerocopy::IntoBytes;

use super::{NOTHING, SENDER, assert_clean, config, device_question, started};
use crate::Config;
use crate::testing::{Driver, Setup, header_of};
use crate::wire::gdma_requests::{CreatePd, Handle, HwcTimeout, MaxResourcesResponse, RequestHeader};
use crate::wire::hwc::{EVENT_FPGA_RECONFIG, EVENT_RESET_REQUEST, EVENT_SOC_SERVICE};
use crate::wire::mana_requests::QueryDeviceConfigResponse;
use crate::wire::shared_memory::{DESTROY, request};
use crate::wire::{RequestType, Status};

fn inject(driver: &mut Driver, fault: Value) {
    let fault: Fault = serde_json::from_value(fault).unwrap();
    driver.harness.call(|device, context| device.inject(context, &fault)).unwrap();
}

/// A request without parameters, as it goes over the channel.
fn message(kind: RequestType) -> Vec<u8> {
    header_of(kind as u32, size_of::<RequestHeader>()).as_bytes().to_vec()
}

#[test]
fn a_request_fails_without_effect() {
    let mut driver = started(config(SENDER));
    inject(
        &mut driver,
        json!({ "command": { "name": "GDMA_CREATE_PD", "uses": { "nth": 2 }, "fail": "NO_RESOURCES" } }),
    );
    let create = CreatePd { flags: 0.into(), reserved: 0.into() };
    for status in [0, Status::NoResources as u32, 0] {
        assert_eq!(driver.request(RequestType::CreatePd, 1, &create).status, status);
    }
    assert!(driver.harness.device.leftovers().contains("2 protection domains"));
    assert_eq!(driver.harness.device.fault_status()[0].hit, 1);
    assert_clean(&driver.effects());
}

#[test]
fn an_answer_is_rewritten() {
    let mut driver = started(config(SENDER));
    inject(
        &mut driver,
        json!({ "command": { "name": "MANA_QUERY_DEV_CONFIG", "rewrite": { "adapter_mtu": 60 } } }),
    );
    let question = device_question();
    let answer: QueryDeviceConfigResponse = driver.request(RequestType::QueryDevConfig, 1, &question).get();
    assert_eq!((answer.adapter_mtu.get(), answer.max_num_vports.get()), (60, 1));
    inject(&mut driver, json!({ "lift": {} }));
    let answer: QueryDeviceConfigResponse = driver.request(RequestType::QueryDevConfig, 1, &question).get();
    assert_eq!(answer.adapter_mtu.get(), 1514);
}

#[test]
fn requests_are_late_or_lost() {
    let mut driver = started(config(SENDER));
    let limits = message(RequestType::QueryMaxResources);
    inject(
        &mut driver,
        json!({ "command": { "name": "GDMA_QUERY_MAX_RESOURCES", "uses": { "nth": 1 }, "delay": "3s" } }),
    );
    assert_eq!(driver.channel.exchange(&mut driver.harness, &limits), None);
    let due = driver.harness.device.next_deadline().unwrap();
    assert_eq!(due.as_nanos(), 3_000_000_000);
    // Another request overtakes it.
    let timeout = HwcTimeout { timeout_ms: 1.into(), reserved: 0.into() };
    assert_eq!(driver.request(RequestType::QueryHwcTimeout, 1, &timeout).status, 0);
    driver.harness.advance(Duration::from_secs(3));
    driver.harness.call(|device, context| device.deadline(context));
    assert_eq!(driver.harness.device.next_deadline(), None);
    let late: MaxResourcesResponse = driver.channel.late(&mut driver.harness).unwrap().get();
    assert_eq!(late.max_msix.get(), 65);

    inject(&mut driver, json!({ "command": { "name": "GDMA_QUERY_MAX_RESOURCES", "drop": true } }));
    assert_eq!(driver.channel.exchange(&mut driver.harness, &limits), None);
    assert_eq!(driver.channel.late(&mut driver.harness), None);
    inject(&mut driver, json!({ "lift": {} }));
    assert!(driver.channel.exchange(&mut driver.harness, &limits).is_some());
    assert_clean(&driver.effects());
}

#[test]
fn registers_show_something_else() {
    let mut driver = started(config(SENDER));
    let fault = json!({ "override": { "name": "register.shm_offset", "value": "0xffffffffffff" } });
    inject(&mut driver, fault);
    assert_eq!(driver.harness.read_bar(0, 0x18), 0xffff_ffff_ffff_u64.to_le_bytes());
    assert_eq!(driver.harness.read_bar(0, 0x10), 4096_u32.to_le_bytes(), "another one");
    inject(&mut driver, json!({ "lift": {} }));
    assert_eq!(driver.harness.read_bar(0, 0x18), 0x1000_u64.to_le_bytes());
}

#[test]
fn events_reach_the_driver() {
    let mut driver = started(config(SENDER));
    for (fault, kind) in [
        (json!({ "name": "reset-request" }), EVENT_RESET_REQUEST),
        (json!({ "name": "fpga-reconfig" }), EVENT_FPGA_RECONFIG),
        (json!({ "name": "service", "arguments": { "type": "rdma-suspend" } }), EVENT_SOC_SERVICE),
        (json!({ "name": "hwc-event", "arguments": { "type": 200 } }), 200),
    ] {
        inject(&mut driver, json!({ "event": fault }));
        driver.channel.events(&mut driver.harness);
        assert_eq!(std::mem::take(&mut driver.channel.other_events), [kind]);
    }
    assert_clean(&driver.effects());
}

#[test]
fn a_device_that_wants_a_reset_is_silent_for_a_while_and_then_starts_anew() {
    let mut driver = Driver::new(Config { ..config(SENDER) }).unwrap();
    driver.open(Setup::default());
    driver.effects();
    driver.harness.bench.effects.wanted = EventKinds::NONE.with(EventKind::State);
    inject(
        &mut driver,
        json!({ "event": { "name": "reset-request", "arguments": { "silence_ms": 10_000 } } }),
    );
    let effects = driver.effects();
    assert!(effects.vectors.contains(&0), "an interrupt of the channel");
    assert_eq!(effects.events[0].name, "reset");
    let limits = message(RequestType::QueryMaxResources);
    assert_eq!(driver.channel.exchange(&mut driver.harness, &limits), None);
    driver.harness.write_bar(0, 0x1000 + 28, &request(DESTROY, false).to_le_bytes());
    let owner = |driver: &mut Driver| driver.harness.read_bar::<4>(0, 0x1000 + 28)[3] >> 7;
    assert_eq!(owner(&mut driver), 1, "the device's");
    driver.harness.advance(Duration::from_secs(10));
    driver.harness.call(|device, context| device.deadline(context));
    assert_eq!(owner(&mut driver), 0, "the driver's");
    assert_eq!(driver.harness.device.next_deadline(), None);
    assert_clean(&driver.effects());
    driver.channel = crate::testing::Channel::establish(&mut driver.harness);
    driver.ports.clear();
    driver.open(Setup::default());
    assert_clean(&driver.effects());
}

#[test]
fn commands_are_told_with_their_fields() {
    let mut driver = started(config(SENDER));
    driver.effects();
    driver.harness.bench.effects.wanted = EventKinds::ALL;
    let unknown = Handle { handle: 7.into() };
    driver.request(RequestType::DestroyPd, 1, &unknown);
    driver.request(RequestType::QueryMaxResources, 1, &NOTHING);
    let events = driver.effects().events;
    assert_eq!(events[0].name, "GDMA_DESTROY_PD");
    let fields: Vec<_> = events[0].fields.iter().map(|(name, value)| (name.as_ref(), *value)).collect();
    assert_eq!(fields, [("status", Status::InvalidHandle as u64), ("pd_handle", 7)]);
    assert_eq!(events[1].name, "GDMA_QUERY_MAX_RESOURCES");
}
