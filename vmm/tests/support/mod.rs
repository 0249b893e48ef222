//! Support for tests that run guests: building bare-metal programs and running a machine to its end.

use std::path::Path;
use std::process::Command;
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
pub(crate) fn run(machine: &mut Machine, kernel: &Kernel, command_line: &str, initrd: Option<&[u8]>) -> Run {
    let entry = machine.boot(kernel, command_line, initrd).expect("the kernel fits");
    let mut accelerator = Soft::new(machine, SoftConfig::default());
    accelerator.start(&entry);
    let interrupted = AtomicBool::new(false);
    let control = RunControl {
        interrupted: &interrupted,
        host_deadline: Some(Instant::now() + Duration::from_secs(300)),
        until: None,
        report_idle: false,
        patience: Patience::default(),
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

/// Assembles and links `tests/bare_metal/NAME.S` with the system's tools.
pub(crate) fn program(name: &str) -> Kernel {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bare_metal");
    let directory = tempfile::tempdir().expect("temporary directory");
    let object = directory.path().join("program.o");
    let image = directory.path().join("program.elf");
    let source = sources.join(format!("{name}.S"));
    let script = sources.join("program.ld");
    let [sources, source, object_path, image_path, script] =
        [&sources, &source, &object, &image, &script].map(|path| path.to_str().expect("a path in UTF-8"));
    tool("cc", &["-c", "-m64", &format!("-Wa,-I{sources}"), "-o", object_path, source]);
    let format =
        ["-m", "elf_x86_64", "-static", "-nostdlib", "-z", "noexecstack", "-z", "max-page-size=4096"];
    tool("ld", &[&format[..], &["-T", script, "-o", image_path, object_path]].concat());
    Kernel::read(&image).expect("a multiboot program")
}

fn tool(name: &str, arguments: &[&str]) {
    let output = Command::new(name).args(arguments).output().unwrap_or_else(|error| {
        panic!("cannot run {name} ({error}): install gcc and binutils");
    });
    assert!(output.status.success(), "{name} failed:\n{}", String::from_utf8_lossy(&output.stderr));
}
