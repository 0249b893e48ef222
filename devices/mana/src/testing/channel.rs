//! The driver's side of the hardware channel.

use nicvisor_core::testing::Harness;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use super::rings::{EntryRing, WorkRing};
use crate::Mana;
use crate::config::FunctionKind;
use crate::queue::QueueMemory;
use crate::wire::RequestType;
use crate::wire::doorbell::Doorbell;
use crate::wire::eqe::COMPLETION;
use crate::wire::gdma_requests::{DEVICE_MANA, DeviceId, MessageHeader, RequestHeader, ResponseHeader};
use crate::wire::hwc::{EVENT_INIT_DATA, EVENT_INIT_DONE, EVENT_INIT_EQ, InitData, RxOob, TxOob};
use crate::wire::registers::{
    DB_PAGE_OFFSET, DOORBELL_PAGE, PF_DB_PAGE_OFFSET, PF_SHM_OFFSET, SHM_OFFSET, SRIOV_CONFIG_BASE,
};
use crate::wire::shared_memory::{APERTURE, DESTROY, Establish, HEADER_OFFSET, Header, request};
use crate::wire::wqe::{RawSge, WqeHeader};

/// The channel's queues and buffers.
#[derive(Debug)]
pub struct Channel {
    events: EntryRing,
    completions: EntryRing,
    receive: WorkRing,
    send: WorkRing,
    doorbell_page: u32,
    memory_key: u32,
    /// Receive and completion queue of the other side, which a physical function's requests name.
    other_side: [u32; 2],
    request_buffer: u64,
    response_buffer: u64,
    /// Bytes of the buffers that are posted for responses from now on.
    pub response_room: u32,
    shared_memory: u64,
    doorbells: u64,
    /// Kinds of the events since they were last taken that announce no completion.
    pub other_events: Vec<u8>,
}

/// What a request came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Status, 0 for success.
    pub status: u32,
    /// Version of what follows.
    pub version: u16,
    /// What follows the header.
    pub body: Vec<u8>,
}

impl Response {
    /// The start of the body as one of the wire structures.
    ///
    /// # Panics
    /// When the request failed or the body is too short.
    pub fn get<T: FromBytes + FromZeros + IntoBytes>(&self) -> T {
        assert!(self.status == 0 || self.status == MORE_ENTRIES, "status {:#x}", self.status);
        let (object, _) = T::read_from_prefix(&self.body).expect("a response of this size");
        object
    }
}

impl Channel {
    /// Establishes the channel on interrupt vector 0 and learns what it is like.
    ///
    /// # Panics
    /// When the device does not answer as it should.
    pub fn establish(harness: &mut Harness<Mana>) -> Channel {
        let (shared_memory, doorbells) = places(harness);
        let pages: [u64; 6] = std::array::from_fn(|_| harness.allocate(PAGE.into()));
        let [event_queue, completion_queue, receive_queue, send_queue, request_buffer, response_buffer] =
            pages;
        let message = Establish { event_queue, completion_queue, receive_queue, send_queue, vector: 0 };
        write_establish(harness, shared_memory, &message, false);
        let header =
            Header::decode(u32::from_le_bytes(harness.read_bar(0, shared_memory + HEADER_OFFSET as u64)));
        assert!(header.response && !header.device_owns && header.status == 0, "{header:?}");
        let memory = |page| QueueMemory::new(vec![page], PAGE, 0, PAGE).expect("a page");
        let mut channel = Channel {
            events: EntryRing::new(0, true, memory(event_queue)),
            completions: EntryRing::new(0, false, memory(completion_queue)),
            receive: WorkRing::new(0, false, memory(receive_queue)),
            send: WorkRing::new(0, true, memory(send_queue)),
            doorbell_page: 0,
            memory_key: 0,
            other_side: [0; 2],
            request_buffer,
            response_buffer,
            response_room: PAGE,
            shared_memory,
            doorbells,
            other_events: Vec::new(),
        };
        channel.learn(harness);
        channel.post_buffer(harness);
        channel
    }

