//! Whether what was seen is what was expected.

use nicvisor_core::{Finding, Severity};
use serde_json::Value;

use crate::model::{CounterExpectation, Expect, JsonExpectation};
use crate::outcome::Check;

/// Checks one expectation on the JSON text `output`.
pub(crate) fn check_json(expectation: &JsonExpectation, output: &[u8]) -> Check {
    let name = format!("{} {}", expectation.at, describe_json(expectation));
    let result = serde_json::from_slice::<Value>(output)
        .map_err(|error| format!("the output is not JSON: {error}"))
        .and_then(|json| {
            let value = json.pointer(&expectation.at).ok_or("nothing is there")?;
            let within = |bound: Option<f64>, holds: fn(f64, f64) -> bool| {
                bound.is_none_or(|bound| value.as_f64().is_some_and(|value| holds(value, bound)))
            };
            let equal = expectation.equals.as_ref().is_none_or(|wanted| wanted == value);
            if equal
                && within(expectation.at_least, |a, b| a >= b)
                && within(expectation.at_most, |a, b| a <= b)
            {
                Ok(())
            } else {
                Err(format!("it is {value}"))
            }
        });
    Check::of(name, result)
}

/// Checks the counters and findings of a finished run.
pub(crate) fn check_end(
    expect: &Expect,
    counters: &[(String, u64)],
    findings: &[Finding],
    ledger: Result<(), String>,
) -> Vec<Check> {
    let mut checks: Vec<Check> =
        expect.counters.iter().map(|counter| check_counter(counter.get_ref(), counters)).collect();
    for rule in &expect.findings {
        let rule = rule.get_ref();
        let seen = findings.iter().any(|finding| finding.rule == *rule);
        checks.push(Check::of(
            format!("rule {rule} is found broken"),
            if seen { Ok(()) } else { Err("it was kept".into()) },
        ));
    }
    checks.push(Check::of("no rule is broken", unexpected(expect, findings)));
    checks.push(Check::of("every frame is accounted for", ledger));
    checks
}

fn unexpected(expect: &Expect, findings: &[Finding]) -> Result<(), String> {
    let unexpected: Vec<&Finding> = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .filter(|finding| !expect.findings.iter().any(|rule| *rule.get_ref() == finding.rule))
        .collect();
    let Some(first) = unexpected.first() else { return Ok(()) };
    Err(format!(
        "{} finding{}, first: [{}] {} {} at {}: {}",
        unexpected.len(),
        if unexpected.len() == 1 { "" } else { "s" },
        first.rule,
        first.device,
        first.queue,
        first.time,
        first.message
    ))
}

fn check_counter(expectation: &CounterExpectation, counters: &[(String, u64)]) -> Check {
    let name = format!("{} {}", expectation.name, describe_counter(expectation));
    let matching: Vec<u64> = counters
        .iter()
        .filter(|(name, _)| matches(&expectation.name, name))
        .map(|(_, value)| *value)
        .collect();
    if matching.is_empty() {
        let known: Vec<&str> = counters.iter().map(|(name, _)| name.as_str()).collect();
        return Check::fail(name, format!("there is no such counter; there are {}", known.join(", ")));
    }
    let value: u64 = matching.iter().sum();
    let holds = expectation.equals.is_none_or(|wanted| value == wanted)
        && expectation.at_least.is_none_or(|bound| value >= bound)
        && expectation.at_most.is_none_or(|bound| value <= bound);
    Check::of(name, if holds { Ok(()) } else { Err(format!("it is {value}")) })
}

/// Whether `name` is what `pattern` asks for; `*` in it stands for digits.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == name };
    name.strip_prefix(before)
        .and_then(|rest| rest.strip_suffix(after))
        .is_some_and(|middle| !middle.is_empty() && middle.bytes().all(|byte| byte.is_ascii_digit()))
}

fn describe_json(expectation: &JsonExpectation) -> String {
    describe(expectation.equals.as_ref(), expectation.at_least, expectation.at_most)
}

fn describe_counter(expectation: &CounterExpectation) -> String {
    describe(expectation.equals, expectation.at_least, expectation.at_most)
}

fn describe<E: std::fmt::Display, B: std::fmt::Display>(
    equals: Option<E>,
    at_least: Option<B>,
    at_most: Option<B>,
) -> String {
    let mut parts = Vec::new();
    parts.extend(equals.map(|value| format!("is {value}")));
    parts.extend(at_least.map(|value| format!("is at least {value}")));
    parts.extend(at_most.map(|value| format!("is at most {value}")));
    parts.join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicvisor_core::{Rule, Time};

    const RULE: Rule = Rule { id: "a-rule", title: "", meaning: "", source: "", severity: Severity::Error };

    fn bound(at_least: u64) -> CounterExpectation {
        CounterExpectation { name: "gve*.tx".into(), equals: None, at_least: Some(at_least), at_most: None }
    }

    #[test]
    fn a_star_sums_over_devices() {
        let counters =
            [("gve0.tx".to_string(), 3), ("gve12.tx".to_string(), 4), ("gve0.tx_bytes".to_string(), 100)];
        assert!(check_counter(&bound(7), &counters).failure.is_none());
        assert_eq!(check_counter(&bound(8), &counters).failure.unwrap(), "it is 7");
        assert!(check_counter(&bound(1), &[]).failure.unwrap().contains("no such counter"));
    }

    #[test]
    fn json_values_are_compared_exactly() {
        let expectation = |text: &str| toml::from_str::<JsonExpectation>(text).unwrap();
        let output = br#"[{"tso_max_size": 262143}]"#;
        let exact = expectation("at = '/0/tso_max_size'\nequals = 262143");
        assert!(check_json(&exact, output).failure.is_none());
        let wrong = expectation("at = '/0/tso_max_size'\nequals = 65536");
        assert_eq!(check_json(&wrong, output).failure.unwrap(), "it is 262143");
        let bound = expectation("at = '/0/tso_max_size'\nat_most = 65536");
        assert_eq!(check_json(&bound, output).failure.unwrap(), "it is 262143");
        assert!(check_json(&exact, b"[]").failure.is_some());
        assert!(check_json(&exact, b"Cannot find device").failure.is_some());
    }

    #[test]
    fn expected_findings_must_come_and_others_must_not() {
        let finding = Finding::new(&RULE, Time::ZERO, "seen");
        let expecting: Expect = toml::from_str("findings = ['a-rule']").unwrap();
        let failed = |expect: &Expect, findings: &[Finding]| {
            check_end(expect, &[], findings, Ok(())).iter().filter(|check| check.failure.is_some()).count()
        };
        assert_eq!(failed(&expecting, std::slice::from_ref(&finding)), 0);
        assert_eq!(failed(&expecting, &[]), 1);
        assert_eq!(failed(&Expect::default(), &[finding]), 1);
    }
}
