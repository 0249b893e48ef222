//! A small driver.

use nicvisor_core::Effects;
use nicvisor_core::testing::Harness;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use super::channel::Channel;
use super::rings::{EntryRing, WorkRing};
use super::send::{Names, Send, Sent};
use crate::queue::QueueMemory;
use crate::vport::Coalescing;
use crate::wire::RequestType;
use crate::wire::completion::{CqeType, MAX_PACKETS, RxCompletion, RxFlags, RxPacket, TxCompletion};
use crate::wire::doorbell::Doorbell;
use crate::wire::gdma_requests::{
    AddPages, CreateDmaRegion, CreateQueue, DisableQueue, GenerateTestEvent, Handle, Index, PROTOCOL_V1,
    RegisterDeviceResponse, VerifyVersionRequest, queue_type,
};
use crate::wire::mana_requests::{
    ConfigRxSteering, ConfigVport, ConfigVportResponse, CreateWqObject, CreateWqObjectResponse,
    DestroyWqObject, HASH_KEY_SIZE, QueryVportConfigResponse, hash_types,
};
use crate::wire::wqe::{RawSge, WqeHeader};
use crate::{Config, ConfigError, Mana};

/// A device with memory and a driver for it.
#[derive(Debug)]
pub struct Driver {
    /// The device, its memory and time.
    pub harness: Harness<Mana>,
    /// The hardware channel.
    pub channel: Channel,
    /// The vPorts that are open.
    pub ports: Vec<Port>,
    device: RegisterDeviceResponse,
}

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

/// An open vPort.
#[derive(Debug)]
pub struct Port {
    /// Its handle.
    pub handle: u64,
    /// Its MAC address.
    pub mac: [u8; 6],
    vp_offset: u16,
    /// Event queues, one for each pair of queues.
    pub events: Vec<EntryRing>,
    /// Send queues.
    pub send: Vec<SendQueue>,
    /// Receive queues.
    pub receive: Vec<ReceiveQueue>,
}

/// A send queue.
#[derive(Debug)]
pub struct SendQueue {
    /// Handle of the object.
    pub object: u64,
    /// Entries.
    pub work: WorkRing,
    /// Completions.
    pub completions: EntryRing,
    /// Bytes of the entries that are not completed; those without completion count for the next.
    pending: std::collections::VecDeque<u32>,
    suppressed: u32,
}

/// A receive queue.
#[derive(Debug)]
pub struct ReceiveQueue {
    /// Handle of the object.
    pub object: u64,
    /// Entries.
    pub work: WorkRing,
    /// Completions.
    pub completions: EntryRing,
    /// Address of the first buffer.
    buffers: u64,
    setup: Setup,
    /// Buffers ever posted and ever completed.
    posted: u32,
    taken: u32,
    /// Fences that were completed.
    pub fences: u32,
}

/// A packet that the device delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// A number of [`CqeType`].
    pub kind: u8,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its hash.
    pub hash: u32,
    /// What else the completion says.
    pub flags: RxFlags,
}

impl Driver {
    /// A device at power-on, with 64 MiB of memory, and its channel established.
    ///
    /// # Errors
    /// When `config` describes no possible device.
    pub fn new(config: Config) -> Result<Driver, ConfigError> {
        let mut harness = Harness::new(Mana::new(config)?, MEMORY, 0x1000..SEND_AREA);
        let channel = Channel::establish(&mut harness);
        let device = RegisterDeviceResponse { pdid: 0.into(), gpa_mkey: 0.into(), db_id: 0.into() };
        Ok(Driver { harness, channel, ports: Vec::new(), device })
    }

    /// Announces itself and registers the Ethernet device.
    ///
    /// # Panics
    /// When the device does not let it.
    pub fn register(&mut self) {
        let mut version = VerifyVersionRequest {
            protocol_ver_min: PROTOCOL_V1.into(),
            protocol_ver_max: PROTOCOL_V1.into(),
            gd_drv_cap_flags: [0.into(); 4],
            drv_ver: 0.into(),
            os_type: 0x10.into(),
            reserved: 0.into(),
            os_ver_major: 7.into(),
            os_ver_minor: 3.into(),
            os_ver_build: 0.into(),
            os_ver_platform: 0.into(),
            reserved_2: 0.into(),
            os_ver_str: [[0; 128]; 4],
        };
        version.gd_drv_cap_flags[0] = (1 << 6).into();
        assert_eq!(self.request(RequestType::VerifyVfDriverVersion, 1, &version).status, 0);
        self.device = self.request(RequestType::RegisterDevice, 1, &[0_u8; 0]).get();
    }

