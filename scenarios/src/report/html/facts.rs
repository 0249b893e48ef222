//! What a scenario ran on, and what became of its frames.

use maud::{Markup, html};

use super::section::grouped;
use crate::lab::LedgerSnapshot;
use crate::outcome::{Driver, GuestOutcome, Origin, Outcome};

pub(super) fn facts(outcome: &Outcome) -> Markup {
    let dropped: u64 = outcome.ledger.dropped.values().sum();
    html! {
        dl class="facts" {
            div { dt { "kernel" } dd { (outcome.kernel) } }
            @for (name, value) in &outcome.case { div { dt { (name) } dd { (value) } } }
            div { dt { "host time" } dd { (format!("{:.1} s", outcome.host_seconds)) } }
            div { dt { "guest time" } dd { (format!("{:.3} s", outcome.guest_seconds)) } }
            div { dt { "frames" } dd {
                (grouped(outcome.ledger.entered)) " sent, " (grouped(outcome.ledger.delivered)) " delivered, "
                (grouped(dropped)) " dropped"
            } }
        }
    }
}

/// A row for each guest that was started, or is at least known to have NICs.
pub(super) fn guests(guests: &[GuestOutcome]) -> Markup {
    let known = |guest: &GuestOutcome| guest.cpus > 0 || !guest.nics.is_empty() || !guest.edits.is_empty();
    html! {
        @if guests.iter().any(known) {
            div class="scroll" { table class="slim guests" {
                thead { tr {
                    th { "guest" } th { "kernel" } th { "runs on" } th { "CPUs" } th { "memory" } th { "NICs" }
                    th { "drivers" }
                } }
                tbody { @for guest in guests { (row(guest)) } }
            } }
        }
    }
}

fn row(guest: &GuestOutcome) -> Markup {
    let kernel = if guest.version.is_empty() { &guest.kernel } else { &guest.version };
    html! {
        tr {
            td {
                (guest.name)
                @if let Some(ending) = guest.ending { div class="fail-text" { (ending) } }
            }
            td { (kernel) }
            td title=(guest.backend_reason) { (guest.backend) }
            td { @if guest.cpus > 0 { (guest.cpus) } }
            td { @if guest.memory > 0 { (mebibytes(guest.memory)) } }
            td { @for nic in &guest.nics { div { code { (nic) } } } }
            td {
                @for driver in &guest.drivers { div { (described(driver)) } }
                @if guest.drivers.is_empty() {
                    @for edit in &guest.edits { div { "to be edited: " code { (edit) } } }
                }
            }
        }
    }
}

fn described(driver: &Driver) -> Markup {
    html! {
        code { (driver.module) }
        @match &driver.origin {
            Origin::Kernel => span class="soft" { " of the kernel" },
            Origin::Edits(edits) => { span class="change-text" { " edited: " } code { (edits.join(", ")) } }
            Origin::File(file) => { span class="change-text" { " from " } code { (file) } }
        }
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", grouped(bytes >> 20))
}

/// Where all frames went.
pub(super) fn frames(ledger: &LedgerSnapshot) -> Markup {
    let elsewhere = [
        ("on their way on links", ledger.on_links),
        ("held by devices", ledger.held),
        ("lost in devices", ledger.lost.len() as u64),
        ("with more than one fate", ledger.unexpected),
    ];
    html! {
        @if ledger.entered > 0 {
            details class="part" open[!ledger.dropped.is_empty()] { summary { "What became of all frames" }
                table class="slim" { tbody {
                    (line("sent by devices", ledger.entered))
                    @if ledger.copied > 0 { (line("copied by links", ledger.copied)) }
                    (line("delivered to guests", ledger.delivered))
                    @for (reason, count) in &ledger.dropped { (line(&format!("dropped: {reason}"), *count)) }
                    @for (what, count) in elsewhere { @if count > 0 { (line(what, count)) } }
                } }
            }
        }
    }
}

fn line(what: &str, count: u64) -> Markup {
    html! { tr { td { (what) } td class="number" { (grouped(count)) } } }
}
