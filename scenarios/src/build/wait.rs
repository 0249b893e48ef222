//! What is waited for.

use nicvisor_core::fault::Condition;
use nicvisor_core::{Duration, EventKind};

use super::unplaced;
use crate::model::{CounterWait, EventWait, FrameWait, Wait};
use crate::units::Span;

impl Wait {
    /// The end of a background command.
    #[must_use]
    pub fn job(name: impl Into<String>) -> Wait {
        Wait { job: Some(unplaced(name)), ..Wait::default() }
    }

    /// A text in the output of any command.
    #[must_use]
    pub fn output(text: impl Into<String>) -> Wait {
        Wait { output: Some(text.into()), ..Wait::default() }
    }

    /// A text in the output of that background command.
    #[must_use]
    pub fn output_of(job: impl Into<String>, text: impl Into<String>) -> Wait {
        Wait { output: Some(text.into()), ..Wait::job(job) }
    }

    /// A text in the log of a guest's kernel.
    #[must_use]
    pub fn log(text: impl Into<String>) -> Wait {
        Wait { log: Some(text.into()), ..Wait::default() }
    }

    /// The guest whose log it is, where there are two.
    #[must_use]
    pub fn of_guest(self, guest: impl Into<String>) -> Wait {
        Wait { guest: Some(unplaced(guest)), ..self }
    }

    /// Something that a device saw or did.
    #[must_use]
    pub fn event(event: EventWait) -> Wait {
        Wait { event: Some(event), ..Wait::default() }
    }

    /// So many frames from all ports, from now on.
    #[must_use]
    pub fn frames(count: u64) -> Wait {
        Wait { frames: Some(FrameWait { from: None, count }), ..Wait::default() }
    }

    /// So many frames from a port, from now on.
    #[must_use]
    pub fn frames_from(port: impl Into<String>, count: u64) -> Wait {
        Wait { frames: Some(FrameWait { from: Some(unplaced(port)), count }), ..Wait::default() }
    }

    /// A counter reaches a value.
    #[must_use]
    pub fn counter(name: impl Into<String>, at_least: u64) -> Wait {
        let counter = CounterWait { name: unplaced(name), at_least: Some(at_least), more: None };
        Wait { counter: Some(counter), ..Wait::default() }
    }

    /// A counter grows by so much from now on.
    #[must_use]
    pub fn growth(name: impl Into<String>, more: u64) -> Wait {
        let counter = CounterWait { name: unplaced(name), at_least: None, more: Some(more) };
        Wait { counter: Some(counter), ..Wait::default() }
    }

    /// Guest time passes.
    #[must_use]
    pub fn time(time: Duration) -> Wait {
        Wait { time: Some(Span(time)), ..Wait::default() }
    }
}

impl EventWait {
    /// The first event of that kind in that device.
    #[must_use]
    pub fn new(device: impl Into<String>, kind: EventKind) -> EventWait {
        EventWait {
            device: unplaced(device),
            kind,
            name: None,
            conditions: std::collections::BTreeMap::new(),
            count: 1,
        }
    }

    /// Only those of that name: a command, a queue, a fault's label.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> EventWait {
        EventWait { name: Some(name.into()), ..self }
    }

    /// Only those whose field is so.
    #[must_use]
    pub fn condition(mut self, field: impl Into<String>, condition: Condition) -> EventWait {
        self.conditions.insert(field.into(), condition);
        self
    }

    /// So many of them, from the start of the first step.
    #[must_use]
    pub fn count(self, count: u64) -> EventWait {
        EventWait { count, ..self }
    }
}
