//! Queues of the GDMA engine, as the hardware channel and the vPorts use them: work queues, the completion queues
//! that tell what became of their entries, and the event queues that announce completions.

mod completion;
mod event;
pub(crate) mod indices;
mod memory;
mod ring;
mod work;

use std::collections::BTreeMap;

use nicvisor_core::fault::{FaultState, Overrides};
use nicvisor_core::{Context, Time};
use serde::{Deserialize, Serialize};

pub use completion::{Client, Completion, CompletionQueue, Moderation};
pub use event::EventQueue;
pub use memory::QueueMemory;
pub use work::{Sge, WorkQueue, WorkQueueKind, Wqe};

use crate::rules::data as rules;
use crate::wire::doorbell::Doorbell;
use crate::wire::eqe;

/// All queues of a device, by their numbers. Send and receive queues share one range of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queues {
    /// Event queues.
    pub events: BTreeMap<u32, EventQueue>,
    /// Completion queues.
    pub completions: BTreeMap<u32, CompletionQueue>,
    /// Work queues.
    pub works: BTreeMap<u32, WorkQueue>,
    /// What they did since power-on.
    pub counters: Counters,
    /// Faults of the device; those about completions are at work here.
    pub faults: FaultState,
}

/// Whose a queue is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Protection domain of the device (hardware channel, Ethernet) that the queue was created for.
    pub protection_domain: u32,
    /// The doorbell page by which it is rung.
    pub doorbell_page: u32,
    /// The memory key that its scatter-gather lists must use.
    pub memory_key: u32,
}

/// What queues did since power-on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Completions written.
    pub completions: u64,
    /// Events written.
    pub events: u64,
    /// Interrupts raised.
    pub interrupts: u64,
}

/// A work queue has new entries, by a doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// The send queue of this number.
    Send(u32),
    /// The receive queue of this number.
    Receive(u32),
}

impl Queues {
    /// The driver writes `value` at `offset` of doorbell page number `page`. Which work queue has new entries.
    pub fn doorbell(
        &mut self,
        context: &mut Context<'_>,
        page: u32,
        offset: u64,
        value: u64,
    ) -> Option<Rung> {
        let Some(doorbell) = Doorbell::decode(offset, value) else {
            let message = format!("{value:#x} written at {offset:#x} of doorbell page {page}");
            context.report(&rules::DOORBELL, message, |_| ());
            return None;
        };
        if Doorbell::has_reserved(offset, value) {
            let message = format!("{value:#x} written for {doorbell:?}, with reserved bits set");
            context.report(&rules::DOORBELL_RESERVED, message, |_| ());
        }
        let (rung, known) = match doorbell {
            Doorbell::Work { send, id, wqe_count, tail } => {
                let rung = self.work(context, page, send, id, wqe_count, tail);
                (rung, rung.is_some())
            }
            Doorbell::Consumed { event: true, id, tail, arm } => {
                (None, self.event_consumed(context, page, id, tail, arm))
            }
            Doorbell::Consumed { event: false, id, tail, arm } => (
                None,
                self.with_completions(context, page, id, |queue, overrides, context| {
                    queue.doorbell(context, overrides, tail, arm)
                }),
            ),
            Doorbell::Moderation { id, microseconds, completions } => (
                None,
                self.with_completions(context, page, id, |queue, _, context| {
                    queue.moderate(context, microseconds, completions)
                }),
            ),
        };
        if !known {
            let message = format!("{doorbell:?} on doorbell page {page}, where there is no such queue");
            context.report(&rules::DOORBELL_QUEUE, message, |_| ());
        }
        rung
    }

    /// Writes a completion to completion queue `queue`, if there still is one, and announces it. False if a
    /// fault loses it.
    pub fn complete(&mut self, context: &mut Context<'_>, queue: u32, completion: Completion) -> bool {
        let Some(completions) = self.completions.get_mut(&queue) else { return true };
        let written = completions.offer(context, &mut self.faults.completions, completion);
        self.write(context, queue);
        written
    }

    /// Faults were lifted: writes the completions that waited for that.
    pub fn lifted(&mut self, context: &mut Context<'_>) {
        self.completions.values_mut().for_each(|queue| queue.lifted(&self.faults.completions));
        self.write_due(context);
    }

    /// Writes all completions of a queue that are due.
    fn write(&mut self, context: &mut Context<'_>, queue: u32) {
        while let Some(completions) = self.completions.get_mut(&queue) {
            let Some(announce) = completions.write_next(context, &mut self.faults.overrides) else { return };
            self.counters.completions += 1;
            if announce {
                self.announce(context, queue);
            }
        }
    }

