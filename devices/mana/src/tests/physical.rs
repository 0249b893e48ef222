//! Physical functions: vPorts and filters that the driver registers.

use nicvisor_core::{DropReason, Fate};
use nicvisor_net::parse::IpVersion;
use nicvisor_net::testing::Packet;

use super::{RECEIVER, assert_clean, broken, config, open_with};
use crate::Config;
use crate::config::{Capabilities, FunctionKind};
use crate::testing::{Driver, Send, Setup};
use crate::wire::completion::CqeType;
use crate::wire::gdma_requests::Handle;
use crate::wire::mana_requests::QueryLinkConfigResponse;
use crate::wire::{RequestType, Status};

const PHYSICAL: [FunctionKind; 2] = [FunctionKind::Pf, FunctionKind::Pf2];

fn open(function: FunctionKind) -> Driver {
    open_with(Config { function, ..config(RECEIVER) }, Setup::default())
}

fn status(driver: &mut Driver, kind: RequestType, handle: u64) -> u32 {
    driver.request(kind, 1, &Handle { handle: handle.into() }).status
}

/// What becomes of a frame for the vPort's address and of one for all.
fn arrive(driver: &mut Driver) -> Vec<Fate> {
    let mut bytes = Packet::new(IpVersion::V4, 100).build();
    driver.harness.arrive(0, 1, bytes.clone());
    bytes[..6].fill(0xff);
    driver.harness.arrive(0, 2, bytes);
    driver.effects().fates.into_iter().map(|(_, fate)| fate).collect()
}

#[test]
fn frames_reach_a_vport_by_its_filter() {
    for function in PHYSICAL {
        let mut driver = open(function);
        assert_eq!(arrive(&mut driver), [Fate::Delivered, Fate::Delivered]);
        let filter = driver.ports[0].filter.unwrap();
        assert_eq!(status(&mut driver, RequestType::DeregisterFilter, filter), 0);
        assert_eq!(arrive(&mut driver), [Fate::Dropped(DropReason::FILTERED), Fate::Delivered]);
        assert_ne!(status(&mut driver, RequestType::DeregisterFilter, filter), 0);
        assert_eq!(broken(&driver.effects()), ["mana-object-unknown"]);
    }
}

#[test]
fn a_physical_function_sends_and_is_taken_apart() {
    for function in PHYSICAL {
        let mut driver = open(function);
        let mut bytes = Packet::new(IpVersion::V6, 900).build();
        bytes[6..12].copy_from_slice(&RECEIVER);
        driver.send(0, 1, &Send::plain(&bytes));
        assert_eq!(driver.completed(0, 1).len(), 1);
        let effects = driver.effects();
        assert_clean(&effects);
        assert_eq!(effects.frames[0].1.bytes, bytes);
        driver.close();
        assert!(driver.channel.destroy(&mut driver.harness));
        assert_clean(&driver.effects());
    }
}

#[test]
fn a_vport_sends_the_types_that_it_was_registered_for() {
    let mut driver = open(FunctionKind::Pf);
    let bytes = [&[2; 6][..], &RECEIVER, &0x88b5_u16.to_be_bytes(), &[0; 50]].concat();
    driver.send(0, 0, &Send::plain(&bytes));
    driver.harness.device.state.vports[0].known_types_only = true;
    driver.send(0, 0, &Send::plain(&bytes));
    let kinds: Vec<u8> = driver.completed(0, 0).iter().map(|sent| sent.kind).collect();
    assert_eq!(kinds, [CqeType::TxOkay as u8, CqeType::TxInvalidEthType as u8]);
    assert_clean(&driver.effects());
}

#[test]
fn a_vport_goes_after_its_queues_and_filters() {
    let mut driver = open(FunctionKind::Pf);
    let handle = driver.ports[0].handle;
    let busy = status(&mut driver, RequestType::DeregisterHwPort, handle);
    assert_eq!(busy, Status::InvalidState as u32);
    assert_eq!(broken(&driver.effects()), ["mana-object-in-use"]);
    driver.close();
    assert_clean(&driver.effects());
    assert_eq!(status(&mut driver, RequestType::DeregisterHwPort, handle), Status::InvalidState as u32);
    assert_eq!(broken(&driver.effects()), ["mana-request-order"], "the device is no longer registered");
}

#[test]
fn what_is_left_behind_is_found() {
    let mut driver = open(FunctionKind::Pf);
    assert!(driver.channel.destroy(&mut driver.harness));
    let effects = driver.effects();
    assert_eq!(broken(&effects), ["mana-hwc-leftover"]);
    let message = &effects.findings[0].message;
    assert!(message.contains("1 hardware vPorts") && message.contains("1 filters"), "{message}");
}

#[test]
fn the_link_can_be_asked_for_before_a_vport_is_registered() {
    let mut driver = Driver::new(Config { function: FunctionKind::Pf, ..config(RECEIVER) }).unwrap();
    driver.register();
    let found = driver.harness.device.state.vports[0].handle();
    let answer = driver.request(RequestType::QueryLinkConfig, 1, &Handle { handle: found.into() });
    assert_eq!(answer.get::<QueryLinkConfigResponse>().link_speed_mbps.get(), 200_000);
    assert_clean(&driver.effects());
}

#[test]
fn in_host_mode_nothing_is_registered() {
    let capabilities = Capabilities { host_mode: true, ..Capabilities::default() };
    let config = Config { function: FunctionKind::Pf2, capabilities, ports: 2, ..config(RECEIVER) };
    let mut driver = open_with(config, Setup::default());
    assert_eq!(driver.ports[0].filter, None);
    assert_eq!(arrive(&mut driver), [Fate::Delivered, Fate::Delivered]);
    driver.close();
    assert_clean(&driver.effects());
}
