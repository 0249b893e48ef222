//! Receiving: frames from the link, buffers that the driver posted, completions.

mod arrival;
mod checksums;
mod coalesce;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use nicvisor_core::{Context, DropReason, Duration, Fate, Frame, FrameId, Time};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::queue::{Completion, Queues, WorkQueue, Wqe};
use crate::rules::data as rules;
use crate::vport::{Coalescing, VPort};
use crate::wire::completion::{CqeType, RxCompletion, RxPacket};
use crate::wire::wqe::INLINE_OOB_SMALL_SIZE;
use arrival::Arrival;
use coalesce::Unannounced;

/// The receiving half of a vPort. Frames that arrive while no buffer is posted wait in the NIC's memory, and are
/// dropped only when that is full.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receiver {
    /// What waits for buffers, by receive queue.
    waiting: BTreeMap<u32, VecDeque<Waiting>>,
    /// Packets that are not announced yet, by receive queue.
    unannounced: BTreeMap<u32, Unannounced>,
    /// Receive queues with buffers that were used since their last fence.
    unfenced: BTreeSet<u32>,
    /// Bytes of the frames that wait.
    memory_used: u32,
    /// What became of frames.
    pub counters: Counters,
}

/// What stands in line for a receive queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Waiting {
    /// A frame, for the next buffer.
    Frame(Arrival),
    /// A fence, for the frames before it.
    Fence,
}

impl Waiting {
    fn arrival(&self) -> Option<&Arrival> {
        match self {
            Waiting::Frame(arrival) => Some(arrival),
            Waiting::Fence => None,
        }
    }
}

/// What became of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Frames delivered to the driver.
    pub frames: u64,
    /// Their bytes, without VLAN tags.
    pub bytes: u64,
    /// Receive completions.
    pub completions: u64,
    /// Frames announced along with others.
    pub coalesced: u64,
    /// Frames that did not fit their buffer.
    pub truncated: u64,
    /// Frames delivered with a checksum found wrong.
    pub bad_checksum: u64,
    /// Frames dropped as the NIC's memory was full.
    pub dropped_no_buffer: u64,
    /// Frames dropped as too long.
    pub dropped_too_long: u64,
    /// Frames dropped for any other reason.
    pub dropped_other: u64,
    /// Most bytes ever held in the NIC's memory.
    pub memory_max: u64,
}

impl Receiver {
    /// The frames inside: those that wait for buffers, and those that are written but not announced.
    pub(crate) fn held(&self) -> impl Iterator<Item = FrameId> {
        let waiting = self.waiting.values().flatten().filter_map(Waiting::arrival);
        let waiting = waiting.map(|arrival| arrival.frame.id);
        waiting.chain(self.unannounced.values().flat_map(|packets| packets.frames.iter().copied()))
    }

    /// A frame for the vPort arrives from the link.
    pub fn receive(
        &mut self,
        context: &mut Context<'_>,
        config: &Config,
        queues: &mut Queues,
        vport: &mut VPort,
        frame: Frame,
    ) {
        let id = frame.id;
        match self.accept(config, queues, vport, frame) {
            Ok(queue) => self.deliver(context, config, queues, vport, queue),
            Err(reason) => self.settle_dropped(context, id, reason),
        }
    }

    /// Lets a frame wait. In which queue.
    fn accept(
        &mut self,
        config: &Config,
        queues: &Queues,
        vport: &mut VPort,
        frame: Frame,
    ) -> Result<u32, DropReason> {
        if frame.bytes.len() < MIN_FRAME {
            return Err(DropReason::MALFORMED);
        }
        if !vport.link_up || !vport.function_enabled || !vport.steering.enabled {
            vport.statistics.rx_err_vport_disabled += 1;
            return Err(DropReason::NOT_READY);
        }
        if frame.bytes.len() > config.max_frame() {
            return Err(DropReason::TOO_LONG);
        }
        let (arrival, queue) = Arrival::new(frame, &vport.steering);
        let queue = queue.filter(|queue| queues.works.contains_key(queue)).ok_or(DropReason::NOT_READY)?;
        let ready = queues.works.get(&queue).is_some_and(WorkQueue::has_work);
        let used = self.memory_used.saturating_add(arrival.length());
        if !ready && used > config.receive_memory {
            vport.statistics.rx_discards_nowqe += 1;
            return Err(DropReason::NO_BUFFER);
        }
        self.memory_used = used;
        self.counters.memory_max = self.counters.memory_max.max(used.into());
        self.waiting.entry(queue).or_default().push_back(Waiting::Frame(arrival));
        Ok(queue)
    }

