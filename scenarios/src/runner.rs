//! Carrying a scenario out.

use serde_json::Value;
use thiserror::Error;

use nicvisor_core::Finding;

use crate::expectation::{check_end, check_json};
use crate::load::parse_size;
use crate::model::{Namespace, Scenario, Step, Stream};
use crate::outcome::{Check, Verdict};

/// A booted guest and its devices, as scenarios reach them.
pub trait Lab {
    /// Runs `commands` in the guest, all at the same time, and waits for all of them.
    ///
    /// # Errors
    /// When the guest or the time allowed ends before they do.
    fn run(&mut self, commands: &[GuestCommand]) -> Result<Vec<CommandResult>, LabError>;

    /// Device and link counters, in a stable order.
    fn counters(&mut self) -> Vec<(String, u64)>;

    /// Rules found broken so far.
    fn findings(&mut self) -> Vec<Finding>;

    /// Warnings, oopses and the like that the guest's kernel has reported.
    fn trouble(&mut self) -> Vec<String>;

    /// Whether every frame was delivered or dropped for a reason, once nothing is under way any more.
    ///
    /// # Errors
    /// Says which frames are missing.
    fn ledger(&mut self) -> Result<(), String>;
}

/// A command for the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestCommand {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The network namespace to run it in; the first one if `None`.
    pub namespace: Option<String>,
}

impl GuestCommand {
    fn shell(script: &str, namespace: Option<&str>) -> GuestCommand {
        let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
        GuestCommand { argv, namespace: namespace.map(str::to_owned) }
    }
}

/// How a command in the guest ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandResult {
    /// Exit status; 128 + n for signal n.
    pub status: i32,
    /// All of its standard output.
    pub stdout: Vec<u8>,
    /// All of its standard error.
    pub stderr: Vec<u8>,
}

/// The guest could not do what it was asked to.
#[derive(Clone, Debug, Error)]
#[error("{0}")]
pub struct LabError(pub String);

/// Carries `scenario` out on `lab`. `progress` is told the name of each step before it is done.
pub fn run(scenario: &Scenario, lab: &mut dyn Lab, progress: &mut dyn FnMut(&str)) -> (Verdict, Vec<Check>) {
    let mut checks = Vec::new();
    if let Err(error) = carry_out(scenario, lab, progress, &mut checks) {
        checks.push(Check::fail("the guest carries the scenario out", error.to_string()));
        return (Verdict::Broken, checks);
    }
    let trouble = lab.trouble();
    let calm = if trouble.is_empty() { Ok(()) } else { Err(trouble.join("\n")) };
    checks.push(Check::of("the guest's kernel reports no trouble", calm));
    // Settling the ledger resets the devices: their counters come first.
    let counters = lab.counters();
    let ledger = lab.ledger();
    checks.extend(check_end(&scenario.expect, &counters, &lab.findings(), ledger));
    let failed = checks.iter().any(|check| check.failure.is_some());
    (if failed { Verdict::Fail } else { Verdict::Pass }, checks)
}

fn carry_out(
    scenario: &Scenario,
    lab: &mut dyn Lab,
    progress: &mut dyn FnMut(&str),
    checks: &mut Vec<Check>,
) -> Result<(), LabError> {
    for (name, namespace) in &scenario.namespaces {
        let title = format!("set up namespace {name}");
        progress(&title);
        let results = lab.run(&[GuestCommand::shell(&set_up(name, namespace), None)])?;
        let check = Check::of(title, status_is(0, &results[0]));
        let failed = check.failure.is_some();
        checks.push(check);
        if failed {
            return Err(LabError(format!("the namespace {name} could not be set up")));
        }
    }
    for step in &scenario.steps {
        let step = step.get_ref();
        progress(&title(step));
        let (commands, judges) = plan(step);
        let results = lab.run(&commands)?;
        let mut results = results.as_slice();
        for judge in judges {
            let (own, rest) = results.split_at(judge.commands.min(results.len()));
            results = rest;
            checks.extend((judge.judge)(own));
        }
    }
    Ok(())
}

/// What decides on the results of some of a step's commands.
struct Judge<'a> {
    /// How many of the results are its own.
    commands: usize,
    judge: JudgeFn<'a>,
}

type JudgeFn<'a> = Box<dyn Fn(&[CommandResult]) -> Vec<Check> + 'a>;

fn plan(step: &Step) -> (Vec<GuestCommand>, Vec<Judge<'_>>) {
    if let Some(script) = &step.run {
        let commands = vec![GuestCommand::shell(script, step.namespace.as_deref())];
        return (
            commands,
            vec![Judge { commands: 1, judge: Box::new(|results| judge_run(step, &results[0])) }],
        );
    }
    if let Some(stream) = &step.stream {
        let judge = Box::new(|results: &[CommandResult]| judge_stream(&title(step), stream, results));
        return (stream_commands(stream), vec![Judge { commands: 2, judge }]);
    }
    let mut all = (Vec::new(), Vec::new());
    for part in &step.parallel {
        let (commands, judges) = plan(part);
        all.0.extend(commands);
        all.1.extend(judges);
    }
    all
}

