//! A stock Debian kernel on KVM, through the gve scenario. On hosts whose KVM interprets kernels this takes long:
//! the times and counts of one such are in `docs/accel.md`.

use std::path::Path;
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
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/gve-big-tcp.toml");
    let text = std::fs::read_to_string(source).unwrap();
    let patient = text.replace("timeout = \"10m\"", "timeout = \"60m\"");
    assert_ne!(text, patient);
    let scenario = directory.path().join("gve-big-tcp.toml");
    std::fs::write(&scenario, patient).unwrap();
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
