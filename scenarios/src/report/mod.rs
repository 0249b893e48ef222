//! Outcomes as text.

mod human;
mod junit;
mod ktap;

use crate::outcome::Outcome;

pub use human::human;
pub use junit::junit;
pub use ktap::ktap;

/// All outcomes as one JSON array.
///
/// # Panics
/// Never: outcomes are plain data.
pub fn json(outcomes: &[Outcome]) -> String {
    serde_json::to_string_pretty(outcomes).expect("outcomes are plain data") + "\n"
}

#[cfg(test)]
mod testing {
    use crate::outcome::{Check, Outcome, Verdict};

    /// One scenario that passes and one that fails with a text that needs escaping.
    pub(super) fn outcomes() -> Vec<Outcome> {
        let outcome = |scenario: &str, verdict, checks| Outcome {
            scenario: scenario.into(),
            kernel: "debian:6.12.117".into(),
            verdict,
            checks,
            findings: Vec::new(),
            counters: Vec::new(),
            host_seconds: 12.34,
            guest_seconds: 1.5,
        };
        vec![
            outcome("good", Verdict::Pass, vec![Check::pass("it works")]),
            outcome(
                "bad",
                Verdict::Fail,
                vec![Check::pass("it starts"), Check::fail("it ends", "a < b\n& \"c\"")],
            ),
        ]
    }
}
