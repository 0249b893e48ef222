//! A stock Debian kernel on KVM, through the gve scenario. On hosts whose KVM interprets kernels this takes long, and
//! round trips do too: the scenario is the same but for one CPU, one MTU and the size of packets not depending on them.
//! The times and counts of one such host are in `docs/accel.md`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use nicvisor::accel::kvm::Host;

#[test]
#[ignore = "where KVM interprets kernels, a boot takes many minutes"]
fn a_stock_kernel_passes_the_gve_scenario_on_kvm() {
    if let Err(error) = Host::open() {
        eprintln!("not tried: {error}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // Where KVM interprets kernels, one CPU and one case must do.
    adapt("_two-gve.toml", directory.path(), &[("\"15m\"", "\"40m\""), ("cpus = 2", "cpus = 1")]);
    let streams = "[[step]]\nstream";
    let before_streams = format!("{WHATEVER_THE_ROUND_TRIP}\n{streams}");
    let changes = [("mtu = [1500, 9000]", "mtu = [9000]"), (streams, &before_streams)];
    let scenario = adapt("gve-big-tcp.toml", directory.path(), &changes);
    let reports = directory.path().join("reports");
    let started = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_nicvisor"))
        .args(["test", "--accel", "kvm", "--verbose", "--report"])
        .args([&reports, &scenario])
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    eprintln!("{stdout}\n{stderr}\nin {:.0} s", started.elapsed().as_secs_f64());
    let mut told = false;
    for file in std::fs::read_dir(&reports).unwrap().flatten() {
        let report = std::fs::read_to_string(file.path()).unwrap_or_default();
        if report.contains("\"backend\": \"kvm\"") {
            told = true;
            let lines = report.lines().skip_while(|line| !line.contains("\"exits\"")).take(40);
            lines.for_each(|line| eprintln!("{line}"));
        }
    }
    assert!(output.status.success());
    assert!(told, "no report says that it ran on KVM");
}

/// TCP makes packets smaller the longer a round trip takes, and on a slow CPU it takes long; the parameter is explained
/// in the kernel's `Documentation/networking/ip-sysctl.rst`.
const WHATEVER_THE_ROUND_TRIP: &str = r#"
[[step]]
name = "packets as large as on a short way"
run = "echo 31 > /proc/sys/net/ipv4/tcp_tso_rtt_log"
namespace = "left"
"#;

/// Copies a scenario to `directory` with `changes`.
fn adapt(name: &str, directory: &Path, changes: &[(&str, &str)]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios").join(name);
    let mut text = std::fs::read_to_string(source).unwrap();
    for (before, after) in changes {
        assert!(text.contains(before), "{name} has no {before}");
        text = text.replacen(before, after, 1);
    }
    let copy = directory.join(name);
    std::fs::write(&copy, text).unwrap();
    copy
}
