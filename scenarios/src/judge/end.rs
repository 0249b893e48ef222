//! What must hold at the end.

use nicvisor_core::{Finding, Severity};
use regex::Regex;

use super::{counter_value, port_sizes};
use crate::expression::{Expression, Relation};
use crate::lab::{EndingKind, LabError};
use crate::model::{
    CounterExpectation, Expect, ExpectedEnding, ExpectedEndingKind, FramesExpectation, LogExpectation,
    Scenario,
};
use crate::outcome::{BrokenRule, Check, Outcome, OutcomeTable, Standing};

/// Checks a finished run. Counters, sizes, findings, measurements, logs and the ledger are in `outcome`;
/// `trouble` is what the guests' kernels reported about themselves.
pub(crate) fn judge_end(scenario: &Scenario, outcome: &Outcome, trouble: &[String]) -> Vec<Check> {
    let expect = &scenario.expect;
    let mut checks = Vec::new();
    // A guest that is to go down has trouble before.
    if expect.ending.is_none() || !expect.trouble.is_empty() {
        checks.extend(judge_trouble(expect, trouble));
    }
    checks.extend(expect.counters.iter().map(|counter| judge_counter(counter.get_ref(), &outcome.counters)));
    checks.extend(expect.frames.iter().flat_map(|frames| judge_frames(frames.get_ref(), outcome)));
    checks.extend(expect.log.iter().flat_map(|log| judge_log(scenario, log.get_ref(), outcome)));
    for relation in &expect.relations {
        let text = relation.get_ref();
        let result = Relation::parse(text).map_err(|error| error.message);
        let result = result.and_then(|relation| relation.check(&|name| outcome.values(name)));
        checks.push(Check::of(text, result));
    }
    checks.extend(judge_findings(expect, &outcome.findings));
    checks.push(Check::of("every frame is accounted for", outcome.ledger.check()));
    checks
}

/// What cannot become right any more in a run that was interrupted.
pub(crate) fn judge_interrupted(scenario: &Scenario, outcome: &Outcome, trouble: &[String]) -> Vec<Check> {
    let expect = &scenario.expect;
    let mut checks = Vec::new();
    if expect.ending.is_none() {
        checks.push(judge_other_trouble(expect, trouble));
    }
    checks.push(judge_other_findings(expect, &outcome.findings));
    checks
}

/// Whether the guest went down as it was expected to.
pub(crate) fn judge_ending(expected: &ExpectedEnding, seen: Option<&LabError>) -> Check {
    let name = match &expected.message {
        None => format!("the guest {}", expected.kind),
        Some(message) => format!("the guest {}: {}", expected.kind, message.get_ref()),
    };
    let Some(seen) = seen else { return Check::fail(name, "it still runs") };
    let kind = match expected.kind {
        ExpectedEndingKind::Panic => EndingKind::Panic,
        ExpectedEndingKind::Stuck => EndingKind::Stuck,
        ExpectedEndingKind::PowerOff => EndingKind::PowerOff,
        ExpectedEndingKind::Reset => EndingKind::Reset,
    };
    let text = format!("{}\n{}", seen.message, seen.evidence);
    let said = expected.message.as_ref().is_none_or(|message| found(message.get_ref(), &text));
    Check::of(name, if seen.kind == kind && said { Ok(()) } else { Err(text.trim().to_owned()) })
}

/// The tables with their numbers.
pub(crate) fn judge_tables(scenario: &Scenario, outcome: &Outcome) -> Vec<OutcomeTable> {
    let cell = |text: &str| Expression::parse(text).ok()?.evaluate(&|name| outcome.values(name)).ok();
    let row = |cells: &[toml::Spanned<String>]| {
        let name = cells.first().map_or(String::new(), |name| name.get_ref().clone());
        (name, cells.iter().skip(1).map(|text| cell(text.get_ref())).collect())
    };
    scenario
        .tables
        .iter()
        .map(|table| OutcomeTable {
            title: table.get_ref().title.clone(),
            columns: table.get_ref().columns.clone(),
            rows: table.get_ref().rows.iter().map(|cells| row(cells.get_ref())).collect(),
        })
        .collect()
}

