//! Steps one after the other.

use std::slice::Iter;

use nicvisor_core::{Duration, Time};
use toml::Spanned;

use super::Stop;
use super::activity::Activity;
use super::world::World;
use crate::model::Step;

/// A list of steps and how far it has got.
pub(super) struct Branch<'a> {
    rest: Iter<'a, Spanned<Step>>,
    current: Option<Activity<'a>>,
}

/// What a branch needs to be looked at again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    /// At this time at the latest.
    pub(super) deadline: Option<Time>,
    /// Again and again, after this time: it waits for something that the lab does not announce.
    pub(super) polling: Option<Duration>,
}

impl Needs {
    pub(super) fn and(self, other: Needs) -> Needs {
        Needs {
            deadline: [self.deadline, other.deadline].into_iter().flatten().min(),
            polling: [self.polling, other.polling].into_iter().flatten().min(),
        }
    }
}

impl<'a> Branch<'a> {
    pub(super) fn new(steps: &'a [Spanned<Step>]) -> Branch<'a> {
        Branch { rest: steps.iter(), current: None }
    }

    /// Goes on as far as it can; returns whether that is to the end.
    pub(super) fn poll(&mut self, world: &mut World<'a>) -> Result<bool, Stop> {
        loop {
            if let Some(activity) = &mut self.current {
                if !activity.poll(world)? {
                    return Ok(false);
                }
                self.current = None;
            }
            match self.rest.next() {
                Some(step) => self.current = Some(Activity::start(step.get_ref(), world)?),
                None => return Ok(true),
            }
        }
    }

    pub(super) fn needs(&self) -> Needs {
        self.current.as_ref().map_or(Needs::default(), Activity::needs)
    }
}
