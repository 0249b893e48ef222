//! Outcomes as JUnit XML, which CI systems read: a test suite a scenario, a test case a check.

use std::fmt::Write;

use crate::outcome::Outcome;

/// All outcomes.
pub fn junit(outcomes: &[Outcome]) -> String {
    let not_begun = |outcome: &Outcome| outcome.skipped.is_some() || outcome.error.is_some();
    let tests: usize =
        outcomes.iter().map(|outcome| outcome.checks.len() + usize::from(not_begun(outcome))).sum();
    let failures: usize = outcomes.iter().map(|outcome| outcome.failures().count()).sum();
    let errors = outcomes.iter().filter(|outcome| outcome.error.is_some()).count();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuites tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\">\n"
    );
    for outcome in outcomes {
        let suite = escape(&format!("{} on {}", outcome.scenario, outcome.kernel));
        let reasons = [("skipped", "skipped", &outcome.skipped), ("errors", "error", &outcome.error)];
        let reason = reasons.iter().find_map(|(count, tag, reason)| Some((count, tag, reason.as_ref()?)));
        if let Some((count, tag, reason)) = reason {
            let reason = escape(reason);
            let _ = writeln!(
                text,
                "  <testsuite name=\"{suite}\" tests=\"1\" failures=\"0\" {count}=\"1\">\n    \
                 <testcase classname=\"{suite}\" name=\"begins\"><{tag} message=\"{reason}\"/></testcase>\n  \
                 </testsuite>"
            );
            continue;
        }
        let _ = writeln!(
            text,
            "  <testsuite name=\"{suite}\" tests=\"{}\" failures=\"{}\" time=\"{:.3}\">",
            outcome.checks.len(),
            outcome.failures().count(),
            outcome.host_seconds
        );
        for check in &outcome.checks {
            let name = escape(&check.name);
            let _ = match &check.failure {
                None => writeln!(text, "    <testcase classname=\"{suite}\" name=\"{name}\"/>"),
                Some(failure) => writeln!(
                    text,
                    "    <testcase classname=\"{suite}\" name=\"{name}\"><failure message=\"{}\"/></testcase>",
                    escape(failure)
                ),
            };
        }
        text.push_str("  </testsuite>\n");
    }
    text.push_str("</testsuites>\n");
    text
}

/// XML 1.0 has no way to write most control characters: they become U+FFFD.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            control if control < ' ' || control == '\u{fffe}' || control == '\u{ffff}' => {
                escaped.push('\u{fffd}')
            }
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::testing::{outcomes, skipped, unbuilt};
    use super::*;

    #[test]
    fn text_is_escaped_and_counted() {
        let text = junit(&outcomes());
        assert!(text.contains("<testsuites tests=\"3\" failures=\"1\" errors=\"0\">"), "{text}");
        assert!(text.contains("<failure message=\"a &lt; b&#10;&amp; &quot;c&quot;\"/>"), "{text}");
        assert!(!escape("\u{1b}[0m").contains('\u{1b}'));
        let text = junit(&[skipped()]);
        assert!(text.contains("tests=\"1\" failures=\"0\""), "{text}");
        assert!(text.contains("<skipped message=\"no &lt;such&gt; kernel #1\"/>"), "{text}");
        let text = junit(&[unbuilt()]);
        assert!(text.contains("<testsuites tests=\"1\" failures=\"0\" errors=\"1\">"), "{text}");
        assert!(text.contains("<error message=\"gve.c:7:&#10;expected ';'&#10;\"/>"), "{text}");
    }
}
