//! Completion queues: each announces its entries to an event queue.

use nicvisor_core::fault::{CompletionFaults, Overrides, Shaper, WireField, WireView};
use nicvisor_core::{Context, Duration, Time};
use serde::{Deserialize, Serialize};

use super::ring::{ROUNDS, Ring};
use super::{Owner, QueueMemory, indices};
use crate::rules::data as rules;
use crate::wire::cqe::{self, Cqe};
use crate::wire::layout;

/// A completion queue. It announces a completion that is written while it is armed, or, when it is armed, those
/// that the driver has not consumed; then it has to be armed anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionQueue {
    id: u32,
    pub(crate) owner: Owner,
    event_queue: Option<u32>,
    ring: Ring,
    /// Set if announcements may be moderated.
    moderation: Option<Moderation>,
    unannounced: Option<Unannounced>,
    client: Client,
    /// What faults make of completions before they are written.
    shaper: Shaper<Completion>,
    /// A fault had one of its indices be another.
    pub(super) disturbed: bool,
}

/// Whose completions a queue has: what faults name it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Client {
    /// The hardware channel.
    Channel,
    /// The send queue of this number; those of all vPorts are numbered in a row.
    Send(u32),
    /// The receive queue of this number.
    Receive(u32),
    /// None that this device has anything to tell (a completion queue that was created by itself).
    Nobody,
}

impl Client {
    /// Kind of queue.
    pub fn kind(self) -> &'static str {
        match self {
            Client::Channel => "hwc",
            Client::Send(_) => "tx",
            Client::Receive(_) => "rx",
            Client::Nobody => "none",
        }
    }

    /// Number among the queues of its kind.
    pub fn number(self) -> u32 {
        match self {
            Client::Channel | Client::Nobody => 0,
            Client::Send(number) | Client::Receive(number) => number,
        }
    }

    /// The fields of its completions.
    pub fn layout(self) -> &'static [WireField] {
        match self {
            Client::Channel => layout::CHANNEL,
            Client::Send(_) => layout::SEND,
            Client::Receive(_) => layout::RECEIVE,
            Client::Nobody => &[],
        }
    }
}

/// How far announcements may be put off. Zero microseconds: not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moderation {
    /// For how long at most.
    pub microseconds: u16,
    /// For how many completions at most; 0 for any number.
    pub completions: u8,
}

/// Completions whose announcement is put off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Unannounced {
    since: Time,
    completions: u32,
}

/// What happened to an entry of a work queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// The work queue.
    pub work_queue: u32,
    /// Whether that is a send queue.
    pub is_send: bool,
    /// What the queue's client is told.
    #[serde(with = "serde_bytes")]
    pub payload: [u8; cqe::PAYLOAD_SIZE],
}

impl CompletionQueue {
    /// A completion queue that has just been created: empty and armed.
    pub fn new(
        id: u32,
        owner: Owner,
        memory: QueueMemory,
        event_queue: Option<u32>,
        client: Client,
    ) -> CompletionQueue {
        CompletionQueue {
            id,
            owner,
            event_queue,
            ring: Ring::new(memory, cqe::SIZE),
            moderation: None,
            unannounced: None,
            client,
            shaper: Shaper::new(client.kind(), client.number()),
            disturbed: false,
        }
    }

    /// The same queue with announcements that may be moderated, so from the start and later by doorbells.
    #[must_use]
    pub fn with_moderation(self, moderation: Moderation) -> CompletionQueue {
        CompletionQueue { moderation: Some(moderation), ..self }
    }

    /// Whether it was created without a work queue.
    pub fn is_by_itself(&self) -> bool {
        self.client == Client::Nobody
    }

    /// Whose completions it has.
    pub(crate) fn client(&self) -> Client {
        self.client
    }

    /// The event queue to which it announces its completions.
    pub fn event_queue(&self) -> Option<u32> {
        self.event_queue
    }

    /// Takes a completion that is to be written, now or when faults say. Whether they leave it.
    pub(crate) fn offer(
        &mut self,
        context: &mut Context<'_>,
        faults: &mut CompletionFaults,
        completion: Completion,
    ) -> bool {
        let raw = self.encode(&completion, self.ring.place());
        let fields = WireView::new(self.client.layout(), &raw);
        let lost = self.shaper.offer(context.now, faults, completion, &fields);
        if let Some(lost) = &lost {
            context.observe_faults(&lost.faults);
        }
        lost.is_none()
    }

