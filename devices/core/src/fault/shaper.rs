//! A queue's completions on their way from the device to the ring.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::completion::{Shape, Wait};
use super::conditions::{Edits, edit_all};
use super::{Batch, CompletionFaults, Fields, FieldsMut, Interrupt, Order};
use crate::{Context, Time};

/// Holds the completions of one queue until it is time to write them. `E` is what the device writes into its
/// ring, or makes that from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shaper<E> {
    kind: String,
    number: u32,
    /// What comes next, in order.
    queue: VecDeque<Held<E>>,
    /// What others overtake, by when it is due; [`NEVER`] for what waits until its fault is lifted.
    delayed: BTreeMap<(Time, u64), Held<E>>,
    batch: Option<Collected<E>>,
    /// Numbers everything that is delayed, so that equal times keep their order.
    sequence: u64,
}

/// A completion that is to be written now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready<E> {
    /// The completion.
    pub entry: E,
    /// How many times to write it.
    pub copies: u32,
    /// What becomes of the interrupt for it.
    pub interrupt: Interrupt,
    /// Labels of the faults that changed anything.
    pub faults: Vec<String>,
    edits: Edits,
}

impl<E> Ready<E> {
    /// Changes the fields of the completion as it stands in the ring, generation or owner bits included.
    pub fn rewrite(&self, fields: &mut dyn FieldsMut) {
        edit_all(&self.edits, fields);
    }

