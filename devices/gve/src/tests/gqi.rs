//! The older queue formats.

use nicvisor_core::{Device, Fate};
use nicvisor_net::checksum::Sum;
use nicvisor_net::parse::{IpVersion, parse};
use nicvisor_net::testing::{Packet, assert_intact, seed};

use super::{assert_clean, broken, config};
use crate::buffers::PAGE;
use crate::testing::{ALL_CAPABILITIES, Driver, PASSED, SCRATCH};
use crate::wire::admin::{
    ConfigureDeviceResources, CreateRxQueue, CreateTxQueue, Id, Opcode, QueueResources, RAW_ADDRESSING,
    RegisterPageList, Status,
};
use crate::wire::gqi::{PacketDescriptor, RXF_IPV4, RXF_PKT_CONT, RXF_TCP, SegmentDescriptor};
use crate::{Config, QueueFormat};

const FORMATS: [QueueFormat; 2] = [QueueFormat::GqiRda, QueueFormat::GqiQpl];

/// A device with one queue of each kind, and its driver.
struct Queues {
    driver: Driver,
    /// Pages of both lists, or where buffers may be.
    pages: Vec<u64>,
    counter: u64,
    tx_ring: u64,
    requested: u32,
    rx_slots: u64,
    rx_descriptors: u64,
    filled: u32,
    received: u32,
    doorbells: [u32; 2],
}

impl Queues {
    fn new(format: QueueFormat, mtu: u16) -> Queues {
        let mut driver = Driver::new(Config { format, mtu, ..config() }).unwrap();
        driver.start_admin();
        assert_eq!(driver.verify(ALL_CAPABILITIES), PASSED);
        driver.describe();
        // Every second page, so that offsets and addresses differ.
        let area = driver.harness.allocate(2 * u64::from(PAGES) * PAGE);
        let pages = (0..u64::from(PAGES)).rev().map(|page| area + 2 * page * PAGE).collect();
        let mut queues = Queues {
            counter: driver.harness.allocate(PAGE),
            tx_ring: driver.harness.allocate(u64::from(TX_SIZE) * 16),
            requested: 0,
            rx_slots: driver.harness.allocate(u64::from(RX_SIZE) * 8),
            rx_descriptors: driver.harness.allocate(u64::from(RX_SIZE) * 64),
            filled: 0,
            received: 0,
            doorbells: [0; 2],
            driver,
            pages,
        };
        queues.configure(format);
        let list = if format.has_page_lists() { queues.register(0, PAGES) } else { PASSED };
        assert_eq!(list, PASSED);
        let id = if format.has_page_lists() { 0 } else { RAW_ADDRESSING };
        assert_eq!(queues.create_tx(id), PASSED);
        queues.doorbells[0] = queues.driver.harness.read::<QueueResources>(SCRATCH).db_index.get();
        assert_eq!(queues.create_rx(id), PASSED);
        queues.doorbells[1] = queues.driver.harness.read::<QueueResources>(SCRATCH).db_index.get();
        (0..2).for_each(|block| queues.ring(block, 0));
        assert_clean(&queues.driver.effects());
        queues
    }

    fn configure(&mut self, format: QueueFormat) {
        let command = ConfigureDeviceResources {
            counter_array: self.counter.into(),
            irq_db_addr: (SCRATCH + 4096).into(),
            num_counters: 1.into(),
            num_irq_dbs: 2.into(),
            irq_db_stride: 64.into(),
            ntfy_blk_msix_base_idx: 0.into(),
            queue_format: format as u8,
            padding: [0; 7],
        };
        assert_eq!(self.driver.admin(Opcode::ConfigureDeviceResources as u32, &command), PASSED);
    }

    fn register(&mut self, id: u32, count: u16) -> u32 {
        let addresses: Vec<u8> = self.pages.iter().flat_map(|page| page.to_be_bytes()).collect();
        let list = self.driver.harness.allocate(addresses.len() as u64);
        self.driver.harness.bench.dma().write(list, &addresses).unwrap();
        let command = RegisterPageList {
            page_list_id: id.into(),
            num_pages: u32::from(count).into(),
            page_address_list_addr: list.into(),
            page_size: PAGE.into(),
        };
        self.driver.admin(Opcode::RegisterPageList as u32, &command)
    }