fn judge_run(step: &Step, result: &CommandResult) -> Vec<Check> {
    let title = title(step);
    let mut checks = vec![Check::of(title.clone(), status_is(step.status, result))];
    let output = String::from_utf8_lossy(&result.stdout);
    for text in &step.output_contains {
        let found = if output.contains(text.as_str()) { Ok(()) } else { Err(excerpt(&output)) };
        checks.push(Check::of(format!("{title}: output contains {text:?}"), found));
    }
    for expectation in &step.json {
        let mut check = check_json(expectation, &result.stdout);
        check.name = format!("{title}: {}", check.name);
        checks.push(check);
    }
    checks
}

fn judge_stream(title: &str, stream: &Stream, results: &[CommandResult]) -> Vec<Check> {
    let [received, sent] = results else { return Vec::new() };
    let mut checks = vec![
        Check::of(format!("{title}: sender"), status_is(0, sent)),
        Check::of(format!("{title}: receiver"), status_is(0, received)),
    ];
    let hash = |result: &CommandResult| {
        serde_json::from_slice::<Value>(&result.stdout)
            .ok()
            .and_then(|report| {
                Some((report.get("bytes")?.as_u64()?, report.get("hash")?.as_str()?.to_owned()))
            })
            .ok_or_else(|| format!("no report: {}", excerpt(&String::from_utf8_lossy(&result.stdout))))
    };
    let arrived = hash(received).and_then(|received| {
        let sent = hash(sent)?;
        let wanted = parse_size(&stream.bytes).unwrap_or(0);
        if received == sent && received.0 == wanted {
            Ok(())
        } else {
            Err(format!(
                "sent {} bytes with hash {}, received {} with {}",
                sent.0, sent.1, received.0, received.1
            ))
        }
    });
    checks.push(Check::of(format!("{title}: payload arrives unchanged"), arrived));
    checks
}

/// Receiver first, so that the results stand in this order.
fn stream_commands(stream: &Stream) -> Vec<GuestCommand> {
    let size = |text: &str| parse_size(text).unwrap_or(0).to_string();
    let common = ["--port", &stream.port.to_string(), "--bytes", &size(&stream.bytes)].map(str::to_owned);
    let common = [&common[..], &["--seed".to_owned(), stream.seed.to_string()]].concat();
    let command = |words: &[&str], namespace: &String| GuestCommand {
        argv: words.iter().map(|word| (*word).to_owned()).chain(common.clone()).collect(),
        namespace: Some(namespace.clone()),
    };
    vec![
        command(&["nicvisor-stream", "receive"], &stream.to),
        command(&["nicvisor-stream", "send", &stream.address, "--write", &size(&stream.write)], &stream.from),
    ]
}

/// The commands that make a namespace with its interface.
fn set_up(name: &str, namespace: &Namespace) -> String {
    let interface = &namespace.interface;
    let mut script = format!("set -e\nip netns add {name}\nip link set {interface} netns {name}\n");
    let mut inside = |line: String| script.push_str(&format!("ip -n {name} {line}\n"));
    inside("link set lo up".into());
    for (option, value) in [
        ("mtu", namespace.mtu),
        ("gso_max_size", namespace.gso_max_size),
        ("gso_ipv4_max_size", namespace.gso_ipv4_max_size),
        ("gro_max_size", namespace.gro_max_size),
        ("gro_ipv4_max_size", namespace.gro_ipv4_max_size),
    ] {
        if let Some(value) = value {
            inside(format!("link set {interface} {option} {value}"));
        }
    }
    for address in &namespace.addresses {
        // Duplicate address detection would keep an IPv6 address unusable for its first second.
        let nodad = if address.contains(':') { " nodad" } else { "" };
        inside(format!("address add {address} dev {interface}{nodad}"));
    }
    inside(format!("link set {interface} up"));
    script
}

fn title(step: &Step) -> String {
    if let Some(name) = &step.name {
        return name.clone();
    }
    if let Some(script) = &step.run {
        return script.trim().lines().next().unwrap_or_default().to_owned();
    }
    if let Some(stream) = &step.stream {
        return format!("stream of {} from {} to {}", stream.bytes, stream.from, stream.to);
    }
    step.parallel.iter().map(title).collect::<Vec<_>>().join(" | ")
}

fn status_is(wanted: i32, result: &CommandResult) -> Result<(), String> {
    if result.status == wanted {
        return Ok(());
    }
    let text = [&result.stderr[..], &result.stdout[..]].concat();
    Err(format!("exit status {}: {}", result.status, excerpt(&String::from_utf8_lossy(&text))))
}