fn judge_trouble(expect: &Expect, trouble: &[String]) -> Vec<Check> {
    let patterns: Vec<&str> = expect.trouble.iter().map(|pattern| pattern.get_ref().as_str()).collect();
    let mut checks: Vec<Check> = patterns
        .iter()
        .map(|pattern| {
            let seen = trouble.iter().any(|report| found(pattern, report));
            let result = if seen { Ok(()) } else { Err(listed(trouble, "it reports none")) };
            Check::of(format!("the guest's kernel reports: {pattern}"), result)
        })
        .collect();
    checks.push(judge_other_trouble(expect, trouble));
    checks
}

/// Whether there is trouble that the scenario does not expect.
fn judge_other_trouble(expect: &Expect, trouble: &[String]) -> Check {
    let expected = |report: &String| expect.trouble.iter().any(|pattern| found(pattern.get_ref(), report));
    let unexpected: Vec<String> = trouble.iter().filter(|report| !expected(report)).cloned().collect();
    let calm = if unexpected.is_empty() { Ok(()) } else { Err(unexpected.join("\n")) };
    Check::of("the guest's kernel reports no trouble", calm)
}

fn listed(lines: &[String], none: &str) -> String {
    if lines.is_empty() { none.to_owned() } else { lines.join("\n") }
}

fn judge_counter(expectation: &CounterExpectation, counters: &[(String, u64)]) -> Check {
    let name = format!("{} {}", expectation.name, expectation.bound());
    let Some(value) = counter_value(&expectation.name, counters) else {
        let known: Vec<&str> = counters.iter().map(|(name, _)| name.as_str()).collect();
        return Check::fail(name, format!("there is no such counter; there are {}", known.join(", ")));
    };
    let holds = expectation.equals.is_none_or(|wanted| value == wanted)
        && expectation.at_least.is_none_or(|bound| value >= bound)
        && expectation.at_most.is_none_or(|bound| value <= bound);
    Check::of(name, if holds { Ok(()) } else { Err(format!("it is {value}")) })
}

fn judge_frames(expectation: &FramesExpectation, outcome: &Outcome) -> Vec<Check> {
    let subject = format!("frames of {} {}", expectation.port, expectation.stage);
    let sizes = match port_sizes(&expectation.port, expectation.stage, &outcome.sizes) {
        Ok(sizes) => sizes,
        Err(reason) => return vec![Check::fail(subject, reason)],
    };
    let mut checks = Vec::new();
    let values = [
        ("count", expectation.count, Some(sizes.count())),
        ("largest", expectation.largest, sizes.largest()),
        ("smallest", expectation.smallest, sizes.smallest()),
    ];
    for (what, bound, value) in values {
        let Some(bound) = bound else { continue };
        let result = match value {
            None => Err("there are none".into()),
            Some(value) if bound.holds(value as f64) => Ok(()),
            Some(value) => Err(format!("it is {value}")),
        };
        checks.push(Check::of(format!("{subject}: {what} {bound}"), result));
    }
    for above in &expectation.above {
        let (least, most) = sizes.count_above(above.size);
        let holds = above.count.holds(least as f64) && above.count.holds(most as f64);
        let seen = if least == most { format!("it is {least}") } else { format!("it is {least} to {most}") };
        let name = format!("{subject}: count above {} {}", above.size, above.count);
        checks.push(Check::of(name, if holds { Ok(()) } else { Err(seen) }));
    }
    checks
}