    /// Says that it is done when everything that receive queue `rq` got before is completed.
    pub fn fence(
        &mut self,
        context: &mut Context<'_>,
        config: &Config,
        queues: &mut Queues,
        vport: &mut VPort,
        rq: u32,
    ) {
        let waiting = self.waiting.entry(rq).or_default();
        // One more completion would tell the driver nothing that those do not.
        if waiting.iter().filter(|waiting| waiting.arrival().is_none()).count() < MAX_FENCES {
            waiting.push_back(Waiting::Fence);
        }
        self.deliver(context, config, queues, vport, rq);
    }

    /// Whether frames came to receive queue `rq` since its last fence was passed.
    pub fn is_unfenced(&self, rq: u32) -> bool {
        self.unfenced.contains(&rq)
    }

    /// Drops the frames that wait for buffers: the vPort does not receive any more. Fences wait for nothing then.
    pub fn stop(&mut self, context: &mut Context<'_>, queues: &mut Queues) {
        self.memory_used = 0;
        for (rq, waiting) in std::mem::take(&mut self.waiting) {
            for waiting in waiting {
                match waiting {
                    Waiting::Frame(Arrival { frame, .. }) => {
                        self.settle_dropped(context, frame.id, DropReason::NOT_READY);
                    }
                    Waiting::Fence => self.pass_fence(context, queues, rq),
                }
            }
        }
    }

    /// Drops everything that is meant for receive queue `rq`, which is about to be destroyed.
    pub fn discard(&mut self, context: &mut Context<'_>, rq: u32) {
        self.unfenced.remove(&rq);
        for waiting in self.waiting.remove(&rq).unwrap_or_default() {
            let Some(arrival) = waiting.arrival() else { continue };
            self.memory_used = self.memory_used.saturating_sub(arrival.length());
            self.settle_dropped(context, arrival.frame.id, DropReason::RESET);
        }
        for frame in self.unannounced.remove(&rq).map(|packets| packets.frames).unwrap_or_default() {
            self.settle_dropped(context, frame, DropReason::RESET);
        }
    }

    /// Drops everything.
    pub fn reset(&mut self, context: &mut Context<'_>) {
        let queues: Vec<u32> = self.waiting.keys().chain(self.unannounced.keys()).copied().collect();
        self.unfenced.clear();
        queues.into_iter().for_each(|queue| self.discard(context, queue));
    }

    /// When [`Self::deadline`] next has something to do.
    pub fn next_deadline(&self) -> Option<Time> {
        self.unannounced.values().map(|packets| packets.deadline).min()
    }

    /// Announces the packets that have waited long enough for others.
    pub fn deadline(&mut self, context: &mut Context<'_>, queues: &mut Queues) {
        let due = self.unannounced.iter().filter(|(_, packets)| packets.deadline <= context.now);
        let due: Vec<u32> = due.map(|(queue, _)| *queue).collect();
        due.into_iter().for_each(|queue| self.announce(context, queues, queue));
    }