    fn write_due(&mut self, context: &mut Context<'_>) {
        let due = self.completions.iter().filter(|(_, queue)| queue.is_due(context.now));
        let due: Vec<u32> = due.map(|(id, _)| *id).collect();
        due.into_iter().for_each(|queue| self.write(context, queue));
    }

    /// Writes an event to event queue `queue`, if there still is one.
    pub fn post_event(
        &mut self,
        context: &mut Context<'_>,
        queue: u32,
        kind: u8,
        details: [u8; eqe::DETAILS_SIZE],
    ) {
        let Some(events) = self.events.get_mut(&queue) else { return };
        self.counters.events += 1;
        let raised = events.post(context, &mut self.faults.overrides, kind, details);
        self.counters.interrupts += u64::from(raised);
    }

    /// When [`Self::deadline`] next has something to do.
    pub fn next_deadline(&self) -> Option<Time> {
        self.completions.values().filter_map(CompletionQueue::deadline).min()
    }

    /// Writes and announces the completions that were put off until now.
    pub fn deadline(&mut self, context: &mut Context<'_>) {
        self.write_due(context);
        let due = |(id, queue): (&u32, &mut CompletionQueue)| queue.poll(context.now).then_some(*id);
        let due: Vec<u32> = self.completions.iter_mut().filter_map(due).collect();
        for queue in due {
            self.announce(context, queue);
        }
    }

    fn announce(&mut self, context: &mut Context<'_>, queue: u32) {
        let Some(events) = self.completions.get(&queue).and_then(CompletionQueue::event_queue) else {
            return;
        };
        let mut details = [0; eqe::DETAILS_SIZE];
        details[..4].copy_from_slice(&queue.to_le_bytes());
        self.post_event(context, events, eqe::COMPLETION, details);
    }

    fn work(
        &mut self,
        context: &mut Context<'_>,
        page: u32,
        send: bool,
        id: u32,
        wqe_count: u8,
        tail: u32,
    ) -> Option<Rung> {
        let kind = if send { WorkQueueKind::Send } else { WorkQueueKind::Receive };
        let on_page = |queue: &&mut WorkQueue| queue.kind() == kind && queue.owner.doorbell_page == page;
        let queue = self.works.get_mut(&id).filter(on_page)?;
        let client = self.completions.get(&queue.completion_queue()).map(CompletionQueue::client);
        let names = client.and_then(|client| Some((client.number(), indices::work(client, kind)?)));
        let tail = names.map_or(tail, |(number, names)| {
            let overrides = &mut self.faults.overrides;
            let mut used = |name: &str, index: u32| {
                overrides.apply_to_queue(context.now, name, number, index.into()) as u32
            };
            queue.overridden(tail, |[rung, own]| [used(names.rung, rung), used(names.own, own)])
        });
        queue.doorbell(context, tail, wqe_count);
        Some(if send { Rung::Send(id) } else { Rung::Receive(id) })
    }

    fn event_consumed(
        &mut self,
        context: &mut Context<'_>,
        page: u32,
        id: u32,
        tail: u32,
        arm: bool,
    ) -> bool {
        let queue = self.events.get_mut(&id).filter(|queue| queue.owner.doorbell_page == page);
        let Some(queue) = queue else { return false };
        let raised = queue.doorbell(context, &mut self.faults.overrides, tail, arm);
        self.counters.interrupts += u64::from(raised);
        true
    }

