//! Devices of different age: what they offer, and to whom.

use nicvisor_core::{Device, KernelVersion, Profile};
use nicvisor_net::rss::Fields;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use super::steering::unchanged;
use super::{assert_clean, config, device_question};
use crate::Config;
use crate::config::{Capabilities, FunctionKind};
use crate::features::Feature;
use crate::features::tests::releases;
use crate::testing::{Driver, Response, Setup};
use crate::vport::Coalescing;
use crate::wire::gdma_requests::{
    CreateDmaRegion, Handle, HwcTimeout, Index, ListDevicesResponse, PF_DYN_INTERRUPT_MODERATION,
    PF_HWC_TIMEOUT_RECONFIG, driver_flags,
};
use crate::wire::hwc::EVENT_SOC_RECONFIG_DATA;
use crate::wire::mana_requests::{
    ConfigRxSteering, PF_CQE_8_COALESCING, QueryDeviceConfigResponse, QueryVportConfigResponse, hash_types,
};
use crate::wire::{RequestType, Status};

/// A device with everything on, and a driver that announced everything.
fn driver(profile: Profile, kernel: KernelVersion) -> Driver {
    let capabilities = Capabilities {
        rdma: true,
        device_list_holes: true,
        coalescing_8: true,
        host_mode: true,
        ..Capabilities::default()
    };
    let function = FunctionKind::Pf2;
    let config = Config { capabilities, function, profile, indirection_entries: 128, ..config([2; 6]) };
    let mut driver = Driver { kernel, flags: u64::MAX, ..Driver::new(config).unwrap() };
    driver.open(Setup { queues: 1, coalescing: Coalescing::Four, ..Setup::default() });
    driver
}

/// Whether the driver can tell that the device has `feature`.
fn shows(feature: Feature, driver: &mut Driver) -> bool {
    match feature {
        Feature::Rdma => devices(driver).num_of_devs.get() == 3,
        Feature::ListHoles => devices(driver).devs[0].kind.get() == 0,
        Feature::AdapterMtu => {
            let answer = device_config(driver);
            answer.version >= 2 && answer.get::<QueryDeviceConfigResponse>().adapter_mtu.get() == 1514
        }
        Feature::HostMode => {
            let answer = device_config(driver);
            answer.version == 3 && answer.get::<QueryDeviceConfigResponse>().bm_hostmode == 1
        }
        Feature::Coalescing8 => {
            let answer: QueryDeviceConfigResponse = device_config(driver).get();
            answer.pf_cap_flags[0].get() & PF_CQE_8_COALESCING != 0
        }
        Feature::ChannelTimeout => {
            let asked = HwcTimeout { timeout_ms: 1.into(), reserved: 0.into() };
            let offered = driver.announce() & PF_HWC_TIMEOUT_RECONFIG != 0;
            assert_eq!(answers(driver, RequestType::QueryHwcTimeout, &asked), offered);
            offered
        }
        Feature::VariableTable => {
            let index = Index { index: 0.into() };
            let answer: QueryVportConfigResponse =
                driver.request(RequestType::QueryVportConfig, 1, &index).get();
            answer.num_indirection_ent.get() == 128
        }
        Feature::LinkConfig => {
            let handle = Handle { handle: driver.ports[0].handle.into() };
            answers(driver, RequestType::QueryLinkConfig, &handle)
        }
        Feature::PhyStatistics => answers(driver, RequestType::QueryPhyStat, &[0_u8; 8]),
        Feature::LinkEvents => is_told_of_the_link(driver),
        Feature::LargePages => takes_large_pages(driver),
        Feature::Moderation => driver.announce() & PF_DYN_INTERRUPT_MODERATION != 0,
        Feature::Coalescing => {
            let works = driver.harness.device.state.vports[0].steering.coalescing == Coalescing::Four;
            assert_eq!(steer(driver).version == 2, works);
            works
        }
        Feature::HashTypes => {
            assert_eq!(steer(driver).status, 0);
            driver.harness.device.state.vports[0].steering.hash.fields != Fields::ALL
        }
    }
}

fn devices(driver: &mut Driver) -> ListDevicesResponse {
    driver.request(RequestType::ListDevices, 1, &[0_u8; 0]).get()
}

fn device_config(driver: &mut Driver) -> Response {
    let asked = device_question();
    driver.request(RequestType::QueryDevConfig, 3, &asked)
}

