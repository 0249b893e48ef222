//! What the driver created through the hardware channel, apart from the queues themselves: who owns what, and
//! what must be gone before what.

mod domains;
mod doorbells;
mod numbers;
mod regions;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use domains::{Domains, MemoryRegion};
pub(crate) use doorbells::DoorbellPages;
pub(crate) use numbers::Numbers;
pub(crate) use regions::{Region, RegionError, Regions, Taker, check_pages};

use crate::config::Config;

/// Everything that exists, by handle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Objects {
    handles: Handles,
    /// DMA regions.
    pub(crate) regions: Regions,
    /// Registered devices, protection domains, memory regions, device memory.
    pub(crate) domains: Domains,
    /// Doorbell pages that the driver allocated.
    pub(crate) doorbells: DoorbellPages,
    /// Work queue objects: a work queue and its completion queue.
    pub(crate) work_queues: BTreeMap<u64, WorkQueueObject>,
    /// Hardware vPorts that the driver of a physical function registered: handle to vPort number.
    pub(crate) hardware_ports: BTreeMap<u64, u16>,
    /// Filters that it registered.
    pub(crate) filters: BTreeMap<u64, Filter>,
    /// Numbers of event queues.
    pub(crate) event_queue_ids: Numbers,
    /// Numbers of completion queues.
    pub(crate) completion_queue_ids: Numbers,
    /// Numbers of send and receive queues.
    pub(crate) work_queue_ids: Numbers,
}

/// A work queue and its completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkQueueObject {
    /// Whether it sends.
    pub(crate) send: bool,
    /// Number of the vPort.
    pub(crate) vport: u16,
    /// What faults name it by: vPort by vPort, send and receive queues for themselves.
    pub(crate) number: u32,
    /// Number of the work queue.
    pub(crate) work_queue: u32,
    /// Number of the completion queue.
    pub(crate) completion_queue: u32,
}

/// Frames for an address go to a vPort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Filter {
    /// Number of the vPort.
    pub(crate) vport: u16,
    /// The address.
    pub(crate) mac: [u8; 6],
}

/// Source of handles. No handle is ever given out twice, so that a stale one is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Handles {
    next: u64,
}

impl Objects {
    /// Nothing exists.
    pub(crate) fn new(config: &Config) -> Objects {
        let limits = &config.limits;
        Objects {
            handles: Handles { next: FIRST_HANDLE },
            regions: Regions::default(),
            domains: Domains::default(),
            doorbells: DoorbellPages::default(),
            work_queues: BTreeMap::new(),
            hardware_ports: BTreeMap::new(),
            filters: BTreeMap::new(),
            event_queue_ids: Numbers::new(FIRST_EVENT_QUEUE, limits.event_queues.min(MAX_EVENT_QUEUES)),
            completion_queue_ids: Numbers::new(FIRST_COMPLETION_QUEUE, limits.completion_queues),
            work_queue_ids: Numbers::new(FIRST_WORK_QUEUE, MAX_WORK_QUEUES),
        }
    }

    /// A handle that was never given out.
    pub(crate) fn new_handle(&mut self) -> u64 {
        let handle = self.handles.next;
        self.handles.next += 1;
        handle
    }

    /// Work queue objects of vPort number `vport`.
    pub(crate) fn of_vport(&self, vport: u16) -> impl Iterator<Item = &WorkQueueObject> {
        self.work_queues.values().filter(move |object| object.vport == vport)
    }

    /// Whether a filter leads frames for `mac` to vPort number `vport`.
    pub(crate) fn has_filter(&self, vport: u16, mac: &[u8; 6]) -> bool {
        self.filters.values().any(|filter| filter.vport == vport && filter.mac == *mac)
    }

    /// What exists, in words; empty if there is nothing. Besides there are `event_queues` event queues and
    /// `completion_queues` completion queues without a work queue.
    pub(crate) fn leftovers(&self, event_queues: usize, completion_queues: usize) -> String {
        let counts = [
            (self.work_queues.len(), "work queue objects"),
            (event_queues, "event queues"),
            (completion_queues, "completion queues"),
            (self.regions.free(), "DMA regions"),
            (self.domains.memory_regions.len(), "memory regions"),
            (self.domains.created.len(), "protection domains"),
            (self.domains.device_memory.len(), "pieces of device memory"),
            (self.doorbells.ranges(), "ranges of doorbell pages"),
            (self.hardware_ports.len(), "hardware vPorts"),
            (self.filters.len(), "filters"),
            (self.domains.registered(), "registered devices"),
        ];
        let words =
            counts.iter().filter(|(count, _)| *count != 0).map(|(count, what)| format!("{count} {what}"));
        words.collect::<Vec<_>>().join(", ")
    }
}

/// Above the handles of vPorts.
const FIRST_HANDLE: u64 = 0x1_0000;
/// The hardware channel's event queue is number 0. Numbers of event queues have 16 bits in their doorbells.
const FIRST_EVENT_QUEUE: u32 = 1;
const MAX_EVENT_QUEUES: u32 = 1 << 16;
/// The hardware channel's completion queue is number 0.
const FIRST_COMPLETION_QUEUE: u32 = 1;
/// The hardware channel's queues are below. High enough that `vsq_frame`, bits 10 to 23 of the number, is not 0.
const FIRST_WORK_QUEUE: u32 = 1024;
/// Numbers of work queues have 24 bits in their doorbells.
const MAX_WORK_QUEUES: u32 = 1 << 24;
