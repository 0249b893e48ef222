//! `nicvisor run` of a bare-metal program: a multiboot or PVH image that is no Linux. No agent, no file system;
//! the serial port is standard output, and the debug-exit port gives the status.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use nicvisor_core::Time;

use super::args::RunArguments;
use super::failure::Failure;
use super::prepare::{introduction, machine_config, number_nics};
use super::{capture, failure};
use crate::accel::{Accelerator, Chosen, Patience, RunControl, RunEvent};
use crate::boot::{Kernel, Protocol};
use crate::guest::{BootError, add_nics};
use crate::machine::{CpuReport, HostOutput, Machine};

/// The image at `path`, if it is a bare-metal program.
pub(super) fn program(path: &Path) -> Option<Kernel> {
    let kernel = path.is_file().then(|| Kernel::read(path).ok())??;
    (kernel.protocol() != Protocol::Linux).then_some(kernel)
}

/// Runs it to its end.
pub(super) fn run(
    arguments: &RunArguments,
    kernel: &Kernel,
    interrupted: &AtomicBool,
) -> Result<u8, Failure> {
    if !arguments.command.is_empty() || arguments.root.is_some() || !arguments.modules.is_empty() {
        let message = "a bare-metal program takes no command, no --root and no --module";
        return Err(Failure::Usage(message.into(), "its command line is given with --append".into()));
    }
    if arguments.report.is_some() {
        let message = "there is no report on a bare-metal program";
        return Err(Failure::Usage(message.into(), "leave --report out".into()));
    }
    let (medium, capture) = capture::network(arguments.capture.as_deref())?;
    let mut machine = Machine::new(machine_config(&arguments.guest), medium).map_err(BootError::from)?;
    add_nics(&mut machine, &number_nics(&arguments.nics)?, &[])?;
    let entry = machine.boot(kernel, &arguments.guest.append, None).map_err(BootError::from)?;
    let chosen = arguments.guest.choice()?.carry_out(&mut machine).map_err(BootError::from)?;
    let Chosen { mut accelerator, reason, warning, .. } = chosen;
    for line in introduction(accelerator.name(), &reason, warning.as_deref(), arguments.guest.verbose) {
        complain!("{line}");
    }
    accelerator.start(&entry).map_err(BootError::from)?;
    let control = RunControl {
        interrupted,
        host_deadline: arguments.timeout.map(|timeout| Instant::now() + timeout),
        until: None,
        since: Time::ZERO,
        stop_at: None,
        report_idle: false,
        patience: Patience::default(),
    };
    let status = run_to_end(&mut machine, &mut *accelerator, &control, kernel);
    machine.close(accelerator.now());
    capture.finish(machine.medium())?;
    Ok(status)
}

fn run_to_end(
    machine: &mut Machine,
    accelerator: &mut dyn Accelerator,
    control: &RunControl<'_>,
    kernel: &Kernel,
) -> u8 {
    loop {
        let event = accelerator.run(machine, control);
        for output in machine.take_output() {
            if let HostOutput::Serial(bytes) = output {
                let mut out = io::stdout().lock();
                let _ = out.write_all(&bytes).and_then(|()| out.flush());
            }
        }
        let status = match event {
            RunEvent::Output | RunEvent::Idle(_) | RunEvent::Until => continue,
            RunEvent::PowerOff => 0,
            RunEvent::DebugExit(status) => return status as u8,
            RunEvent::Reset => failure::FAILED,
            RunEvent::TimedOut => 124,
            RunEvent::Interrupted => 130,
            RunEvent::TripleFault { .. } | RunEvent::Stuck(_) | RunEvent::Failed(_) => 255,
        };
        if status != 0 {
            complain!("nicvisor: the program did not end by itself: {event:?}");
            let symbols = kernel.symbols();
            for cpu in 0..machine.config().cpus {
                complain!(
                    "{}",
                    CpuReport::new(cpu, accelerator.cpu_state(cpu), machine.ram(), &symbols)
                        .to_string()
                        .trim_end()
                );
            }
        }
        return status;
    }
}
