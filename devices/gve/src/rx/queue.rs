//! One receive queue.

use std::collections::{BTreeSet, VecDeque};

use nicvisor_core::fault::{CompletionFaults, FieldsMut, Overrides, Ready, Shaper, WireField, WireView};
use nicvisor_core::{Context, DmaError, DropReason, Duration, Fate, FrameId, Time};
use nicvisor_net::rsc::{Limits, Rsc};
use serde::{Deserialize, Serialize};

use super::classify::Arrival;
use super::gqi::{self, GqiRings};
use crate::buffers::{BufferError, Buffers};
use crate::config::Config;
use crate::faults::indices::{Indices, RX_BUFQ_TAIL, RX_CNT, RX_COMPLQ_TAIL, RX_FILL_CNT};
use crate::ring::CompletionRing;
use crate::rules;
use crate::wire::admin::Stat;
use crate::wire::gqi::{RX_LAYOUT, RX_PAD};
use crate::wire::rx::{
    BUFFER_DESCRIPTOR_SIZE, BufferDescriptor, COMPLETION_LAYOUT, Completion, CompletionStatus,
    MIN_DOORBELL_STEP, RawCompletion,
};

/// A receive queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RxQueue {
    pub(crate) id: u16,
    pub(super) ring: u64,
    pub(super) size: u16,
    pub(super) buffer_size: u16,
    rings: RxRings,
    pub(super) buffers: Buffers,
    /// The id of the page list that the buffers are in.
    pub(crate) page_list: Option<u32>,
    /// Notification block.
    pub(crate) block: u32,
    /// Next descriptor to fetch.
    next: u16,
    /// Buffers in the device's hands, in the order in which they are used.
    pub(super) posted: VecDeque<Posted>,
    /// Their ids (DQO).
    ids: BTreeSet<u16>,
    /// Frames that wait for buffers.
    pub(crate) waiting: VecDeque<Arrival>,
    /// Frames that wait for more to be merged with.
    pub(crate) rsc: Option<Rsc>,
    /// Completions on their way to the ring.
    pub(crate) shaper: Shaper<Pending>,
    /// A fault had one of its indices be another.
    pub(crate) disturbed: bool,
    pub(crate) stats: QueueStats,
}

/// A completion on its way to the ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pending {
    /// Still without its generation bit.
    pub(crate) raw: RawCompletion,
    /// The frames that are delivered with it; with the last of a packet's completions only.
    pub(crate) frames: Vec<FrameId>,
    /// Bytes of that packet.
    pub(crate) length: u32,
}

/// How the driver is told of frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RxRings {
    /// By completions (DQO).
    Dqo(CompletionRing),
    /// By descriptors beside the buffers (GQI).
    Gqi(GqiRings),
}

/// A buffer in the device's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Posted {
    pub(super) id: u16,
    pub(super) address: u64,
}

/// What became of the frame that waited longest.
pub(crate) struct Delivery {
    pub(crate) frames: Vec<FrameId>,
    pub(crate) length: u32,
    pub(crate) bad_checksum: bool,
    pub(crate) result: Result<(), BufferError>,
}

impl RxQueue {
    pub(crate) fn new(
        id: u16,
        (ring, size): (u64, u16),
        buffer_size: u16,
        rings: RxRings,
        (buffers, page_list): (Buffers, Option<u32>),
        block: u32,
    ) -> RxQueue {
        RxQueue {
            id,
            ring,
            size,
            buffer_size,
            rings,
            buffers,
            page_list,
            block,
            next: 0,
            posted: VecDeque::new(),
            ids: BTreeSet::new(),
            waiting: VecDeque::new(),
            rsc: None,
            shaper: Shaper::new("rx", id.into()),
            disturbed: false,
            stats: QueueStats::default(),
        }
    }

    /// Merges segments of a flow from now on.
    pub(crate) fn coalesce(&mut self) {
        // No packet may need more buffers than the ring has.
        let most = usize::from(self.buffer_size) * (usize::from(self.size) - 1);
        let max_packet = most.min(MAX_COALESCED);
        self.rsc = Some(Rsc::new(Limits { max_packet, max_flows: MAX_FLOWS, hold: HOLD }));
    }

