//! How the driver sets vPorts up and takes them apart, request by request as Linux does.

use std::collections::VecDeque;

use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use super::driver::Driver;
use super::ports::{Port, ReceiveQueue, SendQueue, receive_entry_size};
use super::rings::{EntryRing, WorkRing};
use crate::queue::QueueMemory;
use crate::vport::Coalescing;
use crate::wire::gdma_requests::{
    AddPages, CreateDmaRegion, CreateQueue, DisableQueue, Handle, Index, PROTOCOL_V1, VerifyVersionRequest,
    VerifyVersionResponse, queue_type,
};
use crate::wire::mana_requests::{
    ConfigRxSteering, ConfigVport, ConfigVportResponse, CreateWqObject, CreateWqObjectResponse,
    DestroyWqObject, HASH_KEY_SIZE, NO_EVENT_QUEUE, QueryVportConfigResponse, RegisterFilter, RegisterHwPort,
    hash_types,
};
use crate::wire::{RequestType, Status};

/// How a vPort is opened.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Queues of each kind.
    pub queues: usize,
    /// Bytes of each send queue.
    pub send_queue: u32,
    /// Buffers of each receive queue, a power of two.
    pub buffers: u32,
    /// Bytes of each buffer.
    pub buffer_size: u32,
    /// Elements that each buffer consists of.
    pub pieces: u32,
    /// How many packets may share a completion.
    pub coalescing: Coalescing,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            queues: 2,
            send_queue: 8192,
            buffers: 128,
            buffer_size: 1536,
            pieces: 1,
            coalescing: Coalescing::Off,
        }
    }
}

impl Driver {
    /// Announces itself and registers the Ethernet device.
    ///
    /// # Panics
    /// When the device does not let it.
    pub fn register(&mut self) {
        self.announce();
        self.device = self.request(RequestType::RegisterDevice, 1, &[0_u8; 0]).get();
    }

    /// Says who it is. What the device answers: `GDMA_PF_CAP_FLAG_1_*`.
    ///
    /// # Panics
    /// When the device does not let it.
    pub fn announce(&mut self) -> u64 {
        let mut version = VerifyVersionRequest {
            protocol_ver_min: PROTOCOL_V1.into(),
            protocol_ver_max: PROTOCOL_V1.into(),
            gd_drv_cap_flags: [0.into(); 4],
            drv_ver: 0.into(),
            os_type: 0x10.into(),
            reserved: 0.into(),
            os_ver_major: self.kernel.major.into(),
            os_ver_minor: self.kernel.minor.into(),
            os_ver_build: 0.into(),
            os_ver_platform: 0.into(),
            reserved_2: 0.into(),
            os_ver_str: [[0; 128]; 4],
        };
        version.gd_drv_cap_flags[0] = self.flags.into();
        let answer: VerifyVersionResponse =
            self.request(RequestType::VerifyVfDriverVersion, 1, &version).get();
        answer.pf_cap_flags[0].get()
    }

    /// Opens the next vPort with all buffers posted and everything armed.
    ///
    /// # Panics
    /// When a request fails.
    pub fn open(&mut self, setup: Setup) {
        if self.ports.is_empty() {
            self.register();
        }
        let index = self.ports.len();
        let port = self.configure(index as u32);
        self.ports.push(port);
        for queue in 0..setup.queues {
            let vector = 1 + queue as u32;
            let events = self.create_event_queue(vector);
            self.ports[index].events.push(events);
            self.create_send_queue(index, &setup);
            self.create_receive_queue(index, &setup);
            self.post(index, queue);
        }
        self.steer(index, true, setup.coalescing);
        for queue in 0..setup.queues {
            self.arm(index, queue);
        }
        if self.is_privileged() {
            self.register_filter(index);
        }
    }

    /// Whether the driver has to register vPorts and filters, as on a physical function.
    fn is_privileged(&self) -> bool {
        self.harness.device.needs_hardware_ports()
    }

    /// Has vPort number `index` send for this driver.
    fn configure(&mut self, index: u32) -> Port {
        let found: QueryVportConfigResponse =
            self.request(RequestType::QueryVportConfig, 1, &Index { index: index.into() }).get();
        let handle = if self.is_privileged() { self.register_hardware_port() } else { found.vport };
        let asked = ConfigVport { vport: handle, pdid: self.device.pdid, doorbell_pageid: self.device.db_id };
        let configured: ConfigVportResponse = self.request(RequestType::ConfigVportTx, 1, &asked).get();
        Port {
            handle: handle.get(),
            mac: found.mac_addr,
            filter: None,
            vp_offset: configured.tx_vport_offset.get(),
            events: Vec::new(),
            send: Vec::new(),
            receive: Vec::new(),
        }
    }

