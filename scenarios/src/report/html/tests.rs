use nicvisor_core::{Finding, Severity, Sizes, Time};

use super::*;
use crate::lab::{LedgerSnapshot, PortSizes};
use crate::outcome::{
    BrokenRule, Check, Driver, GuestOutcome, Moment, MomentKind, Origin, OutcomeTable, Standing,
    TrafficSample, TrafficSeries,
};

const RULE: Rule = Rule {
    id: "net-example",
    title: "an example",
    meaning: "nothing works",
    source: "RFC 0",
    severity: Severity::Error,
};

fn sizes(list: &[usize]) -> Sizes {
    let mut sizes = Sizes::default();
    list.iter().for_each(|size| sizes.record(*size));
    sizes
}

fn full() -> (Outcome, Files) {
    let mut finding = Finding::new(&RULE, Time::from_nanos(1_500_000), "bad <b>tag</b>");
    finding.device = "gve0".into();
    finding.descriptor = vec![0xab; 20];
    finding.decoded = vec!["gve_tx_tso_context_desc_dqo: mss 1428".into()];
    finding.packet = vec![0; 60];
    let sample =
        |time, sent_bytes| TrafficSample { time: Time::from_nanos(time), sent_bytes, received_bytes: 0 };
    let outcome = Outcome {
        scenario: "a & b".into(),
        description: "what it shows".into(),
        kernel: "debian:6.12.117".into(),
        verdict: Verdict::Fail,
        checks: vec![Check::pass("holds"), Check::fail("does not", "1 < 2")],
        timeline: vec![Moment {
            time: Time::from_nanos(2_000_000),
            kind: MomentKind::Begin,
            subject: "step".into(),
            text: "starts".into(),
        }],
        tables: vec![OutcomeTable {
            title: "a table".into(),
            columns: vec!["size".into(), "rate".into()],
            rows: vec![("64K".into(), vec![Some(6973.0)]), ("80K".into(), vec![None])],
        }],
        sizes: vec![PortSizes {
            port: "gve0".into(),
            handed: Some(sizes(&[185_000, 185_000, 60])),
            wire: sizes(&[1514, 60]),
        }],
        traffic: vec![TrafficSeries {
            port: "gve0".into(),
            samples: vec![sample(0, 0), sample(1_000_000, 125_000)],
        }],
        findings: vec![finding.clone(), finding],
        rules: vec![BrokenRule { rule: RULE.id.into(), findings: 2, standing: Standing::Failure }],
        ledger: LedgerSnapshot {
            entered: 3039,
            delivered: 3038,
            dropped: [("receiver not ready".to_owned(), 1)].into(),
            ..LedgerSnapshot::default()
        },
        guests: vec![GuestOutcome {
            nics: vec!["gve,mtu=1500".into()],
            edits: vec!["gve-keep-jumbo-header".into()],
            backend: "soft".into(),
            cpus: 2,
            memory: 1 << 30,
            drivers: vec![Driver {
                module: "gve".into(),
                origin: Origin::Edits(vec!["gve-keep-jumbo-header".into()]),
            }],
            ..GuestOutcome::default()
        }],
        counters: vec![("gve0.tx".into(), 1234)],
        ..Outcome::new(&crate::Scenario::default())
    };
    let files =
        Files { capture: Some("a.pcapng".into()), logs: vec![("log of guest".into(), "a.log".into())] };
    (outcome, files)
}

fn page() -> String {
    let rule = |id: &str| (id == RULE.id).then_some(&RULE);
    html(&Page { producer: "nicvisor".into(), facts: vec![("seed".into(), "7".into())] }, &[full()], &rule)
}

#[test]
fn everything_that_is_known_is_on_the_page() {
    let text = page();
    for expected in [
        "0 passed, 1 failed",
        "a &amp; b",
        "1 &lt; 2",
        "bad &lt;b&gt;tag&lt;/b&gt;",
        "an example",
        "href=\"a.pcapng\"",
        "href=\"a.log\"",
        "6,973",
        "1 Gb/s",
        "0.8 ms",
        "fails the run",
        "3,039 sent, 3,038 delivered, 1 dropped",
        "dropped: receiver not ready",
        ">soft</td>",
        "1,024 MiB",
        "gve0, handed to the device: 3 from 60 to 185,000 bytes",
        "0010  ab ab ab ab",
        "1,234",
        "<dd>7</dd>",
        ", 2 times",
        "desc_dqo: mss 1428",
        "gve,mtu=1500",
        "gve-keep-jumbo-header",
    ] {
        assert!(text.contains(expected), "{expected} is missing in\n{text}");
    }
}

#[test]
fn what_a_finding_means_is_seen_at_once() {
    let (mut outcome, files) = full();
    outcome.rules[0].standing = Standing::Expected;
    let text = html(&Page::default(), &[(outcome, files)], &|_| None);
    assert!(
        text.contains("<details class=\"finding pass\"><summary><span class=\"badge pass\">expected"),
        "{text}"
    );
    assert!(text.contains("<span class=\"soft\">(2)</span>"), "{text}");
    assert!(!text.contains("fails the run"), "{text}");
}

/// In SVG an element that is not closed takes in all that follows, and nothing of it is drawn.
#[test]
fn all_shapes_are_closed() {
    let text = page();
    for shape in ["line", "polyline", "rect", "text"] {
        let (opened, closed) = (format!("<{shape} "), format!("</{shape}>"));
        assert!(text.contains(&opened));
        assert_eq!(text.matches(&opened).count(), text.matches(&closed).count(), "{shape}");
    }
}

#[test]
fn the_page_asks_for_nothing_else() {
    let text = page();
    for forbidden in ["<script", "http:", "https:", "@import", "url(", "src="] {
        assert!(!text.contains(forbidden), "{forbidden}");
    }
}