    /// When the queue next has something to tell the driver by itself.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let rsc = self.rsc.as_ref().and_then(Rsc::next_deadline);
        self.shaper.next_deadline().into_iter().chain(rsc).min()
    }

    /// Whether enough buffers are posted for `arrival` to be delivered at once.
    pub(crate) fn has_room_for(&self, arrival: &Arrival) -> bool {
        self.waiting.is_empty() && self.buffers_for(arrival) <= self.posted.len()
    }

    /// Whether the ring is large enough for `arrival`.
    pub(crate) fn can_ever_hold(&self, arrival: &Arrival) -> bool {
        self.buffers_for(arrival) < self.size.into()
    }

    fn buffers_for(&self, arrival: &Arrival) -> usize {
        (arrival.frame.bytes.len() + self.padding()).div_ceil(self.buffer_size.into())
    }

    /// Bytes that stay free in front of a frame.
    fn padding(&self) -> usize {
        if matches!(self.rings, RxRings::Gqi(_)) { RX_PAD } else { 0 }
    }

    /// The fields of what tells the driver of a frame.
    pub(super) fn layout(&self) -> &'static [WireField] {
        match self.rings {
            RxRings::Dqo(_) => COMPLETION_LAYOUT,
            RxRings::Gqi(_) => RX_LAYOUT,
        }
    }

    /// Fetches the descriptors before `tail`.
    pub(crate) fn fetch_buffers(&mut self, config: &Config, context: &mut Context<'_>, tail: u32) {
        if let RxRings::Gqi(rings) = &mut self.rings {
            let old = rings.filled;
            if tail.wrapping_sub(old) <= self.size.into() {
                rings.filled = tail;
            }
            return self.fetch_slots(config, context, old, tail);
        }
        let queue = format!("rx {}", self.id);
        if tail >= self.size.into() {
            let message = format!("doorbell {tail} of a ring of {}", self.size);
            rules::report(config, context, &rules::RX_DOORBELL, message, |finding| finding.queue = queue);
            return;
        }
        let count = (tail as u16).wrapping_sub(self.next) & (self.size - 1);
        if self.posted.len() + usize::from(count) >= self.size.into() {
            let message = format!("{count} buffers posted behind {} unused ones", self.posted.len());
            rules::report(config, context, &rules::RX_DOORBELL, message, |finding| finding.queue = queue);
            return;
        }
        if count != 0 && count < MIN_DOORBELL_STEP {
            let message = format!("doorbell moved by {count}");
            rules::report(config, context, &rules::RX_DOORBELL_STEP, message, |finding| {
                finding.queue = queue.clone();
            });
        }
        for _ in 0..count {
            let address = self.ring + u64::from(self.next) * BUFFER_DESCRIPTOR_SIZE as u64;
            match context.dma.read_object::<BufferDescriptor>(address) {
                Ok(descriptor) => self.post(config, context, &queue, &descriptor),
                Err(error) => {
                    let message = error.to_string();
                    rules::report(config, context, &rules::RING_ADDRESS, message, |finding| {
                        finding.queue = queue;
                    });
                    return;
                }
            }
            self.next = (self.next + 1) & (self.size - 1);
        }
    }

    fn post(
        &mut self,
        config: &Config,
        context: &mut Context<'_>,
        queue: &str,
        descriptor: &BufferDescriptor,
    ) {
        let posted = Posted { id: descriptor.buf_id.get(), address: descriptor.buf_addr.get() };
        let complaint = if !self.ids.insert(posted.id) {
            Some((&rules::RX_BUFFER_ID, format!("buffer {} posted twice", posted.id)))
        } else if !self.buffers.hold(&context.dma, posted.address, self.buffer_size.into()) {
            Some((&rules::RX_BUFFER_ADDRESS, format!("buffer {} at {:#x}", posted.id, posted.address)))
        } else {
            None
        };
        if let Some((rule, message)) = complaint {
            rules::report(config, context, rule, message, |finding| {
                finding.queue = queue.to_owned();
                finding.descriptor = zerocopy::IntoBytes::as_bytes(descriptor).to_vec();
            });
        }
        self.posted.push_back(posted);
    }

    /// Delivers the frame that waits longest, if the buffers suffice.
    pub(crate) fn deliver_next(
        &mut self,
        context: &mut Context<'_>,
        faults: &mut CompletionFaults,
    ) -> Option<Delivery> {
        let buffers = self.buffers_for(self.waiting.front()?);
        if buffers > self.posted.len() {
            return None;
        }
        let arrival = self.waiting.pop_front()?;
        let bad_checksum = arrival.has_bad_checksum();
        self.stats.bad_checksums += u64::from(bad_checksum);
        Some(Delivery {
            frames: arrival.frames().collect(),
            length: arrival.frame.bytes.len() as u32,
            bad_checksum,
            result: self.write(context, faults, &arrival, buffers),
        })
    }

    /// Fills the next `buffers` buffers and completes them. A buffer that cannot be written is completed with
    /// an error, so that the driver gets it back.
    fn write(
        &mut self,
        context: &mut Context<'_>,
        faults: &mut CompletionFaults,
        arrival: &Arrival,
        buffers: usize,
    ) -> Result<(), BufferError> {
        let mut result = Ok(());
        let (layout, padding) = (self.layout(), self.padding());
        let bytes = &arrival.frame.bytes;
        let (first, rest) = bytes.split_at((usize::from(self.buffer_size) - padding).min(bytes.len()));
        let chunks = std::iter::once(first).chain(rest.chunks(self.buffer_size.into()));
        for (index, (chunk, posted)) in chunks.zip(self.posted.drain(..buffers)).enumerate() {
            self.ids.remove(&posted.id);
            let start = if index == 0 { padding as u64 } else { 0 };
            let written = self.buffers.write(&context.dma, posted.address.wrapping_add(start), chunk);
            let last = index + 1 == buffers;
            result = result.and(written);
            let raw = match self.rings {
                RxRings::Dqo(_) => completion(arrival, chunk.len(), &posted, last, result.is_err()),
                RxRings::Gqi(_) => gqi::descriptor(arrival, chunk.len(), index == 0, last, result.is_err()),
            };
            let frames: Vec<_> = if last && result.is_ok() { arrival.frames().collect() } else { Vec::new() };
            let length = if frames.is_empty() { 0 } else { bytes.len() as u32 };
            let pending = Pending { raw, frames, length };
            let fields = WireView::new(layout, &raw);
            let Some(lost) = self.shaper.offer(context.now, faults, pending, &fields) else { continue };
            context.observe_faults(&lost.faults);
            for frame in lost.entry.frames {
                context.settle(frame, Fate::Dropped(DropReason::INJECTED));
            }
        }
        result
    }

    /// Writes a completion to the ring, as often as faults want it.
    pub(crate) fn write_completion(
        &mut self,
        context: &Context<'_>,
        overrides: &mut Overrides,
        ready: &Ready<Pending>,
    ) -> Result<(), DmaError> {
        let layout = self.layout();
        let mut indices = Indices { overrides, queue: self.id.into(), disturbed: &mut self.disturbed };
        for _ in 0..ready.copies {
            let mut raw = ready.entry.raw;
            let mut fields = WireView::new(layout, &mut raw);
            match &mut self.rings {
                RxRings::Dqo(ring) => {
                    let place = indices.apply(context, RX_COMPLQ_TAIL, ring.place().into()) as u16;
                    fields.set_field("generation", ring.generation(place).into());
                    ready.rewrite(&mut fields);
                    ring.push(context, place, &raw)?;
                }
                RxRings::Gqi(rings) => {
                    let place = indices.apply(context, RX_CNT, rings.place());
                    fields.set_field("seqno", rings.seqno(place).into());
                    ready.rewrite(&mut fields);
                    rings.push(context, place, &raw)?;
                }
            }
        }
        Ok(())
    }

    /// What a doorbell says, as faults want it.
    pub(crate) fn rung(&mut self, context: &Context<'_>, overrides: &mut Overrides, value: u32) -> u32 {
        let name = if matches!(self.rings, RxRings::Dqo(_)) { RX_BUFQ_TAIL } else { RX_FILL_CNT };
        let mut indices = Indices { overrides, queue: self.id.into(), disturbed: &mut self.disturbed };
        indices.apply(context, name, value)
    }

    /// Buffers in the device's hands.
    #[cfg(test)]
    pub(crate) fn posted(&self) -> usize {
        self.posted.len()
    }

    /// Bytes of the frames that wait.
    pub(crate) fn bytes_waiting(&self) -> usize {
        self.waiting.iter().map(|arrival| arrival.frame.bytes.len()).sum()
    }

    /// Whether a state from outside is one that the code can go on from.
    pub(crate) fn is_sound(&self) -> bool {
        let rings = match &self.rings {
            RxRings::Dqo(ring) => ring.is_sound() && self.posted.len() < self.size.into(),
            RxRings::Gqi(rings) => rings.is_sound() && self.posted.len() <= self.size.into(),
        };
        self.size.is_power_of_two()
            && self.next < self.size
            && usize::from(self.buffer_size) > RX_PAD
            && rings
    }
}

