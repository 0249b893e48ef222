//! What the device says of itself, and requests that are not as they should be.

use nicvisor_core::PciDevice;
use nicvisor_core::testing::Harness;
use zerocopy::IntoBytes;

use super::{NOTHING, SENDER, assert_clean, broken, config, counter, device_question, handle, started};
use crate::config::{Capabilities, FunctionKind};
use crate::testing::{Driver, header_of};
use crate::wire::gdma_requests::{HwcTimeout, Index, ListDevicesResponse, MaxResourcesResponse};
use crate::wire::mana_requests::{QueryDeviceConfigResponse, QueryVportConfigResponse};
use crate::wire::{RequestType, Status};
use crate::{Config, Mana};

#[test]
fn the_device_says_what_it_is() {
    let mut driver = started(Config { ports: 3, ..config(SENDER) });
    let limits: MaxResourcesResponse = driver.request(RequestType::QueryMaxResources, 1, &NOTHING).get();
    assert_eq!((limits.max_msix.get(), limits.max_sq.get()), (65, 1024));
    let devices: ListDevicesResponse = driver.request(RequestType::ListDevices, 1, &NOTHING).get();
    assert_eq!(devices.num_of_devs.get(), 2);
    assert_eq!(devices.devs.map(|device| device.kind.get())[..3], [1, 2, 0]);
    let question = device_question();
    let answer: QueryDeviceConfigResponse = driver.request(RequestType::QueryDevConfig, 1, &question).get();
    assert_eq!((answer.max_num_vports.get(), answer.adapter_mtu.get()), (3, 1514));
    let timeout = HwcTimeout { timeout_ms: 1.into(), reserved: 0.into() };
    let timeout: HwcTimeout = driver.request(RequestType::QueryHwcTimeout, 1, &timeout).get();
    assert_eq!(timeout.timeout_ms.get(), 30_000);
    assert_clean(&driver.effects());
}

#[test]
fn the_device_list_has_holes_only_for_drivers_that_skip_them() {
    let capabilities = Capabilities { rdma: true, device_list_holes: true, ..Capabilities::default() };
    let mut driver = started(Config { capabilities, ..config(SENDER) });
    driver.harness.device.state.driver.as_mut().unwrap().flags = 0;
    let devices: ListDevicesResponse = driver.request(RequestType::ListDevices, 1, &NOTHING).get();
    assert_eq!(devices.devs.map(|device| device.kind.get())[..4], [1, 2, 3, 0]);
    driver.harness.device.state.driver.as_mut().unwrap().flags |= 1 << 11;
    let devices: ListDevicesResponse = driver.request(RequestType::ListDevices, 1, &NOTHING).get();
    assert_eq!(devices.devs.map(|device| device.kind.get())[..7], [0, 1, 0, 2, 0, 3, 0]);
    assert_eq!(devices.num_of_devs.get(), 3);
}

#[test]
fn tables_of_other_sizes_are_proposed_to_drivers_that_know_them() {
    let mut driver = started(Config { indirection_entries: 128, ..config(SENDER) });
    for (flags, entries) in [(0, 64), (1 << 5, 128)] {
        driver.harness.device.state.driver.as_mut().unwrap().flags = flags;
        let index = Index { index: 0.into() };
        let vport: QueryVportConfigResponse = driver.request(RequestType::QueryVportConfig, 1, &index).get();
        assert_eq!(vport.num_indirection_ent.get(), entries);
    }
}

#[test]
fn requests_come_in_order() {
    let mut driver = Driver::new(config(SENDER)).unwrap();
    let early = driver.request(RequestType::QueryMaxResources, 1, &NOTHING);
    assert_eq!(early.status, Status::InvalidState as u32);
    driver.register();
    let twice = driver.request(RequestType::RegisterDevice, 1, &NOTHING);
    assert_eq!(twice.status, Status::InvalidState as u32);
    assert_eq!(driver.request(RequestType::DeregisterDevice, 1, &NOTHING).status, 0);
    let late = driver.request(RequestType::QueryGfStat, 1, &handle(0));
    assert_eq!(late.status, Status::InvalidState as u32);
    let again = driver.request(RequestType::DeregisterDevice, 1, &NOTHING);
    assert_eq!(again.status, Status::InvalidHandle as u32);
    let order = "mana-request-order";
    assert_eq!(broken(&driver.effects()), [order, order, order, "mana-object-unknown"]);
    assert_eq!(counter(&driver, "hwc_failures"), 4);
}

#[test]
fn malformed_messages_get_a_finding_and_no_more_than_a_failure() {
    let mut driver = started(config(SENDER));
    assert_eq!(driver.channel.exchange(&mut driver.harness, &[0; 39]), None);
    assert_eq!(broken(&driver.effects()), ["mana-hwc-message"]);
    let unknown = header_of(200, 40);
    let answer = driver.channel.exchange(&mut driver.harness, unknown.as_bytes()).unwrap();
    assert_eq!(answer.status, Status::Unsupported as u32);
    assert_eq!(broken(&driver.effects()), ["mana-request-unknown"]);
    let short = driver.request(RequestType::DestroyPd, 1, &[0_u8; 7]);
    assert_eq!(short.status, Status::InvalidMessage as u32);
    assert_eq!(broken(&driver.effects()), ["mana-request-size"]);
    let hidden = driver.request(RequestType::RegisterFilter, 1, &[0_u8; 32]);
    assert_eq!(hidden.status, Status::InvalidParameter as u32);
    assert_eq!(broken(&driver.effects()), ["mana-request-parameter"]);
}

#[test]
fn registers_can_only_be_read_and_lead_to_everything_else() {
    for function in [FunctionKind::Vf, FunctionKind::Pf, FunctionKind::Pf2] {
        let device = Mana::new(Config { function, ..config(SENDER) }).unwrap();
        let size = device.identity().bars[0].size;
        let mut harness = Harness::new(device, 1 << 20, 0x1000..0x8_0000);
        let read = |harness: &mut Harness<Mana>, offset| u64::from_le_bytes(harness.read_bar(0, offset));
        let (doorbells, page, shared) = match function {
            FunctionKind::Pf => {
                let base = read(&mut harness, 0x108);
                (read(&mut harness, 0xc8), read(&mut harness, 0xd0), base + read(&mut harness, base + 0x70))
            }
            _ => (read(&mut harness, 0x08), read(&mut harness, 0x10), read(&mut harness, 0x18)),
        };
        assert_eq!(page & 0xffff, 4096);
        assert_eq!(doorbells + 128 * 4096, size);
        assert!(shared + 32 <= doorbells);
        assert_eq!(u32::from_le_bytes(harness.read_bar(0, shared + 28)) >> 31, 0, "the driver's");
        harness.write_bar(0, 8, &[0; 8]);
        harness.write_bar(0, shared + 1, &[0; 4]);
        harness.write_bar(0, doorbells, &[0; 4]);
        assert_eq!(broken(&harness.effects()), ["mana-register-access"; 3]);
        harness.write_bar(0, shared + 28, &[5, 0, 0, 0]);
        assert_eq!(broken(&harness.effects()), ["mana-shm-message"]);
        assert_eq!(harness.read_bar(0, shared + 28), [0x85, 1, 0, 0], "a failure");
    }
}

#[test]
fn rules_are_ignored_on_demand() {
    let mut config = config(SENDER);
    config.set("ignore-rule", "mana-object-unknown").unwrap();
    let mut driver = started(config);
    assert_ne!(driver.request(RequestType::DestroyDmaRegion, 1, &handle(1)).status, 0);
    assert_clean(&driver.effects());
}