    fn register_hardware_port(&mut self) -> U64 {
        let asked = RegisterHwPort {
            attached_gfid: 1.into(),
            is_pf_default_vport: 1,
            reserved1: 0,
            allow_all_ether_types: 1,
            reserved: [0; 3],
        };
        self.request(RequestType::RegisterHwPort, 1, &asked).get::<Handle>().handle
    }

    fn register_filter(&mut self, port: usize) {
        let Port { handle, mac, .. } = self.ports[port];
        let asked = RegisterFilter { vport: handle.into(), mac_addr: mac, reserved: [0; 18] };
        let filter: Handle = self.request(RequestType::RegisterFilter, 1, &asked).get();
        self.ports[port].filter = Some(filter.handle.get());
    }

    /// A DMA region over `length` bytes in pages that do not follow each other, told in several messages.
    fn create_region(&mut self, length: u32) -> (U64, QueueMemory) {
        let start = self.harness.allocate(length.into());
        let pages: Vec<u64> =
            (0..u64::from(length.div_ceil(PAGE))).rev().map(|page| start + page * 4096).collect();
        let words: Vec<U64> = pages.iter().map(|page| U64::new(*page)).collect();
        let (first, rest) = words.split_at(words.len().min(PAGES_AT_ONCE));
        let create = CreateDmaRegion {
            length: u64::from(length).into(),
            offset_in_page: 0.into(),
            gdma_page_type: 0.into(),
            page_count: (words.len() as u32).into(),
            page_addr_list_len: (first.len() as u32).into(),
        };
        let body = [create.as_bytes(), first.as_bytes()].concat();
        let region: Handle = self.request(RequestType::CreateDmaRegion, 1, &body[..]).get();
        let chunks = rest.chunks(PAGES_AT_ONCE);
        let last = chunks.len();
        for (number, chunk) in (1..).zip(chunks) {
            let add = AddPages {
                dma_region_handle: region.handle,
                page_addr_list_len: (chunk.len() as u32).into(),
                reserved3: 0.into(),
            };
            let body = [add.as_bytes(), chunk.as_bytes()].concat();
            let status = self.request(RequestType::DmaRegionAddPages, 1, &body[..]).status;
            let expected = if number == last { Status::Success } else { Status::MoreEntries };
            assert_eq!(status, expected as u32);
        }
        let memory = QueueMemory::new(pages, PAGE, 0, length).expect("pages for all of it");
        (region.handle, memory)
    }

    fn create_event_queue(&mut self, vector: u32) -> EntryRing {
        let (region, memory) = self.create_region(PAGE);
        let create = CreateQueue {
            r#type: queue_type::EQ.into(),
            reserved1: 0.into(),
            pdid: self.device.pdid,
            doolbell_id: self.device.db_id,
            gdma_region: region,
            reserved2: 0.into(),
            queue_size: PAGE.into(),
            log2_throttle_limit: 3.into(),
            eq_pci_msix_index: vector.into(),
            cq_mod_ctx_id: 0.into(),
            cq_parent_eq_id: 0.into(),
            flags: [0; 4],
            reserved3: 0.into(),
        };
        let id: Index = self.request(RequestType::CreateQueue, 1, &create).get();
        EntryRing::new(id.index.get(), true, memory)
    }

    fn create_work_queue(
        &mut self,
        port: usize,
        send: bool,
        size: u32,
        completions: u32,
    ) -> (u64, WorkRing, EntryRing) {
        let (work_region, work_memory) = self.create_region(size);
        let completion_size = (completions * 64).next_power_of_two().max(PAGE);
        let (completion_region, completion_memory) = self.create_region(completion_size);
        let parent = self.ports[port].events.last().expect("an event queue").id;
        let vport = self.ports[port].handle;
        let create = CreateWqObject {
            cq_parent_qid: parent.into(),
            ..work_queue_object(vport, send, [(work_region, size), (completion_region, completion_size)])
        };
        let created: CreateWqObjectResponse = self.request(RequestType::CreateWqObj, 3, &create).get();
        let work = WorkRing::new(created.wq_id.get(), send, work_memory);
        (created.wq_obj.get(), work, EntryRing::new(created.cq_id.get(), false, completion_memory))
    }

    fn create_send_queue(&mut self, port: usize, setup: &Setup) {
        let (object, work, completions) =
            self.create_work_queue(port, true, setup.send_queue, setup.send_queue / 32);
        let pending = VecDeque::new();
        self.ports[port].send.push(SendQueue { object, work, completions, pending, suppressed: 0 });
    }

    fn create_receive_queue(&mut self, port: usize, setup: &Setup) {
        let size = setup.buffers * receive_entry_size(setup.pieces);
        let size = size.next_power_of_two().max(PAGE);
        let (object, work, completions) = self.create_work_queue(port, false, size, setup.buffers + 1);
        let buffers = self.harness.allocate(u64::from(setup.buffers) * u64::from(setup.buffer_size));
        self.ports[port].receive.push(ReceiveQueue {
            object,
            work,
            completions,
            buffers,
            setup: *setup,
            posted: 0,
            taken: 0,
            fences: 0,
        });
    }

