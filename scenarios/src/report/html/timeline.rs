//! What happened when. Steps, faults and changes stand by themselves; what comes in masses between them, findings and
//! what drivers do to devices, is folded.

use maud::{Markup, html};

use crate::outcome::{Moment, MomentKind};

/// A step, for the charts.
pub(super) struct Mark<'a> {
    nanoseconds: u64,
    /// Its number, as in the time line.
    pub(super) number: u32,
    /// Whether it injects a fault or changes a link.
    pub(super) is_change: bool,
    pub(super) title: &'a str,
}

impl Mark<'_> {
    pub(super) fn seconds(&self) -> f64 {
        self.nanoseconds as f64 / 1e9
    }
}

/// Where steps begin.
pub(super) fn marks<'a>(moments: &'a [Moment]) -> Vec<Mark<'a>> {
    let mark = |row: Row<'a>| match row {
        Row::Step { number, what, moment, .. } => Some((number, what, moment)),
        Row::Single(_) | Row::Mass(_) => None,
    };
    let marks = rows(moments).into_iter().filter_map(mark).map(|(number, what, moment)| Mark {
        nanoseconds: moment.time.as_nanos(),
        number,
        is_change: what != MomentKind::Begin,
        title: &moment.subject,
    });
    marks.collect()
}

pub(super) fn timeline(moments: &[Moment]) -> Markup {
    let rows = rows(moments);
    html! {
        @if !rows.is_empty() {
            details class="part" open[rows.len() <= MOST_OPEN] { summary { "Time line" }
                div class="scroll" { table class="slim timeline" {
                    thead { tr { th class="number" { "virtual ms" } th {} th { "what" } th { "where" } th {} } }
                    tbody { @for row in &rows { (show(row)) } }
                } }
            }
        }
    }
}

enum Row<'a> {
    /// A step, what sort of change it makes if it makes one, and its end if it came to that.
    Step {
        number: u32,
        what: MomentKind,
        moment: &'a Moment,
        end: Option<&'a Moment>,
    },
    Single(&'a Moment),
    /// What came between two others.
    Mass(Vec<&'a Moment>),
}

fn rows(moments: &[Moment]) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    let mut mass = Vec::new();
    let mut number = 0;
    for (index, moment) in moments.iter().enumerate() {
        match moment.kind {
            MomentKind::Finding | MomentKind::Device => {
                mass.push(moment);
                continue;
            }
            // Told with the step.
            MomentKind::End | MomentKind::Link | MomentKind::Fault => continue,
            _ => settle(&mut mass, &mut rows),
        }
        rows.push(match moment.kind {
            MomentKind::Begin => {
                number += 1;
                let later = &moments[index + 1..];
                let end =
                    later.iter().find(|end| end.kind == MomentKind::End && end.subject == moment.subject);
                let what = later.first().map(|next| next.kind).filter(|kind| is_change(*kind));
                Row::Step { number, what: what.unwrap_or(MomentKind::Begin), moment, end }
            }
            _ => Row::Single(moment),
        });
    }
    settle(&mut mass, &mut rows);
    rows
}

fn is_change(kind: MomentKind) -> bool {
    matches!(kind, MomentKind::Link | MomentKind::Fault)
}

/// Few of a mass are as well shown one by one.
fn settle<'a>(mass: &mut Vec<&'a Moment>, rows: &mut Vec<Row<'a>>) {
    match std::mem::take(mass) {
        few if few.len() <= FEW => rows.extend(few.into_iter().map(Row::Single)),
        many => rows.push(Row::Mass(many)),
    }
}

fn show(row: &Row<'_>) -> Markup {
    match row {
        Row::Step { number, what, moment, end } => html! {
            tr class="step" {
                (time(moment))
                td class="number" { (number) }
                td class=(class_of(*what)) { (word_for(*what)) }
                td { (moment.subject) }
                td {
                    @match end {
                        Some(end) => {
                            span class="soft" { (milliseconds(end.time.as_nanos() - moment.time.as_nanos())) " ms" }
                            @if !end.text.is_empty() { ", " span class="fail-text" { (end.text) } }
                        }
                        None => span class="fail-text" { "not ended" },
                    }
                }
            }
        },
        Row::Single(moment) => single(moment),
        Row::Mass(moments) => html! {
            tr {
                (time(moments[0]))
                td {}
                td colspan="3" {
                    details {
                        summary { (counted(moments)) }
                        table class="slim" { tbody {
                            @for moment in moments.iter().take(MOST_OF_MASS) { (single(moment)) }
                        } }
                        @if moments.len() > MOST_OF_MASS {
                            p class="soft" { (moments.len() - MOST_OF_MASS) " more are in results.json." }
                        }
                    }
                }
            }
        },
    }
}

