//! Transmitting: from the doorbell to frames on the link and completions.

mod check;
mod fetch;
mod gqi;
mod send;

use std::collections::VecDeque;

use nicvisor_core::fault::{FieldsMut, Overrides, Ready, Shaper, WireField, WireView};
use nicvisor_core::{Context, DmaError, Duration, Finding, Time};
use serde::{Deserialize, Serialize};

use crate::buffers::Buffers;
use crate::device::Gve;
use crate::faults::indices::{Indices, TX_COMPLQ_TAIL, TX_EVENT_COUNTER, TX_REQ, TX_TAIL};
use crate::features::Feature;
use crate::ring::CompletionRing;
use crate::rules;
use crate::wire;
use crate::wire::gqi::EVENT_COUNTER_LAYOUT;
use crate::wire::tx::{
    COMPLETION_LAYOUT, Completion, CompletionType, DESCRIPTOR_SIZE, RawCompletion, RawDescriptor,
};
use fetch::Fetched;
pub(crate) use gqi::EventCounter;

/// A transmit queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TxQueue {
    id: u16,
    ring: u64,
    size: u16,
    progress: Progress,
    buffers: Buffers,
    /// The id of the page list that the buffers are in.
    pub(crate) page_list: Option<u32>,
    /// Notification block.
    block: u32,
    /// First descriptor that is not yet done with.
    head: u16,
    /// Descriptors before this one are the device's.
    tail: u16,
    /// The last descriptor with `report_event`.
    last_report: Option<u16>,
    /// The driver broke a rule after which hardware would not go on.
    halted: bool,
    /// Packets since one took the miss path.
    since_miss: u32,
    /// When the packets with these tags come back from it.
    reinjections: VecDeque<(Time, u16)>,
    /// Completions on their way to the ring.
    pub(crate) shaper: Shaper<RawCompletion>,
    /// A fault had one of its indices be another.
    pub(crate) disturbed: bool,
}

/// How the driver is told what is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Progress {
    /// By completions (DQO).
    Ring(CompletionRing),
    /// By a counter (GQI).
    Counter(EventCounter),
}

impl TxQueue {
    pub(crate) fn new(
        id: u16,
        (ring, size): (u64, u16),
        progress: Progress,
        (buffers, page_list): (Buffers, Option<u32>),
        block: u32,
    ) -> TxQueue {
        TxQueue {
            id,
            ring,
            size,
            progress,
            buffers,
            page_list,
            block,
            head: 0,
            tail: 0,
            last_report: None,
            halted: false,
            since_miss: 0,
            reinjections: VecDeque::new(),
            shaper: Shaper::new("tx", id.into()),
            disturbed: false,
        }
    }

