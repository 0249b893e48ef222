//! What users get wrong: a clear message and the right exit status, without booting anything.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// Runs the program, and returns its status and what it said on standard error.
fn nicvisor(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_nicvisor")).args(arguments).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[track_caller]
fn refused(arguments: &[&str], status: i32, words: &[&str]) {
    let (seen, message) = nicvisor(arguments);
    // Long lines are wrapped for the reader.
    let flat = message.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
    assert_eq!(seen, status, "{message}");
    for word in words {
        assert!(flat.contains(word), "{word:?} is not in: {message}");
    }
}

fn file(directory: &TempDir, name: &str, contents: &[u8]) -> String {
    let path = directory.path().join(name);
    std::fs::write(&path, contents).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn kernels_that_are_none() {
    let directory = TempDir::new().unwrap();
    let empty = file(&directory, "empty", b"");
    let script = file(&directory, "script", b"#!/bin/sh\necho I am not a kernel, but I am long enough\n");
    let mut arm = b"\x7fELF\x02\x01\x01".to_vec();
    arm.resize(64, 0);
    (arm[16], arm[18]) = (2, 183);
    let arm = file(&directory, "arm", &arm);
    refused(&["run", "--kernel", "/no/such/kernel", "--", "true"], 2, &["/no/such/kernel"]);
    refused(&["run", "--kernel", &empty, "--", "true"], 2, &["empty"]);
    refused(&["run", "--kernel", &script, "--", "true"], 2, &["not a kernel"]);
    refused(&["run", "--kernel", &arm, "--", "true"], 2, &["x86-64"]);
    refused(&["run", "--kernel", "debian:latest", "--", "true"], 2, &["debian:6.12"]);
    refused(&["run", "--kernel", "fedora:6.12", "--", "true"], 2, &["fedora: is not known", "debian:6.12"]);
    refused(&["run", "--kernel-tree", &empty, "--", "true"], 2, &["no such directory"]);
    let tree = directory.path().to_str().unwrap();
    refused(&["run", "--kernel-tree", tree, "--", "true"], 2, &["not a kernel build"]);
    refused(
        &["run", "--kernel-tree", tree, "--kernel", "debian:6.1", "--", "true"],
        2,
        &["cannot be used with"],
    );
}

#[test]
fn edits_that_are_none() {
    let directory = TempDir::new().unwrap();
    let broken =
        file(&directory, "broken.toml", b"description = 'x'\ndriver = 'e1000'\nkernels = ['6.12']\n");
    refused(&["run", "--edit", &broken, "--", "true"], 2, &["broken.toml:2", "e1000", "gve"]);
    refused(&["run", "--edit", "no-such-edit", "--", "true"], 2, &["edits/no-such-edit.toml"]);
    let edits = ["image", "build", "--edit", "gve-keep-jumbo-header", "--edit", "vxlan-tso-512k"];
    refused(&edits, 2, &["an edit of vxlan, not of gve"]);
    refused(&["image", "build", "--driver", "mana", "--edit", "gve-keep-jumbo-header"], 2, &["not of mana"]);
}

#[test]
fn a_root_that_is_a_file() {
    let directory = TempDir::new().unwrap();
    let root = file(&directory, "root", b"");
    refused(&["run", "--root", &root, "--", "true"], 2, &["root is not a directory", "--root"]);
}

#[test]
fn nics_that_are_none() {
    refused(&["run", "--nic", "e1000", "--", "true"], 2, &["e1000", "gve"]);
    refused(&["run", "--nic", "gve,mtu=70000", "--", "true"], 2, &["mtu"]);
    refused(&["run", "--nic", "gve,colour=red", "--", "true"], 2, &["colour", "format"]);
    refused(&["run", "--nic", "gve,mtu=8896,jumbo-frames=off", "--", "true"], 2, &["jumbo-frames"]);
    refused(&["run", "--nic", "gve,format=gqi", "--", "true"], 2, &["dqo-rda"]);
    refused(&["run", "--nic", "gve,link=vde:x", "--", "true"], 2, &["vde:x", "stream:PATH"]);
    refused(&["run", "--accel", "soft", "--cpu", "host", "--", "true"], 2, &["--accel kvm"]);
    refused(&["run", "--nic", "gve,mtu=1500,mtu=9000", "--", "true"], 2, &["mtu= is given twice"]);
    let same = "gve,mac=02:00:00:00:00:01";
    refused(&["run", "--nic", same, "--nic", same, "--", "true"], 2, &["02:00:00:00:00:01"]);
}

#[test]
fn machines_that_cannot_be() {
    refused(&["run", "--cpus", "65", "--", "true"], 2, &["1 to 64"]);
    refused(&["run", "--cpus", "0", "--", "true"], 2, &["1 to 64"]);
    refused(&["run", "--memory", "1M", "--", "true"], 2, &["MiB"]);
    refused(&["run", "--memory", "lots", "--", "true"], 2, &["512M"]);
}

#[test]
fn scenarios_that_are_wrong_name_the_place() {
    let directory = TempDir::new().unwrap();
    let wrong = file(&directory, "wrong.toml", b"description = 'x'\n\n[[step]]\nrun = 'true'\nspeed = 3\n");
    refused(&["test", &wrong], 2, &["wrong.toml:5", "speed"]);
    let rule = file(
        &directory,
        "rule.toml",
        b"description = 'x'\n[[step]]\nrun = 'true'\n[expect]\nfindings = ['no-such-rule']\n",
    );
    refused(&["test", &rule], 2, &["no-such-rule"]);
    let nic =
        file(&directory, "nic.toml", b"description = 'x'\n[[nic]]\nkind = 'e1000'\n[[step]]\nrun = 'true'\n");
    refused(&["test", &nic], 2, &["nic.toml:2", "e1000"]);
    let memory = file(
        &directory,
        "memory.toml",
        b"description = 'x'\n[guest]\nmemory = 'lots'\n[[step]]\nrun = 'true'\n",
    );
    refused(&["test", "--list", &memory], 2, &["memory.toml:3", "lots"]);
    refused(&["test", "/no/such/scenario.toml"], 2, &["/no/such/scenario.toml"]);
    let empty = TempDir::new().unwrap();
    refused(&["test", empty.path().to_str().unwrap()], 2, &["no scenario"]);
}

#[test]
fn a_mirror_that_is_not_there_leaves_no_half_written_cache() {
    let cache = TempDir::new().unwrap();
    let path = cache.path().to_str().unwrap();
    refused(
        &["run", "--cache", path, "--mirror", "http://127.0.0.1:9/debian", "--", "true"],
        3,
        &["127.0.0.1:9"],
    );
    assert!(kernels(cache.path()).is_empty());
}

fn kernels(cache: &Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(cache.join("kernels"))
        .map_or(Vec::new(), |entries| entries.flatten().map(|entry| entry.path()).collect())
}

#[test]
fn a_report_that_cannot_be_written_is_an_error_of_the_environment() {
    refused(&["run", "--capture", "/no/such/directory/a.pcapng", "--", "true"], 3, &["/no/such/directory"]);
}

#[test]
fn a_capture_that_cannot_be_made_costs_no_earlier_one() {
    let directory = TempDir::new().unwrap();
    let capture = file(&directory, "kept.pcapng", b"precious");
    refused(
        &["run", "--kernel", "/no/such/kernel", "--capture", &capture, "--", "true"],
        2,
        &["/no/such/kernel"],
    );
    assert_eq!(std::fs::read(&capture).unwrap(), b"precious");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn listing_and_rules_need_no_guest() {
    assert_eq!(nicvisor(&["test", "--list"]).0, 0);
    assert_eq!(nicvisor(&["rules"]).0, 0);
    assert_eq!(nicvisor(&["rules", "--json"]).0, 0);
}

#[test]
fn scenarios_that_cannot_be_begun_are_results() {
    let directory = TempDir::new().unwrap();
    let script = file(&directory, "script", b"#!/bin/sh\necho I am not a kernel, but I am long enough\n");
    for name in ["one.toml", "two.toml"] {
        file(&directory, name, b"description = 'x'\n[[step]]\nrun = 'true'\n");
    }
    let report = directory.path().join("report");
    let output = Command::new(env!("CARGO_BIN_EXE_nicvisor"))
        .args(["test", "--format", "ktap", "--kernel", &script, "--report"])
        .args([&report, directory.path()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.starts_with("KTAP version 1\n1..2\n# ") && text.contains("not a kernel"), "{text}");
    for line in ["not ok 1 - one on ", "not ok 2 - two on "] {
        assert!(text.contains(line), "{text}");
    }
    let junit = std::fs::read_to_string(report.join("results.xml")).unwrap();
    assert!(junit.contains("tests=\"2\" failures=\"0\" errors=\"2\""), "{junit}");
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let directory = TempDir::new().unwrap();
    let wrong = file(&directory, "wrong.toml", b"description = 'x'\ncolour = 1\n");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status =
        Command::new(env!("CARGO_BIN_EXE_nicvisor")).args(["test", &wrong]).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn a_test_of_nothing_is_refused() {
    let directory = TempDir::new().unwrap();
    let excluded = file(
        &directory,
        "excluded.toml",
        b"description = 'x'\n[[exclude]]\nkernel = 'debian:6.1'\n[[step]]\nrun = 'true'\n",
    );
    refused(&["test", "--kernel", "debian:6.1", &excluded], 2, &["no case is left"]);
}
