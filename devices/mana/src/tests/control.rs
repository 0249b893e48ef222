//! The hardware channel and what is created through it.

use nicvisor_core::testing::Harness;
use nicvisor_core::{Device, PciDevice, Severity};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use super::{assert_clean, broken, config, counter, open};
use crate::config::{Capabilities, FunctionKind};
use crate::testing::{Driver, Setup, header_of};
use crate::wire::doorbell::Doorbell;
use crate::wire::gdma_requests::{
    AllocDm, AllocateResourceRange, CreateDmaRegion, CreateMr, CreateMrResponse, CreatePd, CreatePdResponse,
    CreateQueue, DestroyResourceRange, DisableQueue, Handle, HwcTimeout, Index, ListDevicesResponse,
    MaxResourcesResponse, mr_type, queue_type,
};
use crate::wire::hwc::EVENT_SOC_RECONFIG_DATA;
use crate::wire::mana_requests::{
    ConfigVport, CreateWqObject, CreateWqObjectResponse, DestroyWqObject, PhyStatistics, QueryDeviceConfig,
    QueryDeviceConfigResponse, QueryLinkConfigResponse, QueryVportConfigResponse, SetBandwidthClamp,
};
use crate::wire::shared_memory::Establish;
use crate::wire::{RequestType, Status};
use crate::{Config, Mana};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const NOTHING: [u8; 0] = [];

/// A driver that said who it is and registered the Ethernet device.
fn started(config: Config) -> Driver {
    let mut driver = Driver::new(config).unwrap();
    driver.register();
    driver
}

fn handle(handle: u64) -> Handle {
    Handle { handle: handle.into() }
}

/// Asks for a region over these pages.
fn region(driver: &mut Driver, length: u64, pages: &[u64]) -> crate::testing::Response {
    let create = CreateDmaRegion {
        length: length.into(),
        offset_in_page: 0.into(),
        gdma_page_type: 0.into(),
        page_count: (length.div_ceil(4096) as u32).into(),
        page_addr_list_len: (pages.len() as u32).into(),
    };
    let pages: Vec<U64> = pages.iter().map(|page| U64::new(*page)).collect();
    let body = [create.as_bytes(), pages.as_bytes()].concat();
    driver.request(RequestType::CreateDmaRegion, 1, &body[..])
}

#[test]
fn the_device_says_what_it_is() {
    let mut driver = started(Config { ports: 3, ..config(MAC) });
    let limits: MaxResourcesResponse = driver.request(RequestType::QueryMaxResources, 1, &NOTHING).get();
    assert_eq!((limits.max_msix.get(), limits.max_sq.get()), (65, 1024));
    let devices: ListDevicesResponse = driver.request(RequestType::ListDevices, 1, &NOTHING).get();
    assert_eq!(devices.num_of_devs.get(), 2);
    assert_eq!(devices.devs.map(|device| device.kind.get())[..3], [1, 2, 0]);
    let question = QueryDeviceConfig {
        mn_drv_cap_flags: [0.into(); 4],
        proto_major_ver: 0.into(),
        proto_minor_ver: 1.into(),
        proto_micro_ver: 1.into(),
        reserved: 0.into(),
    };
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
    let mut driver = started(Config { capabilities, ..config(MAC) });
    let devices: ListDevicesResponse = driver.request(RequestType::ListDevices, 1, &NOTHING).get();
    assert_eq!(devices.devs.map(|device| device.kind.get())[..4], [1, 2, 3, 0]);
    driver.harness.device.state.driver.as_mut().unwrap().flags |= 1 << 11;
    let devices: ListDevicesResponse = driver.request(RequestType::ListDevices, 1, &NOTHING).get();
    assert_eq!(devices.devs.map(|device| device.kind.get())[..7], [0, 1, 0, 2, 0, 3, 0]);
    assert_eq!(devices.num_of_devs.get(), 3);
}

