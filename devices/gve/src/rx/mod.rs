//! Receiving: buffers that the driver posts, frames that wait for them, completions.

mod classify;
mod gqi;
pub(crate) mod ptype;
mod queue;

use nicvisor_core::{Context, DropReason, Fate, Frame, FrameId, Rule};
use nicvisor_net::rsc::{Coalesced, Rsc};

pub(crate) use gqi::GqiRings;
pub(crate) use queue::{RxQueue, RxRings};

use crate::config::Defect;
use crate::device::Gve;
use crate::rules;
use classify::Arrival;
use queue::Delivery;

impl Gve {
    /// A frame arrives from the link.
    pub(crate) fn receive_frame(&mut self, context: &mut Context<'_>, frame: Frame) {
        if self.config.defect == Some(Defect::LostFrame) && frame.id.0.is_multiple_of(LOST_FRAME_INTERVAL) {
            return;
        }
        if let Err((id, reason)) = self.accept(context, frame) {
            self.count_drop(&reason);
            context.settle(id, Fate::Dropped(reason));
        }
    }

    fn accept(&mut self, context: &mut Context<'_>, frame: Frame) -> Result<(), (FrameId, DropReason)> {
        let id = frame.id;
        if !self.state.link_is_up() {
            return Err((id, DropReason::NOT_READY));
        }
        let Some(destination) = frame.bytes.first_chunk::<6>().filter(|_| frame.bytes.len() >= MIN_FRAME)
        else {
            return Err((id, DropReason::MALFORMED));
        };
        // The driver has no way to ask for other addresses: the network sends none.
        if destination[0] & 1 == 0 && *destination != self.config.mac {
            return Err((id, DropReason::FILTERED));
        }
        let too_long = frame.bytes.len() > self.config.max_frame();
        let arrival = Arrival::new(frame, &self.state.rss);
        let index = self.choose_queue(&arrival).ok_or((id, DropReason::NOT_READY))?;
        let Some(mut queue) = self.state.rx.get_mut(index).and_then(Option::take) else {
            return Err((id, DropReason::NOT_READY));
        };
        let mut result = Ok(());
        if too_long || !queue.can_ever_hold(&arrival) {
            queue.stats.over_mru += 1;
            result = Err((id, DropReason::TOO_LONG));
        } else if let Some(rsc) = &mut queue.rsc {
            let packets = rsc.offer(context.now, arrival.frame);
            self.enqueue_coalesced(context, &mut queue, packets);
        } else {
            self.enqueue(context, &mut queue, arrival);
        }
        self.state.rx[index] = Some(queue);
        result
    }

    /// Packets that wait for no more frames.
    fn enqueue_coalesced(&mut self, context: &mut Context<'_>, queue: &mut RxQueue, packets: Vec<Coalesced>) {
        for packet in packets {
            let arrival = Arrival::coalesced(packet, &self.state.rss);
            self.state.counters.rx_coalesced += arrival.others.len() as u64;
            self.enqueue(context, queue, arrival);
        }
    }

    /// Enqueues what has waited long enough for more frames, and writes the completions that are due.
    pub(crate) fn run_rx_deadline(&mut self, context: &mut Context<'_>, queue: &mut RxQueue) {
        let packets = queue.rsc.as_mut().map(|rsc| rsc.due(context.now)).unwrap_or_default();
        self.enqueue_coalesced(context, queue, packets);
        self.write_rx_completions(context, queue);
    }

    fn enqueue(&mut self, context: &mut Context<'_>, queue: &mut RxQueue, arrival: Arrival) {
        let length = arrival.frame.bytes.len() as u32;
        if !queue.has_room_for(&arrival) {
            queue.stats.no_buffers += 1;
            if self.state.memory_used + length > self.config.receive_memory {
                queue.stats.drops += 1;
                return self.drop_frames(context, arrival.frames(), &DropReason::NO_BUFFER);
            }
        }
        self.state.memory_used += length;
        self.state.counters.rx_memory_max =
            self.state.counters.rx_memory_max.max(self.state.memory_used.into());
        queue.waiting.push_back(arrival);
        self.deliver(context, queue);
    }

    fn drop_frames(
        &mut self,
        context: &mut Context<'_>,
        frames: impl Iterator<Item = FrameId>,
        reason: &DropReason,
    ) {
        for frame in frames {
            self.count_drop(reason);
            context.settle(frame, Fate::Dropped(reason.clone()));
        }
    }