fn judge_log(scenario: &Scenario, expectation: &LogExpectation, outcome: &Outcome) -> Vec<Check> {
    let guest =
        scenario.guest_index(expectation.guest.as_ref().map(|name| name.get_ref().as_str())).unwrap_or(0);
    let log = outcome.guests.get(guest).map_or("", |guest| guest.log.as_str());
    let mut checks = Vec::new();
    if let Some(pattern) = &expectation.matches {
        let pattern = pattern.get_ref();
        let result = if line_with(pattern, log).is_some() { Ok(()) } else { Err(last_lines(log)) };
        checks.push(Check::of(format!("the kernel's log has {pattern}"), result));
    }
    if let Some(pattern) = &expectation.lacks {
        let pattern = pattern.get_ref();
        let result = line_with(pattern, log).map_or(Ok(()), |line| Err(line.to_owned()));
        checks.push(Check::of(format!("the kernel's log lacks {pattern}"), result));
    }
    checks
}

fn line_with<'a>(pattern: &str, log: &'a str) -> Option<&'a str> {
    let pattern = Regex::new(pattern).ok()?;
    log.lines().find(|line| pattern.is_match(line))
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    match lines.len() {
        0 => "the log is empty".into(),
        count => format!("it ends:\n{}", lines[count.saturating_sub(LOG_LINES)..].join("\n")),
    }
}

fn found(pattern: &str, text: &str) -> bool {
    Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text))
}

fn judge_findings(expect: &Expect, findings: &[Finding]) -> Vec<Check> {
    let seen = |rule: &str| findings.iter().find(|finding| finding.rule == rule);
    let mut checks = Vec::new();
    for rule in &expect.findings {
        let rule = rule.get_ref();
        let result = if seen(rule).is_some() { Ok(()) } else { Err("it was kept".into()) };
        checks.push(Check::of(format!("rule {rule} is found broken"), result));
    }
    for rule in &expect.forbidden_findings {
        let rule = rule.get_ref();
        let result = seen(rule).map_or(Ok(()), |finding| Err(describe(finding)));
        checks.push(Check::of(format!("rule {rule} is kept"), result));
    }
    checks.push(judge_other_findings(expect, findings));
    checks
}

/// Whether there are findings that fail the scenario although it does not name their rules.
fn judge_other_findings(expect: &Expect, findings: &[Finding]) -> Check {
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
    let unexpected: Vec<&Finding> =
        errors.filter(|finding| standing(expect, finding) == Standing::Failure).collect();
    let result = match unexpected.as_slice() {
        [] => Ok(()),
        [only] => Err(format!("1 finding: {}", describe(only))),
        [first, ..] => Err(format!("{}\nfirst: {}", by_rule(&unexpected), describe(first))),
    };
    Check::of("no rule is broken", result)
}

/// The rules that `findings` break, each once, with what that means: those first that fail the scenario.
pub(crate) fn broken_rules(scenario: &Scenario, findings: &[Finding]) -> Vec<BrokenRule> {
    let mut rules: Vec<BrokenRule> = Vec::new();
    for finding in findings {
        match rules.iter_mut().find(|broken| broken.rule == finding.rule) {
            Some(broken) => broken.findings += 1,
            None => rules.push(BrokenRule {
                rule: finding.rule.to_string(),
                findings: 1,
                standing: standing(&scenario.expect, finding),
            }),
        }
    }
    rules.sort_by_key(|broken| broken.standing);
    rules
}

fn standing(expect: &Expect, finding: &Finding) -> Standing {
    let named = |rules: &[toml::Spanned<String>]| rules.iter().any(|rule| *rule.get_ref() == finding.rule);
    if named(&expect.forbidden_findings) {
        Standing::Failure
    } else if named(&expect.findings) {
        Standing::Expected
    } else if named(&expect.allowed_findings) {
        Standing::Allowed
    } else if finding.severity == Severity::Error {
        Standing::Failure
    } else {
        Standing::Note
    }
}

