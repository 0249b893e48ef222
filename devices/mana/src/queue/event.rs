//! Event queues: each raises one interrupt vector.

use nicvisor_core::Context;
use nicvisor_core::fault::Overrides;
use serde::{Deserialize, Serialize};

use super::ring::Ring;
use super::{Owner, QueueMemory, indices};
use crate::rules::data as rules;
use crate::wire::eqe::{self, Eqe};

/// An event queue. It raises its interrupt when an event is written while it is armed, or when it is armed while
/// there are events that the driver has not consumed; then it has to be armed anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventQueue {
    id: u32,
    pub(crate) owner: Owner,
    vector: u16,
    ring: Ring,
    /// A fault had one of its indices be another.
    pub(super) disturbed: bool,
}

impl EventQueue {
    /// An event queue that has just been created: empty and armed.
    pub fn new(id: u32, owner: Owner, memory: QueueMemory, vector: u16) -> EventQueue {
        EventQueue { id, owner, vector, ring: Ring::new(memory, eqe::SIZE), disturbed: false }
    }

    /// The interrupt vector.
    pub fn vector(&self) -> u16 {
        self.vector
    }

    /// Writes an event. Whether that raised the interrupt.
    pub fn post(
        &mut self,
        context: &mut Context<'_>,
        overrides: &mut Overrides,
        kind: u8,
        details: [u8; eqe::DETAILS_SIZE],
    ) -> bool {
        if self.ring.outstanding() >= self.ring.entries().into() {
            let message = format!("event {kind} overwrites one that was not consumed");
            self.report(context, &rules::EQ_OVERFLOW, message);
        }
        let place = self.ring.place();
        let place = self.overridden(context, overrides, indices::EVENT.own, place);
        let eqe = Eqe { details, kind, owner: self.ring.owner(place) };
        match self.ring.push(context, place, &eqe.encode()) {
            Ok(()) => self.raise(context),
            Err(error) => {
                self.report(context, &rules::QUEUE_MEMORY, error.to_string());
                false
            }
        }
    }

    /// The driver consumed the events before `tail`. Whether that raised the interrupt.
    pub fn doorbell(
        &mut self,
        context: &mut Context<'_>,
        overrides: &mut Overrides,
        tail: u32,
        arm: bool,
    ) -> bool {
        let tail = self.overridden(context, overrides, indices::EVENT.rung, tail);
        if let Err(error) = self.ring.consume(tail) {
            let message = format!("tail {tail}: {error}");
            self.report(context, &rules::EQ_TAIL, message);
        }
        self.ring.armed |= arm;
        self.ring.outstanding() != 0 && self.raise(context)
    }

    /// What faults make of an index.
    fn overridden(
        &mut self,
        context: &Context<'_>,
        overrides: &mut Overrides,
        name: &str,
        index: u32,
    ) -> u32 {
        let used = overrides.apply_to_queue(context.now, name, self.id, index.into()) as u32;
        self.disturbed |= used != index;
        used
    }

    /// The queue as findings name it.
    pub(super) fn name(&self) -> String {
        format!("eq {}", self.id)
    }

    fn raise(&mut self, context: &mut Context<'_>) -> bool {
        let raised = std::mem::take(&mut self.ring.armed);
        if raised {
            context.raise(self.vector);
        }
        raised
    }

    fn report(&self, context: &mut Context<'_>, rule: &nicvisor_core::Rule, message: String) {
        context.report(rule, message, |finding| finding.queue = self.name());
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

    fn queue() -> (Bench, EventQueue) {
        let memory = QueueMemory::new(vec![0x1000], 4096, 0, 4096).unwrap();
        (Bench::with_memory(1 << 20), EventQueue::new(3, Owner::default(), memory, 5))
    }

    #[test]
    fn an_interrupt_is_raised_once_until_armed_again() {
        let (mut bench, mut queue) = queue();
        assert!(bench.call(|context| queue.post(
            context,
            &mut Overrides::default(),
            eqe::COMPLETION,
            [1; 12]
        )));
        assert!(!bench.call(|context| queue.post(
            context,
            &mut Overrides::default(),
            eqe::COMPLETION,
            [2; 12]
        )));
        let eqe = Eqe::decode(&bench.dma().read_object(0x1010).unwrap());
        assert_eq!(eqe, Eqe { details: [2; 12], kind: eqe::COMPLETION, owner: 1 });
        assert!(
            bench.call(|context| queue.doorbell(context, &mut Overrides::default(), 257, true)),
            "one is left"
        );
        assert!(
            !bench.call(|context| queue.doorbell(context, &mut Overrides::default(), 258, true)),
            "none is left"
        );
        assert!(bench.call(|context| queue.post(
            context,
            &mut Overrides::default(),
            eqe::COMPLETION,
            [3; 12]
        )));
        let effects = bench.take_effects();
        assert_eq!((effects.vectors, effects.findings), (vec![5, 5, 5], vec![]));
    }

    #[test]
    fn consuming_alone_does_not_arm() {
        let (mut bench, mut queue) = queue();
        bench.call(|context| queue.post(context, &mut Overrides::default(), 1, [0; 12]));
        assert!(!bench.call(|context| queue.doorbell(context, &mut Overrides::default(), 257, false)));
        assert!(!bench.call(|context| queue.post(context, &mut Overrides::default(), 1, [0; 12])));
    }

    #[test]
    fn what_the_driver_must_not_do_is_found() {
        let (mut bench, mut queue) = queue();
        bench.call(|context| queue.doorbell(context, &mut Overrides::default(), 257, true));
        bench.call(|context| {
            (0..257).for_each(|_| _ = queue.post(context, &mut Overrides::default(), 1, [0; 12]))
        });
        let effects = bench.take_effects();
        let rules: Vec<_> = effects.findings.iter().map(|finding| finding.rule.as_ref()).collect();
        assert_eq!(rules, ["mana-eq-tail", "mana-eq-overflow"]);
        assert_eq!(effects.findings[0].queue, "eq 3");
        let memory = QueueMemory::new(vec![1 << 40], 4096, 0, 4096).unwrap();
        let mut queue = EventQueue::new(0, Owner::default(), memory, 0);
        assert!(!bench.call(|context| queue.post(context, &mut Overrides::default(), 1, [0; 12])));
        assert_eq!(bench.take_effects().findings[0].rule, "mana-queue-memory");
    }
}
