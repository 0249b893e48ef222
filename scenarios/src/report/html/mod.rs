//! Outcomes as one HTML page that needs nothing else: no script, no font, no network.
//!
//! Top to bottom as somebody reads it who comes from a red build: what failed, then scenario by scenario the
//! checks, what was measured, when what happened, which rules were broken with their evidence, and the files.

mod evidence;
mod facts;
mod histogram;
mod section;
mod throughput;
mod timeline;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use nicvisor_core::Rule;

use crate::outcome::{Outcome, Tally, Verdict};

/// What the page says about the run as a whole.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// What made the run, such as the program with its version.
    pub producer: String,
    /// Facts about the run that are not an outcome's own: backend, seed, date.
    pub facts: Vec<(String, String)>,
}

/// The files that belong to an outcome, as the page links to them: names relative to the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// All captured frames.
    pub capture: Option<String>,
    /// The log of each guest's kernel, with what the link says.
    pub logs: Vec<(String, String)>,
}

/// The page for `outcomes`, each with its files. `rule` knows the rules that findings name.
pub fn html(
    page: &Page,
    outcomes: &[(Outcome, Files)],
    rule: &dyn Fn(&str) -> Option<&'static Rule>,
) -> String {
    let tally = Tally::of(outcomes.iter().map(|(outcome, _)| outcome));
    let title = tally.to_string();
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " - nicvisor" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 class=(if tally.failed == 0 { "pass" } else { "fail" }) { (title) }
                    p class="producer" { (page.producer) }
                    dl class="facts" {
                        @for (name, value) in &page.facts { div { dt { (name) } dd { (value) } } }
                    }
                }
                main {
                    (overview(outcomes))
                    @for (index, (outcome, files)) in outcomes.iter().enumerate() {
                        (section::section(index, outcome, files, rule))
                    }
                }
            }
        }
    };
    markup.into_string()
}

/// The table of all outcomes, each row leading to its section.
fn overview(outcomes: &[(Outcome, Files)]) -> Markup {
    html! {
        div class="scroll" {
            table class="overview" {
                thead { tr {
                    th { "verdict" } th { "scenario" } th { "kernel" }
                    th class="number" { "checks" } th class="number" { "findings" }
                    th class="number" { "host s" } th class="number" { "guest s" }
                } }
                tbody { @for (index, (outcome, _)) in outcomes.iter().enumerate() {
                    tr {
                        td { (badge(outcome)) }
                        td { a href=(format!("#s{index}")) { (outcome.scenario) } }
                        td { (outcome.kernel) }
                        td class="number" {
                            (outcome.checks.len() - outcome.failures().count()) "/" (outcome.checks.len())
                        }
                        td class="number" { (evidence::count(&outcome.rules)) }
                        td class="number" { (format!("{:.1}", outcome.host_seconds)) }
                        td class="number" { (format!("{:.3}", outcome.guest_seconds)) }
                    }
                } }
            }
        }
    }
}

/// A verdict, as a word that also has a colour.
fn badge(outcome: &Outcome) -> Markup {
    let (class, word) = match outcome.verdict {
        Verdict::Broken if outcome.error.is_some() => ("fail", "error"),
        Verdict::Pass => ("pass", "pass"),
        Verdict::Fail => ("fail", "fail"),
        Verdict::Broken => ("broken", "broken"),
        Verdict::Skip => ("broken", "skip"),
    };
    html! { span class=(format!("badge {class}")) { (word) } }
}

const STYLE: &str = include_str!("style.css");

#[cfg(test)]
mod tests;
