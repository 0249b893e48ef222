//! Findings with what they mean for the scenario and what shows them: the rule, the descriptor, the packet.

use std::fmt::Write;

use maud::{Markup, html};
use nicvisor_core::{Finding, Rule};
use nicvisor_net::parse::{IpVersion, parse};

use super::section::grouped;
use crate::outcome::{BrokenRule, Outcome, Standing};

/// How many there are that fail the scenario, and how many others.
pub(super) fn count(rules: &[BrokenRule]) -> Markup {
    let sum = |fails: bool| -> u64 {
        let some = rules.iter().filter(|broken| (broken.standing == Standing::Failure) == fails);
        some.map(|broken| broken.findings).sum()
    };
    let (failures, others) = (sum(true), sum(false));
    html! {
        @if failures > 0 { span class="fail-text" { (grouped(failures)) } @if others > 0 { " " } }
        @if others > 0 { span class="soft" { "(" (grouped(others)) ")" } }
        @if failures == 0 && others == 0 { "0" }
    }
}

/// The findings, rule by rule: those first that fail the scenario, and of those what was found of what a driver handed
/// over before what came of that.
pub(super) fn findings(outcome: &Outcome, rule: &dyn Fn(&str) -> Option<&'static Rule>) -> Markup {
    let of = |broken: &BrokenRule| -> Vec<&Finding> {
        outcome.findings.iter().filter(|finding| finding.rule == broken.rule).collect()
    };
    let mut groups: Vec<(&BrokenRule, Vec<&Finding>)> = outcome
        .rules
        .iter()
        .map(|broken| (broken, of(broken)))
        .filter(|(_, group)| !group.is_empty())
        .collect();
    groups.sort_by_key(|(broken, group)| (broken.standing, group[0].descriptor.is_empty()));
    html! {
        @if !groups.is_empty() {
            h3 { "Findings" }
            @for (index, (broken, group)) in groups.iter().enumerate() {
                @let open = index == 0 && broken.standing == Standing::Failure;
                (of_rule(broken, group, rule(&broken.rule), open))
            }
        }
    }
}

/// What a rule is, and how it was broken.
fn of_rule(broken: &BrokenRule, group: &[&Finding], rule: Option<&Rule>, open: bool) -> Markup {
    let (class, word) = match broken.standing {
        Standing::Failure => ("fail", "fails the run"),
        Standing::Note => ("note", "note"),
        Standing::Expected => ("pass", "expected"),
        Standing::Allowed => ("pass", "allowed"),
    };
    html! {
        details class=(format!("finding {class}")) open[open] {
            summary {
                span class=(format!("badge {class}")) { (word) } " "
                code { (broken.rule) }
                @if let Some(rule) = rule { " " (rule.title) }
                @if group.len() > 1 { ", " (grouped(group.len() as u64)) " times" }
            }
            @if let Some(rule) = rule {
                div class="soft" { (rule.meaning) " (" (rule.source) ")" }
            }
            @for finding in group.iter().take(SHOWN) { (one(finding)) }
            @if group.len() > SHOWN {
                p class="soft" { (group.len() - SHOWN) " more are in results.json." }
            }
        }
    }
}

fn one(finding: &Finding) -> Markup {
    html! {
        div class="one" {
            p { (finding.message) }
            div class="soft" {
                (finding.device) " " (finding.queue)
                " at " (format!("{:.6} s", finding.time.as_nanos() as f64 / 1e9))
                @if let Some(frame) = finding.frame { ", frame " (frame.0) " of the capture" }
            }
            @if !finding.descriptor.is_empty() || !finding.packet.is_empty() {
                details { summary { "evidence" }
                    @if !finding.descriptor.is_empty() {
                        div class="soft" { "descriptor" }
                        @if !finding.decoded.is_empty() { pre { (finding.decoded.join("\n")) } }
                        pre class="bytes" { (hex(&finding.descriptor)) }
                    }
                    @if !finding.packet.is_empty() {
                        div class="soft" { "packet: " (headers(&finding.packet)) }
                        pre class="bytes" { (hex(&finding.packet[..finding.packet.len().min(LONGEST_DUMP)])) }
                    }
                }
            }
        }
    }
}

/// Which headers a packet has, with where they are, down to the innermost.
fn headers(packet: &[u8]) -> String {
    let mut parts = Vec::new();
    let outer = parse(packet);
    let mut layers = &outer;
    loop {
        parts.extend(layers.ethernet.map(|at| format!("Ethernet at {at}")));
        parts.extend(layers.vlan.map(|tag| format!("VLAN {}", tag & 0xfff)));
        if let Some(ip) = &layers.ip {
            parts.push(format!(
                "{} at {}",
                if ip.version == IpVersion::V4 { "IPv4" } else { "IPv6" },
                ip.offset
            ));
            parts.extend(ip.jumbo.map(|jumbo| {
                format!("jumbo header at {} for {} bytes", jumbo.header_offset, jumbo.payload_len)
            }));
        }
        parts.extend(
            layers.transport.map(|transport| format!("{:?} at {}", transport.kind, transport.offset)),
        );
        let Some(inner) = &layers.inner else { break };
        parts.push(format!("{:?}", inner.tunnel));
        layers = &inner.layers;
    }
    parts.push(format!("payload at {}", layers.payload));
    parts.join(", ")
}

/// Bytes in rows of sixteen, each with its offset and what can be read of it.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (row, bytes) in bytes.chunks(16).enumerate() {
        let _ = write!(text, "{:04x} ", row * 16);
        for column in 0..16 {
            let gap = if column == 8 { " " } else { "" };
            let _ = match bytes.get(column) {
                Some(byte) => write!(text, "{gap} {byte:02x}"),
                None => write!(text, "{gap}   "),
            };
        }
        let readable = bytes.iter().map(|byte| if (0x20..0x7f).contains(byte) { *byte as char } else { '.' });
        let _ = writeln!(text, "  {}", readable.collect::<String>());
    }
    text
}

/// Of each rule.
const SHOWN: usize = 20;
const LONGEST_DUMP: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_rows() {
        let text = hex(b"0123456789abcdef\x00\xff");
        let expected = "\
0000  30 31 32 33 34 35 36 37  38 39 61 62 63 64 65 66  0123456789abcdef
0010  00 ff                                             ..
";
        assert_eq!(text, expected);
    }
}