/// How many findings of each rule there are, in the order of the first ones.
fn by_rule(findings: &[&Finding]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for finding in findings {
        match counts.iter_mut().find(|(rule, _)| *rule == finding.rule) {
            Some((_, count)) => *count += 1,
            None => counts.push((&finding.rule, 1)),
        }
    }
    let counts: Vec<String> = counts.iter().map(|(rule, count)| format!("{rule} {count} times")).collect();
    format!("{} findings: {}", findings.len(), counts.join(", "))
}

fn describe(finding: &Finding) -> String {
    let Finding { rule, device, queue, time, message, .. } = finding;
    let words = [device, queue].into_iter().filter(|word| !word.is_empty());
    let place: String = words.map(|word| format!(" {word}")).collect();
    format!("[{rule}]{place} at {time}: {message}")
}

const LOG_LINES: usize = 10;

#[cfg(test)]
mod tests {
    use nicvisor_core::{Rule, Time};

    use super::*;
    use crate::lab::PortSizes;
    use crate::outcome::GuestOutcome;

    const RULE: Rule = Rule { id: "a-rule", title: "", meaning: "", source: "", severity: Severity::Error };
    const NOTE: Rule = Rule { id: "a-note", severity: Severity::Note, ..RULE };

    fn scenario(expect: &str) -> Scenario {
        let text = format!("description = 'x'\n[[step]]\nrun = 'true'\n[expect]\n{expect}");
        crate::load::parse(std::path::Path::new("s.toml"), &text, &[]).unwrap().remove(0)
    }

    fn failures(expect: &str, change: impl Fn(&mut Outcome), trouble: &[&str]) -> Vec<String> {
        let scenario = scenario(expect);
        let mut outcome = Outcome::new(&scenario);
        change(&mut outcome);
        let trouble: Vec<String> = trouble.iter().map(|line| (*line).to_owned()).collect();
        judge_end(&scenario, &outcome, &trouble)
            .into_iter()
            .filter_map(|check| Some(format!("{}: {}", check.name, check.failure?)))
            .collect()
    }

    #[test]
    fn expected_findings_must_come_and_others_must_not() {
        let finding =
            |outcome: &mut Outcome| outcome.findings = vec![Finding::new(&RULE, Time::ZERO, "seen")];
        let note = |outcome: &mut Outcome| outcome.findings = vec![Finding::new(&NOTE, Time::ZERO, "seen")];
        let none = |_: &mut Outcome| {};
        let two = |outcome: &mut Outcome| outcome.findings = vec![Finding::new(&RULE, Time::ZERO, "seen"); 2];
        let told = failures("", two, &[]);
        assert!(told[0].contains("2 findings: a-rule 2 times\nfirst: [a-rule] at"), "{told:?}");
        assert_eq!(failures("findings = ['a-rule']", finding, &[]), [""; 0]);
        assert_eq!(
            failures("findings = ['a-rule']", none, &[]),
            ["rule a-rule is found broken: it was kept"]
        );
        assert_eq!(failures("allowed_findings = ['a-rule']", finding, &[]), [""; 0]);
        assert!(failures("", finding, &[])[0].starts_with("no rule is broken: 1 finding: [a-rule]"));
        assert_eq!(failures("", note, &[]), [""; 0]);
        assert!(failures("forbidden_findings = ['a-note']", note, &[])[0].starts_with("rule a-note is kept"));
    }

    #[test]
    fn findings_are_told_apart_by_what_they_mean() {
        let findings = [&NOTE, &RULE, &RULE].map(|rule| Finding::new(rule, Time::ZERO, "seen"));
        let told = |expect: &str| -> Vec<(String, u64, Standing)> {
            let rules = broken_rules(&scenario(expect), &findings).into_iter();
            rules.map(|broken| (broken.rule, broken.findings, broken.standing)).collect()
        };
        let (rule, note) =
            (|standing| ("a-rule".into(), 2, standing), |standing| ("a-note".into(), 1, standing));
        assert_eq!(told(""), [rule(Standing::Failure), note(Standing::Note)]);
        assert_eq!(told("findings = ['a-rule']"), [note(Standing::Note), rule(Standing::Expected)]);
        assert_eq!(told("allowed_findings = ['a-rule']"), [note(Standing::Note), rule(Standing::Allowed)]);
        let forbidden = told("allowed_findings = ['a-rule']\nforbidden_findings = ['a-note']");
        assert_eq!(forbidden, [note(Standing::Failure), rule(Standing::Allowed)]);
    }

