//! Findings with what shows them: the rule, the descriptor's bytes, the packet's headers.

use std::fmt::Write;

use maud::{Markup, html};
use nicvisor_core::{Finding, Rule, Severity};
use nicvisor_net::parse::{IpVersion, parse};

pub(super) fn findings(findings: &[Finding], rule: &dyn Fn(&str) -> Option<&'static Rule>) -> Markup {
    html! {
        @if !findings.is_empty() {
            h3 { (findings.len()) " findings" }
            @for (index, group) in groups(findings).iter().enumerate() {
                (of_rule(group, rule(&group[0].rule), index == 0))
            }
        }
    }
}

/// The findings of each rule together: first what was found of what a driver handed over, then what came of that.
fn groups(findings: &[Finding]) -> Vec<Vec<&Finding>> {
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    for finding in findings {
        match groups.iter_mut().find(|group| group[0].rule == finding.rule) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups.sort_by_key(|group| group[0].descriptor.is_empty());
    groups
}

/// What a rule is, and how it was broken; folded, but for the first.
fn of_rule(group: &[&Finding], rule: Option<&Rule>, open: bool) -> Markup {
    let class = if group[0].severity == Severity::Error { "finding" } else { "finding note" };
    html! {
        details class=(class) open[open] {
            summary {
                code { (group[0].rule) }
                @if let Some(rule) = rule { " - " (rule.title) }
                @if group.len() > 1 { ", " (group.len()) " times" }
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
        div {
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
