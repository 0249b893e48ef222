//! Transmitting: from the doorbell to frames on the link and completions.

mod check;
mod fetch;
mod send;

use nicvisor_core::Context;
use nicvisor_core::fault::{FieldsMut, Shaper, WireView};
use serde::{Deserialize, Serialize};

use crate::device::Gve;
use crate::ring::CompletionRing;
use crate::rules;
use crate::wire::tx::{
    COMPLETION_LAYOUT, Completion, CompletionType, DESCRIPTOR_SIZE, RawCompletion, RawDescriptor,
};
use fetch::Fetched;

/// A transmit queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TxQueue {
    id: u16,
    ring: u64,
    size: u16,
    completions: CompletionRing,
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
    /// Completions on their way to the ring.
    pub(crate) shaper: Shaper<RawCompletion>,
}

impl TxQueue {
    pub(crate) fn new(id: u16, ring: u64, size: u16, completions: CompletionRing, block: u32) -> TxQueue {
        let shaper = Shaper::new("tx", id.into());
        TxQueue {
            id,
            ring,
            size,
            completions,
            block,
            head: 0,
            tail: 0,
            last_report: None,
            halted: false,
            shaper,
        }
    }

    /// Whether a state from outside is one that the code can go on from.
    pub(crate) fn is_sound(&self) -> bool {
        let indices = self.head < self.size && self.tail < self.size;
        self.size.is_power_of_two() && indices && self.completions.is_sound()
    }

    fn name(&self) -> String {
        format!("tx {}", self.id)
    }

    fn distance(&self, from: u16, to: u16) -> u16 {
        to.wrapping_sub(from) & (self.size - 1)
    }

    /// Reads the descriptors between head and tail.
    fn pending(&self, context: &Context<'_>) -> Result<Vec<RawDescriptor>, nicvisor_core::DmaError> {
        let count = self.distance(self.head, self.tail);
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
        if value >= queue.size.into() {
            let message = format!("doorbell {value} of a ring of {}", queue.size);
            rules::report(&self.config, context, &rules::TX_DOORBELL, message, |finding| {
                finding.queue = queue.name();
            });
        } else if !queue.halted {
            queue.tail = value as u16;
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
            let packet = match fetch::packet(rest) {
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
            queue.head = (queue.head + packet.descriptors as u16) & (queue.size - 1);
            self.report_events(context, queue, &packet, first);
            self.send(context, queue, &packet, raw);
            tags.push(packet.tag);
        }
        if self.config.reverse_completions {
            tags.reverse();
        }
        for tag in tags {
            self.state.counters.tx_completions += 1;
            self.complete(context, queue, CompletionType::Packet, tag);
        }
        self.write_tx_completions(context, queue);
    }

    /// The ring ends within a packet. It may be completed by the next doorbell, unless the ring is full of it.
    fn unfinished(&mut self, context: &mut Context<'_>, queue: &mut TxQueue, rest: &[RawDescriptor]) {
        let message = format!("{} descriptors without end_of_packet", rest.len());
        if rest.len() + 1 == usize::from(queue.size) {
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
        let fields = WireView::new(COMPLETION_LAYOUT, &raw);
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
                let mut raw = ready.entry;
                let mut fields = WireView::new(COMPLETION_LAYOUT, &mut raw);
                fields.set_field("generation", queue.completions.generation.into());
                ready.rewrite(&mut fields);
                if let Err(error) = queue.completions.push(context, &raw) {
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
            finding.descriptor = descriptors[..descriptors.len().min(MAX_EVIDENCE)].as_flattened().to_vec();
        });
    }
}

/// Most descriptors that a finding shows.
const MAX_EVIDENCE: usize = 32;
