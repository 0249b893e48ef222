//! Can this host's KVM run kernels, and how fast? Found out by running a short program that does what kernels do.
//!
//! To open `/dev/kvm` and to create a machine says little: there are hosts where that works, small programs run,
//! and a stock kernel takes half an hour or stops at an instruction. The program here is a guest like any other, on
//! a machine like any other, and tells each thing that it has managed by a letter on the serial port.

mod program;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nicvisor_net::network::{Network, SharedMedium};
use softcpu::CpuidTable;

use super::{Host, Kvm, KvmConfig};
use crate::accel::{Accelerator, CpuModel, Patience, RunControl, RunEvent, leaks};
use crate::boot::bare_entry;
use crate::machine::{HostOutput, Machine, MachineConfig};

/// What the program found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probe {
    /// What it managed, of [`STEPS`].
    pub managed: usize,
    /// How it ended, unless well.
    pub failure: Option<String>,
    /// Instructions that KVM could not execute, and how often.
    pub assists: BTreeMap<String, u64>,
    /// Million instructions of kernel code a second, once known.
    pub speed: Option<f64>,
    /// What CPUID says to guests about features, whatever it was told.
    pub visible: CpuidTable,
    /// Features of the host's CPU that it was told to hide, by their numbers in Linux: see [`leaks`].
    pub leaks: Vec<u16>,
    /// SYSCALL goes to the kernel but leaves the CPU in user mode.
    pub system_calls_by_halves: bool,
}

/// How well the host's KVM runs kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quality {
    /// As hardware does.
    Good,
    /// It does run them, but so slowly or with so much help that the software CPU is better.
    Poor,
    /// It does not.
    Unusable,
}

/// Runs the program on `host`.
pub fn probe(host: &Host, model: CpuModel) -> Probe {
    match try_probe(host, model) {
        Ok(probe) => probe,
        Err(failure) => Probe { failure: Some(failure), ..Probe::default() },
    }
}

impl Probe {
    /// The verdict.
    pub fn quality(&self) -> Quality {
        match self.speed {
            _ if self.failure.is_some() => Quality::Unusable,
            Some(speed) if speed >= GOOD_SPEED && self.needs_no_help() => Quality::Good,
            _ => Quality::Poor,
        }
    }

    fn needs_no_help(&self) -> bool {
        self.assists.is_empty() && self.leaks.is_empty() && !self.system_calls_by_halves
    }

    /// How a machine is to be made on this host, whose guests see `model`.
    pub fn config(&self, model: CpuModel) -> KvmConfig {
        KvmConfig {
            model,
            slowdown: self.slowdown(),
            visible: self.visible.clone(),
            assist_system_calls: self.system_calls_by_halves,
        }
    }

    /// How many times slower than an ordinary host this one is.
    pub fn slowdown(&self) -> u32 {
        let unknown = if self.failure.is_some() { SLOWEST } else { 1.0 };
        self.speed.map_or(unknown, |speed| ORDINARY_SPEED / speed.max(0.1)).clamp(1.0, SLOWEST) as u32
    }

    /// The finding in words.
    pub fn describe(&self) -> String {
        if let Some(failure) = &self.failure {
            let step = STEPS.get(self.managed).map_or("the end", |step| step.1);
            return format!("this host's KVM fails at {step}: {failure}");
        }
        let speed = self.speed.map_or_else(String::new, |speed| {
            let digits = usize::from(speed < 10.0);
            format!("{speed:.digits$} million instructions a second")
        });
        if self.quality() == Quality::Good {
            return format!("this host's KVM runs kernels as hardware does ({speed})");
        }
        let mut text = format!("this host's KVM interprets kernels ({speed})");
        if !self.assists.is_empty() {
            let names: Vec<&str> = self.assists.keys().map(String::as_str).collect();
            text.push_str(&format!(", lacks {}", names.join(", ")));
        }
        if self.system_calls_by_halves {
            text.push_str(", leaves system calls in user mode");
        }
        if !self.leaks.is_empty() {
            text.push_str(", shows guests the host's CPU");
        }
        text
    }
}

fn try_probe(host: &Host, model: CpuModel) -> Result<Probe, String> {
    let config = MachineConfig { memory: MEMORY, cpus: 1, ..MachineConfig::default() };
    let medium = SharedMedium::new(Network::new());
    let mut machine = Machine::new(config, medium).map_err(|error| error.to_string())?;
    let asked = leaks::leaves();
    program::write(machine.ram(), &asked).map_err(|error| error.to_string())?;
    let entry = bare_entry(machine.ram(), program::START).map_err(|error| error.to_string())?;
    let config = KvmConfig { model, ..KvmConfig::default() };
    let mut kvm = Kvm::new(host, &mut machine, config).map_err(|error| error.to_string())?;
    kvm.start(&entry).map_err(|error| error.to_string())?;
    let mut probe = watch(&mut kvm, &mut machine);
    if probe.managed >= CPUID_ASKED {
        probe.visible = program::answers(machine.ram(), &asked).map_err(|error| error.to_string())?;
        probe.leaks.extend(match model {
            CpuModel::Baseline => leaks::between(&super::super::cpuid::of(&machine), &probe.visible),
            // Everything is meant to be seen, but this one follows CR4, where it is off.
            CpuModel::Host => leaks::between(&CpuidTable::default(), &probe.visible)
                .into_iter()
                .filter(|feature| *feature == leaks::OSXSAVE)
                .collect(),
        });
        probe.leaks.sort_unstable();
        probe.leaks.dedup();
    }
    Ok(probe)
}