fn excerpt(text: &str) -> String {
    const LIMIT: usize = 400;
    let text = text.trim();
    match text.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None if text.is_empty() => "(no output)".into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::load::parse;

    /// A guest that answers from a list.
    struct Paper {
        answers: Vec<Result<Vec<CommandResult>, LabError>>,
        asked: Vec<GuestCommand>,
        trouble: Vec<String>,
        ledger: Result<(), String>,
    }

    impl Lab for Paper {
        fn run(&mut self, commands: &[GuestCommand]) -> Result<Vec<CommandResult>, LabError> {
            self.asked.extend_from_slice(commands);
            self.answers.remove(0)
        }
        fn counters(&mut self) -> Vec<(String, u64)> {
            Vec::new()
        }
        fn findings(&mut self) -> Vec<Finding> {
            Vec::new()
        }
        fn trouble(&mut self) -> Vec<String> {
            self.trouble.clone()
        }
        fn ledger(&mut self) -> Result<(), String> {
            self.ledger.clone()
        }
    }

    fn says(stdout: &str) -> CommandResult {
        CommandResult { stdout: stdout.into(), ..CommandResult::default() }
    }

    fn run_with(
        text: &str,
        answers: Vec<Result<Vec<CommandResult>, LabError>>,
    ) -> (Verdict, Vec<Check>, Paper) {
        let scenario = parse(Path::new("s.toml"), text).unwrap();
        let mut lab = Paper { answers, asked: Vec::new(), trouble: Vec::new(), ledger: Ok(()) };
        let (verdict, checks) = run(&scenario, &mut lab, &mut |_| {});
        (verdict, checks, lab)
    }

    const STREAM: &str = "
description = 'a stream'
[namespace.a]
interface = 'eth0'
addresses = ['fd00::1/64']
gso_max_size = 185000
[namespace.b]
interface = 'eth1'
[[step]]
stream = { from = 'a', to = 'b', address = 'fd00::2', bytes = '1K' }
";

    #[test]
    fn a_stream_passes_when_both_ends_agree() {
        let report = r#"{"bytes": 1024, "hash": "abc"}"#;
        let answers = vec![Ok(vec![says("")]), Ok(vec![says("")]), Ok(vec![says(report), says(report)])];
        let (verdict, _, lab) = run_with(STREAM, answers);
        assert_eq!(verdict, Verdict::Pass);
        assert!(lab.asked[0].argv[2].contains("ip -n a link set eth0 gso_max_size 185000"));
        assert_eq!(lab.asked[2].argv[1], "receive");
        assert_eq!(lab.asked[3].argv[..3], ["nicvisor-stream", "send", "fd00::2"]);
    }

    #[test]
    fn a_stream_fails_when_the_hash_or_the_length_differs() {
        for wrong in [r#"{"bytes": 1024, "hash": "abd"}"#, r#"{"bytes": 1023, "hash": "abc"}"#, "oops"] {
            let right = r#"{"bytes": 1024, "hash": "abc"}"#;
            let answers = vec![Ok(vec![says("")]), Ok(vec![says("")]), Ok(vec![says(wrong), says(right)])];
            assert_eq!(run_with(STREAM, answers).0, Verdict::Fail, "{wrong}");
        }
    }

    #[test]
    fn a_guest_that_dies_breaks_the_scenario_and_keeps_the_checks() {
        let text = "description = 'x'\n[[step]]\nrun = 'true'\n[[step]]\nrun = 'crash'\n";
        let answers = vec![Ok(vec![says("")]), Err(LabError("kernel panic".into()))];
        let (verdict, checks, _) = run_with(text, answers);
        assert_eq!(verdict, Verdict::Broken);
        assert_eq!(checks.len(), 2);
        assert_eq!(checks[1].failure.as_deref(), Some("kernel panic"));
    }

    #[test]
    fn status_output_trouble_and_ledger_are_checked() {
        let text = "description = 'x'\n[[step]]\nrun = 'a'\nstatus = 3\noutput_contains = ['yes']\n";
        let result = |status, stdout: &str| CommandResult { status, ..says(stdout) };
        assert_eq!(run_with(text, vec![Ok(vec![result(3, "yes")])]).0, Verdict::Pass);
        assert_eq!(run_with(text, vec![Ok(vec![result(0, "yes")])]).0, Verdict::Fail);
        assert_eq!(run_with(text, vec![Ok(vec![result(3, "no")])]).0, Verdict::Fail);
        let scenario = parse(Path::new("s.toml"), text).unwrap();
        let lab = || Paper {
            answers: vec![Ok(vec![result(3, "yes")])],
            asked: Vec::new(),
            trouble: Vec::new(),
            ledger: Ok(()),
        };
        assert_eq!(run(&scenario, &mut lab(), &mut |_| {}).0, Verdict::Pass);
        let mut losing = Paper { ledger: Err("frame 7 is missing".into()), ..lab() };
        assert_eq!(run(&scenario, &mut losing, &mut |_| {}).0, Verdict::Fail);
        let mut warning = Paper { trouble: vec!["WARNING: CPU: 0".into()], ..lab() };
        assert_eq!(run(&scenario, &mut warning, &mut |_| {}).0, Verdict::Fail);
    }
}
