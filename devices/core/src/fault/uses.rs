//! Which uses of a point a fault hits, and for how long it is there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;
use crate::Time;

/// Which uses are hit, counted from 1 from the moment when the fault is injected. The default is all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("not" = {
    "required": ["nth"],
    "anyOf": [{ "required": ["from"] }, { "required": ["every"] }, { "required": ["times"] }]
}))]
pub struct Uses {
    /// Only this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub nth: Option<u64>,
    /// The first to be hit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub from: Option<u64>,
    /// From there, every so many.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub every: Option<u64>,
    /// How many to hit at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub times: Option<u64>,
}

impl Uses {
    /// Only the `nth` use, from 1.
    pub fn nth(nth: u64) -> Uses {
        Uses { nth: Some(nth), ..Uses::default() }
    }

    /// What is wrong with the selection, if anything is.
    pub(super) fn problem(&self) -> Option<&'static str> {
        if self.nth.is_some() && (self.from.is_some() || self.every.is_some() || self.times.is_some()) {
            return Some("nth stands alone: from, every and times do not go with it");
        }
        let zero = [self.nth, self.from, self.every, self.times].contains(&Some(0));
        zero.then_some("uses are counted from 1")
    }
}

/// The state of one fault: whose it is, what it has seen, how long it stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Trigger {
    pub(super) label: String,
    uses: Uses,
    /// When it is over; `None` for when it is lifted.
    pub(super) ends: Option<Time>,
    /// Uses so far, and how many of them were hit.
    pub(super) seen: u64,
    pub(super) hit: u64,
}

impl Trigger {
    pub(super) fn new(label: String, uses: Uses, lasts: Option<Span>, now: Time) -> Trigger {
        Trigger { label, uses, ends: lasts.and_then(|span| span.end(now)), seen: 0, hit: 0 }
    }

    /// Whether the fault is still there.
    pub(super) fn is_active(&self, now: Time) -> bool {
        self.ends.is_none_or(|end| now < end)
    }

    /// Counts one use and says whether it is hit.
    pub(super) fn fires(&mut self, now: Time) -> bool {
        if !self.is_active(now) {
            return false;
        }
        self.seen += 1;
        let hit = match self.uses.nth {
            Some(nth) => self.seen == nth,
            None => {
                let past = self.seen.checked_sub(self.uses.from.unwrap_or(1));
                past.is_some_and(|past| past.is_multiple_of(self.uses.every.unwrap_or(1)))
                    && self.uses.times.is_none_or(|times| self.hit < times)
            }
        };
        self.hit += u64::from(hit);
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Duration;

    fn hits(uses: Uses) -> Vec<u64> {
        let mut trigger = Trigger::new(String::new(), uses, None, Time::ZERO);
        (1..=10).filter(|_| trigger.fires(Time::ZERO)).collect()
    }

    #[test]
    fn uses_are_selected_by_number() {
        assert_eq!(hits(Uses::nth(3)), [3]);
        assert_eq!(hits(Uses { from: Some(9), ..Uses::default() }), [9, 10]);
        assert_eq!(hits(Uses { every: Some(4), ..Uses::default() }), [1, 5, 9]);
        let limited = Uses { from: Some(2), every: Some(3), times: Some(2), nth: None };
        assert_eq!(hits(limited), [2, 5]);
        assert_eq!(hits(Uses::default()).len(), 10);
    }

    #[test]
    fn a_fault_ends_when_its_time_is_over() {
        let lasts = Some(Span::For(Duration::from_secs(1)));
        let mut trigger = Trigger::new(String::new(), Uses::default(), lasts, Time::from_nanos(5));
        assert!(trigger.fires(Time::from_nanos(1_000_000_004)));
        assert!(!trigger.fires(Time::from_nanos(1_000_000_005)));
        assert_eq!((trigger.seen, trigger.hit), (1, 1));
    }

    #[test]
    fn selections_that_contradict_themselves_are_found() {
        assert!(Uses { nth: Some(1), every: Some(2), ..Uses::default() }.problem().is_some());
        assert!(Uses::nth(0).problem().is_some());
        assert_eq!(Uses::default().problem(), None);
    }
}
