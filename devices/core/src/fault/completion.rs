//! What becomes of completions.

use serde::{Deserialize, Serialize};

use super::conditions::{Edits, Tests, all_hold, edits, tests};
use super::uses::Trigger;
use super::{Batch, CompletionFault, FaultError, FaultPoints, Fields, InterruptFault, Span};
use crate::Time;

/// The faults that wait for completions. A device has one, and a [`super::Shaper`] for each queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionFaults {
    pub(super) rules: Vec<CompletionRule>,
    next_id: u64,
}

/// A [`CompletionFault`] with its names resolved, and how often it was used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CompletionRule {
    pub(super) trigger: Trigger,
    /// Tells it from all others that the device ever had.
    id: u64,
    kind: String,
    number: Option<u32>,
    tests: Tests,
    hold: Option<Span>,
    delay: Option<Span>,
    drop: bool,
    duplicate: u32,
    insert: Option<Edits>,
    batch: Option<Batch>,
    rewrite: Edits,
    interrupt: Interrupt,
}

/// What becomes of the interrupt for a completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Interrupt {
    /// As always.
    #[default]
    Normal,
    /// There is none.
    Suppressed,
    /// The one with this index into the device's table.
    Vector(u16),
}

/// What becomes of one completion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) drop: bool,
    pub(super) copies: u32,
    pub(super) edits: Edits,
    pub(super) insert: Vec<Edits>,
    pub(super) interrupt: Interrupt,
    pub(super) hold: Option<Wait>,
    pub(super) delay: Option<Wait>,
    pub(super) batch: Option<(Batch, u64)>,
    pub(super) faults: Vec<String>,
}

/// Until when something waits, and for which fault's sake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Wait {
    /// `None`: until the fault is lifted.
    pub(super) until: Option<Time>,
    pub(super) fault: u64,
}

impl CompletionFaults {
    /// Whether there are none, so that completions need not be looked at.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether the fault with this id still holds completions back: lifting one sets them free.
    pub(super) fn has(&self, id: u64) -> bool {
        self.rules.iter().any(|rule| rule.id == id)
    }

    /// Queue `number` of `kind` has a completion with these fields: what becomes of it.
    pub(super) fn shape(&mut self, now: Time, kind: &str, number: u32, entry: &dyn Fields) -> Shape {
        let mut shape = Shape { copies: 1, ..Shape::default() };
        for rule in &mut self.rules {
            let meant = rule.kind == kind && rule.number.is_none_or(|only| only == number);
            if meant && all_hold(&rule.tests, entry) && rule.trigger.fires(now) {
                shape.add(rule, now);
            }
        }
        shape
    }

    pub(super) fn inject(
        &mut self,
        now: Time,
        points: &FaultPoints,
        fault: &CompletionFault,
        label: String,
    ) -> Result<(), FaultError> {
        let (queue, number) = points.queue(&fault.queue)?;
        check(fault).map_err(|problem| FaultError::Contradiction(format!("{}: {problem}", fault.queue)))?;
        let what = format!("a completion of {}", queue.kind);
        let insert = fault.insert.as_ref().map(|changes| edits(changes, &queue.fields, &what));
        let rule = CompletionRule {
            trigger: Trigger::new(label, fault.uses, fault.lasts, now),
            id: self.next_id,
            kind: queue.kind.clone().into(),
            number,
            tests: tests(&fault.conditions, &queue.fields, &what)?,
            hold: fault.hold,
            delay: fault.delay,
            drop: fault.drop,
            duplicate: fault.duplicate,
            insert: insert.transpose()?,
            batch: fault.batch.clone(),
            rewrite: edits(&fault.rewrite, &queue.fields, &what)?,
            interrupt: match fault.interrupt {
                None => Interrupt::Normal,
                Some(InterruptFault::Suppress) => Interrupt::Suppressed,
                Some(InterruptFault::Vector(vector)) => Interrupt::Vector(vector),
            },
        };
        self.next_id += 1;
        self.rules.push(rule);
        Ok(())
    }
}

impl Shape {
    fn add(&mut self, rule: &CompletionRule, now: Time) {
        // Nothing waits for a fault that has ended.
        let until = |span: Span| span.end(now).or(rule.trigger.ends);
        let wait = |span: Option<Span>| span.map(|span| Wait { until: until(span), fault: rule.id });
        self.drop |= rule.drop;
        self.copies = self.copies.saturating_add(rule.duplicate).min(MOST_COPIES);
        self.edits.extend(rule.rewrite.iter().cloned());
        self.insert.extend(rule.insert.clone());
        self.hold = wait(rule.hold).or(self.hold);
        self.delay = wait(rule.delay).or(self.delay);
        self.batch = rule.batch.clone().map(|batch| (batch, rule.id)).or(self.batch.take());
        if rule.interrupt != Interrupt::Normal {
            self.interrupt = rule.interrupt;
        }
        self.faults.push(rule.trigger.label.clone());
    }
}

fn check(fault: &CompletionFault) -> Result<(), String> {
    if let Some(problem) = fault.uses.problem() {
        return Err(problem.to_owned());
    }
    let waits = [fault.hold.is_some(), fault.delay.is_some(), fault.batch.is_some()];
    if waits.iter().filter(|wait| **wait).count() > 1 {
        return Err("only one of hold, delay and batch at a time".to_owned());
    }
    let other = fault.duplicate != 0 || !fault.rewrite.is_empty() || waits.contains(&true);
    if fault.drop && other {
        return Err("a completion that is dropped can have nothing else done to it".to_owned());
    }
    if fault.duplicate >= MOST_COPIES {
        return Err(format!("at most {} duplicates", MOST_COPIES - 1));
    }
    match &fault.batch {
        Some(batch) if !(2..=MOST_IN_BATCH).contains(&batch.entries) => {
            Err(format!("a batch has 2 to {MOST_IN_BATCH} entries"))
        }
        _ => Ok(()),
    }
}

/// No ring has more entries than that.
const MOST_COPIES: u32 = 1 << 17;
const MOST_IN_BATCH: u32 = 4096;
