//! What KVM leaves behind, and how a run on it can be ended: apart from other tests, which use the same things.

mod programs;
mod support;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nicvisor::accel::kvm::Host;
use nicvisor::accel::{Patience, RunControl, RunEvent};
use nicvisor::boot::Kernel;
use nicvisor::machine::{Machine, MachineConfig};
use nicvisor_core::Time;
use nicvisor_net::network::{Network, SharedMedium};
use programs::program;
use support::{Backend, accelerator, run};

fn machine() -> Machine {
    let config = MachineConfig { memory: 16 << 20, cpus: 2, ..MachineConfig::default() };
    Machine::new(config, SharedMedium::new(Network::new())).unwrap()
}

#[test]
fn two_hundred_starts_and_stops_leave_nothing_behind() {
    if Host::open().is_err() {
        return;
    }
    let (ending, spinning) = (program("hello"), program("spin"));
    for round in 0..5 {
        start_and_stop(round, &ending, &spinning);
    }
    let before = possessions();
    for round in 0..200 {
        start_and_stop(round, &ending, &spinning);
    }
    let after = possessions();
    assert_eq!(before.kinds, after.kinds);
    let grown = after.resident.saturating_sub(before.resident);
    eprintln!("{} bytes resident, {grown} more than before", after.resident);
    assert!(grown < MOST_GROWTH, "{grown} bytes more than before");
}

/// 8 KiB a cycle, where nothing is the rule. What a guest has written to, a CPU thread or an event loop is more.
const MOST_GROWTH: u64 = 200 * (8 << 10);

/// One guest that ends by itself or is ended while it spins, sooner or later.
fn start_and_stop(round: u64, ending: &Kernel, spinning: &Kernel) {
    let mut machine = machine();
    if round.is_multiple_of(2) {
        let run = run(Backend::Kvm, &mut machine, ending, "some words", None, Patience::default());
        assert_eq!(run.event, RunEvent::DebugExit(0x2a << 1 | 1));
        return;
    }
    let entry = machine.boot(spinning, "on", None).unwrap();
    let mut accelerator = accelerator(Backend::Kvm, &mut machine);
    accelerator.start(&entry).unwrap();
    let interrupted = AtomicBool::new(round.is_multiple_of(5));
    let control = RunControl {
        interrupted: &interrupted,
        host_deadline: None,
        until: Some(Time::ZERO + Duration::from_micros(round * 37 % 5000)),
        since: Time::ZERO,
        stop_at: None,
        report_idle: false,
        patience: Patience::default(),
    };
    let event = accelerator.run(&mut machine, &control);
    let expected = if interrupted.load(Ordering::Relaxed) { RunEvent::Interrupted } else { RunEvent::Until };
    assert_eq!(event, expected);
}

/// What a process can forget to give back.
struct Possessions {
    /// File descriptors by what they are (numbers left out), and CPU threads.
    kinds: BTreeMap<String, usize>,
    resident: u64,
}

fn possessions() -> Possessions {
    let mut kinds = BTreeMap::new();
    let mut count = |kind: String| *kinds.entry(kind).or_default() += 1;
    for file in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        if let Ok(target) = std::fs::read_link(file.path()) {
            let target = target.to_string_lossy().into_owned();
            if ["kvm", "event", "timer", "socket"].iter().any(|word| target.contains(word)) {
                count(target.split('[').next().unwrap_or_default().to_owned());
            }
        }
    }
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if name.starts_with("cpu") {
            count("thread".into());
        }
    }
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let resident = pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096;
    Possessions { kinds, resident }
}

#[test]
fn ctrl_c_at_any_moment_ends_the_run_cleanly() {
    let image = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(image.path(), program("spin").elf()).unwrap();
    for (round, backend) in ["kvm", "soft"].into_iter().cycle().take(24).enumerate() {
        if backend == "kvm" && Host::open().is_err() {
            continue;
        }
        let mut child = Command::new(env!("CARGO_BIN_EXE_nicvisor"))
            .args(["run", "--cpus", "2", "--append", "on", "--accel", backend, "--kernel"])
            .arg(image.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(round as u64 * 53 % 400));
        let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let deadline = Instant::now() + Duration::from_secs(60);
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                child.kill().unwrap();
                panic!("round {round} on {backend} does not end");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        // Before the program has looked, the signal itself ends it.
        let by_signal = std::os::unix::process::ExitStatusExt::signal(&status) == Some(libc::SIGINT);
        assert!(status.code() == Some(130) || by_signal, "round {round} on {backend}: {status:?}");
    }
}