    /// When the queue next has something to tell the driver by itself.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let reinjection = self.reinjections.front().map(|(due, _)| *due);
        self.shaper.next_deadline().into_iter().chain(reinjection).min()
    }

    /// Whether the next packet takes the miss path.
    fn misses(&mut self, interval: u32) -> bool {
        self.since_miss = self.since_miss.saturating_add(1);
        // However fast the driver is: no more than fit the ring are on their way.
        if interval == 0 || self.since_miss < interval || self.reinjections.len() >= self.size.into() {
            return false;
        }
        self.since_miss = 0;
        true
    }

    /// Whether a state from outside is one that the code can go on from.
    pub(crate) fn is_sound(&self) -> bool {
        let progress = match &self.progress {
            Progress::Ring(ring) => ring.is_sound(),
            Progress::Counter(counter) => counter.waiting() <= self.size.into(),
        };
        self.size.is_power_of_two() && self.head < self.size && self.tail < self.size && progress
    }

    /// The fields of what tells the driver what is done.
    pub(crate) fn layout(&self) -> &'static [WireField] {
        match self.progress {
            Progress::Ring(_) => COMPLETION_LAYOUT,
            Progress::Counter(_) => EVENT_COUNTER_LAYOUT,
        }
    }

    /// The driver wrote `value` to the doorbell. False if that is not possible.
    fn advance(&mut self, value: u32) -> bool {
        match &mut self.progress {
            Progress::Ring(_) if value < self.size.into() => self.tail = value as u16,
            Progress::Counter(counter) if value.wrapping_sub(counter.done) <= self.size.into() => {
                counter.requested = value;
            }
            _ => return false,
        }
        true
    }

    /// How many descriptors the device has not looked at.
    fn waiting(&self) -> u16 {
        match &self.progress {
            Progress::Ring(_) => self.distance(self.head, self.tail),
            Progress::Counter(counter) => counter.waiting() as u16,
        }
    }

    /// The device is done with `count` descriptors.
    fn consume(&mut self, count: usize) {
        self.head = (self.head + count as u16) & (self.size - 1);
        if let Progress::Counter(counter) = &mut self.progress {
            counter.done = counter.done.wrapping_add(count as u32);
        }
    }

    fn name(&self) -> String {
        format!("tx {}", self.id)
    }

    /// Tells the driver what is done, as faults want it.
    fn write(
        &mut self,
        context: &Context<'_>,
        overrides: &mut Overrides,
        ready: &Ready<RawCompletion>,
    ) -> Result<(), DmaError> {
        let mut raw = ready.entry;
        let mut fields = WireView::new(self.layout(), &mut raw);
        let mut indices = Indices { overrides, queue: self.id.into(), disturbed: &mut self.disturbed };
        match &mut self.progress {
            Progress::Ring(ring) => {
                let place = indices.apply(context, TX_COMPLQ_TAIL, ring.place().into()) as u16;
                fields.set_field("generation", ring.generation(place).into());
                ready.rewrite(&mut fields);
                ring.push(context, place, &raw)
            }
            Progress::Counter(counter) => {
                ready.rewrite(&mut fields);
                counter.write(context, |shown| indices.apply(context, TX_EVENT_COUNTER, shown), raw)
            }
        }
    }

    /// What a doorbell says, as faults want it.
    fn rung(&mut self, context: &Context<'_>, overrides: &mut Overrides, value: u32) -> u32 {
        let name = if matches!(self.progress, Progress::Ring(_)) { TX_TAIL } else { TX_REQ };
        let mut indices = Indices { overrides, queue: self.id.into(), disturbed: &mut self.disturbed };
        indices.apply(context, name, value)
    }

    fn distance(&self, from: u16, to: u16) -> u16 {
        to.wrapping_sub(from) & (self.size - 1)
    }

    /// Reads the descriptors between head and tail.
    fn pending(&self, context: &Context<'_>) -> Result<Vec<RawDescriptor>, DmaError> {
        let count = self.waiting();
        let mut descriptors = vec![[0; DESCRIPTOR_SIZE]; count.into()];
        let to_end = (self.size - self.head).min(count);
        let (first, wrapped) = descriptors.split_at_mut(to_end.into());
        let address = self.ring + u64::from(self.head) * DESCRIPTOR_SIZE as u64;
        context.dma.read(address, first.as_flattened_mut())?;
        context.dma.read(self.ring, wrapped.as_flattened_mut())?;
        Ok(descriptors)
    }
}

impl Gve {
    /// The driver rang the doorbell of a TX queue. False if there is no such queue.
    pub(crate) fn ring_tx(&mut self, context: &mut Context<'_>, id: u32, value: u32) -> bool {
        let Some(mut queue) = self.state.tx.get_mut(id as usize).and_then(Option::take) else { return false };
        let value = queue.rung(context, &mut self.state.faults.overrides, value);
        if !queue.advance(value) {
            let message = format!("doorbell {value} of a ring of {}", queue.size);
            rules::report(&self.config, context, &rules::TX_DOORBELL, message, |finding| {
                finding.queue = queue.name();
            });
        } else if !queue.halted {
            self.run_tx(context, &mut queue);
        }
        self.state.tx[id as usize] = Some(queue);
        true
    }

