//! One outcome's part of the page.

use maud::{Markup, html};
use nicvisor_core::Rule;

use super::{Files, badge, evidence, facts, histogram, throughput, timeline};
use crate::outcome::{Check, Measurement, Outcome, OutcomeTable};

pub(super) fn section(
    index: usize,
    outcome: &Outcome,
    files: &Files,
    rule: &dyn Fn(&str) -> Option<&'static Rule>,
) -> Markup {
    html! {
        section id=(format!("s{index}")) {
            div class="title" { h2 { (outcome.scenario) } (badge(outcome)) }
            p class="soft" { (outcome.description) }
            @if let Some(reason) = &outcome.skipped { p { "Skipped: " (reason) } }
            @if let Some(reason) = &outcome.error { p { "Could not be begun:" } pre { (reason) } }
            (facts::facts(outcome))
            (facts::guests(&outcome.guests))
            (links(files))
            (checks(&outcome.checks))
            @for table in &outcome.tables { (measured_table(table)) }
            (measurements(&outcome.measurements))
            (evidence::findings(outcome, rule))
            (throughput::throughput(&outcome.traffic, &timeline::marks(&outcome.timeline)))
            (timeline::timeline(&outcome.timeline))
            (histogram::sizes(&outcome.sizes))
            (facts::frames(&outcome.ledger))
            (counters(&outcome.counters))
        }
    }
}

fn links(files: &Files) -> Markup {
    let logs = files.logs.iter().map(|(name, file)| (name.as_str(), file));
    let all: Vec<_> = files.capture.iter().map(|file| ("capture", file)).chain(logs).collect();
    html! {
        @if !all.is_empty() {
            p { @for (name, file) in all { a href=(file) { (name) } " " } }
        }
    }
}

/// What does not hold comes first and in full; what holds can be folded out.
fn checks(checks: &[Check]) -> Markup {
    let (failed, held): (Vec<_>, Vec<_>) = checks.iter().partition(|check| check.failure.is_some());
    html! {
        @if !failed.is_empty() {
            h3 { "What does not hold" }
            ul class="checks" { @for check in &failed {
                li class="failed" { (check.name) pre { (check.failure.as_deref().unwrap_or_default()) } }
            } }
        }
        @if !held.is_empty() {
            details open[failed.is_empty() && held.len() <= 30] {
                summary { (held.len()) " checks hold" }
                ul class="checks" { @for check in &held { li { (check.name) } } }
            }
        }
    }
}

fn measured_table(table: &OutcomeTable) -> Markup {
    html! {
        h3 { (table.title) }
        div class="scroll" { table class="slim" {
            thead { tr { @for (index, column) in table.columns.iter().enumerate() {
                th class=(if index == 0 { "" } else { "number" }) { (column) }
            } } }
            tbody { @for (name, values) in &table.rows { tr {
                td { (name) }
                @for value in values {
                    td class="number" { (value.map_or_else(|| "-".to_owned(), number)) }
                }
            } } }
        } }
    }
}

fn measurements(measurements: &[Measurement]) -> Markup {
    html! {
        @if !measurements.is_empty() {
            details { summary { (measurements.len()) " measurements" }
                table class="slim" { tbody { @for measured in measurements { tr {
                    td { (measured.name) }
                    td { (measured.values.iter().map(|value| number(*value)).collect::<Vec<_>>().join(", ")) }
                } } } }
            }
        }
    }
}

fn counters(counters: &[(String, u64)]) -> Markup {
    html! {
        @if !counters.is_empty() {
            details { summary { (counters.len()) " counters" }
                table class="slim" { tbody { @for (name, value) in counters { tr {
                    td { (name) } td class="number" { (grouped(*value)) }
                } } } }
            }
        }
    }
}

fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}{}", grouped(value.abs() as u64));
    }
    format!("{value:.2}")
}

/// A number with its digits in groups of three.
pub(super) fn grouped(value: u64) -> String {
    crate::report::grouped(&value.to_string())
}
