//! Outcomes as text.

pub mod html;
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

/// Decimal digits in groups of three.
fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod testing {
    use crate::outcome::{Check, Outcome, Verdict};

    /// One scenario that was not begun.
    pub(super) fn skipped() -> Outcome {
        let scenario = crate::Scenario::default();
        Outcome {
            scenario: "old".into(),
            kernel: "debian:6.1.1".into(),
            ..Outcome::skip(&scenario, "no <such> kernel #1")
        }
    }

    /// One scenario that could not be begun.
    pub(super) fn unbuilt() -> Outcome {
        let scenario = crate::Scenario::default();
        Outcome {
            scenario: "edited".into(),
            kernel: "debian:6.12".into(),
            ..Outcome::error(&scenario, "gve.c:7:\nexpected ';'\n")
        }
    }

    /// One scenario that passes and one that fails with a text that needs escaping.
    pub(super) fn outcomes() -> Vec<Outcome> {
        let outcome = |name: &str, verdict, checks| Outcome {
            scenario: name.into(),
            kernel: "debian:6.12.117".into(),
            verdict,
            checks,
            host_seconds: 12.34,
            guest_seconds: 1.5,
            ..Outcome::new(&crate::Scenario::default())
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
