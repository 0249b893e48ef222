//! Regions, queues and what else is created through the channel.

use super::{NOTHING, SENDER, assert_clean, broken, config, handle, open, region, started};
use crate::testing::Driver;
use crate::wire::gdma_requests::{
    AllocDm, AllocateResourceRange, CreateMr, CreateMrResponse, CreatePd, CreatePdResponse, CreateQueue,
    DestroyResourceRange, DisableQueue, Handle, Index, mr_type, queue_type,
};
use crate::wire::mana_requests::DestroyWqObject;
use crate::wire::{RequestType, Status};

#[test]
fn a_region_is_made_of_aligned_pages_and_destroyed_once() {
    let mut driver = started(config(SENDER));
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
    let mut driver = open(SENDER);
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
    let mut driver = open(SENDER);
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
    let mut driver = open(SENDER);
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
fn completion_queues_by_themselves_are_accounted_for() {
    let mut driver = started(config(SENDER));
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
fn what_rdma_needs_is_accounted_for() {
    let mut driver = started(config(SENDER));
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
    let mut driver = started(config(SENDER));
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