    /// Sends a request and waits for its response.
    pub fn request(
        &mut self,
        kind: RequestType,
        version: u16,
        body: &(impl IntoBytes + zerocopy::Immutable + ?Sized),
    ) -> super::Response {
        self.channel.request(&mut self.harness, kind, version, body)
    }

    /// Opens the next vPort with all buffers posted and everything armed.
    ///
    /// # Panics
    /// When a request fails.
    pub fn open(&mut self, setup: Setup) {
        if self.ports.is_empty() {
            self.register();
        }
        let index = self.ports.len() as u32;
        let vport: QueryVportConfigResponse =
            self.request(RequestType::QueryVportConfig, 1, &Index { index: index.into() }).get();
        let configured: ConfigVportResponse = self
            .request(
                RequestType::ConfigVportTx,
                1,
                &ConfigVport {
                    vport: vport.vport,
                    pdid: self.device.pdid,
                    doorbell_pageid: self.device.db_id,
                },
            )
            .get();
        self.ports.push(Port {
            handle: vport.vport.get(),
            mac: vport.mac_addr,
            vp_offset: configured.tx_vport_offset.get(),
            events: Vec::new(),
            send: Vec::new(),
            receive: Vec::new(),
        });
        for queue in 0..setup.queues {
            let vector = 1 + queue as u32;
            let events = self.create_event_queue(vector);
            self.ports[index as usize].events.push(events);
            self.create_send_queue(index as usize, &setup);
            self.create_receive_queue(index as usize, &setup);
            self.post(index as usize, queue);
        }
        self.steer(index as usize, true, setup.coalescing);
        for queue in 0..setup.queues {
            self.arm(index as usize, queue);
        }
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
        for chunk in rest.chunks(PAGES_AT_ONCE) {
            let add = AddPages {
                dma_region_handle: region.handle,
                page_addr_list_len: (chunk.len() as u32).into(),
                reserved3: 0.into(),
            };
            let body = [add.as_bytes(), chunk.as_bytes()].concat();
            self.request(RequestType::DmaRegionAddPages, 1, &body[..]);
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
        let create = CreateWqObject {
            vport: self.ports[port].handle.into(),
            wq_type: if send { queue_type::SQ } else { queue_type::RQ }.into(),
            reserved: 0.into(),
            wq_gdma_region: work_region,
            cq_gdma_region: completion_region,
            wq_size: size.into(),
            cq_size: completion_size.into(),
            cq_moderation_ctx_id: 0.into(),
            cq_parent_qid: parent.into(),
            allow_rqwqe_chain: 0,
            req_cq_moderation: 0,
            cq_moderation_comp: 0.into(),
            cq_moderation_usec: 0.into(),
            reserved2: [0; 2],
        };
        let created: CreateWqObjectResponse = self.request(RequestType::CreateWqObj, 3, &create).get();
        let work = WorkRing::new(created.wq_id.get(), send, work_memory);
        (created.wq_obj.get(), work, EntryRing::new(created.cq_id.get(), false, completion_memory))
    }

    fn create_send_queue(&mut self, port: usize, setup: &Setup) {
        let (object, work, completions) =
            self.create_work_queue(port, true, setup.send_queue, setup.send_queue / 32);
        let pending = std::collections::VecDeque::new();
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
        self.steer(index, false, Coalescing::Off);
        let Some(port) = self.ports.pop() else { return };
        let objects = port.send.iter().map(|queue| (queue_type::SQ, queue.object));
        let objects: Vec<_> =
            objects.chain(port.receive.iter().map(|queue| (queue_type::RQ, queue.object))).collect();
        for (kind, object) in objects {
            let destroy =
                DestroyWqObject { wq_type: kind.into(), reserved: 0.into(), wq_obj_handle: object.into() };
            assert_eq!(self.request(RequestType::DestroyWqObj, 1, &destroy).status, 0);
        }
        for events in &port.events {
            let disable = DisableQueue {
                r#type: queue_type::EQ.into(),
                queue_index: events.id.into(),
                alloc_res_id_on_creation: 1.into(),
            };
            assert_eq!(self.request(RequestType::DisableQueue, 1, &disable).status, 0);
        }
        if self.ports.is_empty() {
            assert_eq!(self.request(RequestType::DeregisterDevice, 1, &[0_u8; 0]).status, 0);
        }
    }

    /// Writes a doorbell of the Ethernet device.
    pub fn ring(&mut self, doorbell: Doorbell) {
        let page = self.device.db_id.get();
        self.channel.ring(&mut self.harness, page, doorbell);
    }

    /// Asks for an event on an event queue of a vPort. The kinds of the events that came.
    ///
    /// # Panics
    /// When the request fails.
    pub fn test_event(&mut self, port: usize, queue: usize) -> Vec<u8> {
        let id = self.ports[port].events[queue].id;
        let request = GenerateTestEvent { queue_index: id.into() };
        assert_eq!(self.request(RequestType::GenerateTestEqe, 1, &request).status, 0);
        self.events(port, queue)
    }

    /// Takes the events of an event queue and arms it. Their kinds.
    pub fn events(&mut self, port: usize, queue: usize) -> Vec<u8> {
        let dma = self.harness.bench.dma();
        let ring = &mut self.ports[port].events[queue];
        let kinds: Vec<u8> = std::iter::from_fn(|| ring.event(&dma)).map(|event| event.kind).collect();
        if !kinds.is_empty() {
            let doorbell = ring.doorbell(true);
            self.ring(doorbell);
        }
        kinds
    }

    /// Says what was consumed of both completion queues of a pair, and arms them and their event queue.
    pub fn arm(&mut self, port: usize, queue: usize) {
        let pair = [
            self.ports[port].send[queue].completions.doorbell(true),
            self.ports[port].receive[queue].completions.doorbell(true),
        ];
        pair.into_iter().for_each(|doorbell| self.ring(doorbell));
        self.events(port, queue);
    }

    /// Hands a packet to the device.
    ///
    /// # Panics
    /// When the packet is longer than half a megabyte or there is no room for its entry.
    pub fn send(&mut self, port: usize, queue: usize, send: &Send<'_>) {
        self.harness.write(SEND_AREA, send.packet);
        let entry = send.entry(&self.names(port, queue));
        self.post_send(port, queue, &entry, send.suppress);
    }

    /// The entry of a packet, to be changed and posted by [`Self::post_send`].
    pub fn entry(&self, port: usize, queue: usize, send: &Send<'_>) -> Vec<u8> {
        self.harness.write(SEND_AREA, send.packet);
        send.entry(&self.names(port, queue))
    }

    /// Posts an entry and rings.
    ///
    /// # Panics
    /// When there is no room for it.
    pub fn post_send(&mut self, port: usize, queue: usize, entry: &[u8], suppressed: bool) {
        let send = &mut self.ports[port].send[queue];
        send.work.push(&self.harness.bench.dma(), entry);
        match suppressed {
            true => send.suppressed += entry.len() as u32,
            false => send.pending.push_back(std::mem::take(&mut send.suppressed) + entry.len() as u32),
        }
        let doorbell = send.work.doorbell();
        self.ring(doorbell);
    }

    fn names(&self, port: usize, queue: usize) -> Names {
        let Port { vp_offset, ref send, .. } = self.ports[port];
        Names {
            send_queue: send[queue].work.id,
            completion_queue: send[queue].completions.id,
            vp_offset,
            memory_key: self.device.gpa_mkey.get(),
            address: SEND_AREA,
        }
    }

    /// Takes all completions of a send queue, and arms it.
    ///
    /// # Panics
    /// When a completion is for something that was not sent.
    pub fn completed(&mut self, port: usize, queue: usize) -> Vec<Sent> {
        let dma = self.harness.bench.dma();
        let send = &mut self.ports[port].send[queue];
        let mut all = Vec::new();
        while let Some(cqe) = send.completions.completion(&dma) {
            assert!(cqe.is_send && cqe.work_queue == send.work.id, "{cqe:?}");
            let size = send.pending.pop_front().expect("a packet that was sent");
            send.work.tail = send.work.tail.wrapping_add(size);
            all.push(Sent { kind: TxCompletion::decode(&cqe.payload).kind });
        }
        self.arm(port, queue);
        all
    }

    /// The entry for the next buffer of a receive queue, to be changed and pushed.
    pub fn receive_entry(&self, port: usize, queue: usize) -> Vec<u8> {
        self.ports[port].receive[queue].entry(self.device.gpa_mkey.get())
    }

    /// Posts all buffers that the device does not have.
    pub fn post(&mut self, port: usize, queue: usize) {
        let memory_key = self.device.gpa_mkey.get();
        let receive = &mut self.ports[port].receive[queue];
        while receive.posted - receive.taken < receive.setup.buffers {
            let entry = receive.entry(memory_key);
            receive.work.push(&self.harness.bench.dma(), &entry);
            receive.posted += 1;
        }
        let doorbell = receive.work.doorbell();
        self.ring(doorbell);
    }

    /// Takes all packets of a receive queue, and arms it. Their buffers are not posted again.
    ///
    /// # Panics
    /// When a completion is for another queue.
    pub fn received(&mut self, port: usize, queue: usize) -> Vec<Received> {
        let dma = self.harness.bench.dma();
        let receive = &mut self.ports[port].receive[queue];
        let mut all = Vec::new();
        while let Some(cqe) = receive.completions.completion(&dma) {
            assert!(!cqe.is_send && cqe.work_queue == receive.work.id, "{cqe:?}");
            let completion = RxCompletion::decode(&cqe.payload);
            if completion.kind == CqeType::RxObjectFence as u8 {
                receive.fences += 1;
                continue;
            }
            receive.take(&dma, &completion, &mut all);
        }
        self.arm(port, queue);
        all
    }

    /// Takes the effects of all calls since the last time.
    pub fn effects(&mut self) -> Effects {
        self.harness.effects()
    }

    /// Has the device complete everything that a receive queue got, and say so.
    ///
    /// # Panics
    /// When the request fails.
    pub fn fence(&mut self, port: usize, queue: usize) {
        let handle = self.ports[port].receive[queue].object;
        let response = self.request(RequestType::FenceRq, 1, &Handle { handle: handle.into() });
        assert_eq!(response.status, 0);
    }
}

impl ReceiveQueue {
    /// The entry for the next buffer.
    fn entry(&self, memory_key: u32) -> Vec<u8> {
        let Setup { buffers, buffer_size, pieces, .. } = self.setup;
        let header = WqeHeader { num_sge: pieces as u8, inline_oob_size: 8, ..WqeHeader::default() };
        let mut entry = [&header.encode()[..], &[0; 8]].concat();
        let start = self.buffers + u64::from(self.posted % buffers) * u64::from(buffer_size);
        let size = buffer_size.div_ceil(pieces);
        for piece in 0..pieces {
            let offset = (piece * size).min(buffer_size);
            let sge = RawSge {
                address: (start + u64::from(offset)).into(),
                mem_key: memory_key.into(),
                size: size.min(buffer_size - offset).into(),
            };
            entry.extend_from_slice(sge.as_bytes());
        }
        entry.resize(header.size(), 0);
        entry
    }

