//! A small driver.

use nicvisor_core::testing::Harness;
use nicvisor_core::{Effects, KernelVersion};
use zerocopy::IntoBytes;

use super::channel::Channel;
use super::ports::{Port, Received};
use super::send::{Names, Send, Sent};
use crate::wire::RequestType;
use crate::wire::completion::{CqeType, RxCompletion, TxCompletion};
use crate::wire::doorbell::Doorbell;
use crate::wire::gdma_requests::{GenerateTestEvent, Handle, RegisterDeviceResponse};
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
    /// What it announces: `GDMA_DRV_CAP_FLAGS1`.
    pub flags: u64,
    /// The release that it says it is from.
    pub kernel: KernelVersion,
    pub(crate) device: RegisterDeviceResponse,
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
        let (flags, kernel) = (FLAGS, KernelVersion::new(7, 3));
        Ok(Driver { harness, channel, ports: Vec::new(), flags, kernel, device })
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

/// Bytes of memory.
const MEMORY: u64 = 64 << 20;
/// Packets to be sent.
pub(crate) const SEND_AREA: u64 = 62 << 20;
/// What the driver of Linux 7.3 announces.
const FLAGS: u64 = 0x527e_686d;