#[test]
fn requests_come_in_order() {
    let mut driver = Driver::new(config(MAC)).unwrap();
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
fn a_region_is_made_of_aligned_pages_and_destroyed_once() {
    let mut driver = started(config(MAC));
    assert_eq!(region(&mut driver, 8192, &[0x1001]).status, Status::InvalidParameter as u32);
    assert_eq!(region(&mut driver, 4096, &[0x1000, 0x2000]).status, Status::InvalidParameter as u32);
    assert_eq!(region(&mut driver, 0, &[]).status, Status::InvalidParameter as u32);
    assert_eq!(broken(&driver.effects()), ["mana-dma-region"; 3]);
    let answer = region(&mut driver, 8192, &[0x1000]);
    assert_eq!(answer.status, Status::MoreEntries as u32);
    let made: Handle = answer.get();
    assert_eq!(driver.request(RequestType::DestroyDmaRegion, 1, &made).status, 0);
    assert_clean(&driver.effects());
    let again = driver.request(RequestType::DestroyDmaRegion, 1, &made);
    assert_eq!(again.status, Status::InvalidHandle as u32);
    assert_eq!(broken(&driver.effects()), ["mana-object-unknown"]);
}

/// What drivers did when the first work queue object could not be created.
#[test]
fn cleaning_up_what_was_never_created_is_found_step_by_step() {
    let mut driver = open(MAC);
    let ring = DestroyWqObject {
        wq_type: queue_type::RQ.into(),
        reserved: 0.into(),
        wq_obj_handle: u64::MAX.into(),
    };
    let status = driver.request(RequestType::DestroyWqObj, 1, &ring).status;
    assert_eq!(status, Status::InvalidHandle as u32);
    let made: Handle = region(&mut driver, 4096, &[0x1000]).get();
    for status in [0, Status::InvalidHandle as u32] {
        assert_eq!(driver.request(RequestType::DestroyDmaRegion, 1, &made).status, status);
    }
    assert_eq!(broken(&driver.effects()), ["mana-object-unknown"; 2]);
}

#[test]
fn the_region_of_a_queue_belongs_to_the_queue() {
    let mut driver = open(MAC);
    // The first region after those of handles that were given out before: try them all.
    let taken = (0x1_0000..0x1_0040)
        .map(|candidate| driver.request(RequestType::DestroyDmaRegion, 1, &handle(candidate)).status);
    assert!(taken.collect::<Vec<_>>().iter().all(|status| *status == Status::InvalidHandle as u32));
    let messages = driver.effects().findings;
    assert!(messages.iter().any(|finding| finding.message.contains("belongs to EventQueue")));
    assert!(messages.iter().any(|finding| finding.message.contains("belongs to CompletionQueue")));
}

#[test]
fn queues_are_destroyed_after_what_uses_them() {
    let mut driver = open(MAC);
    let disable = |id: u32| DisableQueue {
        r#type: queue_type::EQ.into(),
        queue_index: id.into(),
        alloc_res_id_on_creation: 1.into(),
    };
    let events = driver.ports[0].events[0].id;
    let status = driver.request(RequestType::DisableQueue, 1, &disable(events)).status;
    assert_eq!(status, Status::InvalidState as u32);
    assert_eq!(broken(&driver.effects()), ["mana-object-in-use"]);
    // A receive queue goes, but frames are still steered to it.
    let destroy = DestroyWqObject {
        wq_type: queue_type::RQ.into(),
        reserved: 0.into(),
        wq_obj_handle: driver.ports[0].receive[0].object.into(),
    };
    let wrong = DestroyWqObject { wq_type: queue_type::SQ.into(), ..destroy };
    assert_eq!(driver.request(RequestType::DestroyWqObj, 1, &wrong).status, Status::InvalidParameter as u32);
    assert_eq!(driver.request(RequestType::DestroyWqObj, 1, &destroy).status, 0);
    assert_eq!(broken(&driver.effects()), ["mana-request-parameter", "mana-object-in-use"]);
}

#[test]
fn a_device_that_is_deregistered_or_a_channel_that_is_destroyed_leaves_nothing() {
    let mut driver = open(MAC);
    assert_eq!(driver.request(RequestType::DeregisterDevice, 1, &NOTHING).status, 0);
    assert_eq!(broken(&driver.effects()), ["mana-device-leftover"]);
    assert!(driver.channel.destroy(&mut driver.harness));
    assert_clean(&driver.effects());

    let mut driver = open(MAC);
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
    let mut driver = open(MAC);
    driver.harness.call(|device, context| device.reset(context));
    assert_clean(&driver.effects());
    assert_eq!(counter(&driver, "resets"), 1);
    let state = driver.harness.device.save();
    assert_eq!(state["objects"]["work_queues"], serde_json::json!({}));
    assert_eq!(state["queues"]["events"], serde_json::json!({}));
}

#[test]
fn a_channel_that_is_established_with_a_reset_replaces_the_old_one() {
    let mut driver = open(MAC);
    let message = Establish {
        event_queue: 0x1000,
        completion_queue: 0x2000,
        receive_queue: 0x3000,
        send_queue: 0x4000,
        vector: 0,
    };
    for (reset, rule) in [(false, "mana-hwc-setup"), (true, "mana-reset-leftover")] {
        for (offset, word) in (0x1000..).step_by(4).zip(message.encode(reset).chunks(4)) {
            driver.harness.write_bar(0, offset, word);
        }
        let effects = driver.effects();
        assert_eq!(broken(&effects), [rule]);
        let expected = if reset { Severity::Note } else { Severity::Error };
        assert_eq!(effects.findings[0].severity, expected);
    }
    assert_eq!(driver.harness.device.state.queues.events.len(), 1);
}

#[test]
fn vports_get_queues_after_they_are_configured_and_up_to_a_limit() {
    let mut driver = started(Config { queues: 1, ..config(MAC) });
    let create = CreateWqObject {
        vport: 0x1000.into(),
        wq_type: queue_type::SQ.into(),
        reserved: 0.into(),
        wq_gdma_region: 0.into(),
        cq_gdma_region: 0.into(),
        wq_size: 4096.into(),
        cq_size: 4096.into(),
        cq_moderation_ctx_id: 0.into(),
        cq_parent_qid: 0xffff.into(),
        allow_rqwqe_chain: 0,
        req_cq_moderation: 0,
        cq_moderation_comp: 0.into(),
        cq_moderation_usec: 0.into(),
        reserved2: [0; 2],
    };
    let before = driver.request(RequestType::CreateWqObj, 1, &create).status;
    assert_eq!(before, Status::InvalidState as u32);
    let vport = ConfigVport { vport: 0x1000.into(), pdid: 2.into(), doorbell_pageid: 2.into() };
    let foreign = ConfigVport { doorbell_pageid: 7.into(), ..vport };
    assert_eq!(driver.request(RequestType::ConfigVportTx, 1, &foreign).status, Status::InvalidHandle as u32);
    assert_eq!(driver.request(RequestType::ConfigVportTx, 1, &vport).status, 0);
    assert_eq!(broken(&driver.effects()), ["mana-request-order", "mana-object-unknown"]);

    let [work, completions]: [Handle; 2] =
        [0x1000, 0x2000].map(|page| region(&mut driver, 4096, &[page]).get());
    let create = CreateWqObject { wq_gdma_region: work.handle, cq_gdma_region: completions.handle, ..create };
    for (changed, rule) in [
        (CreateWqObject { wq_size: 2048.into(), ..create }, "mana-queue-size"),
        (CreateWqObject { cq_size: 8192.into(), ..create }, "mana-queue-size"),
        (CreateWqObject { cq_gdma_region: work.handle, ..create }, "mana-request-parameter"),
        (CreateWqObject { cq_parent_qid: 9.into(), ..create }, "mana-object-unknown"),
        (CreateWqObject { vport: 0x1001.into(), ..create }, "mana-object-unknown"),
        (CreateWqObject { wq_type: 4.into(), ..create }, "mana-request-parameter"),
    ] {
        assert_ne!(driver.request(RequestType::CreateWqObj, 1, &changed).status, 0);
        assert_eq!(broken(&driver.effects()), [rule]);
    }
    // Version 1 is shorter.
    let short = &create.as_bytes()[..48];
    assert_eq!(driver.request(RequestType::CreateWqObj, 1, short).status, 0);
    assert_eq!(driver.request(RequestType::CreateWqObj, 1, short).status, Status::NoResources as u32);
    assert_eq!(driver.request(RequestType::ConfigVportTx, 1, &vport).status, Status::InvalidState as u32);
    assert_eq!(broken(&driver.effects()), ["mana-request-order"]);
}

#[test]
fn what_rdma_needs_is_accounted_for() {
    let mut driver = started(config(MAC));
    let create = CreatePd { flags: 4.into(), reserved: 0.into() };
    let domain: CreatePdResponse = driver.request(RequestType::CreatePd, 1, &create).get();
    let pages: Handle = region(&mut driver, 4096, &[0x1000]).get();
    let create = CreateMr {
        pd_handle: domain.pd_handle,
        mr_type: mr_type::GVA.into(),
        reserved_1: 0.into(),
        object_handle: pages.handle,
    };
    let memory: CreateMrResponse = driver.request(RequestType::CreateMr, 1, &create).get();
    assert_eq!(driver.request(RequestType::DestroyDmaRegion, 1, &pages).status, Status::InvalidHandle as u32);
    let domain = Handle { handle: domain.pd_handle };
    assert_eq!(driver.request(RequestType::DestroyPd, 1, &domain).status, Status::InvalidState as u32);
    assert_eq!(broken(&driver.effects()), ["mana-object-unknown", "mana-object-in-use"]);
    let memory = Handle { handle: memory.mr_handle };
    for status in [0, Status::InvalidHandle as u32] {
        assert_eq!(driver.request(RequestType::DestroyMr, 1, &memory).status, status);
        assert_eq!(driver.request(RequestType::DestroyPd, 1, &domain).status, status);
    }
    let piece = AllocDm { length: (200 << 10).into(), alignment: 64.into(), flags: 0.into() };
    let piece_handle: Handle = driver.request(RequestType::AllocDm, 1, &piece).get();
    assert_eq!(driver.request(RequestType::AllocDm, 1, &piece).status, Status::NoResources as u32);
    assert_eq!(driver.request(RequestType::DestroyDm, 1, &piece_handle).status, 0);
    assert_eq!(broken(&driver.effects()), ["mana-object-unknown"; 2]);
    assert!(!driver.harness.device.leftovers().contains("memory"), "{}", driver.harness.device.leftovers());
}

#[test]
fn doorbell_pages_are_given_out_and_taken_back() {
    let mut driver = started(config(MAC));
    let asked = AllocateResourceRange {
        resource_type: 27.into(),
        num_resources: 8.into(),
        alignment: 8.into(),
        allocated_resources: 0.into(),
    };
    let first: Index = driver.request(RequestType::AllocateResourceRange, 1, &asked).get();
    assert!(first.index.get().is_multiple_of(8));
    let range = DestroyResourceRange {
        resource_type: 27.into(),
        num_resources: 8.into(),
        allocated_resources: first.index,
    };
    for status in [0, Status::InvalidHandle as u32] {
        assert_eq!(driver.request(RequestType::DestroyResourceRange, 1, &range).status, status);
    }
    assert_eq!(broken(&driver.effects()), ["mana-object-unknown"]);
}

#[test]
fn bandwidth_is_limited_and_statistics_are_told() {
    let mut driver = open(MAC);
    let vport = driver.ports[0].handle;
    let clamp =
        SetBandwidthClamp { vport: vport.into(), enable_clamping: 1.into(), link_speed_mbps: 10_000.into() };
    assert_eq!(driver.request(RequestType::SetBwClamp, 1, &clamp).status, 0);
    let link: QueryLinkConfigResponse = driver.request(RequestType::QueryLinkConfig, 1, &handle(vport)).get();
    assert_eq!((link.link_speed_mbps.get(), link.qos_speed_mbps.get()), (10_000, 200_000));
    let all = driver.request(RequestType::QueryGfStat, 1, &handle(u64::MAX));
    assert_eq!(all.body[..8], ((1_u64 << 27) - 1).to_le_bytes());
    let some: [U64; 28] = driver.request(RequestType::QueryGfStat, 1, &handle(1 << 3)).get();
    assert_eq!(some[0].get(), 1 << 3);
    let port: PhyStatistics = driver.request(RequestType::QueryPhyStat, 1, &handle(0)).get();
    assert_eq!(port.rx_pkt_drop_phy.get(), 0);
    assert_clean(&driver.effects());
}

#[test]
fn the_driver_hears_of_the_link_if_it_said_that_it_listens() {
    let mut driver = open(MAC);
    driver.harness.call(|device, context| device.set_link(context, 0, false));
    driver.channel.events(&mut driver.harness);
    driver.harness.call(|device, context| device.set_link(context, 0, true));
    driver.channel.events(&mut driver.harness);
    assert_eq!(driver.channel.other_events, [EVENT_SOC_RECONFIG_DATA; 2]);
    assert_clean(&driver.effects());
}

#[test]
fn malformed_messages_get_a_finding_and_no_more_than_a_failure() {
    let mut driver = started(config(MAC));
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
        let device = Mana::new(Config { function, ..config(MAC) }).unwrap();
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
    let mut config = config(MAC);
    config.set("ignore-rule", "mana-object-unknown").unwrap();
    let mut driver = started(config);
    assert_ne!(driver.request(RequestType::DestroyDmaRegion, 1, &handle(1)).status, 0);
    assert_clean(&driver.effects());
}

#[test]
fn ports_share_the_device() {
    let mut driver = Driver::new(Config { ports: 2, ..config(MAC) }).unwrap();
    driver.open(Setup::default());
    driver.open(Setup::default());
    assert_eq!(driver.harness.device.ports().len(), 2);
    assert_ne!(driver.ports[0].handle, driver.ports[1].handle);
    driver.close();
    driver.close();
    assert!(driver.channel.destroy(&mut driver.harness));
    assert_clean(&driver.effects());
}

#[test]
fn completion_queues_by_themselves_are_accounted_for() {
    let mut driver = started(config(MAC));
    let create = |driver: &mut Driver, page: u64, kind: u32, throttle: u32| {
        let memory: Handle = region(driver, 4096, &[page]).get();
        let create = CreateQueue {
            r#type: kind.into(),
            reserved1: 0.into(),
            pdid: 2.into(),
            doolbell_id: 2.into(),
            gdma_region: memory.handle,
            reserved2: 0.into(),
            queue_size: 4096.into(),
            log2_throttle_limit: throttle.into(),
            eq_pci_msix_index: 1.into(),
            cq_mod_ctx_id: 0.into(),
            cq_parent_eq_id: 0xffff.into(),
            flags: [0; 4],
            reserved3: 0.into(),
        };
        driver.request(RequestType::CreateQueue, 1, &create)
    };
    let queue: Index = create(&mut driver, 0x1000, queue_type::CQ, 0).get();
    let disable = DisableQueue {
        r#type: queue_type::CQ.into(),
        queue_index: queue.index,
        alloc_res_id_on_creation: 1.into(),
    };
    for status in [0, Status::InvalidHandle as u32] {
        assert_eq!(driver.request(RequestType::DisableQueue, 1, &disable).status, status);
    }
    assert_eq!(broken(&driver.effects()), ["mana-object-unknown"]);
    assert_eq!(create(&mut driver, 0x2000, queue_type::EQ, 8).status, 0);
    let above = create(&mut driver, 0x3000, queue_type::EQ, 9).status;
    assert_eq!(
        (above, broken(&driver.effects())),
        (Status::InvalidParameter as u32, vec!["mana-request-parameter"])
    );
    create(&mut driver, 0x4000, queue_type::CQ, 0);
    assert!(driver.harness.device.leftovers().contains("1 completion queues"));
    assert_eq!(driver.request(RequestType::DeregisterDevice, 1, &NOTHING).status, 0);
    let effects = driver.effects();
    assert_eq!(broken(&effects), ["mana-device-leftover"]);
    assert!(effects.findings[0].message.contains("1 event queues and 1 completion queues"));
    assert_eq!(driver.harness.device.leftovers(), "1 DMA regions", "of the queue that was refused");
}

#[test]
fn moderation_is_given_only_where_it_is_offered() {
    for offered in [true, false] {
        let capabilities = Capabilities { dynamic_moderation: offered, ..Capabilities::default() };
        let mut driver = started(Config { capabilities, ..config(MAC) });
        let vport = ConfigVport { vport: 0x1000.into(), pdid: 2.into(), doorbell_pageid: 2.into() };
        assert_eq!(driver.request(RequestType::ConfigVportTx, 1, &vport).status, 0);
        let [work, completions]: [Handle; 2] =
            [0x1000, 0x2000].map(|page| region(&mut driver, 4096, &[page]).get());
        let create = CreateWqObject {
            vport: 0x1000.into(),
            wq_type: queue_type::SQ.into(),
            reserved: 0.into(),
            wq_gdma_region: work.handle,
            cq_gdma_region: completions.handle,
            wq_size: 4096.into(),
            cq_size: 4096.into(),
            cq_moderation_ctx_id: 0.into(),
            cq_parent_qid: 0xffff.into(),
            allow_rqwqe_chain: 0,
            req_cq_moderation: 1,
            cq_moderation_comp: 8.into(),
            cq_moderation_usec: 5.into(),
            reserved2: [0; 2],
        };
        let made: CreateWqObjectResponse = driver.request(RequestType::CreateWqObj, 3, &create).get();
        assert_eq!(made.cq_moderation_enabled, u8::from(offered));
        let id = made.cq_id.get();
        driver.ring(Doorbell::Moderation { id, microseconds: Some(9), completions: None });
        let expected = if offered { &[][..] } else { &["mana-cq-moderation"] };
        assert_eq!(broken(&driver.effects()), expected);
    }
}

#[test]
fn tables_of_other_sizes_are_proposed_to_drivers_that_know_them() {
    let mut driver = started(Config { indirection_entries: 128, ..config(MAC) });
    for (flags, entries) in [(0, 64), (1 << 5, 128)] {
        driver.harness.device.state.driver.as_mut().unwrap().flags = flags;
        let index = Index { index: 0.into() };
        let vport: QueryVportConfigResponse = driver.request(RequestType::QueryVportConfig, 1, &index).get();
        assert_eq!(vport.num_indirection_ent.get(), entries);
    }
}