    #[test]
    fn trouble_is_expected_by_pattern() {
        let none = |_: &mut Outcome| {};
        assert_eq!(failures("", none, &["WARNING: CPU: 0"]).len(), 1);
        assert_eq!(failures("trouble = ['WARNING: .*']", none, &["WARNING: CPU: 0"]), [""; 0]);
        assert_eq!(failures("trouble = ['WARNING']", none, &["WARNING: CPU: 0", "BUG: x"]).len(), 1);
        assert_eq!(failures("trouble = ['WARNING']", none, &[]).len(), 1);
        assert_eq!(failures("ending = 'panic'", none, &["WARNING: CPU: 0"]), [""; 0]);
    }

    #[test]
    fn counters_sizes_logs_and_relations_are_bounded() {
        let run = |outcome: &mut Outcome| {
            outcome.counters = vec![("gve0.tx".into(), 7)];
            let mut wire = nicvisor_core::Sizes::default();
            [60, 1514, 1514].into_iter().for_each(|size| wire.record(size));
            outcome.sizes = vec![PortSizes { port: "gve0".into(), handed: None, wire }];
            outcome.guests =
                vec![GuestOutcome { log: "gve: link is up\n".into(), ..GuestOutcome::default() }];
        };
        let holds = "
            counter = [{ name = 'gve0.tx', at_least = 7 }]
            relations = ['gve0.tx * 2 == 14']
            frames = [{ port = 'gve0', count = 3, largest = 1514, smallest = { at_least = 60 },
                above = [{ size = 1000, count = 2 }] }]
            log = [{ matches = 'link is up$', lacks = 'down' }]";
        assert_eq!(failures(holds, run, &[]), [""; 0]);
        let broken = "
            counter = [{ name = 'gve0.tx', at_least = 8 }, { name = 'gve9.tx', equals = 0 }]
            relations = ['gve0.tx * 2 > 14']
            frames = [{ port = 'gve0', count = 4, largest = { at_most = 1500 }, above = [{ size = 1514, count = 1 }] },
                { port = 'gve0', stage = 'handed', count = 0 }]
            log = [{ matches = 'down', lacks = 'up' }]";
        let seen = failures(broken, run, &[]);
        assert_eq!(seen.len(), 9, "{seen:#?}");
        assert_eq!(seen[0], "gve0.tx is at least 8: it is 7");
        assert_eq!(seen[2], "frames of gve0 on the wire: count is 4: it is 3");
        assert_eq!(seen[8], "gve0.tx * 2 > 14: the left side is 14, the right side 14");
    }

    #[test]
    fn a_guest_goes_down_as_expected_or_not() {
        let expected = |text: &str| scenario(text).expect.ending.unwrap();
        let panic = LabError {
            kind: EndingKind::Panic,
            guest: 0,
            message: "Kernel panic - not syncing: Fatal exception".into(),
            evidence: "RIP: mana_hwc_rx_event_handler+0x10".into(),
        };
        let judged = |text: &str, seen| judge_ending(&expected(text), seen).failure;
        assert_eq!(judged("ending = 'panic'", Some(&panic)), None);
        assert_eq!(judged("ending = { kind = 'panic', message = 'mana_hwc_rx' }", Some(&panic)), None);
        assert!(judged("ending = { kind = 'panic', message = 'gve' }", Some(&panic)).is_some());
        assert!(judged("ending = 'stuck'", Some(&panic)).is_some());
        assert_eq!(judged("ending = 'panic'", None).unwrap(), "it still runs");
    }
}