    /// Flow rules come first, then the hash, then the first queue.
    fn choose_queue(&self, arrival: &Arrival) -> Option<usize> {
        if !self.state.flow_rules.is_empty()
            && let Some(packet) = classify::flow(&arrival.frame.bytes)
            && let Some(queue) = self.state.flow_rules.values().find_map(|rule| rule.queue(&packet))
        {
            return Some(queue.into());
        }
        let mut queues =
            self.state.rx.iter().enumerate().filter(|(_, queue)| queue.is_some()).map(|(id, _)| id);
        match (arrival.hash, self.state.rss.queue(arrival.hash.unwrap_or(0))) {
            (Some(_), Some(queue)) => Some(queue as usize),
            (Some(hash), None) => {
                let count = queues.clone().count();
                queues.nth((hash as usize).checked_rem(count)?)
            }
            (None, _) => queues.next(),
        }
    }

    /// The driver rang the doorbell of an RX queue. False if there is no such queue.
    pub(crate) fn ring_rx(&mut self, context: &mut Context<'_>, id: u32, value: u32) -> bool {
        let Some(mut queue) = self.state.rx.get_mut(id as usize).and_then(Option::take) else { return false };
        let value = queue.rung(context, &mut self.state.faults.overrides, value);
        queue.fetch_buffers(&self.config, context, value);
        self.deliver(context, &mut queue);
        self.state.rx[id as usize] = Some(queue);
        true
    }

    /// Moves frames that wait into the buffers that there are.
    fn deliver(&mut self, context: &mut Context<'_>, queue: &mut RxQueue) {
        while let Some(delivery) = queue.deliver_next(context, &mut self.state.faults.completions) {
            let Delivery { frames, length, bad_checksum, result } = delivery;
            self.state.memory_used -= length;
            self.state.counters.rx_bad_checksum += u64::from(bad_checksum && result.is_ok());
            if let Err(error) = result {
                self.undelivered(context, queue, &frames, &rules::RX_BUFFER_ADDRESS, error);
            }
        }
        self.write_rx_completions(context, queue);
    }

    /// Writes the completions that are due, settles their frames and tells the driver.
    pub(crate) fn write_rx_completions(&mut self, context: &mut Context<'_>, queue: &mut RxQueue) {
        let mut notify = false;
        while let Some(ready) = queue.shaper.take(context.now) {
            let frames = &ready.entry.frames;
            match queue.write_completion(context, &mut self.state.faults.overrides, &ready) {
                Ok(()) => {
                    let counters = &mut self.state.counters;
                    counters.rx_completions += u64::from(ready.copies);
                    counters.rx_frames += frames.len() as u64;
                    counters.rx_bytes += u64::from(ready.entry.length);
                    frames.iter().for_each(|frame| context.settle(*frame, Fate::Delivered));
                }
                Err(error) => self.undelivered(context, queue, frames, &rules::RING_ADDRESS, error),
            }
            notify |= ready.raise(context);
        }
        if notify {
            self.notify(context, queue.block);
        }
    }

    /// Frames that could not be written where the driver wanted them.
    fn undelivered(
        &mut self,
        context: &mut Context<'_>,
        queue: &RxQueue,
        frames: &[FrameId],
        rule: &Rule,
        error: impl std::fmt::Display,
    ) {
        let Some(first) = frames.first() else { return };
        rules::report(&self.config, context, rule, error.to_string(), |finding| {
            finding.queue = format!("rx {}", queue.id);
            finding.frame = Some(*first);
        });
        self.drop_frames(context, frames.iter().copied(), &DropReason::DMA_FAULT);
    }

    /// Drops everything that waits in any queue.
    pub(crate) fn drop_received(&mut self, context: &mut Context<'_>, reason: &DropReason) {
        for index in 0..self.state.rx.len() {
            if let Some(queue) = self.state.rx[index].take() {
                self.discard(context, queue, reason);
            }
        }
    }

    /// Drops what waits in a queue that is no more.
    pub(crate) fn discard(&mut self, context: &mut Context<'_>, mut queue: RxQueue, reason: &DropReason) {
        for arrival in queue.waiting {
            self.state.memory_used -= arrival.frame.bytes.len() as u32;
            self.drop_frames(context, arrival.frames(), reason);
        }
        let held = queue.shaper.into_held().flat_map(|pending| pending.frames);
        self.drop_frames(context, held, reason);
        let merging = queue.rsc.as_mut().map(Rsc::flush).unwrap_or_default();
        self.drop_frames(context, merging.into_iter().flat_map(|packet| packet.frames), reason);
    }

    fn count_drop(&mut self, reason: &DropReason) {
        let counters = &mut self.state.counters;
        let counter = match reason {
            reason if *reason == DropReason::NO_BUFFER => &mut counters.rx_dropped_no_buffer,
            reason if *reason == DropReason::TOO_LONG => &mut counters.rx_dropped_too_long,
            _ => &mut counters.rx_dropped_other,
        };
        *counter += 1;
    }
}

/// An Ethernet header.
const MIN_FRAME: usize = 14;
/// Which frames vanish with [`Defect::LostFrame`].
const LOST_FRAME_INTERVAL: u64 = 100;