    fn create_tx(&mut self, list: u32) -> u32 {
        let command = CreateTxQueue {
            queue_id: 0.into(),
            reserved: 0.into(),
            queue_resources_addr: SCRATCH.into(),
            tx_ring_addr: self.tx_ring.into(),
            queue_page_list_id: list.into(),
            ntfy_id: 0.into(),
            tx_comp_ring_addr: 0.into(),
            tx_ring_size: TX_SIZE.into(),
            tx_comp_ring_size: 0.into(),
            padding: [0; 4],
        };
        self.driver.admin(Opcode::CreateTxQueue as u32, &command)
    }

    fn create_rx(&mut self, list: u32) -> u32 {
        let command = CreateRxQueue {
            queue_id: 0.into(),
            index: 0.into(),
            reserved: 0.into(),
            ntfy_id: 1.into(),
            queue_resources_addr: SCRATCH.into(),
            rx_desc_ring_addr: self.rx_descriptors.into(),
            rx_data_ring_addr: self.rx_slots.into(),
            queue_page_list_id: list.into(),
            rx_ring_size: RX_SIZE.into(),
            packet_buffer_size: 2048.into(),
            rx_buff_ring_size: 0.into(),
            enable_rsc: 0,
            padding1: 0,
            header_buffer_size: 0.into(),
            padding2: [0; 2],
        };
        self.driver.admin(Opcode::CreateRxQueue as u32, &command)
    }

    fn ring(&mut self, index: u32, value: u32) {
        self.driver.harness.write_bar(2, u64::from(index) * 4, &value.to_be_bytes());
    }

    /// What a descriptor says for the start of page `page`, and where that is.
    fn place(&self, page: usize) -> (u64, u64) {
        match self.driver.harness.device.config().format {
            QueueFormat::GqiQpl => (page as u64 * PAGE, self.pages[page]),
            _ => (self.pages[page], self.pages[page]),
        }
    }

    /// Sends a frame with its headers in one page and the rest in further ones.
    fn send(&mut self, frame: &[u8], headers: usize, mss: u16) {
        let pieces: Vec<&[u8]> =
            std::iter::once(&frame[..headers]).chain(frame[headers..].chunks(PAGE as usize)).collect();
        for (page, piece) in pieces.iter().enumerate() {
            let (seg_addr, address) = self.place(page);
            self.driver.harness.bench.dma().write(address, piece).unwrap();
            let raw = match page {
                0 => PacketDescriptor {
                    tso: mss != 0,
                    l4_csum: true,
                    l4_csum_offset: 8,
                    l4_hdr_offset: (parse(frame).transport.unwrap().offset / 2) as u8,
                    desc_cnt: pieces.len() as u8,
                    len: frame.len() as u16,
                    seg_len: piece.len() as u16,
                    seg_addr,
                }
                .encode(),
                _ => SegmentDescriptor { mss, seg_len: piece.len() as u16, seg_addr }.encode(),
            };
            let slot = u64::from(self.requested % u32::from(TX_SIZE));
            self.driver.harness.bench.dma().write(self.tx_ring + 16 * slot, &raw).unwrap();
            self.requested += 1;
        }
        self.ring(self.doorbells[0], self.requested);
    }

    fn done(&self) -> u32 {
        u32::from_be_bytes(self.driver.harness.read(self.counter))
    }

    fn post(&mut self, count: u32) {
        for _ in 0..count {
            let index = self.filled % u32::from(RX_SIZE);
            let (slot, _) = self.place(index as usize);
            self.driver
                .harness
                .bench
                .dma()
                .write(self.rx_slots + 8 * u64::from(index), &slot.to_be_bytes())
                .unwrap();
            self.filled += 1;
        }
        self.ring(self.doorbells[1], self.filled);
    }