    /// Writes the next completion that is due. Whether to announce what is there then; `None` if none is due.
    pub(crate) fn write_next(
        &mut self,
        context: &mut Context<'_>,
        overrides: &mut Overrides,
    ) -> Option<bool> {
        let ready = self.shaper.take(context.now)?;
        let mut announce = false;
        for _ in 0..ready.copies {
            let place = self.ring.place();
            let place = self.overridden(context, overrides, |names| names.own, place);
            let mut raw = self.encode(&ready.entry, place);
            ready.rewrite(&mut WireView::new(self.client.layout(), &mut raw));
            announce |= self.push(context, place, &raw);
        }
        Some(ready.raise(context) && announce)
    }

    /// Faults were lifted.
    pub(crate) fn lifted(&mut self, faults: &CompletionFaults) {
        self.shaper.lifted(faults);
    }

    /// Whether [`Self::write_next`] has something now.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.shaper.next_deadline().is_some_and(|deadline| deadline <= now)
    }

    /// The completion as the entry of the ring at `place`.
    fn encode(&self, completion: &Completion, place: u32) -> [u8; cqe::SIZE] {
        let Completion { work_queue, is_send, payload } = *completion;
        Cqe { payload, work_queue, is_send, owner: self.ring.owner(place) }.encode()
    }

    /// What faults make of an index.
    fn overridden(
        &mut self,
        context: &Context<'_>,
        overrides: &mut Overrides,
        name: fn(indices::Names) -> &'static str,
        index: u32,
    ) -> u32 {
        let Some(names) = indices::completion(self.client) else { return index };
        let number = self.client.number();
        let used = overrides.apply_to_queue(context.now, name(names), number, index.into()) as u32;
        self.disturbed |= used != index;
        used
    }

    /// Writes an entry. Whether it is to be announced now.
    fn push(&mut self, context: &mut Context<'_>, place: u32, raw: &[u8; cqe::SIZE]) -> bool {
        if self.ring.outstanding() >= u64::from(self.ring.entries()) * ROUNDS {
            let message = format!("no doorbell for {ROUNDS} rounds of {} entries", self.ring.entries());
            self.report(context, &rules::CQ_OVERFLOW, message);
        }
        if let Err(error) = self.ring.push(context, place, raw) {
            self.report(context, &rules::QUEUE_MEMORY, error.to_string());
            return false;
        }
        self.announce(context.now, 1)
    }

    /// The driver consumed the completions before `tail`. Whether there are some to be announced now.
    pub(crate) fn doorbell(
        &mut self,
        context: &mut Context<'_>,
        overrides: &mut Overrides,
        tail: u32,
        arm: bool,
    ) -> bool {
        let tail = self.overridden(context, overrides, |names| names.rung, tail);
        if let Err(error) = self.ring.consume(tail) {
            let message = format!("tail {tail}: {error}");
            self.report(context, &rules::CQ_TAIL, message);
        }
        if arm && self.event_queue.is_none() {
            let message = "armed, but attached to no event queue".to_owned();
            self.report(context, &rules::CQ_ARM, message);
        }
        if !arm {
            return false;
        }
        self.ring.armed = true;
        self.unannounced = None;
        let outstanding = u32::try_from(self.ring.outstanding()).unwrap_or(u32::MAX);
        outstanding != 0 && self.announce(context.now, outstanding)
    }

    /// The driver changes the moderation.
    pub(crate) fn moderate(
        &mut self,
        context: &mut Context<'_>,
        microseconds: Option<u16>,
        completions: Option<u8>,
    ) -> bool {
        let Some(moderation) = &mut self.moderation else {
            let message = "moderation that the device did not agree to".to_owned();
            self.report(context, &rules::CQ_MODERATION, message);
            return false;
        };
        moderation.microseconds = microseconds.unwrap_or(moderation.microseconds);
        moderation.completions = completions.unwrap_or(moderation.completions);
        self.poll(context.now)
    }

    /// When [`Self::poll`] will next find something to announce, or [`Self::write_next`] something to write.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let microseconds = self.moderation.unwrap_or_default().microseconds;
        let announcement =
            self.unannounced.map(|waiting| waiting.since + Duration::from_micros(microseconds.into()));
        announcement.into_iter().chain(self.shaper.next_deadline()).min()
    }

    /// Whether completions whose announcement was put off are to be announced now.
    pub(crate) fn poll(&mut self, now: Time) -> bool {
        self.unannounced.is_some() && self.announce(now, 0)
    }

    /// There are `completions` more to announce. Whether to do that now.
    fn announce(&mut self, now: Time, completions: u32) -> bool {
        if !self.ring.armed || self.event_queue.is_none() {
            return false;
        }
        let unannounced = self.unannounced.get_or_insert(Unannounced { since: now, completions: 0 });
        unannounced.completions = unannounced.completions.saturating_add(completions);
        let Unannounced { since, completions } = *unannounced;
        let Moderation { microseconds, completions: most } = self.moderation.unwrap_or_default();
        let late = now.since(since) >= Duration::from_micros(microseconds.into());
        let many = most != 0 && completions >= most.into();
        if late || many {
            self.ring.armed = false;
            self.unannounced = None;
        }
        late || many
    }

    fn report(&self, context: &mut Context<'_>, rule: &nicvisor_core::Rule, message: String) {
        context.report(rule, message, |finding| finding.queue = self.name());
    }

    /// The queue as findings name it.
    pub(super) fn name(&self) -> String {
        format!("cq {}", self.id)
    }

    /// Whether a state from outside is one that the code can go on from.
    pub(crate) fn is_sound(&self) -> bool {
        self.ring.is_sound()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicvisor_core::testing::Bench;

    fn queue() -> (Bench, CompletionQueue) {
        let memory = QueueMemory::new(vec![0x1000], 4096, 0, 4096).unwrap();
        (
            Bench::with_memory(1 << 20),
            CompletionQueue::new(9, Owner::default(), memory, Some(1), Client::Send(0)),
        )
    }

    const COMPLETION: Completion =
        Completion { work_queue: 4, is_send: true, payload: [6; cqe::PAYLOAD_SIZE] };

    fn push(bench: &mut Bench, queue: &mut CompletionQueue) -> bool {
        assert!(bench.call(|context| queue.offer(context, &mut CompletionFaults::default(), COMPLETION)));
        bench.call(|context| queue.write_next(context, &mut Overrides::default())).expect("no fault holds it")
    }

    #[test]
    fn completions_are_announced_once_until_armed_again() {
        let (mut bench, mut queue) = queue();
        assert!(push(&mut bench, &mut queue) && !push(&mut bench, &mut queue));
        let cqe = Cqe::decode(&bench.dma().read_object(0x1040).unwrap());
        assert_eq!(cqe, Cqe { payload: [6; 60], work_queue: 4, is_send: true, owner: 1 });
        assert!(
            bench.call(|context| queue.doorbell(context, &mut Overrides::default(), 65, true)),
            "one is left"
        );
        assert!(
            !bench.call(|context| queue.doorbell(context, &mut Overrides::default(), 66, false)),
            "not armed"
        );
        assert!(!push(&mut bench, &mut queue));
        assert!(
            !bench.call(|context| queue.doorbell(context, &mut Overrides::default(), 67, true)),
            "none is left"
        );
        assert!(push(&mut bench, &mut queue));
        assert_eq!(bench.take_effects().findings, []);
    }

    #[test]
    fn announcements_are_put_off_by_time_and_number() {
        let (bench, queue) = queue();
        let mut bench = bench;
        let mut queue = queue.with_moderation(Moderation { microseconds: 10, completions: 3 });
        assert!(!push(&mut bench, &mut queue) && !push(&mut bench, &mut queue));
        assert_eq!(queue.deadline(), Some(Time::from_nanos(10_000)));
        assert!(push(&mut bench, &mut queue), "the third");
        assert_eq!(queue.deadline(), None);
        assert!(!bench.call(|context| queue.doorbell(context, &mut Overrides::default(), 67, true)));
        assert!(!push(&mut bench, &mut queue));
        assert!(!queue.poll(Time::from_nanos(9_999)));
        assert!(queue.poll(Time::from_nanos(10_000)));
        bench.call(|context| queue.doorbell(context, &mut Overrides::default(), 68, true));
        push(&mut bench, &mut queue);
        assert!(bench.call(|context| queue.moderate(context, Some(0), None)), "moderation off");
        assert_eq!(bench.take_effects().findings, []);
    }

    #[test]
    fn what_the_driver_must_not_do_is_found() {
        let (mut bench, mut queue) = queue();
        bench.call(|context| queue.doorbell(context, &mut Overrides::default(), 65, true));
        bench.call(|context| queue.doorbell(context, &mut Overrides::default(), 512, true));
        bench.call(|context| queue.moderate(context, Some(3), None));
        (0..513).for_each(|_| _ = push(&mut bench, &mut queue));
        let mut alone = CompletionQueue { event_queue: None, ..queue.clone() };
        bench.call(|context| alone.doorbell(context, &mut Overrides::default(), 64, true));
        let effects = bench.take_effects();
        let rules: Vec<_> = effects.findings.iter().map(|finding| finding.rule.as_ref()).collect();
        let expected =
            ["mana-cq-tail", "mana-cq-tail", "mana-cq-moderation", "mana-cq-overflow", "mana-cq-arm"];
        assert_eq!(rules, expected);
    }
}
