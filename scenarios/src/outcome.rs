//! What came of a scenario, as data.

use nicvisor_core::Finding;
use serde::{Deserialize, Serialize};

/// The result of one scenario on one kernel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The scenario's name.
    pub scenario: String,
    /// The kernel it ran on, exactly.
    pub kernel: String,
    /// Overall.
    pub verdict: Verdict,
    /// Everything that was checked, in order.
    pub checks: Vec<Check>,
    /// Broken rules.
    pub findings: Vec<Finding>,
    /// Device and link counters at the end.
    pub counters: Vec<(String, u64)>,
    /// Host time it took, in seconds.
    pub host_seconds: f64,
    /// Virtual time it took, in seconds.
    pub guest_seconds: f64,
}

impl Outcome {
    /// The checks that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| check.failure.is_some())
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
    /// It could not be carried out to its end (guest panic, time-out); the checks until then are kept.
    Broken,
}

/// One thing that was checked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    /// What should be so.
    pub name: String,
    /// What was seen instead; `None` if it is so.
    pub failure: Option<String>,
}

impl Check {
    /// A check that holds.
    pub fn pass(name: impl Into<String>) -> Check {
        Check { name: name.into(), failure: None }
    }

    /// A check that does not hold.
    pub fn fail(name: impl Into<String>, failure: impl Into<String>) -> Check {
        Check { name: name.into(), failure: Some(failure.into()) }
    }

    /// `Ok` holds, `Err` says what was seen instead.
    pub fn of(name: impl Into<String>, result: Result<(), String>) -> Check {
        Check { name: name.into(), failure: result.err() }
    }
}
