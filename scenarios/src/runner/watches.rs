//! Counting the events that steps wait for.

use std::collections::BTreeMap;

use nicvisor_core::{DeviceEvent, EventFilter, EventKind, EventKinds};
use toml::Spanned;

use crate::lab::Lab;
use crate::model::{EventWait, Scenario, Step};

/// All events that are waited for, and how often each has come.
#[derive(Default)]
pub(super) struct Watches<'a> {
    all: Vec<Watch<'a>>,
    /// What came, by device, kind and name: told where something is waited for in vain.
    seen: BTreeMap<(String, EventKind, String), u64>,
}

struct Watch<'a> {
    event: &'a EventWait,
    filter: EventFilter,
    count: u64,
}

impl<'a> Watches<'a> {
    /// Watches for all that the steps of `scenario` wait for.
    ///
    /// # Errors
    /// When a device does not have what an event names: it would never come.
    pub(super) fn of(scenario: &'a Scenario, lab: &dyn Lab) -> Result<Watches<'a>, (&'a EventWait, String)> {
        let mut events = Vec::new();
        collect(&scenario.steps, &mut events);
        let watch = |event: &'a EventWait| {
            let points = lab.fault_points(event.device.get_ref()).map_err(|reason| (event, reason))?;
            let filter = event.pattern().resolve(&points).map_err(|error| (event, error.to_string()))?;
            Ok(Watch { event, filter, count: 0 })
        };
        Ok(Watches { all: events.into_iter().map(watch).collect::<Result<_, _>>()?, seen: BTreeMap::new() })
    }

    /// The kinds of all that is waited for.
    pub(super) fn kinds(&self) -> EventKinds {
        self.all.iter().fold(EventKinds::NONE, |kinds, watch| kinds.with(watch.filter.kind()))
    }

    pub(super) fn count(&mut self, device: &str, event: &DeviceEvent) {
        for watch in &mut self.all {
            let meant = watch.event.device.get_ref() == device && watch.filter.matches(event);
            watch.count += u64::from(meant);
        }
        let key = (device.to_owned(), event.kind, event.name.to_string());
        if self.seen.len() < MOST_SEEN || self.seen.contains_key(&key) {
            *self.seen.entry(key).or_default() += 1;
        }
    }

    /// How often what `event` waits for has come.
    pub(super) fn seen(&self, event: &EventWait) -> u64 {
        let mine = |watch: &&Watch<'_>| std::ptr::eq(watch.event, event);
        self.all.iter().find(mine).map_or(0, |watch| watch.count)
    }

    /// What came of the same kind from the same device.
    pub(super) fn others_seen(&self, event: &EventWait) -> Vec<String> {
        let alike = |(device, kind, _): &(String, EventKind, String)| {
            device == event.device.get_ref() && *kind == event.kind
        };
        let named = |((_, _, name), count): (&(String, EventKind, String), &u64)| format!("{name} ({count})");
        self.seen.iter().filter(|(key, _)| alike(key)).map(named).collect()
    }
}

fn collect<'a>(steps: &'a [Spanned<Step>], events: &mut Vec<&'a EventWait>) {
    for step in steps.iter().map(Spanned::get_ref) {
        events.extend(step.wait.as_ref().and_then(|wait| wait.get_ref().event.as_ref()));
        collect(&step.parallel, events);
        collect(&step.sequence, events);
    }
}

/// Names are the guest's choice at least in part: there is a bound.
const MOST_SEEN: usize = 1000;
