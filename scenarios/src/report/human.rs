//! Outcomes for a person at a terminal.

use std::fmt::Write;

use super::grouped;
use crate::outcome::{Outcome, OutcomeTable, Verdict};

/// One outcome: a line, and below it what failed and the tables.
pub fn human(outcome: &Outcome) -> String {
    if let Some(reason) = &outcome.skipped {
        return format!("skip   {} on {}: {reason}\n", outcome.scenario, outcome.kernel);
    }
    if let Some(reason) = &outcome.error {
        let reason = reason.trim_end().replace('\n', "\n       ");
        return format!("ERROR  {} on {}: {reason}\n", outcome.scenario, outcome.kernel);
    }
    let word = match outcome.verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "FAIL",
        Verdict::Broken => "BROKEN",
        Verdict::Skip => "skip",
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
    outcome.tables.iter().for_each(|table| text.push_str(&show(table)));
    text
}

/// A table with its columns lined up, numbers to the right.
fn show(table: &OutcomeTable) -> String {
    let mut lines = vec![table.columns.clone()];
    for (name, values) in &table.rows {
        let cells = values.iter().map(|value| value.map_or("-".into(), number));
        lines.push(std::iter::once(name.clone()).chain(cells).collect());
    }
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let mut text = format!("\n       {}\n", table.title);
    for line in &lines {
        let mut row = String::from("       ");
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let _ = if column == 0 { write!(row, "{cell:<width$}") } else { write!(row, "  {cell:>width$}") };
        }
        let _ = writeln!(text, "{}", row.trim_end());
    }
    text.push('\n');
    text
}

/// Large numbers whole and in groups of three digits, small ones with what matters behind the point.
fn number(value: f64) -> String {
    if value.abs() < 100.0 && value.fract() != 0.0 {
        return format!("{value:.2}");
    }
    let grouped = grouped(&format!("{:.0}", value.abs()));
    if value <= -0.5 { format!("-{grouped}") } else { grouped }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{outcomes, skipped, unbuilt};
    use super::*;

    #[test]
    fn failures_are_shown_with_what_was_seen() {
        let [good, bad] = &outcomes()[..] else { panic!() };
        assert_eq!(human(good), "pass   good on debian:6.12.117: 1 checks, 12.3 s (1.50 s in the guest)\n");
        let text = human(bad);
        assert!(text.starts_with("FAIL   bad"), "{text}");
        assert!(text.contains("not: it ends\n           a < b\n           & \"c\"\n"), "{text}");
        assert!(!text.contains("it starts"), "{text}");
        assert_eq!(human(&skipped()), "skip   old on debian:6.1.1: no <such> kernel #1\n");
        assert_eq!(human(&unbuilt()), "ERROR  edited on debian:6.12: gve.c:7:\n       expected ';'\n");
    }

    #[test]
    fn tables_are_lined_up() {
        let table = OutcomeTable {
            title: "TCP_RR".into(),
            columns: ["gso_max_size", "MIN us", "tps"].map(str::to_owned).to_vec(),
            rows: vec![
                ("64K".into(), vec![Some(93.25), Some(6973.4)]),
                ("80K".into(), vec![Some(-0.5), None]),
            ],
        };
        let expected = "
       TCP_RR
       gso_max_size  MIN us    tps
       64K            93.25  6,973
       80K            -0.50      -

";
        assert_eq!(show(&table), expected);
        assert_eq!(number(1_234_567.0), "1,234,567");
    }
}