    fn run_tx(&mut self, context: &mut Context<'_>, queue: &mut TxQueue) {
        let descriptors = match queue.pending(context) {
            Ok(descriptors) => descriptors,
            Err(error) => return self.halt_tx(context, queue, &rules::RING_ADDRESS, error.to_string(), &[]),
        };
        let mut tags = Vec::new();
        let mut rest = &descriptors[..];
        while !rest.is_empty() {
            let fetched = match queue.progress {
                Progress::Ring(_) => fetch::packet(rest),
                Progress::Counter(_) => gqi::packet(rest),
            };
            let packet = match fetched {
                Fetched::Packet(packet) => packet,
                Fetched::Unfinished => {
                    self.unfinished(context, queue, rest);
                    break;
                }
                Fetched::Fault { rule, message, descriptors } => {
                    self.halt_tx(context, queue, rule, message, &rest[..descriptors]);
                    break;
                }
            };
            let raw = &rest[..packet.descriptors];
            rest = &rest[packet.descriptors..];
            let first = queue.head;
            queue.consume(packet.descriptors);
            self.report_events(context, queue, &packet, first);
            self.send(context, queue, &packet, raw);
            tags.push(packet.tag);
        }
        if self.config.reverse_completions {
            tags.reverse();
        }
        self.state.counters.tx_completions += tags.len() as u64;
        match &queue.progress {
            Progress::Ring(_) => {
                for tag in tags {
                    self.complete_packet(context, queue, tag);
                }
            }
            Progress::Counter(counter) if !tags.is_empty() => {
                let raw = counter.raw();
                self.offer_tx_completion(context, queue, raw);
            }
            Progress::Counter(_) => (),
        }
        self.write_tx_completions(context, queue);
    }

    /// The ring ends within a packet. It may be completed by the next doorbell, unless the ring is full of it.
    fn unfinished(&mut self, context: &mut Context<'_>, queue: &mut TxQueue, rest: &[RawDescriptor]) {
        let message = format!("{} descriptors without end_of_packet", rest.len());
        if rest.len() + 1 >= usize::from(queue.size) {
            return self.halt_tx(context, queue, &rules::TX_UNFINISHED, message, rest);
        }
        self.report_tx(context, queue, &rules::TX_UNFINISHED, message, rest);
    }

    /// Descriptor completions for the packet's descriptors, which start at index `first`.
    fn report_events(
        &mut self,
        context: &mut Context<'_>,
        queue: &mut TxQueue,
        packet: &fetch::Packet,
        first: u16,
    ) {
        for offset in &packet.report_events {
            let index = (first + offset) & (queue.size - 1);
            let last = usize::from(*offset) + 1 == packet.descriptors;
            let distance = queue.last_report.map(|previous| queue.distance(previous, index));
            if !last || distance.is_some_and(|distance| distance < crate::wire::tx::MIN_REPORT_EVENT_INTERVAL)
            {
                let message =
                    format!("report_event {distance:?} descriptors after the last, at the end: {last}");
                self.report_tx(context, queue, &rules::TX_REPORT_EVENT, message, &[]);
            }
            queue.last_report = Some(index);
            self.state.counters.tx_descriptor_completions += 1;
            let head = (index + 1) & (queue.size - 1);
            self.complete(context, queue, CompletionType::Descriptor, head);
        }
    }

    /// Says that the packet with this tag was sent, at once or in two parts. The driver that can tell the first
    /// part by a bit of the tag is told by that.
    fn complete_packet(&mut self, context: &mut Context<'_>, queue: &mut TxQueue, tag: u16) {
        if !queue.misses(self.config.miss_interval) {
            return self.complete(context, queue, CompletionType::Packet, tag);
        }
        self.state.counters.tx_misses += 1;
        let delay = Duration::from_micros(self.config.reinjection_delay.into());
        queue.reinjections.push_back((context.now + delay, tag));
        match self.offers(Feature::AlternativeMiss) {
            true => self.complete(context, queue, CompletionType::Packet, tag | ALTERNATIVE_MISS),
            false => self.complete(context, queue, CompletionType::Miss, tag),
        }
    }