    /// Moves the frames that wait for receive queue `rq` into the buffers that the driver has posted.
    pub fn deliver(
        &mut self,
        context: &mut Context<'_>,
        config: &Config,
        queues: &mut Queues,
        vport: &mut VPort,
        rq: u32,
    ) {
        while let Some(waiting) = self.waiting.get_mut(&rq).filter(|waiting| !waiting.is_empty()) {
            if let Some(Waiting::Fence) = waiting.front() {
                waiting.pop_front();
                self.pass_fence(context, queues, rq);
                continue;
            }
            let Some(queue) = queues.works.get_mut(&rq) else { return };
            let Some(wqe) = queue.next(context) else { return };
            let name = queue.name();
            let Some(Waiting::Frame(arrival)) = waiting.pop_front() else { return };
            self.memory_used = self.memory_used.saturating_sub(arrival.length());
            self.unfenced.insert(rq);
            let earlier = context.findings();
            check_entry(context, &name, &wqe);
            let written = write(context, &wqe, &arrival.frame.bytes);
            match written {
                Ok(length) if length == arrival.length() => {
                    self.counters.bad_checksum += u64::from(arrival.bad_checksum);
                    vport.statistics.received(&arrival.frame.bytes);
                    self.add(context, config, queues, vport, rq, &arrival, wqe.offset);
                }
                Ok(length) => self.truncated(context, queues, rq, &arrival, &wqe, length),
                Err(error) => {
                    let message = error.to_string();
                    report(context, &rules::RX_BUFFER_ADDRESS, message, &name, &wqe);
                    self.unusable(context, queues, rq, &arrival, &wqe);
                }
            }
            context.concern(earlier, arrival.frame.id);
        }
    }

    fn pass_fence(&mut self, context: &mut Context<'_>, queues: &mut Queues, rq: u32) {
        self.announce(context, queues, rq);
        self.unfenced.remove(&rq);
        let fence = RxCompletion { kind: CqeType::RxObjectFence as u8, ..RxCompletion::default() };
        self.complete(context, queues, rq, &fence);
    }

    /// A packet is in its buffer: announces it, or lets it wait for others.
    #[expect(clippy::too_many_arguments, reason = "a step of deliver")]
    fn add(
        &mut self,
        context: &mut Context<'_>,
        config: &Config,
        queues: &mut Queues,
        vport: &VPort,
        rq: u32,
        arrival: &Arrival,
        wqe_offset: u32,
    ) {
        let coalescing = vport.steering.coalescing;
        if self.unannounced.get(&rq).is_some_and(|packets| !packets.takes(coalescing, arrival.flags)) {
            self.announce(context, queues, rq);
        }
        let wait = match coalescing {
            Coalescing::Off => 0,
            Coalescing::Four | Coalescing::Eight => config.coalescing_timeout_ns,
        };
        let deadline = context.now + Duration::from_nanos(wait.into());
        let packets = self
            .unannounced
            .entry(rq)
            .or_insert_with(|| Unannounced::new(coalescing, arrival.flags, wqe_offset, deadline));
        let packet = RxPacket { length: arrival.length() as u16, hash: arrival.hash };
        packets.push(arrival.frame.id, packet);
        self.counters.frames += 1;
        self.counters.bytes += u64::from(arrival.length());
        if packets.is_full() || wait == 0 {
            self.announce(context, queues, rq);
        }
    }

    /// The start of a packet is in its buffer, and there is no more room.
    fn truncated(
        &mut self,
        context: &mut Context<'_>,
        queues: &mut Queues,
        rq: u32,
        arrival: &Arrival,
        wqe: &Wqe,
        length: u32,
    ) {
        self.counters.truncated += 1;
        self.return_buffer(context, queues, rq, wqe, RxPacket { length: length as u16, hash: arrival.hash });
        self.settle_dropped(context, arrival.frame.id, DropReason::TOO_LONG);
    }

    /// A buffer could not be written. The driver gets it back, or it would lose count of its buffers.
    fn unusable(
        &mut self,
        context: &mut Context<'_>,
        queues: &mut Queues,
        rq: u32,
        arrival: &Arrival,
        wqe: &Wqe,
    ) {
        self.return_buffer(context, queues, rq, wqe, RxPacket::default());
        self.settle_dropped(context, arrival.frame.id, DropReason::DMA_FAULT);
    }

    fn return_buffer(
        &mut self,
        context: &mut Context<'_>,
        queues: &mut Queues,
        rq: u32,
        wqe: &Wqe,
        packet: RxPacket,
    ) {
        self.announce(context, queues, rq);
        let mut completion = RxCompletion {
            kind: CqeType::RxTruncated as u8,
            rx_wqe_offset: wqe.offset,
            ..RxCompletion::default()
        };
        completion.packets[0] = packet;
        self.complete(context, queues, rq, &completion);
    }