    /// The bytes and flags of the next packet.
    fn receive(&mut self) -> Option<(Vec<u8>, u16, u16)> {
        let mut bytes = Vec::new();
        let mut checksum = None;
        loop {
            let index = self.received % u32::from(RX_SIZE);
            let raw: [u8; 16] = self.driver.harness.read(self.rx_descriptors + 64 * u64::from(index) + 48);
            let half = |at: usize| u16::from_be_bytes([raw[at], raw[at + 1]]);
            if u32::from(half(14) & 7) != 1 + self.received % 7 {
                return None;
            }
            self.received += 1;
            let pad = if bytes.is_empty() { 2 } else { 0 };
            let mut part = vec![0; usize::from(half(12) - pad)];
            let (_, address) = self.place(index as usize);
            self.driver.harness.bench.dma().read(address + u64::from(pad), &mut part).unwrap();
            bytes.extend(part);
            let checksum = *checksum.get_or_insert(half(10));
            if half(14) & RXF_PKT_CONT == 0 {
                return Some((bytes, half(14), checksum));
            }
        }
    }
}

#[test]
fn packets_are_segmented_and_checksummed() {
    for format in FORMATS {
        let mut queues = Queues::new(format, 1500);
        let packet = Packet::new(IpVersion::V4, 60_000);
        let mut frame = packet.build();
        seed(&mut frame, false);
        queues.send(&frame, packet.header_len(), 1400);
        let effects = queues.driver.effects();
        assert_clean(&effects);
        let mut payload: Vec<u8> = Vec::new();
        for (_, frame) in &effects.frames {
            assert_intact(&frame.bytes);
            payload.extend(&frame.bytes[packet.header_len()..]);
        }
        assert!(payload == packet.payload, "{format:?}");
        assert_eq!(queues.done(), queues.requested);
        assert_eq!(effects.vectors, [0]);

        let mut frame = Packet::new(IpVersion::V6, 500).build();
        seed(&mut frame, false);
        queues.send(&frame, frame.len(), 0);
        let effects = queues.driver.effects();
        assert_clean(&effects);
        assert_intact(&effects.frames[0].1.bytes);
    }
}

#[test]
fn frames_are_described_beside_their_buffers_over_many_rounds() {
    for format in FORMATS {
        let mut queues = Queues::new(format, 8896);
        queues.post(RX_SIZE.into());
        for round in 0..400 {
            let frame = Packet::new(IpVersion::V4, 100 + 20 * round).build();
            queues.driver.arrive(1 + round as u64, frame.clone());
            let (bytes, flags, checksum) = queues.receive().unwrap();
            assert!(bytes == frame, "{format:?} {round}");
            assert_eq!(flags & (RXF_IPV4 | RXF_TCP), RXF_IPV4 | RXF_TCP);
            assert_eq!(checksum, Sum::of(&frame[14..]).fold());
            assert!(queues.receive().is_none());
            let used = queues.received + u32::from(RX_SIZE) - queues.filled;
            queues.post(used);
        }
        let effects = queues.driver.effects();
        assert_clean(&effects);
        assert!(effects.fates.iter().all(|(_, fate)| *fate == Fate::Delivered));
        assert_eq!(effects.fates.len(), 400);
    }
}

#[test]
fn page_lists_are_accounted_for() {
    let mut queues = Queues::new(QueueFormat::GqiQpl, 1500);
    assert_eq!(queues.register(0, PAGES), Status::AlreadyExists as u32);
    assert_eq!(broken(&queues.driver.effects()), ["gve-admin-object"]);
    let unregister = |queues: &mut Queues, id: u32| {
        queues.driver.admin(Opcode::UnregisterPageList as u32, &Id { id: id.into() })
    };
    assert_eq!(unregister(&mut queues, 0), Status::FailedPrecondition as u32);
    assert_eq!(unregister(&mut queues, 7), Status::NotFound as u32);
    assert_eq!(broken(&queues.driver.effects()), ["gve-admin-leftover", "gve-admin-object"]);
    assert_eq!(queues.register(1, PAGES), PASSED);
    assert_eq!(unregister(&mut queues, 1), PASSED);
    let state = queues.driver.harness.device.save();
    queues.driver.harness.device.restore(&state).unwrap();
    assert_eq!(queues.driver.harness.device.save(), state);
}