    /// Completes what has come back from the miss path, and writes the completions that are due.
    pub(crate) fn run_tx_deadline(&mut self, context: &mut Context<'_>, queue: &mut TxQueue) {
        while let Some((due, tag)) = queue.reinjections.front().copied()
            && due <= context.now
        {
            queue.reinjections.pop_front();
            self.complete(context, queue, CompletionType::Reinjection, tag);
        }
        self.write_tx_completions(context, queue);
    }

    fn complete(&mut self, context: &mut Context<'_>, queue: &mut TxQueue, kind: CompletionType, value: u16) {
        let completion = Completion::new(queue.id, kind, false, value);
        self.offer_tx_completion(context, queue, zerocopy::transmute!(completion));
    }

    /// Gives a completion, still without its generation bit, on its way to the ring.
    pub(crate) fn offer_tx_completion(
        &mut self,
        context: &mut Context<'_>,
        queue: &mut TxQueue,
        raw: RawCompletion,
    ) {
        let fields = WireView::new(queue.layout(), &raw);
        let completions = &mut self.state.faults.completions;
        if let Some(lost) = queue.shaper.offer(context.now, completions, raw, &fields) {
            context.observe_faults(&lost.faults);
        }
    }

    /// Writes the completions that are due, and tells the driver.
    pub(crate) fn write_tx_completions(&mut self, context: &mut Context<'_>, queue: &mut TxQueue) {
        let mut notify = false;
        while let Some(ready) = queue.shaper.take(context.now) {
            for _ in 0..ready.copies {
                if let Err(error) = queue.write(context, &mut self.state.faults.overrides, &ready) {
                    return self.halt_tx(context, queue, &rules::RING_ADDRESS, error.to_string(), &[]);
                }
            }
            notify |= ready.raise(context);
        }
        if notify {
            self.notify(context, queue.block);
        }
    }

    /// Reports a breach after which the queue stands still until it is destroyed.
    fn halt_tx(
        &mut self,
        context: &mut Context<'_>,
        queue: &mut TxQueue,
        rule: &nicvisor_core::Rule,
        message: String,
        descriptors: &[RawDescriptor],
    ) {
        queue.halted = true;
        self.report_tx(context, queue, rule, message, descriptors);
    }

    fn report_tx(
        &self,
        context: &mut Context<'_>,
        queue: &TxQueue,
        rule: &nicvisor_core::Rule,
        message: String,
        descriptors: &[RawDescriptor],
    ) {
        rules::report(&self.config, context, rule, message, |finding| {
            finding.queue = queue.name();
            self.show_descriptors(finding, descriptors);
        });
    }

    /// Makes descriptors the evidence of a finding.
    fn show_descriptors(&self, finding: &mut Finding, descriptors: &[RawDescriptor]) {
        let shown = &descriptors[..descriptors.len().min(MAX_EVIDENCE)];
        finding.descriptor = shown.as_flattened().to_vec();
        let decode = |raw: &RawDescriptor| match self.config.format.is_gqi() {
            true => wire::gqi::Descriptor::decode(raw).to_string(),
            false => wire::tx::Descriptor::decode(raw).to_string(),
        };
        finding.decoded = shown.iter().map(decode).collect();
    }
}

/// `GVE_ALT_MISS_COMPL_BIT`: turns a packet completion into a miss completion.
pub(crate) const ALTERNATIVE_MISS: u16 = 1 << 15;
/// Most descriptors that a finding shows.
const MAX_EVIDENCE: usize = 32;