/// Follows the program to its end.
fn watch(kvm: &mut Kvm, machine: &mut Machine) -> Probe {
    let interrupted = AtomicBool::new(false);
    let control = RunControl {
        interrupted: &interrupted,
        host_deadline: Some(Instant::now() + LONGEST),
        until: None,
        stop_at: None,
        since: nicvisor_core::Time::ZERO,
        report_idle: false,
        patience: Patience::default(),
    };
    let mut letters = Vec::new();
    let mut loop_started = None;
    let mut speed = None;
    loop {
        let event = kvm.run(machine, &control);
        for output in machine.take_output() {
            let HostOutput::Serial(bytes) = output else { continue };
            letters.extend(&bytes);
            if bytes.contains(&SPEED_BEGINS) {
                loop_started = Some(Instant::now());
            }
            if let (Some(started), true) = (loop_started, bytes.contains(&SPEED_ENDS)) {
                speed = Some(LOOP_INSTRUCTIONS / started.elapsed().as_secs_f64().max(1e-6) / 1e6);
            }
        }
        let failure = match event {
            RunEvent::Output | RunEvent::Idle(_) | RunEvent::Until => continue,
            RunEvent::DebugExit(1) => None,
            RunEvent::Failed(what) => Some(what),
            RunEvent::TimedOut => Some(format!("nothing more in {} ms", LONGEST.as_millis())),
            other => Some(format!("the program ended with {other:?}")),
        };
        let managed = STEPS.iter().take_while(|(letter, _)| letters.contains(letter)).count();
        let leaks = if letters.contains(&LEAKY) { vec![leaks::BMI2] } else { Vec::new() };
        let assists = kvm.statistics().assists;
        let system_calls_by_halves = letters.contains(&USER_MODE);
        let visible = CpuidTable::default();
        return Probe { managed, failure, assists, speed, visible, leaks, system_calls_by_halves };
    }
}

/// What the program does, in order, and the letter that it writes after each.
pub const STEPS: [(u8, &str); 10] = [
    (b'A', "entering long mode"),
    (b'P', "a page fault"),
    (b'C', "CMPXCHG16B"),
    (b'F', "FXSAVE and FXRSTOR"),
    (b'B', "INT3"),
    (b'I', "an interrupt"),
    (b'M', "a BMI2 instruction that CPUID advertises"),
    (b'U', "a system call from user mode"),
    (SPEED_BEGINS, "writing to the serial port"),
    (SPEED_ENDS, "a loop"),
];

/// So many steps come after the program has asked CPUID.
const CPUID_ASKED: usize = 7;
/// Written in between where the BMI2 instruction is advertised but invalid.
const LEAKY: u8 = b'X';
/// Written in between where a system call arrives in user mode.
const USER_MODE: u8 = b'K';
const SPEED_BEGINS: u8 = b'S';
const SPEED_ENDS: u8 = b'E';
/// Two instructions in each round of the loop.
const LOOP_INSTRUCTIONS: f64 = 2.0 * 25_000.0;
/// Well under a second, whatever happens.
const LONGEST: Duration = Duration::from_millis(600);
/// Million instructions a second. The measured speed of a fast host is mostly that of the serial port, so this is
/// far below what hardware does and far above what interpreters reach.
const GOOD_SPEED: f64 = 60.0;
const ORDINARY_SPEED: f64 = 100.0;
const SLOWEST: f64 = 1000.0;
const MEMORY: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn result(speed: Option<f64>, assists: &[&str], failure: Option<&str>) -> Probe {
        Probe {
            managed: if failure.is_some() { 2 } else { STEPS.len() },
            failure: failure.map(str::to_owned),
            assists: assists.iter().map(|name| ((*name).to_owned(), 1)).collect(),
            speed,
            visible: CpuidTable::default(),
            leaks: Vec::new(),
            system_calls_by_halves: false,
        }
    }

    #[test]
    fn the_verdict_follows_speed_and_help() {
        assert_eq!(result(Some(900.0), &[], None).quality(), Quality::Good);
        assert_eq!(result(Some(2.0), &[], None).quality(), Quality::Poor);
        let helped = result(Some(2.0), &["cmpxchg16b", "int3"], None);
        assert_eq!((helped.quality(), helped.slowdown()), (Quality::Poor, 50));
        assert!(helped.describe().contains("2.0 million instructions a second), lacks cmpxchg16b, int3"));
        let leaky = Probe { leaks: vec![leaks::BMI2], ..result(Some(900.0), &[], None) };
        assert_eq!(leaky.quality(), Quality::Poor);
        assert!(leaky.describe().ends_with("shows guests the host's CPU"), "{}", leaky.describe());
        let halves = Probe { system_calls_by_halves: true, ..result(Some(900.0), &[], None) };
        assert_eq!(halves.quality(), Quality::Poor);
        assert!(halves.describe().ends_with("leaves system calls in user mode"), "{}", halves.describe());
        assert!(halves.config(CpuModel::Baseline).assist_system_calls);
        let failed = result(None, &[], Some("out of luck"));
        assert_eq!(failed.quality(), Quality::Unusable);
        assert!(failed.describe().contains("fails at CMPXCHG16B: out of luck"), "{}", failed.describe());
    }

    /// On a host with KVM, the program must come to its end, helped or not.
    #[test]
    fn the_program_manages_every_step_where_there_is_kvm() {
        let Ok(host) = Host::open() else { return };
        let started = Instant::now();
        let probe = probe(&host, CpuModel::Baseline);
        assert_eq!((probe.failure.as_deref(), probe.managed), (None, STEPS.len()), "{probe:?}");
        assert!(probe.speed.is_some());
        // Every CPU since 2003 has these.
        let first = probe.visible.find(1, 0).unwrap();
        assert_eq!(first.edx >> 25 & 3, 3, "SSE and SSE2: {first:?}");
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }
}
