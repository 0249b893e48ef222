//! Running a machine to its end.
#![allow(dead_code, reason = "every test program uses a part of this")]

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nicvisor::accel::kvm::{self, Host, Kvm, KvmConfig};
use nicvisor::accel::soft::{Soft, SoftConfig};
use nicvisor::accel::{Accelerator, CpuModel, Patience, RunControl, RunEvent};
use nicvisor::boot::Kernel;
use nicvisor::machine::{HostOutput, Machine};
use nicvisor_core::Time;

/// How a guest ended, and what it wrote to the serial port.
pub(crate) struct Run {
    pub(crate) event: RunEvent,
    pub(crate) serial: String,
    pub(crate) accelerator: Box<dyn Accelerator>,
}

/// What runs the CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Soft,
    Kvm,
}

/// The backends that this host has.
pub(crate) fn backends() -> Vec<Backend> {
    match Host::open() {
        Ok(_) => vec![Backend::Soft, Backend::Kvm],
        Err(error) => {
            eprintln!("not tried on KVM: {error}");
            vec![Backend::Soft]
        }
    }
}

/// Makes the backend for `machine`.
pub(crate) fn accelerator(backend: Backend, machine: &mut Machine) -> Box<dyn Accelerator> {
    match backend {
        Backend::Soft => Box::new(Soft::new(machine, SoftConfig::default())),
        Backend::Kvm => {
            let host = Host::open().expect("a host with KVM");
            let config =
                KvmConfig { assist_system_calls: assist_system_calls(&host), ..KvmConfig::default() };
            Box::new(Kvm::new(&host, machine, config).expect("KVM makes a machine"))
        }
    }
}

/// What the probe says of this host; everything else is as on any.
fn assist_system_calls(host: &Host) -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER
        .get_or_init(|| kvm::probe(host, CpuModel::Baseline).config(CpuModel::Baseline).assist_system_calls)
}

/// Boots `kernel` and runs it until it ends.
pub(crate) fn run(
    backend: Backend,
    machine: &mut Machine,
    kernel: &Kernel,
    command_line: &str,
    initrd: Option<&[u8]>,
    patience: Patience,
) -> Run {
    let entry = machine.boot(kernel, command_line, initrd).expect("the kernel fits");
    let mut accelerator = accelerator(backend, machine);
    accelerator.start(&entry).expect("the backend takes the state");
    let interrupted = AtomicBool::new(false);
    let control = RunControl {
        interrupted: &interrupted,
        host_deadline: Some(Instant::now() + Duration::from_secs(300)),
        until: None,
        since: Time::ZERO,
        stop_at: None,
        report_idle: false,
        patience,
    };
    let mut serial = Vec::new();
    loop {
        let event = accelerator.run(machine, &control);
        for output in machine.take_output() {
            if let HostOutput::Serial(bytes) = output {
                serial.extend(bytes);
            }
        }
        if event != RunEvent::Output {
            let serial = String::from_utf8_lossy(&serial).into_owned();
            return Run { event, serial, accelerator };
        }
    }
}