    /// Reads the events that tell what the channel is like.
    fn learn(&mut self, harness: &mut Harness<Mana>) {
        let mut done = false;
        while let Some(event) = self.events.event(&harness.bench.dma()) {
            let word =
                u32::from_le_bytes([event.details[0], event.details[1], event.details[2], event.details[3]]);
            match event.kind {
                EVENT_INIT_EQ => (self.events.id, self.doorbell_page) = (word & 0xffff, word >> 16),
                EVENT_INIT_DATA => self.learn_value((word >> 24) as u8, word & 0xff_ffff),
                EVENT_INIT_DONE => done = true,
                kind => panic!("event {kind} while the channel is established"),
            }
        }
        assert!(done, "the channel is established");
        let doorbell = self.events.doorbell(true);
        self.ring(harness, self.doorbell_page, doorbell);
    }

    fn learn_value(&mut self, kind: u8, value: u32) {
        let place = match kind {
            kind if kind == InitData::CqId as u8 => &mut self.completions.id,
            kind if kind == InitData::RqId as u8 => &mut self.receive.id,
            kind if kind == InitData::SqId as u8 => &mut self.send.id,
            kind if kind == InitData::GpaMkey as u8 => &mut self.memory_key,
            kind if kind == InitData::PfDestRqId as u8 => &mut self.other_side[0],
            kind if kind == InitData::PfDestCqId as u8 => &mut self.other_side[1],
            _ => return,
        };
        *place = value;
    }

    fn post_buffer(&mut self, harness: &mut Harness<Mana>) {
        let header = WqeHeader { num_sge: 1, inline_oob_size: 8, ..WqeHeader::default() };
        let sge = self.sge(self.response_buffer, self.response_room);
        let entry = [&header.encode()[..], &[0; 8], sge.as_bytes()].concat();
        self.receive.push(&harness.bench.dma(), &entry);
        let doorbell = self.receive.doorbell();
        self.ring(harness, self.doorbell_page, doorbell);
    }

    fn sge(&self, address: u64, size: u32) -> RawSge {
        RawSge { address: address.into(), mem_key: self.memory_key.into(), size: size.into() }
    }

    /// Writes a doorbell.
    pub fn ring(&self, harness: &mut Harness<Mana>, page: u32, doorbell: Doorbell) {
        let (offset, value) = doorbell.encode();
        let offset = self.doorbells + u64::from(page) * DOORBELL_PAGE + offset;
        harness.write_bar(0, offset, &value.to_le_bytes());
    }

    /// Sends a request of `version` for the Ethernet device and waits for its response.
    ///
    /// # Panics
    /// When there is none.
    pub fn request(
        &mut self,
        harness: &mut Harness<Mana>,
        kind: RequestType,
        version: u16,
        body: &(impl IntoBytes + Immutable + ?Sized),
    ) -> Response {
        let mut header = header_of(kind as u32, size_of::<RequestHeader>() + body.as_bytes().len());
        header.req.msg_version = version.into();
        header.resp.msg_version = version.into();
        let bytes = [header.as_bytes(), body.as_bytes()].concat();
        self.exchange(harness, &bytes).expect("a response")
    }

    /// Sends `message` as it is. The response, if there is one.
    ///
    /// # Panics
    /// When the message is longer than a page.
    pub fn exchange(&mut self, harness: &mut Harness<Mana>, message: &[u8]) -> Option<Response> {
        harness.write(self.request_buffer, message);
        let oob = TxOob {
            reserved: [0.into(); 2],
            vrq: self.other_side[0].into(),
            vrcq: self.other_side[1].into(),
            vscq: self.completions.id.into(),
            vsq: self.send.id.into(),
        };
        let header = WqeHeader { num_sge: 1, inline_oob_size: 24, ..WqeHeader::default() };
        let sge = self.sge(self.request_buffer, message.len() as u32);
        let mut entry = [&header.encode()[..], oob.as_bytes(), sge.as_bytes()].concat();
        entry.resize(header.size(), 0);
        self.send.push(&harness.bench.dma(), &entry);
        let doorbell = self.send.doorbell();
        self.ring(harness, self.doorbell_page, doorbell);
        self.send.tail = self.send.head();
        self.collect(harness)
    }

