//! Carrying a scenario out.
//!
//! Steps are small state machines (`branch`): the runner lets the lab's time pass until something happens,
//! looks whether any step that is under way has what it waits for, and goes on. So steps can be done side by
//! side on one thread, and the same scenario gives the same run.

mod activity;
mod branch;
mod kernel_log;
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

use crate::judge::{broken_rules, judge_end, judge_ending, judge_interrupted, judge_tables};
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

impl Stop {
    /// The user's word that it be ended, if it was that.
    fn interruption(&self) -> Option<&LabError> {
        match self {
            Stop::Ended(error) if error.kind == EndingKind::Interrupted => Some(error),
            _ => None,
        }
    }
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
    take_stock(scenario, lab, outcome, stop.as_ref());
    let now = lab.now();
    if let Some(Stop::Ended(error)) = &stop {
        if let Some(guest) = outcome.guests.get_mut(error.guest) {
            guest.ending = Some(error.kind);
        }
        let subject = scenario.guest_name(error.guest);
        outcome.timeline.push(world::moment(now, MomentKind::Ending, &subject, &error.message));
    }
    let (broken, mut checks) = judge_stop(scenario, stop.as_ref());
    let interrupted = stop.as_ref().and_then(Stop::interruption);
    checks.extend(match interrupted {
        Some(_) => judge_interrupted(scenario, outcome, trouble),
        None => judge_end(scenario, outcome, trouble),
    });
    outcome.checks.extend(checks.into_iter().map(|check| Check { time: now, ..check }));
    outcome.tables = judge_tables(scenario, outcome);
    let failed = outcome.failures().next().is_some();
    outcome.verdict = match (broken, failed, interrupted) {
        (true, ..) => Verdict::Broken,
        (false, true, _) => Verdict::Fail,
        (false, false, Some(_)) => Verdict::Skip,
        (false, false, None) => Verdict::Pass,
    };
    if outcome.verdict == Verdict::Skip {
        outcome.skipped = interrupted.map(|error| error.message.clone());
    }
}

/// What the lab knows at the end.
fn take_stock(scenario: &Scenario, lab: &mut dyn Lab, outcome: &mut Outcome, stop: Option<&Stop>) {
    outcome.counters = lab.counters();
    outcome.sizes = lab.sizes();
    outcome.findings = lab.findings();
    outcome.rules = broken_rules(scenario, &outcome.findings);
    outcome.ledger = lab.ledger();
    for (index, guest) in outcome.guests.iter_mut().enumerate() {
        guest.log = match stop {
            Some(Stop::Ended(_)) => lab.log(index),
            _ => lab.whole_log(index),
        };
    }
    world::add_findings(outcome);
}

/// Whether the scenario broke off, and the check that tells of its end, as it came or as it was expected.
fn judge_stop(scenario: &Scenario, stop: Option<&Stop>) -> (bool, Vec<Check>) {
    match (stop, &scenario.expect.ending) {
        (Some(stop), _) if stop.interruption().is_some() => (false, Vec::new()),
        (Some(Stop::Ended(error)), Some(expected)) if !is_ours(error.kind) => {
            (false, vec![judge_ending(expected, Some(error))])
        }
        (Some(Stop::Ended(error)), _) => {
            let text = format!("{}\n{}", error.message, error.evidence);
            (true, vec![Check::fail("the guest carries the scenario out", text.trim())])
        }
        (Some(Stop::Failed(check)), _) => (true, vec![check.clone()]),
        (None, Some(expected)) => (false, vec![judge_ending(expected, None)]),
        (None, None) => (false, Vec::new()),
    }
}

/// Whether a run was ended from outside: no guest can be expected to do that.
fn is_ours(kind: EndingKind) -> bool {
    matches!(kind, EndingKind::TimedOut | EndingKind::Interrupted | EndingKind::Failed)
}

/// Later than any scenario ends.
const FAR: Time = Time::from_nanos(u64::MAX / 2);
