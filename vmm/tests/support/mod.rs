//! Running a machine to its end.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nicvisor::accel::soft::{Soft, SoftConfig};
use nicvisor::accel::{Accelerator, Patience, RunControl, RunEvent};
use nicvisor::boot::Kernel;
use nicvisor::machine::{HostOutput, Machine};

/// How a guest ended, and what it wrote to the serial port.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) event: RunEvent,
    pub(crate) serial: String,
    pub(crate) accelerator: Soft,
}

/// Boots `kernel` on the software CPU and runs it until it ends.
pub(crate) fn run(
    machine: &mut Machine,
    kernel: &Kernel,
    command_line: &str,
    initrd: Option<&[u8]>,
    patience: Patience,
) -> Run {
    let entry = machine.boot(kernel, command_line, initrd).expect("the kernel fits");
    let mut accelerator = Soft::new(machine, SoftConfig::default());
    accelerator.start(&entry);
    let interrupted = AtomicBool::new(false);
    let control = RunControl {
        interrupted: &interrupted,
        host_deadline: Some(Instant::now() + Duration::from_secs(300)),
        until: None,
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