    /// The response that comes later than its request, if it has come.
    pub fn late(&mut self, harness: &mut Harness<Mana>) -> Option<Response> {
        self.collect(harness)
    }

    /// Takes what the device completed. The response among it, if there is one.
    fn collect(&mut self, harness: &mut Harness<Mana>) -> Option<Response> {
        let mut response = None;
        while let Some(completion) = self.completions.completion(&harness.bench.dma()) {
            if completion.is_send {
                continue;
            }
            self.receive.tail = self.receive.head();
            let (oob, _) = RxOob::read_from_prefix(&completion.payload).expect("60 bytes");
            let mut bytes = vec![0; oob.tx_oob_data_size.get().min(PAGE) as usize];
            harness.bench.dma().read(self.response_buffer, &mut bytes).expect("in memory");
            let (header, body) = ResponseHeader::read_from_prefix(&bytes).expect("a response header");
            let (status, version) = (header.status.get(), header.response.msg_version.get());
            response = Some(Response { status, version, body: body.to_vec() });
        }
        if response.is_some() {
            self.post_buffer(harness);
        }
        let doorbell = self.completions.doorbell(true);
        self.ring(harness, self.doorbell_page, doorbell);
        self.events(harness);
        response
    }

    /// Takes the channel's events and arms its event queue.
    pub fn events(&mut self, harness: &mut Harness<Mana>) {
        let mut any = false;
        while let Some(event) = self.events.event(&harness.bench.dma()) {
            any = true;
            if event.kind != COMPLETION {
                self.other_events.push(event.kind);
            }
        }
        if any {
            let doorbell = self.events.doorbell(true);
            self.ring(harness, self.doorbell_page, doorbell);
        }
    }

    /// Gives the channel back. Whether the device says that it is done.
    pub fn destroy(&mut self, harness: &mut Harness<Mana>) -> bool {
        let offset = self.shared_memory + HEADER_OFFSET as u64;
        harness.write_bar(0, offset, &request(DESTROY, true).to_le_bytes());
        let header = Header::decode(u32::from_le_bytes(harness.read_bar(0, offset)));
        header.response && header.status == 0
    }
}

/// Writes the message that asks for a channel to the shared memory, which is at `place` in BAR0.
pub(crate) fn write_establish(harness: &mut Harness<Mana>, place: u64, message: &Establish, reset: bool) {
    for (offset, word) in (place..).step_by(4).zip(message.encode(reset).chunks(4)) {
        harness.write_bar(0, offset, word);
    }
}

/// The header of a request as the driver fills it in, for a message of `length` bytes.
pub(crate) fn header_of(kind: u32, length: usize) -> RequestHeader {
    let message = |msg_size: u32| MessageHeader {
        hdr_type: 0.into(),
        msg_type: kind.into(),
        msg_version: 1.into(),
        hwc_msg_id: 0.into(),
        msg_size: msg_size.into(),
    };
    RequestHeader {
        req: message(length as u32),
        resp: message(MAX_RESPONSE),
        dev_id: DeviceId { kind: DEVICE_MANA.into(), instance: 0.into() },
        activity_id: 0x0ac1.into(),
    }
}

/// Where in BAR0 the shared memory and the doorbell pages are, found as Linux does for the function at hand.
fn places(harness: &mut Harness<Mana>) -> (u64, u64) {
    let function = harness.device.config().function;
    let mut register = |offset| u64::from_le_bytes(harness.read_bar(0, offset));
    match function {
        FunctionKind::Pf => {
            let configuration = register(SRIOV_CONFIG_BASE);
            (configuration + register(configuration + PF_SHM_OFFSET), register(PF_DB_PAGE_OFFSET))
        }
        FunctionKind::Vf | FunctionKind::Pf2 => (register(SHM_OFFSET), register(DB_PAGE_OFFSET)),
    }
}

const PAGE: u32 = 4096;
/// What fits the bootstrap buffers.
const MAX_RESPONSE: u32 = 4096;
/// `GDMA_STATUS_MORE_ENTRIES`.
const MORE_ENTRIES: u32 = 0x105;
const _: () = assert!(APERTURE == HEADER_OFFSET + 4);