    /// The completion is written: tells which faults changed it, and raises its interrupt if that was moved.
    /// Whether the queue's own interrupt is to be raised.
    pub fn raise(&self, context: &mut Context<'_>) -> bool {
        context.observe_faults(&self.faults);
        match self.interrupt {
            Interrupt::Normal => return true,
            Interrupt::Suppressed => (),
            Interrupt::Vector(vector) => context.raise(vector),
        }
        false
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Held<E> {
    ready: Ready<E>,
    wait: Option<Wait>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Collected<E> {
    entries: Vec<Held<E>>,
    rule: Batch,
    flush: Wait,
}

impl<E: Clone> Shaper<E> {
    /// The shaper of queue `number` of `kind`.
    pub fn new(kind: &str, number: u32) -> Shaper<E> {
        Shaper {
            kind: kind.to_owned(),
            number,
            queue: VecDeque::new(),
            delayed: BTreeMap::new(),
            batch: None,
            sequence: 0,
        }
    }

    /// The device has a completion, whose fields are `fields`. If faults lose it, it is returned with their labels.
    pub fn offer(
        &mut self,
        now: Time,
        faults: &mut CompletionFaults,
        entry: E,
        fields: &dyn Fields,
    ) -> Option<Ready<E>> {
        let shape = match faults.is_empty() {
            true => Shape { copies: 1, ..Shape::default() },
            false => faults.shape(now, &self.kind, self.number, fields),
        };
        let Shape { drop, copies, edits, insert, interrupt, hold, delay, batch, faults } = shape;
        let inserted: Vec<_> = insert
            .into_iter()
            .map(|edits| Ready { entry: entry.clone(), copies: 1, interrupt, faults: Vec::new(), edits })
            .map(Held::free)
            .collect();
        if drop {
            self.queue.extend(inserted);
            return Some(Ready { entry, copies: 0, interrupt, faults, edits });
        }
        let ready = Ready { entry, copies, interrupt, faults, edits };
        match (hold, delay, batch) {
            (Some(wait), _, _) => self.queue.push_back(Held { ready, wait: Some(wait) }),
            (_, Some(wait), _) => self.put_aside(Held { ready, wait: Some(wait) }),
            (_, _, Some((rule, fault))) => self.collect(now, ready, rule, fault),
            _ => self.queue.push_back(Held::free(ready)),
        }
        self.queue.extend(inserted);
        None
    }

    /// The next completion to be written now, if there is one.
    pub fn take(&mut self, now: Time) -> Option<Ready<E>> {
        if let Some(entry) = self.delayed.first_entry()
            && entry.key().0 <= now
        {
            return Some(entry.remove().ready);
        }
        if self.batch.as_ref().is_some_and(|batch| batch.flush.is_over(now)) {
            self.flush();
        }
        let full = self.len() > MOST_HELD;
        let front = self.queue.front()?;
        if !full && front.wait.is_some_and(|wait| !wait.is_over(now)) {
            return None;
        }
        self.queue.pop_front().map(|held| held.ready)
    }

    /// When [`Self::take`] will next have something, if nothing is offered or lifted before.
    pub fn next_deadline(&self) -> Option<Time> {
        let delayed = self.delayed.first_key_value().map(|((due, _), _)| *due).filter(|due| *due != NEVER);
        let batch = self.batch.as_ref().and_then(|batch| batch.flush.until);
        let held = self.queue.front().and_then(|held| match held.wait {
            Some(wait) => wait.until,
            None => Some(Time::ZERO),
        });
        [delayed, batch, held].into_iter().flatten().min()
    }

    /// Faults were lifted: what waits for their sake is due now.
    pub fn lifted(&mut self, faults: &CompletionFaults) {
        let gone = |wait: Option<Wait>| wait.is_some_and(|wait| !faults.has(wait.fault));
        for held in &mut self.queue {
            held.wait = held.wait.filter(|wait| faults.has(wait.fault));
        }
        if self.batch.as_ref().is_some_and(|batch| gone(Some(batch.flush))) {
            self.flush();
        }
        for ((due, sequence), held) in std::mem::take(&mut self.delayed) {
            let due = if gone(held.wait) { Time::ZERO } else { due };
            self.delayed.insert((due, sequence), held);
        }
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many completions are held.
    pub fn len(&self) -> usize {
        let batch = self.batch.as_ref().map_or(0, |batch| batch.entries.len());
        self.queue.len() + self.delayed.len() + batch
    }

    /// The completions that are held, whatever for. The queue is gone.
    pub fn into_held(self) -> impl Iterator<Item = E> {
        let batch = self.batch.into_iter().flat_map(|batch| batch.entries);
        self.queue.into_iter().chain(self.delayed.into_values()).chain(batch).map(|held| held.ready.entry)
    }

    fn put_aside(&mut self, held: Held<E>) {
        // A guest that goes on for ever while completions are withheld must not fill the host's memory: what
        // has waited longest goes out.
        if self.len() >= MOST_HELD
            && let Some((_, oldest)) = self.delayed.pop_first()
        {
            self.queue.push_back(Held::free(oldest.ready));
        }
        let due = held.wait.and_then(|wait| wait.until).unwrap_or(NEVER);
        self.delayed.insert((due, self.sequence), held);
        self.sequence += 1;
    }

    fn collect(&mut self, now: Time, ready: Ready<E>, rule: Batch, fault: u64) {
        let flush = Wait { until: rule.flush_after.end(now), fault };
        let batch = self.batch.get_or_insert_with(|| Collected { entries: Vec::new(), rule, flush });
        batch.entries.push(Held::free(ready));
        if batch.entries.len() >= batch.rule.entries as usize {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let Some(Collected { mut entries, rule, .. }) = self.batch.take() else { return };
        match rule.order {
            Order::Kept => self.queue.extend(entries),
            Order::Reversed => self.queue.extend(entries.into_iter().rev()),
            Order::Interleaved => {
                // Odd places first: 1, 3, 5, ..., 0, 2, 4, ...
                let mut even = Vec::new();
                for (place, held) in entries.drain(..).enumerate() {
                    if place % 2 == 1 { self.queue.push_back(held) } else { even.push(held) }
                }
                self.queue.extend(even);
            }
        }
    }
}

impl<E> Held<E> {
    fn free(ready: Ready<E>) -> Held<E> {
        Held { ready, wait: None }
    }
}

impl Wait {
    fn is_over(self, now: Time) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

/// Due when its fault is lifted.
const NEVER: Time = Time::from_nanos(u64::MAX);
/// More than any ring has entries.
const MOST_HELD: usize = 1 << 17;

#[cfg(test)]
mod tests;