fn single(moment: &Moment) -> Markup {
    html! {
        tr {
            (time(moment))
            td {}
            td class=(class_of(moment.kind)) { (word_for(moment.kind)) }
            td { (moment.subject) }
            td { (moment.text) }
        }
    }
}

fn time(moment: &Moment) -> Markup {
    html! { td class="number" { (milliseconds(moment.time.as_nanos())) } }
}

fn milliseconds(nanoseconds: u64) -> String {
    format!("{:.3}", nanoseconds as f64 / 1e6)
}

/// `37 findings: [net-wire-mtu] 30 times, ...; 2 device events: command CREATE_TX_QUEUE 2 times`.
fn counted(moments: &[&Moment]) -> String {
    let of_kind = |kind: MomentKind, word: &str| {
        let mut names: Vec<(&str, usize)> = Vec::new();
        for moment in moments.iter().filter(|moment| moment.kind == kind) {
            let name = name(moment);
            match names.iter_mut().find(|(other, _)| *other == name) {
                Some((_, count)) => *count += 1,
                None => names.push((name, 1)),
            }
        }
        let all: usize = names.iter().map(|(_, count)| count).sum();
        let part = |(name, count): &(&str, usize)| match count {
            1 => (*name).to_owned(),
            count => format!("{name} {count} times"),
        };
        let mut parts: Vec<String> = names.iter().take(MOST_NAMES).map(part).collect();
        if names.len() > MOST_NAMES {
            parts.push("others".into());
        }
        let plural = if all == 1 { "" } else { "s" };
        (all > 0).then(|| format!("{all} {word}{plural}: {}", parts.join(", ")))
    };
    let kinds = [of_kind(MomentKind::Finding, "finding"), of_kind(MomentKind::Device, "device event")];
    kinds.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// What a moment's text begins with: a finding's rule in brackets, an event's kind and name before its fields.
fn name(moment: &Moment) -> &str {
    let text = &moment.text;
    let end = match moment.kind {
        MomentKind::Finding => text.find(']').map(|at| at + 1),
        _ => text.find(" ("),
    };
    &text[..end.unwrap_or(text.len())]
}

fn word_for(kind: MomentKind) -> &'static str {
    match kind {
        MomentKind::Begin => "step",
        MomentKind::End => "end",
        MomentKind::Device => "device",
        MomentKind::Link => "link",
        MomentKind::Finding => "finding",
        MomentKind::Trouble => "trouble",
        MomentKind::Ending => "down",
        MomentKind::Fault => "fault",
    }
}

fn class_of(kind: MomentKind) -> &'static str {
    match kind {
        MomentKind::Trouble | MomentKind::Ending => "fail-text",
        MomentKind::Fault | MomentKind::Link => "change-text",
        _ => "",
    }
}

const FEW: usize = 3;
const MOST_OPEN: usize = 25;
const MOST_OF_MASS: usize = 200;
const MOST_NAMES: usize = 6;

#[cfg(test)]
mod tests {
    use nicvisor_core::Time;

    use super::*;

    fn moment(milliseconds: u64, kind: MomentKind, subject: &str, text: &str) -> Moment {
        let time = Time::from_nanos(milliseconds * 1_000_000);
        Moment { time, kind, subject: subject.into(), text: text.into() }
    }

    #[test]
    fn masses_are_folded_and_steps_told_once() {
        let mut moments = vec![moment(1, MomentKind::Begin, "ping", "")];
        moments.extend((2..10).map(|time| moment(time, MomentKind::Finding, "gve0", "[a-rule] seen")));
        moments.push(moment(10, MomentKind::Device, "gve0", "command CREATE (id 1)"));
        moments.push(moment(11, MomentKind::Begin, "lan down", ""));
        moments.push(moment(11, MomentKind::Link, "lan down", ""));
        moments.push(moment(12, MomentKind::Device, "gve0", "state reset"));
        moments.push(moment(13, MomentKind::End, "ping", "1 check failed"));
        moments.push(moment(14, MomentKind::Begin, "after", ""));
        let text = timeline(&moments).into_string();
        assert!(text.contains("8 findings: [a-rule] 8 times; 1 device event: command CREATE"), "{text}");
        assert!(text.contains("12.000 ms") && text.contains("1 check failed"), "{text}");
        assert!(text.contains("state reset") && text.contains("not ended"), "{text}");
        let marks = marks(&moments);
        let marks: Vec<_> =
            marks.iter().map(|mark| (mark.number, mark.is_change, mark.title.to_owned())).collect();
        assert_eq!(
            marks,
            [(1, false, "ping".into()), (2, true, "lan down".into()), (3, false, "after".into())]
        );
    }
}
