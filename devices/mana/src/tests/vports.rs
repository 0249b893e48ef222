//! What a vPort is given.

use nicvisor_core::Device;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use super::{SENDER, assert_clean, broken, config, handle, open, region, started};
use crate::Config;
use crate::config::Capabilities;
use crate::testing::{Driver, Setup, work_queue_object};
use crate::wire::doorbell::Doorbell;
use crate::wire::gdma_requests::Handle;
use crate::wire::hwc::EVENT_SOC_RECONFIG_DATA;
use crate::wire::mana_requests::{
    ConfigVport, CreateWqObject, CreateWqObjectResponse, PhyStatistics, QueryLinkConfigResponse,
    SetBandwidthClamp,
};
use crate::wire::{RequestType, Status};

#[test]
fn vports_get_queues_after_they_are_configured_and_up_to_a_limit() {
    let mut driver = started(Config { queues: 1, ..config(SENDER) });
    let none: [(U64, u32); 2] = [(0.into(), 4096); 2];
    let create = work_queue_object(0x1000, true, none);
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
fn moderation_is_given_only_where_it_is_offered() {
    for offered in [true, false] {
        let capabilities = Capabilities { dynamic_moderation: offered, ..Capabilities::default() };
        let mut driver = started(Config { capabilities, ..config(SENDER) });
        let vport = ConfigVport { vport: 0x1000.into(), pdid: 2.into(), doorbell_pageid: 2.into() };
        assert_eq!(driver.request(RequestType::ConfigVportTx, 1, &vport).status, 0);
        let [work, completions]: [Handle; 2] =
            [0x1000, 0x2000].map(|page| region(&mut driver, 4096, &[page]).get());
        let create = CreateWqObject {
            req_cq_moderation: 1,
            cq_moderation_comp: 8.into(),
            cq_moderation_usec: 5.into(),
            ..work_queue_object(0x1000, true, [(work.handle, 4096), (completions.handle, 4096)])
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
fn bandwidth_is_limited_and_statistics_are_told() {
    let mut driver = open(SENDER);
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
fn ports_share_the_device() {
    let mut driver = Driver::new(Config { ports: 2, ..config(SENDER) }).unwrap();
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
fn the_driver_hears_of_the_link_if_it_said_that_it_listens() {
    let mut driver = open(SENDER);
    driver.harness.call(|device, context| device.set_link(context, 0, false));
    driver.channel.events(&mut driver.harness);
    driver.harness.call(|device, context| device.set_link(context, 0, true));
    driver.channel.events(&mut driver.harness);
    assert_eq!(driver.channel.other_events, [EVENT_SOC_RECONFIG_DATA; 2]);
    assert_clean(&driver.effects());
}
