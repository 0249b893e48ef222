//! Carrying a scenario out.
//!
//! Steps are small state machines (`branch`): the runner lets the lab's time pass until something happens,
//! looks whether any step that is under way has what it waits for, and goes on. So steps can be done side by
//! side on one thread, and the same scenario gives the same run.

mod activity;
mod branch;
mod measure;
#[cfg(test)]
mod paper;
mod setup;
#[cfg(test)]
mod tests;
mod title;
mod traffic;
mod wait;
mod watches;
mod world;

use nicvisor_core::{Duration, Time};

use crate::judge::{judge_end, judge_ending, judge_tables};
use crate::lab::{EndingKind, Lab, LabError};
use crate::model::Scenario;
use crate::outcome::{Check, MomentKind, Outcome, Verdict};
use branch::Branch;
use world::World;

/// How far a scenario has got.
#[derive(Clone, Debug)]
pub enum Progress<'a> {
    /// A step begins.
    Begins {
        /// Its name.
        step: &'a str,
    },
    /// A step has ended.
    Ended {
        /// Its name.
        step: &'a str,
        /// What it expected and did not see.
        failures: &'a [Check],
        /// How long it took in virtual time.
        took: Duration,
    },
}

/// How a command in a guest ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandResult {
    /// Exit status; 128 + n for signal n.
    pub status: i32,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

/// Why a scenario could not be carried out to its end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A guest went down.
    Ended(LabError),
    /// Something that the rest rests on did not come about.
    Failed(Check),
}

impl From<LabError> for Stop {
    fn from(error: LabError) -> Stop {
        Stop::Ended(error)
    }
}

/// Carries `scenario` out on `lab`. What is known outside of the lab (kernel versions, host time) is left for
/// the caller to fill in.
pub fn run(scenario: &Scenario, lab: &mut dyn Lab, progress: &mut dyn FnMut(&Progress<'_>)) -> Outcome {
    let started = lab.now();
    let mut world = World::new(scenario, lab, progress);
    let stop = carry_out(&mut world).err();
    world.end_jobs();
    let (mut outcome, trouble) = world.into_outcome();
    outcome.guest_seconds = lab.now().since(started).as_secs_f64();
    conclude(scenario, lab, &mut outcome, stop, &trouble);
    outcome
}

/// The outcome of a scenario with a guest that went down before the first step: as it was expected to, or not.
pub fn not_begun(scenario: &Scenario, error: &LabError) -> Outcome {
    if error.kind == EndingKind::Interrupted {
        return Outcome::skip(scenario, error.message.clone());
    }
    let mut outcome = Outcome::new(scenario);
    if let Some(guest) = outcome.guests.get_mut(error.guest) {
        guest.ending = Some(error.kind);
    }
    match &scenario.expect.ending {
        Some(expected) if !is_ours(error.kind) => {
            let check = judge_ending(expected, Some(error));
            outcome.verdict = if check.failure.is_none() { Verdict::Pass } else { Verdict::Fail };
            outcome.checks.push(check);
        }
        _ => {
            let text = format!("{}\n{}", error.message, error.evidence);
            outcome.checks.push(Check::fail("the guest boots and loads its drivers", text.trim()));
        }
    }
    outcome
}

fn carry_out(world: &mut World<'_>) -> Result<(), Stop> {
    world.watch()?;
    setup::namespaces(world)?;
    let mut root = Branch::new(&world.scenario.steps);
    while !root.poll(world)? {
        let needs = root.needs();
        let mut until = needs.deadline.unwrap_or(FAR);
        if let Some(interval) = needs.polling {
            // Nothing changes before somebody wakes.
            let awake = world.lab.asleep_until().unwrap_or(Time::ZERO);
            until = until.min(awake.max(world.lab.now() + interval));
        }
        world.advance(until)?;
    }
    Ok(())
}

fn conclude(
    scenario: &Scenario,
    lab: &mut dyn Lab,
    outcome: &mut Outcome,
    stop: Option<Stop>,
    trouble: &[String],
) {
    outcome.counters = lab.counters();
    outcome.sizes = lab.sizes();
    outcome.findings = lab.findings();
    outcome.ledger = lab.ledger();
    for (index, guest) in outcome.guests.iter_mut().enumerate() {
        guest.log = match &stop {
            Some(Stop::Ended(_)) => lab.log(index),
            _ => lab.whole_log(index),
        };
    }
    let mut broken = false;
    let mut checks = Vec::new();
    let expected = scenario.expect.ending.as_ref();
    match (&stop, expected) {
        (Some(Stop::Ended(error)), Some(expected)) if !is_ours(error.kind) => {
            checks.push(judge_ending(expected, Some(error)));
        }
        (Some(Stop::Ended(error)), _) => {
            broken = true;
            let text = format!("{}\n{}", error.message, error.evidence);
            checks.push(Check::fail("the guest carries the scenario out", text.trim()));
        }
        (Some(Stop::Failed(check)), _) => {
            broken = true;
            checks.push(check.clone());
        }
        (None, Some(expected)) => checks.push(judge_ending(expected, None)),
        (None, None) => {}
    }
    if let Some(Stop::Ended(error)) = &stop
        && let Some(guest) = outcome.guests.get_mut(error.guest)
    {
        guest.ending = Some(error.kind);
    }
    checks.extend(judge_end(scenario, outcome, trouble));
    let now = lab.now();
    outcome.checks.extend(checks.into_iter().map(|check| Check { time: now, ..check }));
    outcome.tables = judge_tables(scenario, outcome);
    world::add_findings(outcome);
    if let Some(Stop::Ended(error)) = &stop {
        let subject = scenario.guest_name(error.guest);
        outcome.timeline.push(world::moment(now, MomentKind::Ending, &subject, &error.message));
    }
    let failed = outcome.failures().next().is_some();
    outcome.verdict = match (broken, failed) {
        (true, _) => Verdict::Broken,
        (false, true) => Verdict::Fail,
        (false, false) => Verdict::Pass,
    };
}

/// Whether a run was ended from outside: no guest can be expected to do that.
fn is_ours(kind: EndingKind) -> bool {
    matches!(kind, EndingKind::TimedOut | EndingKind::Interrupted | EndingKind::Failed)
}

/// Later than any scenario ends.
const FAR: Time = Time::from_nanos(u64::MAX / 2);