    /// Announces the packets of `rq` that wait for it.
    fn announce(&mut self, context: &mut Context<'_>, queues: &mut Queues, rq: u32) {
        let Some(packets) = self.unannounced.remove(&rq) else { return };
        if packets.packets.len() > 1 {
            self.counters.coalesced += packets.packets.len() as u64;
        }
        let told = self.complete(context, queues, rq, &packets.completion());
        for frame in packets.frames {
            match told {
                true => context.settle(frame, Fate::Delivered),
                false => self.settle_dropped(context, frame, DropReason::INJECTED),
            }
        }
    }

    /// Whether the driver gets to know.
    fn complete(
        &mut self,
        context: &mut Context<'_>,
        queues: &mut Queues,
        rq: u32,
        completion: &RxCompletion,
    ) -> bool {
        let Some(completion_queue) = queues.works.get(&rq).map(WorkQueue::completion_queue) else {
            return false;
        };
        self.counters.completions += 1;
        let payload = completion.encode();
        queues.complete(context, completion_queue, Completion { work_queue: rq, is_send: false, payload })
    }

    fn settle_dropped(&mut self, context: &mut Context<'_>, frame: FrameId, reason: DropReason) {
        let counters = &mut self.counters;
        let counter = match &reason {
            reason if *reason == DropReason::NO_BUFFER => &mut counters.dropped_no_buffer,
            reason if *reason == DropReason::TOO_LONG => &mut counters.dropped_too_long,
            _ => &mut counters.dropped_other,
        };
        *counter += 1;
        context.settle(frame, Fate::Dropped(reason));
    }

    /// Whether a state from outside is one that the code can go on from.
    pub fn is_sound(&self) -> bool {
        let waiting = self.waiting.values().flatten().filter_map(Waiting::arrival);
        let waiting = waiting.map(|arrival| u64::from(arrival.length())).sum::<u64>();
        let announceable = |packets: &Unannounced| !packets.packets.is_empty();
        waiting == u64::from(self.memory_used) && self.unannounced.values().all(announceable)
    }
}

/// Fills the buffers of an entry. How many bytes there was room for.
fn write(context: &Context<'_>, wqe: &Wqe, frame: &[u8]) -> Result<u32, nicvisor_core::DmaError> {
    let mut rest = frame;
    for sge in &wqe.sges {
        let (part, behind) = rest.split_at(rest.len().min(sge.size as usize));
        context.dma.write(sge.address, part)?;
        rest = behind;
    }
    Ok((frame.len() - rest.len()) as u32)
}

fn check_entry(context: &mut Context<'_>, queue: &str, wqe: &Wqe) {
    let header = &wqe.header;
    let plain = !header.client_oob_in_sgl && header.client_data_unit == 0 && header.last_vbytes == 0;
    if !plain || header.inline_oob_size != INLINE_OOB_SMALL_SIZE {
        report(context, &rules::RX_WQE, format!("{header:?}"), queue, wqe);
    }
}

fn report(context: &mut Context<'_>, rule: &nicvisor_core::Rule, message: String, queue: &str, wqe: &Wqe) {
    context.report(rule, message, |finding| {
        finding.queue = queue.to_owned();
        finding.descriptor = wqe.raw.clone();
        finding.decoded = wqe.decoded(None);
    });
}

impl Counters {
    /// The counters by name.
    pub fn list(&self) -> [(&'static str, u64); 10] {
        [
            ("rx_frames", self.frames),
            ("rx_bytes", self.bytes),
            ("rx_completions", self.completions),
            ("rx_coalesced", self.coalesced),
            ("rx_truncated", self.truncated),
            ("rx_bad_checksum", self.bad_checksum),
            ("rx_dropped_no_buffer", self.dropped_no_buffer),
            ("rx_dropped_too_long", self.dropped_too_long),
            ("rx_dropped_other", self.dropped_other),
            ("rx_memory_max", self.memory_max),
        ]
    }
}

/// An Ethernet header.
const MIN_FRAME: usize = 14;
/// Most fences that stand in line for a receive queue.
const MAX_FENCES: usize = 8;