    /// Calls `ring` with completion queue `id`, and announces its completions if that says so. Whether there is
    /// such a queue on `page`.
    fn with_completions(
        &mut self,
        context: &mut Context<'_>,
        page: u32,
        id: u32,
        ring: impl FnOnce(&mut CompletionQueue, &mut Overrides, &mut Context<'_>) -> bool,
    ) -> bool {
        let queue = self.completions.get_mut(&id).filter(|queue| queue.owner.doorbell_page == page);
        let Some(queue) = queue else { return false };
        if ring(queue, &mut self.faults.overrides, context) {
            self.announce(context, id);
        }
        true
    }

    /// Whether faults have moved an index of the queue that findings call `name`, so that what the driver does there
    /// may not be its own fault.
    pub(crate) fn is_disturbed(&self, name: &str) -> bool {
        let of_channel = name == Client::Channel.kind();
        let is_meant = |queue: &WorkQueue| queue.name() == name || of_channel && queue.vport().is_none();
        self.works.values().any(|queue| queue.disturbed && is_meant(queue))
            || self.completions.values().any(|queue| queue.disturbed && queue.name() == name)
            || self.events.values().any(|queue| queue.disturbed && queue.name() == name)
    }

    /// Whether a state from outside is one that the code can go on from.
    pub fn is_sound(&self) -> bool {
        self.events.values().all(EventQueue::is_sound)
            && self.completions.values().all(CompletionQueue::is_sound)
            && self.works.values().all(WorkQueue::is_sound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::cqe::PAYLOAD_SIZE;
    use nicvisor_core::testing::Bench;

    fn queues() -> (Bench, Queues) {
        let memory = |page: u64| QueueMemory::new(vec![page << 12], 4096, 0, 4096).unwrap();
        let owner = Owner { doorbell_page: 4, ..Owner::default() };
        let mut queues = Queues::default();
        queues.events.insert(1, EventQueue::new(1, owner, memory(1), 9));
        queues.completions.insert(2, CompletionQueue::new(2, owner, memory(2), Some(1), Client::Send(0)));
        queues.works.insert(3, WorkQueue::new(3, owner, WorkQueueKind::Send, memory(3), 2));
        (Bench::with_memory(1 << 20), queues)
    }

    fn ring(bench: &mut Bench, queues: &mut Queues, page: u32, doorbell: Doorbell) -> Option<Rung> {
        let (offset, value) = doorbell.encode();
        bench.call(|context| queues.doorbell(context, page, offset, value))
    }

    fn complete(bench: &mut Bench, queues: &mut Queues) {
        let completion = Completion { work_queue: 3, is_send: true, payload: [0; PAYLOAD_SIZE] };
        assert!(bench.call(|context| queues.complete(context, 2, completion)));
    }

    #[test]
    fn a_completion_becomes_an_event_and_an_interrupt() {
        let (mut bench, mut queues) = queues();
        let work = Doorbell::Work { send: true, id: 3, wqe_count: 0, tail: 32 };
        assert_eq!(ring(&mut bench, &mut queues, 4, work), Some(Rung::Send(3)));
        complete(&mut bench, &mut queues);
        complete(&mut bench, &mut queues);
        let event: [u8; 16] = bench.dma().read_object(0x1000).unwrap();
        assert_eq!((event[0], event[12]), (2, eqe::COMPLETION));
        assert_eq!(queues.counters, Counters { completions: 2, events: 1, interrupts: 1 });
        ring(&mut bench, &mut queues, 4, Doorbell::Consumed { event: true, id: 1, tail: 257, arm: true });
        ring(&mut bench, &mut queues, 4, Doorbell::Consumed { event: false, id: 2, tail: 65, arm: true });
        assert_eq!(queues.counters, Counters { completions: 2, events: 2, interrupts: 2 });
        assert_eq!(bench.take_effects().vectors, [9, 9]);
    }

    #[test]
    fn moderated_completions_are_announced_in_time() {
        let (mut bench, mut queues) = queues();
        let queue = queues.completions.remove(&2).unwrap().with_moderation(Moderation::default());
        queues.completions.insert(2, queue);
        let moderation = Doorbell::Moderation { id: 2, microseconds: Some(5), completions: Some(0) };
        ring(&mut bench, &mut queues, 4, moderation);
        complete(&mut bench, &mut queues);
        assert_eq!(queues.next_deadline(), Some(Time::from_nanos(5000)));
        bench.now = Time::from_nanos(5000);
        bench.call(|context| queues.deadline(context));
        assert_eq!((queues.next_deadline(), queues.counters.events), (None, 1));
    }

    #[test]
    fn doorbells_of_no_queue_are_found() {
        let (mut bench, mut queues) = queues();
        let work = |send, id| Doorbell::Work { send, id, wqe_count: 0, tail: 32 };
        let consumed = |event, id| Doorbell::Consumed { event, id, tail: 256, arm: true };
        for doorbell in [
            work(false, 3),
            work(true, 2),
            consumed(true, 2),
            consumed(false, 1),
            Doorbell::Moderation { id: 1, microseconds: None, completions: None },
        ] {
            assert_eq!(ring(&mut bench, &mut queues, 4, doorbell), None);
            assert_eq!(bench.take_effects().findings[0].rule, "mana-doorbell-queue");
        }
        assert_eq!(ring(&mut bench, &mut queues, 5, work(true, 3)), None);
        bench.call(|context| queues.doorbell(context, 4, 8, 0));
        bench.call(|context| queues.doorbell(context, 4, 0x800, 0x1_0100_0002));
        let rules: Vec<_> = bench.take_effects().findings.into_iter().map(|finding| finding.rule).collect();
        assert_eq!(rules, ["mana-doorbell-queue", "mana-doorbell", "mana-doorbell-reserved", "mana-cq-tail"]);
    }
}
