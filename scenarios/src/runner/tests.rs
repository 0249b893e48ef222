use std::path::Path;

use super::paper::{Act, Paper, Program};
use super::*;
use crate::load::parse;

fn carry_out_on(mut lab: Paper, text: &str) -> (Outcome, Paper) {
    let text = format!("description = 'x'\n{text}");
    let scenario = match parse(Path::new("s.toml"), &text, &[]) {
        Ok(mut scenarios) => scenarios.remove(0),
        Err(crate::LoadError::Mistake(mistake)) => panic!("{}", mistake.one_line()),
        Err(other) => panic!("{other}"),
    };
    let outcome = run(&scenario, &mut lab, &mut |_| {});
    (outcome, lab)
}

fn carry_out_with(programs: &[(&'static str, Program)], text: &str) -> (Outcome, Paper) {
    carry_out_on(Paper { programs: programs.to_vec(), ..Paper::default() }, text)
}

fn failures(outcome: &Outcome) -> Vec<String> {
    outcome.failures().map(|check| format!("{}: {}", check.name, check.failure.as_deref().unwrap())).collect()
}

const STREAM: &str = "
[[nic]]
kind = 'gve'
[[nic]]
kind = 'gve'
[namespace.a]
interface = 'eth0'
addresses = ['fd00::1/64']
gso_max_size = 185000
[namespace.b]
interface = 'eth1'
[[step]]
stream = { from = 'a', to = 'b', address = 'fd00::2', bytes = '1K' }
measure = { seconds = 'seconds' }
";

#[test]
fn a_stream_passes_when_both_ends_agree() {
    const REPORT: Program =
        &[(5, Act::Says(r#"{"bytes": 1024, "hash": "abc", "seconds": 2.5}"#)), (6, Act::Exits(0))];
    let (outcome, lab) = carry_out_with(&[("nicvisor-stream", REPORT)], STREAM);
    assert_eq!(outcome.verdict, Verdict::Pass, "{:?}", failures(&outcome));
    assert!(lab.asked[0].contains("ip -n a link set eth0 gso_max_size 185000"));
    assert!(lab.asked[2].starts_with("0 b nicvisor-stream receive --port 5001 --bytes 1024"));
    assert!(lab.asked[3].starts_with("0 a nicvisor-stream send fd00::2 --write 1048576"));
    assert_eq!(outcome.values("seconds"), Some(vec![2.5]));
}

#[test]
fn a_stream_fails_when_the_hash_or_the_length_differs() {
    const RIGHT: Program =
        &[(5, Act::Says(r#"{"bytes": 1024, "hash": "abc", "seconds": 1}"#)), (6, Act::Exits(0))];
    const HASH: Program =
        &[(5, Act::Says(r#"{"bytes": 1024, "hash": "abd", "seconds": 1}"#)), (6, Act::Exits(0))];
    const LENGTH: Program =
        &[(5, Act::Says(r#"{"bytes": 1023, "hash": "abc", "seconds": 1}"#)), (6, Act::Exits(0))];
    for wrong in [HASH, LENGTH] {
        let (outcome, _) = carry_out_with(&[("receive", wrong), ("send", RIGHT)], STREAM);
        assert_eq!(outcome.verdict, Verdict::Fail);
        assert!(failures(&outcome)[0].contains("payload arrives unchanged"), "{:?}", failures(&outcome));
    }
}

#[test]
fn a_guest_that_dies_breaks_the_scenario_and_keeps_the_checks() {
    const CRASH: Program = &[(5, Act::Panics("Kernel panic - not syncing: crash"))];
    let text = "[[step]]\nrun = 'true'\n[[step]]\nrun = 'crash'\n";
    let (outcome, _) = carry_out_with(&[("crash", CRASH)], text);
    assert_eq!(outcome.verdict, Verdict::Broken);
    assert_eq!(outcome.checks[0].failure, None);
    assert_eq!(
        failures(&outcome),
        ["the guest carries the scenario out: Kernel panic - not syncing: crash\nCPU 0: somewhere"]
    );
    assert_eq!(outcome.guests[0].ending, Some(EndingKind::Panic));
    let (expected, _) = carry_out_with(&[("crash", CRASH)], &format!("{text}[expect]\nending = 'panic'\n"));
    assert_eq!(expected.verdict, Verdict::Pass, "{:?}", failures(&expected));
}

#[test]
fn status_and_output_are_checked() {
    const THREE: Program = &[(5, Act::Says("yes\n")), (6, Act::Exits(3))];
    let judged = |step: &str| {
        let (outcome, _) = carry_out_with(&[("a", THREE)], &format!("[[step]]\nrun = 'a'\n{step}\n"));
        failures(&outcome)
    };
    assert_eq!(judged("status = 3\noutput_contains = ['yes']\noutput_lacks = ['no']"), [""; 0]);
    assert_eq!(judged("status = [0, 3]"), [""; 0]);
    assert_eq!(judged(""), ["a: exit status 3: yes"]);
    assert_eq!(judged("status = 3\noutput_contains = ['no']"), ["a: output contains \"no\": yes"]);
    assert_eq!(judged("status = 3\noutput_lacks = ['yes']"), ["a: output lacks \"yes\": yes"]);
}

#[test]
fn parallel_steps_overlap_and_sequences_do_not() {
    const LONG: Program = &[(1000, Act::Exits(0))];
    let text = "
[[step]]
parallel = [{ run = 'long 1' }, { sequence = [{ run = 'long 2' }, { run = 'long 3' }] }]
[[step]]
run = 'long 4'
";
    let (outcome, lab) = carry_out_with(&[("long", LONG)], text);
    assert_eq!(outcome.verdict, Verdict::Pass);
    let order: Vec<_> = lab.asked.iter().map(|line| line.chars().last().unwrap()).collect();
    assert_eq!(order, ['1', '2', '3', '4']);
    assert_eq!(lab.now(), Time::from_nanos(3_000_000));
}

#[test]
fn background_commands_are_waited_for_and_stopped() {
    const SERVER: Program = &[(10, Act::Says("listening\n")), (1_000_000, Act::Exits(9))];
    const CLIENT: Program = &[(10, Act::Says("{\"rate\": 5}")), (500, Act::Exits(0))];
    let text = "
[[step]]
run = 'server'
background = 'server'
[[step]]
wait = { output = 'listening', job = 'server' }
[[step]]
run = 'client'
background = 'client'
measure = { rate = 'rate' }
[[step]]
wait = { job = 'client' }
[[step]]
stop = { job = 'server', signal = 'INT' }
[[step]]
wait = { job = 'server' }
[expect]
relations = ['rate == 5']
";
    let (outcome, lab) = carry_out_with(&[("server", SERVER), ("client", CLIENT)], text);
    assert_eq!(outcome.verdict, Verdict::Pass, "{:?}", failures(&outcome));
    assert!(lab.asked.contains(&"signal 1 2".to_owned()));
    // What nobody waits for is ended with the scenario.
    let text = "[[step]]\nrun = 'server'\nbackground = 'server'\n";
    let (outcome, lab) = carry_out_with(&[("server", SERVER)], text);
    assert_eq!(outcome.verdict, Verdict::Pass);
    assert_eq!(lab.asked.last().unwrap(), "signal 1 9");
}

#[test]
fn waits_end_when_it_has_happened() {
    const GUEST: Program = &[
        (100, Act::Counts("gve0.tx_packets", 7)),
        (200, Act::Device("ready")),
        (300, Act::Sends(20)),
        (400, Act::Logs("gve: link is up\n")),
    ];
    let at = |wait: &str| {
        let text = format!("[[step]]\nrun = 'guest'\nbackground = 'guest'\n[[step]]\nwait = {wait}\n");
        let (outcome, lab) = carry_out_with(&[("guest", GUEST)], &text);
        assert_eq!(outcome.verdict, Verdict::Pass, "{:?}", failures(&outcome));
        lab.now().as_nanos() / 1000
    };
    assert_eq!(at("{ counter = { name = 'gve*.tx_packets', at_least = 7 } }"), 100);
    assert_eq!(at("{ event = { kind = 'state', name = 'ready', device = 'gve0' } }"), 200);
    assert_eq!(at("{ frames = { from = 'gve0', count = 20 } }"), 300);
    assert!((400..10_500).contains(&at("{ log = 'link is up' }")));
    assert_eq!(at("{ time = '1.5s' }"), 1_500_000);
}

#[test]
fn a_kernels_log_is_waited_for_whatever_its_console_shows() {
    const LOG: Program = &[
        (50, Act::Says("6,1,1000000,-;gve 0000:00:02.0: link is ")),
        (60, Act::Says("up\n SUBSYSTEM=pci\n")),
    ];
    let text = "[[step]]\nwait = { log = 'link is up' }\n";
    let (outcome, lab) = carry_out_with(&[("cat /dev/kmsg", LOG)], text);
    assert_eq!(outcome.verdict, Verdict::Pass, "{:?}", failures(&outcome));
    assert_eq!(lab.now().as_nanos(), 60_000);
    assert_eq!(lab.asked, ["0 - cat /dev/kmsg", "signal 1 9"]);
    // The reader's output is no command's.
    let text = "[[step]]\nparallel = [{ wait = { log = 'down' } }, { wait = { output = 'link is up' } }]\n";
    let (outcome, _) = carry_out_with(&[("cat /dev/kmsg", LOG)], text);
    let failures = failures(&outcome);
    assert_eq!(failures.len(), 1);
    assert!(failures[0].contains("\"down\" in the kernel's log did not come about"), "{failures:?}");
    assert!(
        failures[0].contains("the log ends with\n[    1.000000] gve 0000:00:02.0: link is up"),
        "{failures:?}"
    );
}

#[test]
fn a_reader_that_lost_its_place_in_the_log_begins_again() {
    const LOST: Program = &[(5, Act::Says("6,9,1,-;one\n")), (6, Act::Exits(1))];
    let text = "[[step]]\nwait = { log = 'two' }\ntimeout = '95ms'\n";
    let (outcome, lab) = carry_out_with(&[("cat /dev/kmsg", LOST)], text);
    assert_eq!(outcome.verdict, Verdict::Broken);
    assert_eq!(lab.asked.iter().filter(|line| line.contains("kmsg")).count(), 10, "{:?}", lab.asked);
}

#[test]
fn what_was_right_until_the_user_interrupted_it_is_no_failure() {
    const STOPPED: Program = &[(5, Act::Interrupted)];
    let interrupted = |text: &str| carry_out_with(&[("stopped", STOPPED)], text).0;
    let text = "[[step]]\nrun = 'true'\n[[step]]\nrun = 'stopped'\n[expect]\nlog = [{ matches = 'never' }]\n";
    let outcome = interrupted(text);
    assert_eq!((outcome.verdict, outcome.skipped.as_deref()), (Verdict::Skip, Some("interrupted")));
    assert_eq!(outcome.checks[0].name, "true", "what was measured is kept");
    let outcome = interrupted("[[step]]\nrun = 'true'\nstatus = 1\n[[step]]\nrun = 'stopped'\n");
    assert_eq!((outcome.verdict, outcome.skipped), (Verdict::Fail, None));
}

#[test]
fn waiting_for_what_never_happens_says_what_did() {
    const GUEST: Program = &[
        (100, Act::Counts("gve0.tx_packets", 7)),
        (200, Act::Device("reset")),
        (300, Act::Says("one\ntwo\n")),
    ];
    let text = "
[[step]]
run = 'guest'
background = 'guest'
[[step]]
wait = { counter = { name = 'gve0.tx_packets', at_least = 8 } }
timeout = '5s'
[[step]]
run = 'never'
";
    let (outcome, lab) = carry_out_with(&[("guest", GUEST)], text);
    assert_eq!(outcome.verdict, Verdict::Broken);
    let expected = "wait for gve0.tx_packets to be at least 8 within 5s of guest time: \
        gve0.tx_packets to be at least 8 did not come about; it is 7\n\
        meanwhile: gve0.tx_packets +7\nthe last output is \"two\"";
    assert_eq!(failures(&outcome), [expected]);
    assert!(!lab.asked.iter().any(|line| line.contains("never")));
    assert_eq!(outcome.counters, [("gve0.tx_packets".to_owned(), 7)], "what was measured is kept");
}

#[test]
fn a_command_that_hangs_is_given_up() {
    const HANGS: Program = &[(100, Act::Says("so far\n"))];
    let (outcome, _) = carry_out_with(&[("hang", HANGS)], "[[step]]\nrun = 'hang'\ntimeout = '2s'\n");
    assert_eq!(
        failures(&outcome),
        ["hang within 2s of guest time: it has not ended; the last output is \"so far\""]
    );
}

#[test]
fn repeated_steps_give_series_and_tables() {
    const RR: Program =
        &[(10, Act::Counts("gve0.tx_packets", 3)), (20, Act::Says("{\"rate\": 100}")), (30, Act::Exits(0))];
    let text = "
[[step]]
run = 'rr'
repeat = 10
measure = { rate = 'rate', packets = { counter = 'gve0.tx_packets', during = true } }
[[step]]
measure = { all = { counter = 'gve0.tx_packets' } }
[expect]
relations = ['count(rate) == 10', 'max(packets) == 3', 'all == 30']
[[table]]
title = 'rates'
columns = ['size', 'rate', 'twice', 'none']
rows = [['64K', 'rate', '2 * rate', 'rate / 0']]
";
    let (outcome, _) = carry_out_with(&[("rr", RR)], text);
    assert_eq!(outcome.verdict, Verdict::Pass, "{:?}", failures(&outcome));
    assert_eq!(outcome.tables[0].rows, [("64K".to_owned(), vec![Some(100.0), Some(200.0), None])]);
}

#[test]
fn what_cannot_be_measured_fails() {
    let (outcome, _) =
        carry_out_with(&[], "[[step]]\nrun = 'a'\nmeasure = { x = 'x' }\n[expect]\nrelations = ['x > 1']\n");
    let failures = failures(&outcome);
    assert!(failures[0].starts_with("a: x is measured: the output is not JSON"), "{failures:?}");
    assert_eq!(failures[1], "x > 1: x was not measured");
}

#[test]
fn faults_reach_their_device_and_missing_events_are_told() {
    const GUEST: Program = &[(100, Act::Device("reset")), (200, Act::Device("reset"))];
    let text = "
[[step]]
fault = { device = 'gve0', event = { name = 'reset-request' } }
[[step]]
run = 'guest'
background = 'guest'
[[step]]
wait = { event = { device = 'gve0', kind = 'state', name = 'ready' } }
timeout = '1s'
";
    let (outcome, lab) = carry_out_with(&[("guest", GUEST)], text);
    assert!(lab.asked[0].starts_with("inject gve0 {\"event\":{"), "{}", lab.asked[0]);
    assert!(lab.watched.contains(nicvisor_core::EventKind::State));
    let failures = failures(&outcome);
    assert!(failures[0].contains("it came 0 times; of its kind came reset (2)"), "{failures:?}");
}

#[test]
fn links_and_captures_are_changed_in_order() {
    let text = "
[[step]]
capture = 'start'
[[step]]
link = { name = 'lan', up = false, set = { loss = '1%' } }
[[step]]
link = { port = 'gve0', up = true }
[[step]]
capture = 'stop'
";
    let (outcome, lab) = carry_out_with(&[], text);
    assert_eq!(outcome.verdict, Verdict::Pass);
    assert_eq!(
        lab.asked,
        [
            "capture true",
            "link lan loss Some(Share(10000))",
            "link lan false",
            "port gve0 true",
            "capture false"
        ]
    );
}

#[test]
fn devices_go_and_come() {
    let text = "
[[step]]
unplug = { device = 'gve0' }
[[step]]
plug = { device = 'gve0', slot = '00:09.0' }
[[step]]
plug = { device = 'gve0' }
";
    let (outcome, lab) = carry_out_with(&[], text);
    assert_eq!(outcome.verdict, Verdict::Pass, "{:?}", failures(&outcome));
    let into = "plug gve0 Some(Slot { device: 9, function: 0 })";
    assert_eq!(lab.asked, ["unplug gve0", into, "plug gve0 None"]);
    assert!(outcome.timeline.iter().any(|moment| moment.text == "unplugged" && moment.subject == "gve0"));
    let (outcome, _) = carry_out_with(&[], "[[step]]\nplug = { device = 'gve0', slot = '00:00.0' }\n");
    assert_eq!(failures(&outcome), ["plug gve0 into 00:00.0: that slot is taken"]);
}

#[test]
fn the_log_at_the_end_is_more_than_the_console() {
    const LOGS: Program = &[(1, Act::Logs("mce: error\n")), (2, Act::Exits(0))];
    let lab = || Paper { notes: "gve: note\n", programs: vec![("guest", LOGS)], ..Paper::default() };
    let text = "[[step]]\nrun = 'guest'\n[expect]\nlog = [{ matches = 'note', lacks = 'error' }]\n";
    let (outcome, _) = carry_out_on(lab(), text);
    assert_eq!(outcome.guests[0].log, "gve: note\nmce: error\n");
    assert_eq!(failures(&outcome).len(), 1, "{:?}", failures(&outcome));
    const PANICS: Program = &[(1, Act::Logs("panic\n")), (2, Act::Panics("it does"))];
    let dead = Paper { programs: vec![("guest", PANICS)], ..lab() };
    let (outcome, _) = carry_out_on(dead, "[[step]]\nrun = 'guest'\n");
    assert_eq!(outcome.guests[0].log, "panic\n", "who is dead cannot be asked");
}

#[test]
fn who_is_interrupted_before_the_first_step_is_skipped() {
    let scenario =
        parse(Path::new("s.toml"), "description = 'x'\n[[step]]\nrun = 'a'\n", &[]).unwrap().remove(0);
    let kind = EndingKind::Interrupted;
    let error = LabError { kind, guest: 0, message: "interrupted".into(), evidence: String::new() };
    let outcome = not_begun(&scenario, &error);
    assert_eq!((outcome.verdict, outcome.skipped.as_deref()), (Verdict::Skip, Some("interrupted")));
}

#[test]
fn trouble_and_the_ledger_fail_a_scenario() {
    const WARNS: Program = &[(10, Act::Trouble("WARNING: CPU: 0")), (20, Act::Exits(0))];
    let (outcome, _) = carry_out_with(&[("a", WARNS)], "[[step]]\nrun = 'a'\n");
    assert_eq!(failures(&outcome), ["the guest's kernel reports no trouble: WARNING: CPU: 0"]);
    let ledger = crate::lab::LedgerSnapshot {
        entered: 3,
        delivered: 2,
        lost: vec![(7, "gve1".into())],
        ..Default::default()
    };
    let (outcome, _) = carry_out_on(Paper { ledger, ..Paper::default() }, "[[step]]\nrun = 'a'\n");
    assert_eq!(outcome.verdict, Verdict::Fail);
    assert!(failures(&outcome)[0].contains("frame 7 in gve1"), "{:?}", failures(&outcome));
}

#[test]
fn progress_tells_of_each_step() {
    let text = "description = 'x'\n[[step]]\nrun = 'a'\n[[step]]\nrun = 'b'\noutput_contains = ['c']\n";
    let scenario = parse(Path::new("s.toml"), text, &[]).unwrap().remove(0);
    let mut seen = Vec::new();
    let outcome = run(&scenario, &mut Paper::default(), &mut |progress| {
        seen.push(match progress {
            Progress::Begins { step } => format!("{step} begins"),
            Progress::Ended { step, failures, .. } => format!("{step}: {}", failures.len()),
        });
    });
    assert_eq!(seen, ["a begins", "a: 0", "b begins", "b: 1"]);
    let subjects: Vec<_> = outcome.timeline.iter().map(|moment| moment.subject.as_str()).collect();
    assert_eq!(subjects, ["a", "a", "b", "b"]);
}