/// Whether a request is carried out; the other possibility is that the device does not know it.
fn answers(
    driver: &mut Driver,
    kind: RequestType,
    body: &(impl IntoBytes + zerocopy::Immutable + ?Sized),
) -> bool {
    let status = driver.request(kind, 2, body).status;
    assert!(status == 0 || status == Status::Unsupported as u32, "{status:#x}");
    status == 0
}

fn is_told_of_the_link(driver: &mut Driver) -> bool {
    driver.harness.call(|device, context| device.set_link(context, 0, false));
    driver.channel.events(&mut driver.harness);
    driver.channel.other_events.contains(&EVENT_SOC_RECONFIG_DATA)
}

fn takes_large_pages(driver: &mut Driver) -> bool {
    let create = CreateDmaRegion {
        length: 4096.into(),
        offset_in_page: 0.into(),
        gdma_page_type: 10.into(),
        page_count: 1.into(),
        page_addr_list_len: 1.into(),
    };
    let body = [create.as_bytes(), U64::new(4 << 20).as_bytes()].concat();
    driver.request(RequestType::CreateDmaRegion, 1, &body[..]).status == 0
}

/// Has only IPv4 addresses hashed.
fn steer(driver: &mut Driver) -> Response {
    let asked = ConfigRxSteering {
        indir_tab_offset: 0.into(),
        cqe_coalescing_enable: 1,
        rss_hash_types: hash_types::IPV4.into(),
        ..unchanged(driver)
    };
    driver.request(RequestType::ConfigVportRx, 5, &asked)
}

#[test]
fn each_feature_is_there_from_its_release_on() {
    let now = KernelVersion::new(7, 3);
    for feature in Feature::ALL {
        for (release, expected) in releases(feature).into_iter().zip([false, true]) {
            let mut old_device = driver(Profile::Linux(release), now);
            assert_eq!(shows(feature, &mut old_device), expected, "{feature:?} of a device of {release}");
            let mut old_driver = driver(Profile::Announced, release);
            assert_eq!(shows(feature, &mut old_driver), expected, "{feature:?} for a driver of {release}");
        }
        let mut unlimited = driver(Profile::Current, KernelVersion::OLDEST);
        assert!(shows(feature, &mut unlimited), "{feature:?}");
    }
}

#[test]
fn what_a_driver_does_not_announce_is_not_used_towards_it() {
    for (feature, flag) in [
        (Feature::ChannelTimeout, driver_flags::HWC_TIMEOUT_RECONFIG),
        (Feature::LargePages, driver_flags::LARGE_PAGES),
        (Feature::VariableTable, driver_flags::VARIABLE_INDIRECTION_TABLE),
        (Feature::LinkEvents, driver_flags::HW_VPORT_LINK_AWARE),
        (Feature::ListHoles, driver_flags::DEV_LIST_HOLES),
        (Feature::Moderation, driver_flags::DYN_INTERRUPT_MODERATION),
    ] {
        let mut driver = driver(Profile::Current, KernelVersion::OLDEST);
        driver.flags &= !flag;
        driver.announce();
        assert!(!shows(feature, &mut driver), "{feature:?}");
    }
}

#[test]
fn what_is_switched_off_stays_off_whatever_the_age() {
    let capabilities = Capabilities {
        timeout_query: false,
        dynamic_moderation: false,
        link_config: false,
        phy_statistics: false,
        ..Capabilities::default()
    };
    let mut driver = Driver::new(Config { capabilities, ..config([2; 6]) }).unwrap();
    driver.open(Setup::default());
    for feature in [
        Feature::Rdma,
        Feature::ListHoles,
        Feature::ChannelTimeout,
        Feature::Moderation,
        Feature::LinkConfig,
        Feature::PhyStatistics,
        Feature::HostMode,
        Feature::Coalescing8,
    ] {
        assert!(!shows(feature, &mut driver), "{feature:?}");
    }
    assert_clean(&driver.effects());
}

/// The driver of another system counts its releases in another way.
#[test]
fn only_linux_tells_a_release_of_linux() {
    let mut driver = driver(Profile::Announced, KernelVersion::new(7, 3));
    driver.harness.device.state.driver.as_mut().unwrap().os_type = 0x20;
    assert!(!shows(Feature::LinkConfig, &mut driver));
}