#[test]
fn an_offset_beyond_the_page_list_is_found() {
    let mut queues = Queues::new(QueueFormat::GqiQpl, 1500);
    let end = u64::from(PAGES) * PAGE;
    let raw =
        PacketDescriptor { desc_cnt: 1, len: 100, seg_len: 100, seg_addr: end - 99, ..Default::default() };
    queues.driver.harness.bench.dma().write(queues.tx_ring, &raw.encode()).unwrap();
    queues.ring(queues.doorbells[0], 1);
    assert_eq!(broken(&queues.driver.effects()), ["gve-tx-buffer-address"]);
    assert_eq!(queues.done(), 1, "the driver gets its packet back");
    let short = PacketDescriptor { desc_cnt: 1, len: 101, seg_len: 100, ..Default::default() };
    queues.driver.harness.bench.dma().write(queues.tx_ring + 16, &short.encode()).unwrap();
    queues.ring(queues.doorbells[0], 2);
    assert_eq!(broken(&queues.driver.effects()), ["gve-tx-length"]);
}

#[test]
fn counters_and_descriptors_can_lie() {
    let mut queues = Queues::new(QueueFormat::GqiQpl, 1500);
    queues
        .driver
        .inject(r#"completion = { queue = "tx", rewrite = { event_counter = { add = 500 } } }"#)
        .unwrap();
    queues
        .driver
        .inject(r#"completion = { queue = "rx", uses = { nth = 1 }, rewrite = { seqno = 5 } }"#)
        .unwrap();
    let mut frame = Packet::new(IpVersion::V4, 100).build();
    seed(&mut frame, false);
    queues.send(&frame, frame.len(), 0);
    assert_eq!(queues.done(), 501);
    queues.post(8);
    queues.driver.arrive(1, Packet::new(IpVersion::V4, 100).build());
    assert_eq!(queues.receive(), None);
}

/// Sends one frame and says what the driver sees as done.
fn send_one(queues: &mut Queues) -> u32 {
    let mut frame = Packet::new(IpVersion::V4, 100).build();
    seed(&mut frame, false);
    queues.send(&frame, frame.len(), 0);
    queues.done()
}

#[test]
fn the_event_counter_stalls_and_jumps() {
    let mut queues = Queues::new(QueueFormat::GqiQpl, 1500);
    let fault = r#"override = { name = "tx 0.event_counter", uses = { nth = 2 }, value = 0xfffffff0 }"#;
    queues.driver.inject(fault).unwrap();
    assert_eq!([1, 2, 3].map(|_| send_one(&mut queues)), [1, 0xffff_fff0, 3]);
    assert_clean(&queues.driver.effects());
}

#[test]
fn doorbells_say_what_faults_want() {
    for (value, sent) in [("{ add = -1 }", 0), ("0x80000000", 0), ("{ add = 2 }", 1)] {
        let mut queues = Queues::new(QueueFormat::GqiRda, 1500);
        let fault = format!(r#"override = {{ name = "tx.req", uses = {{ nth = 1 }}, value = {value} }}"#);
        queues.driver.inject(&fault).unwrap();
        send_one(&mut queues);
        let effects = queues.driver.effects();
        assert_clean(&effects);
        assert_eq!(effects.frames.len(), sent, "{value}");
    }
    let mut queues = Queues::new(QueueFormat::GqiRda, 1500);
    queues.driver.inject(r#"override = { name = "rx.fill_cnt", value = 3 }"#).unwrap();
    queues.post(8);
    assert_eq!(queues.driver.harness.device.state.rx[0].as_ref().unwrap().posted(), 3);
}

#[test]
fn a_descriptor_is_written_elsewhere_as_if_it_belonged_there() {
    let mut queues = Queues::new(QueueFormat::GqiRda, 1500);
    queues.post(16);
    queues
        .driver
        .inject(r#"override = { name = "rx 0.cnt", uses = { nth = 1 }, value = { add = 9 } }"#)
        .unwrap();
    for id in 0..2 {
        queues.driver.arrive(1 + id, Packet::new(IpVersion::V4, 100).build());
    }
    let seqno =
        |place: u64| queues.driver.harness.read::<[u8; 16]>(queues.rx_descriptors + 64 * place + 48)[15] & 7;
    assert_eq!([0, 1, 9].map(seqno), [0, 2, 3], "the tenth has the sequence number 10 modulo 7");
    assert_eq!(queues.receive(), None);
    assert_clean(&queues.driver.effects());
}

const PAGES: u16 = 512;
const TX_SIZE: u16 = 256;
const RX_SIZE: u16 = 512;
