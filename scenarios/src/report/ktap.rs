//! Outcomes as KTAP, the kernel's test format (Documentation/dev-tools/ktap.rst): a test a scenario, its
//! checks nested.

use std::fmt::Write;

use crate::outcome::{Outcome, Verdict};

/// All outcomes.
pub fn ktap(outcomes: &[Outcome]) -> String {
    let mut text = format!("KTAP version 1\n1..{}\n", outcomes.len());
    for (number, outcome) in outcomes.iter().enumerate() {
        if let Some(reason) = &outcome.skipped {
            let (name, kernel) = (one_line(&outcome.scenario), one_line(&outcome.kernel));
            let _ = writeln!(text, "ok {} - {name} on {kernel} # SKIP {}", number + 1, one_line(reason));
            continue;
        }
        if let Some(reason) = &outcome.error {
            reason.lines().for_each(|line| text.push_str(&format!("# {line}\n")));
            let (name, kernel) = (one_line(&outcome.scenario), one_line(&outcome.kernel));
            let _ = writeln!(text, "not ok {} - {name} on {kernel}", number + 1);
            continue;
        }
        let _ = writeln!(text, "    KTAP version 1\n    1..{}", outcome.checks.len());
        for (number, check) in outcome.checks.iter().enumerate() {
            for line in check.failure.iter().flat_map(|failure| failure.lines()) {
                let _ = writeln!(text, "    # {line}");
            }
            let result = if check.failure.is_none() { "ok" } else { "not ok" };
            let _ = writeln!(text, "    {result} {} - {}", number + 1, one_line(&check.name));
        }
        let result = if outcome.verdict == Verdict::Pass { "ok" } else { "not ok" };
        let _ = writeln!(
            text,
            "{result} {} - {} on {}",
            number + 1,
            one_line(&outcome.scenario),
            one_line(&outcome.kernel)
        );
    }
    text
}

/// `#` would start a directive.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ").replace('#', "\\#")
}

#[cfg(test)]
mod tests {
    use super::super::testing::{outcomes, skipped, unbuilt};
    use super::*;

    #[test]
    fn nested_with_diagnostics() {
        let expected = "\
KTAP version 1
1..2
    KTAP version 1
    1..1
    ok 1 - it works
ok 1 - good on debian:6.12.117
    KTAP version 1
    1..2
    ok 1 - it starts
    # a < b
    # & \"c\"
    not ok 2 - it ends
not ok 2 - bad on debian:6.12.117
";
        assert_eq!(ktap(&outcomes()), expected);
        let expected = "KTAP version 1\n1..1\nok 1 - old on debian:6.1.1 # SKIP no <such> kernel \\#1\n";
        assert_eq!(ktap(&[skipped()]), expected);
        let expected = "KTAP version 1\n1..1\n# gve.c:7:\n# expected ';'\nnot ok 1 - edited on debian:6.12\n";
        assert_eq!(ktap(&[unbuilt()]), expected);
    }
}