    /// The packets of a completion, each in the next buffer.
    fn take(&mut self, dma: &nicvisor_core::Dma<'_>, completion: &RxCompletion, all: &mut Vec<Received>) {
        let count = completion.packets.iter().take_while(|packet| packet.length != 0).count();
        for RxPacket { length, hash } in completion.packets.into_iter().take(count.clamp(1, MAX_PACKETS)) {
            let buffer = self.taken % self.setup.buffers;
            let address = self.buffers + u64::from(buffer) * u64::from(self.setup.buffer_size);
            let mut bytes = vec![0; length.into()];
            dma.read(address, &mut bytes).expect("buffer in memory");
            self.taken += 1;
            self.work.tail = self.work.tail.wrapping_add(receive_entry_size(self.setup.pieces));
            all.push(Received { kind: completion.kind, bytes, hash, flags: completion.flags });
        }
    }
}

fn receive_entry_size(pieces: u32) -> u32 {
    (16 + pieces * 16).next_multiple_of(32)
}

/// Bytes of memory.
const MEMORY: u64 = 64 << 20;
/// Packets to be sent.
const SEND_AREA: u64 = 62 << 20;
const PAGE: u32 = 4096;
/// Few enough that queues of a few pages need several messages.
const PAGES_AT_ONCE: usize = 3;