/// The completion for a buffer, still without its generation bit.
fn completion(arrival: &Arrival, length: usize, posted: &Posted, last: bool, error: bool) -> RawCompletion {
    let mut status = arrival.status() | CompletionStatus::DESCRIPTOR_DONE;
    status.set(CompletionStatus::END_OF_PACKET, last);
    let completion = Completion {
        ipv6_ex_add: arrival.ipv6_ex_add,
        rx_error: error,
        packet_type: arrival.packet_type,
        packet_len: length as u16,
        generation: false,
        status,
        buf_id: posted.id,
        hash: arrival.hash.unwrap_or(0),
    };
    let mut raw = completion.encode();
    if let Some(length) = arrival.rsc_seg_len {
        let mut fields = WireView::new(COMPLETION_LAYOUT, &mut raw);
        fields.set_field("rsc", 1);
        fields.set_field("rsc_seg_len", length.into());
    }
    raw
}

/// What the device counts of a receive queue for the statistics report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QueueStats {
    pub(crate) drops: u64,
    pub(crate) no_buffers: u64,
    pub(crate) over_mru: u64,
    pub(crate) bad_checksums: u64,
}

impl QueueStats {
    /// The values as the report has them.
    pub(crate) fn values(&self, queue: u16) -> [Stat; 4] {
        let stat = |name: u32, value: u64| Stat {
            stat_name: name.into(),
            queue_id: u32::from(queue).into(),
            value: value.into(),
        };
        [
            stat(RX_QUEUE_DROP_CNT, self.drops),
            stat(RX_NO_BUFFERS_POSTED, self.no_buffers),
            stat(RX_DROPS_PACKET_OVER_MRU, self.over_mru),
            stat(RX_DROPS_INVALID_CHECKSUM, self.bad_checksums),
        ]
    }
}

/// Most bytes of a merged packet: an IP packet with its Ethernet header must not be above 64 KiB.
const MAX_COALESCED: usize = 65_535 - 18;
/// Most flows of a queue that are merged at once.
const MAX_FLOWS: usize = 64;
/// How long a segment waits for the next.
const HOLD: Duration = Duration::from_micros(20);
// `enum gve_stat_names`, the part that comes from the NIC.
const RX_QUEUE_DROP_CNT: u32 = 65;
const RX_NO_BUFFERS_POSTED: u32 = 66;
const RX_DROPS_PACKET_OVER_MRU: u32 = 67;
const RX_DROPS_INVALID_CHECKSUM: u32 = 68;
