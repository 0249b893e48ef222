//! Boots a stock Debian kernel through the program, as a user does.
//!
//! The kernel is fetched on the first run and kept in the user's cache.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

fn nicvisor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nicvisor")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Fails with everything that the program said unless it ended with `status`.
#[track_caller]
fn expect_status(output: &Output, status: i32) {
    assert_eq!(
        output.status.code(),
        Some(status),
        "\n--- stdout\n{}\n--- stderr\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

#[test]
fn the_output_streams_and_the_status_are_the_commands_own() {
    let script = "ip -d link; echo to stderr >&2; exit 7";
    let output = nicvisor(&["run", "--nic", "gve", "--nic", "gve,mtu=1500", "--", "sh", "-c", script]);
    expect_status(&output, 7);
    let stdout = text(&output.stdout);
    assert!(stdout.contains("eth0") && stdout.contains("eth1"), "{stdout}");
    assert!(stdout.contains("tso_max_size 262143"), "{stdout}");
    assert!(!stdout.contains("to stderr"), "{stdout}");
    assert_eq!(text(&output.stderr), "to stderr\n");
}

/// The stock driver binds without a complaint, brings its ports up and down, and leaves nothing behind: any finding
/// would fail the run.
#[test]
fn mana_ports_come_go_and_carry_traffic() {
    let script = "set -e
        ip netns add other; ip link set eth1 netns other
        ip address add 192.0.2.1/24 dev eth0; ip -n other address add 192.0.2.2/24 dev eth1
        for round in 1 2; do
            ip link set eth0 up; ip -n other link set eth1 up
            ping -c 2 192.0.2.2; ip link set eth0 down; ip -n other link set eth1 down
        done
        ethtool -L eth0 combined 1; ethtool -G eth0 rx 1024 tx 512; ip link set eth0 mtu 9000
        ip -n other link set eth1 netns 1
        rmmod mana; modprobe mana; ip -d link";
    let output = nicvisor(&["run", "--nic", "mana,ports=2", "--", "sh", "-c", script]);
    expect_status(&output, 0);
    let stdout = text(&output.stdout);
    assert!(stdout.contains("0% packet loss") && stdout.contains("maxmtu 9000"), "{stdout}");
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_failing_command_and_a_missing_one_have_their_status() {
    expect_status(&nicvisor(&["run", "--", "false"]), 1);
    let output = nicvisor(&["run", "--", "no-such-program"]);
    expect_status(&output, 127);
    assert!(text(&output.stderr).contains("no-such-program"));
}

#[test]
fn a_guest_that_panics_ends_the_run_with_its_backtrace() {
    let output = nicvisor(&["run", "--", "sh", "-c", "echo c > /proc/sysrq-trigger"]);
    expect_status(&output, 255);
    let stderr = text(&output.stderr);
    assert!(stderr.contains("Kernel panic - not syncing: sysrq triggered crash"), "{stderr}");
    assert!(stderr.contains("CPU 0:") && stderr.contains("CPU 1:"), "{stderr}");
    assert!(stderr.contains("panic+0x"), "{stderr}");
}

#[test]
fn a_guest_that_goes_down_while_it_boots_leaves_its_report() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("report.json");
    let report = path.to_str().unwrap();
    let output = nicvisor(&["run", "--append", "rdinit=/nothing", "--report", report, "--", "true"]);
    expect_status(&output, 255);
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!((&report["exit_status"], &report["boot_host_seconds"]), (&255.into(), &0.0.into()));
    assert!(report["ending"].as_str().unwrap().contains("Kernel panic"), "{report}");
    assert!(report["instructions"].as_u64().unwrap() > 1_000_000, "{report}");
}

#[test]
fn a_run_that_takes_too_long_ends_with_where_the_guest_was() {
    let output = nicvisor(&["run", "--timeout", "60s", "--", "sh", "-c", "while :; do :; done"]);
    expect_status(&output, 124);
    assert!(text(&output.stderr).contains("CPU 0:"));
}

#[test]
fn the_same_seed_gives_the_same_frames_to_the_last_bit() {
    let directory = TempDir::new().unwrap();
    let script = "ip link set eth0 up; ip link set eth1 up; ip address add 192.0.2.1/24 dev eth0;
        ip netns add other; ip link set eth1 netns other; ip -n other address add 192.0.2.2/24 dev eth1;
        ip -n other link set eth1 up; ping -c 3 -i 0.2 192.0.2.2";
    let capture = |name: &str| {
        let path = directory.path().join(name);
        let output = nicvisor(&[
            "run",
            "--seed",
            "5",
            "--nic",
            "gve",
            "--nic",
            "gve",
            "--capture",
            path.to_str().unwrap(),
            "--",
            "sh",
            "-c",
            script,
        ]);
        expect_status(&output, 0);
        std::fs::read(path).unwrap()
    };
    let first = capture("first.pcapng");
    assert!(first.len() > 1000, "{} bytes of capture", first.len());
    assert!(first == capture("second.pcapng"), "the captures differ");
}

#[test]
fn the_shipped_scenarios_pass() {
    let directory = TempDir::new().unwrap();
    let report = directory.path().to_str().unwrap();
    let output = nicvisor(&["test", "--report", report]);
    expect_status(&output, 0);
    let stdout = text(&output.stdout);
    assert!(stdout.lines().last().unwrap().contains("passed, 0 failed"), "{stdout}");
    let results: serde_json::Value =
        serde_json::from_slice(&std::fs::read(directory.path().join("results.json")).unwrap()).unwrap();
    // Those that need an old kernel may be skipped, no others.
    for result in results.as_array().unwrap() {
        let (name, verdict) = (result["scenario"].as_str().unwrap(), &result["verdict"]);
        assert!(verdict == "pass" || verdict == "skip" && name.starts_with("cases-"), "{name}: {verdict}");
    }
}

/// A device that does something wrong must fail the scenario, by the name of what was broken.
#[test]
fn a_scenario_fails_when_the_device_is_told_to_break_something() {
    for (defect, evidence) in [
        ("bad-tcp-checksum", "net-wire-checksum"),
        ("no-segmentation", "net-wire-mtu"),
        ("bad-payload", "stream"),
    ] {
        let directory = TempDir::new().unwrap();
        let path = broken_copy(directory.path(), defect);
        let output = nicvisor(&["test", path.to_str().unwrap()]);
        expect_status(&output, 1);
        let stdout = text(&output.stdout);
        assert!(stdout.contains(evidence), "{defect}: {stdout}");
        assert!(stdout.ends_with("0 passed, 1 failed\n"), "{defect}: {stdout}");
    }
}

/// The shipped scenario, short, on a device with a defect.
fn broken_copy(directory: &Path, defect: &str) -> PathBuf {
    let copy = |name: &str, changes: &[(&str, &str)]| {
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios").join(name);
        let mut text = std::fs::read_to_string(shipped).unwrap();
        for (from, to) in changes {
            assert!(text.contains(from), "{name} has no {from}");
            text = text.replacen(from, to, 1);
        }
        std::fs::write(directory.join(name), text).unwrap();
    };
    let nic = format!("[[nic]]\ndefect = \"{defect}\"");
    // A stream that cannot arrive must not be waited for to the end of TCP's patience.
    copy("_two-gve.toml", &[("[[nic]]", &nic), ("timeout = \"15m\"", "timeout = \"100s\"")]);
    let short = ("bytes = \"32M\"", "bytes = \"1M\"");
    copy("gve-big-tcp.toml", &[short, short, ("mtu = [1500, 9000]", "mtu = [1500]")]);
    directory.join("gve-big-tcp.toml")
}
