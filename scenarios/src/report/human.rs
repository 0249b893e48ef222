//! Outcomes for a person at a terminal.

use std::fmt::Write;

use crate::outcome::{Outcome, Verdict};

/// One outcome: a line, and below it what failed.
pub fn human(outcome: &Outcome) -> String {
    let word = match outcome.verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "FAIL",
        Verdict::Broken => "BROKEN",
    };
    let mut text = format!(
        "{word:6} {} on {}: {} checks, {:.1} s ({:.2} s in the guest)\n",
        outcome.scenario,
        outcome.kernel,
        outcome.checks.len(),
        outcome.host_seconds,
        outcome.guest_seconds
    );
    for check in outcome.failures() {
        let failure = check.failure.as_deref().unwrap_or_default().replace('\n', "\n           ");
        let _ = writeln!(text, "       not: {}\n           {failure}", check.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::testing::outcomes;
    use super::*;

    #[test]
    fn failures_are_shown_with_what_was_seen() {
        let [good, bad] = &outcomes()[..] else { panic!() };
        assert_eq!(human(good), "pass   good on debian:6.12.117: 1 checks, 12.3 s (1.50 s in the guest)\n");
        let text = human(bad);
        assert!(text.starts_with("FAIL   bad"), "{text}");
        assert!(text.contains("not: it ends\n           a < b\n           & \"c\"\n"), "{text}");
        assert!(!text.contains("it starts"), "{text}");
    }
}
