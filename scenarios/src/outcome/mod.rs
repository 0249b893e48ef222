//! What came of a scenario, as data.

mod guest;

use std::collections::BTreeMap;

use nicvisor_core::{Finding, Time};
use serde::{Deserialize, Serialize};

use crate::lab::{LedgerSnapshot, PortSizes};

pub use guest::{Driver, GuestOutcome, Origin};

/// The result of one scenario on one kernel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The scenario's name, with its case in brackets.
    pub scenario: String,
    /// What it shows.
    pub description: String,
    /// The kernel it ran on, exactly; two of them joined by `+` where the guests differ.
    pub kernel: String,
    /// The parameters that tell this case from the scenario's others.
    pub case: BTreeMap<String, String>,
    /// Overall.
    pub verdict: Verdict,
    /// Why it was not begun, or not carried out to its end, if that says nothing of what it is to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Why it could not be begun, if it could not: no kernel, no module, a driver that does not build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The guests.
    pub guests: Vec<GuestOutcome>,
    /// Everything that was checked, in order.
    pub checks: Vec<Check>,
    /// What happened, in order.
    pub timeline: Vec<Moment>,
    /// Named numbers, in the order in which they were first measured.
    pub measurements: Vec<Measurement>,
    /// Tables over them.
    pub tables: Vec<OutcomeTable>,
    /// Sizes of frames by port.
    pub sizes: Vec<PortSizes>,
    /// Traffic by port over virtual time.
    pub traffic: Vec<TrafficSeries>,
    /// Breaches of rules.
    pub findings: Vec<Finding>,
    /// The rules that they break, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<BrokenRule>,
    /// Device and link counters at the end.
    pub counters: Vec<(String, u64)>,
    /// What became of all frames.
    pub ledger: LedgerSnapshot,
    /// Host time it took, in seconds.
    pub host_seconds: f64,
    /// Virtual time it took, in seconds.
    pub guest_seconds: f64,
}

impl Outcome {
    /// The outcome of a scenario that has not been carried out.
    pub fn new(scenario: &crate::Scenario) -> Outcome {
        Outcome {
            scenario: scenario.name.clone(),
            description: scenario.description.trim().to_owned(),
            kernel: scenario.kernel.clone(),
            case: scenario.case.clone(),
            verdict: Verdict::Broken,
            skipped: None,
            error: None,
            guests: (0..scenario.guest_count()).map(|index| GuestOutcome::new(scenario, index)).collect(),
            checks: Vec::new(),
            timeline: Vec::new(),
            measurements: Vec::new(),
            tables: Vec::new(),
            sizes: Vec::new(),
            traffic: Vec::new(),
            findings: Vec::new(),
            rules: Vec::new(),
            counters: Vec::new(),
            ledger: LedgerSnapshot::default(),
            host_seconds: 0.0,
            guest_seconds: 0.0,
        }
    }

    /// The outcome of a scenario that was not begun, for this reason.
    pub fn skip(scenario: &crate::Scenario, reason: impl Into<String>) -> Outcome {
        Outcome { verdict: Verdict::Skip, skipped: Some(reason.into()), ..Outcome::new(scenario) }
    }

    /// The outcome of a scenario that could not be begun, for this reason.
    pub fn error(scenario: &crate::Scenario, reason: impl Into<String>) -> Outcome {
        Outcome { error: Some(reason.into()), ..Outcome::new(scenario) }
    }

    /// The checks that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| check.failure.is_some())
    }

    /// All values of a measurement, or the counters that `name` stands for.
    pub fn values(&self, name: &str) -> Option<Vec<f64>> {
        if let Some(measured) = self.measurements.iter().find(|measured| measured.name == name) {
            return Some(measured.values.clone());
        }
        crate::judge::counter_value(name, &self.counters).map(|value| vec![value as f64])
    }
}

/// How a scenario ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All checks hold.
    Pass,
    /// At least one check does not hold.
    Fail,
    /// It could not be carried out to its end (guest panic, time-out), in which case the checks until then are kept,
    /// or not even be begun.
    Broken,
    /// It was not begun: something that it needs is not to be had any more, through nobody's fault. Or the run was
    /// interrupted, and what there was until then is right.
    Skip,
}

/// How many of several outcomes are what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Those that passed.
    pub passed: usize,
    /// Those that failed, or broke off.
    pub failed: usize,
    /// Those that were not begun, or interrupted.
    pub skipped: usize,
}

impl Tally {
    /// Counts.
    pub fn of<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>) -> Tally {
        let mut tally = Tally::default();
        for outcome in outcomes {
            match outcome.verdict {
                Verdict::Pass => tally.passed += 1,
                Verdict::Fail | Verdict::Broken => tally.failed += 1,
                Verdict::Skip => tally.skipped += 1,
            }
        }
        tally
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(out, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

/// One thing that was checked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    /// What should be so.
    pub name: String,
    /// What was seen instead; `None` if it is so.
    pub failure: Option<String>,
    /// When it was checked.
    #[serde(default)]
    pub time: Time,
}

impl Check {
    /// A check that holds.
    pub fn pass(name: impl Into<String>) -> Check {
        Check::of(name, Ok(()))
    }

    /// A check that does not hold.
    pub fn fail(name: impl Into<String>, failure: impl Into<String>) -> Check {
        Check::of(name, Err(failure.into()))
    }

    /// `Ok` holds, `Err` says what was seen instead.
    pub fn of(name: impl Into<String>, result: Result<(), String>) -> Check {
        Check { name: name.into(), failure: result.err(), time: Time::ZERO }
    }
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokenRule {
    /// The rule's id.
    pub rule: String,
    /// How many findings there are of it.
    pub findings: u64,
    /// What that means for the scenario.
    pub standing: Standing,
}

/// What it means for a scenario that a rule is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// The scenario fails.
    Failure,
    /// Nothing: it is a note.
    Note,
    /// It had to be.
    Expected,
    /// It may be.
    Allowed,
}

/// Something that happened at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// When.
    pub time: Time,
    /// What sort of thing.
    pub kind: MomentKind,
    /// What it is about: a step, a device, a guest.
    pub subject: String,
    /// What happened.
    pub text: String,
}

/// Sorts of things that happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MomentKind {
    /// A step begins.
    Begin,
    /// A step ends.
    End,
    /// A device saw or did something.
    Device,
    /// A link or a port changes.
    Link,
    /// A fault is put into a device, or it is made to do something.
    Fault,
    /// A rule was broken.
    Finding,
    /// A guest's kernel reports trouble.
    Trouble,
    /// A guest goes down.
    Ending,
}

/// A named number, measured once or several times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Its name.
    pub name: String,
    /// All values, in order.
    pub values: Vec<f64>,
}

/// A table of measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutcomeTable {
    /// What it shows.
    pub title: String,
    /// Headings.
    pub columns: Vec<String>,
    /// Rows: a name and numbers; `None` where one could not be worked out.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

/// A port's traffic over virtual time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrafficSeries {
    /// The port.
    pub port: String,
    /// Samples in order.
    pub samples: Vec<TrafficSample>,
}

/// What a port had sent and received by a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficSample {
    /// When.
    pub time: Time,
    /// Bytes sent until then.
    pub sent_bytes: u64,
    /// Bytes received until then.
    pub received_bytes: u64,
}