    /// Has received frames go to all receive queues in turn by their hash, or nowhere.
    ///
    /// # Panics
    /// When the request fails.
    pub fn steer(&mut self, port: usize, enable: bool, coalescing: Coalescing) {
        let objects: Vec<U64> = self.ports[port].receive.iter().map(|queue| queue.object.into()).collect();
        let entries = objects.len().next_power_of_two() * 4;
        let table: Vec<U64> = (0..entries).map(|entry| objects[entry % objects.len()]).collect();
        let steering = ConfigRxSteering {
            vport: self.ports[port].handle.into(),
            num_indir_entries: (entries as u16).into(),
            indir_tab_offset: (40 + size_of::<ConfigRxSteering>() as u16).into(),
            rx_enable: u32::from(enable).into(),
            rss_enable: u32::from(enable).into(),
            update_default_rxobj: enable.into(),
            update_hashkey: enable.into(),
            update_indir_tab: enable.into(),
            reserved: 0,
            default_rxobj: objects[0],
            hashkey: std::array::from_fn::<u8, HASH_KEY_SIZE, _>(|at| (at * 37 + 5) as u8),
            cqe_coalescing_enable: (coalescing == Coalescing::Four).into(),
            reserved2: [0; 3],
            rss_hash_types: (hash_types::ALL & 0x3f).into(),
            cqe8_coalescing_enable: (coalescing == Coalescing::Eight).into(),
            reserved3: 0,
        };
        let body = [steering.as_bytes(), table.as_bytes()].concat();
        assert_eq!(self.request(RequestType::ConfigVportRx, 5, &body[..]).status, 0);
    }

    /// Takes a vPort apart, as far as that is not done, the last opened first.
    ///
    /// # Panics
    /// When a request fails.
    pub fn close(&mut self) {
        let Some(index) = self.ports.len().checked_sub(1) else { return };
        if let Some(filter) = self.ports[index].filter {
            self.give_back(RequestType::DeregisterFilter, filter);
        }
        self.steer(index, false, Coalescing::Off);
        (0..self.ports[index].receive.len()).for_each(|queue| self.fence(index, queue));
        let Some(port) = self.ports.pop() else { return };
        port.send.iter().for_each(|queue| self.destroy_queue(true, queue.object));
        port.receive.iter().for_each(|queue| self.destroy_queue(false, queue.object));
        for events in &port.events {
            let disable = DisableQueue {
                r#type: queue_type::EQ.into(),
                queue_index: events.id.into(),
                alloc_res_id_on_creation: 1.into(),
            };
            assert_eq!(self.request(RequestType::DisableQueue, 1, &disable).status, 0);
        }
        if self.is_privileged() {
            self.give_back(RequestType::DeregisterHwPort, port.handle);
        }
        if self.ports.is_empty() {
            assert_eq!(self.request(RequestType::DeregisterDevice, 1, &[0_u8; 0]).status, 0);
        }
    }

    /// Destroys a send or receive queue with its completion queue.
    ///
    /// # Panics
    /// When the request fails.
    pub fn destroy_queue(&mut self, send: bool, object: u64) {
        let destroy = DestroyWqObject {
            wq_type: wq_type(send).into(),
            reserved: 0.into(),
            wq_obj_handle: object.into(),
        };
        assert_eq!(self.request(RequestType::DestroyWqObj, 1, &destroy).status, 0);
    }

    fn give_back(&mut self, kind: RequestType, handle: u64) {
        assert_eq!(self.request(kind, 1, &Handle { handle: handle.into() }).status, 0);
    }
}

/// Asks for a queue with its completion queue, each a region of that size, without event queue and moderation.
pub(crate) fn work_queue_object(
    vport: u64,
    send: bool,
    [work, completions]: [(U64, u32); 2],
) -> CreateWqObject {
    CreateWqObject {
        vport: vport.into(),
        wq_type: wq_type(send).into(),
        reserved: 0.into(),
        wq_gdma_region: work.0,
        cq_gdma_region: completions.0,
        wq_size: work.1.into(),
        cq_size: completions.1.into(),
        cq_moderation_ctx_id: 0.into(),
        cq_parent_qid: NO_EVENT_QUEUE.into(),
        allow_rqwqe_chain: 0,
        req_cq_moderation: 0,
        cq_moderation_comp: 0.into(),
        cq_moderation_usec: 0.into(),
        reserved2: [0; 2],
    }
}

fn wq_type(send: bool) -> u32 {
    if send { queue_type::SQ } else { queue_type::RQ }
}

const PAGE: u32 = 4096;
/// Few enough that queues of a few pages need several messages.
const PAGES_AT_ONCE: usize = 3;
