//! Runs the bare-metal programs and compares what they print. The expected texts are the same on real hardware:
//! nothing in them is particular to a backend.

mod programs;
mod support;

use nicvisor::accel::{Accelerator, Patience, RunEvent, Stuck};
use nicvisor::boot::Symbols;
use nicvisor::machine::{CpuReport, Machine, MachineConfig};
use nicvisor_core::Duration;
use nicvisor_net::network::{LinkConfig, Network, SharedMedium};
use programs::program;
use support::{Run, run};

mod doorbell;
mod hypervisor;

fn machine(cpus: usize) -> Machine {
    let config = MachineConfig { memory: 64 << 20, cpus, ..MachineConfig::default() };
    Machine::new(config, SharedMedium::new(Network::new())).unwrap()
}

fn run_program(name: &str, cpus: usize) -> Run {
    run(&mut machine(cpus), &program(name), "some words", None, Patience::default())
}

fn expect(run: &Run, status: u32, serial: &str) {
    assert_eq!(run.serial, serial, "{:?}", run.event);
    assert_eq!(run.event, RunEvent::DebugExit(status << 1 | 1));
}

#[test]
fn hello() {
    expect(&run_program("hello", 1), 0x2a, "hello from 64-bit mode\nsome words\n");
}

#[test]
fn the_program_runs_them_with_their_output_and_status() {
    let image = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(image.path(), program("hello").elf()).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_nicvisor"))
        .args(["run", "--append", "some words", "--kernel"])
        .arg(image.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello from 64-bit mode\nsome words\n");
    assert_eq!(output.status.code(), Some(0x2a << 1 | 1));
}

#[test]
fn paging() {
    let expected = "\
read not present
 error 0000000000000000 at 0000000100001008
write, mapped by the handler and restarted
 error 0000000000000002 at 0000000100002004
0000000012345678
accessed and dirty bits
0000000000000063
write to read-only
 error 0000000000000003 at 0000000100002008
no-execute
 error 0000000000000011 at 0000000100002010
accesses across a page boundary
11223344556677880000000022334455
";
    expect(&run_program("paging", 1), 0, expected);
}

#[test]
fn interrupts() {
    let expected = "\
exceptions: #DE #BP #UD #GP
five 8254 ticks
one-shot
periodic
deadline
self IPI, STI shadow, CR8
";
    expect(&run_program("interrupts", 1), 0, expected);
}

#[test]
fn smp() {
    let expected = "\
started 0000000000000003
counted 0000000000009c40
time-stamp steps backwards 0000000000000000
every CPU answered
";
    let runs = [run_program("smp", 4), run_program("smp", 4)];
    expect(&runs[0], 0, expected);
    // The same program takes the same instructions and the same time, to the last one.
    let measures = runs.map(|run| (run.accelerator.instructions(), run.accelerator.now()));
    assert_eq!(measures[0], measures[1]);
}

#[test]
fn pci() {
    let mut machine = machine(1);
    let link = machine.network().add_link(LinkConfig::named("unused"));
    machine.add_device("doorbell", Box::new(doorbell::Doorbell), link).unwrap();
    let expected = "\
0000000000081b36
000000000d001234
00000000000000ff class
00000000fffff000 BAR mask
message
masked
pending, then unmasked
1122334455667788 by DMA
0000000000000000 without bus mastering
";
    expect(&run(&mut machine, &program("pci"), "", None, Patience::default()), 0, expected);
}

#[test]
fn hypervisor_interface() {
    let mut machine = machine(1);
    machine.set_hypervisor(Box::new(hypervisor::Adder::default()));
    let expected = "\
0000000000000001 hypervisor present
0000000065646441 its name
0000000000000000 off the page's address
0000000000000057 from the call
000000000000000a in R8
refused
";
    expect(&run(&mut machine, &program("hypervisor"), "", None, Patience::default()), 0, expected);
}

#[test]
fn pvh() {
    let expected = "\
magic 336ec578
command line some words
modules 00000001an initrd
map entries 00000005
root pointer RSD PTR 
";
    let run = run(&mut machine(1), &program("pvh"), "some words", Some(b"an initrd\0"), Patience::default());
    expect(&run, 0, expected);
}

#[test]
fn a_guest_that_spins_is_stuck_with_interrupts_off_and_with_interrupts_on() {
    let patience =
        Patience { interrupts_blocked: Duration::from_millis(10), no_progress: Duration::from_millis(40) };
    let spin = |how| run(&mut machine(1), &program("spin"), how, None, patience).event;
    assert_eq!(
        spin("off"),
        RunEvent::Stuck(Stuck::InterruptsBlocked { cpu: 0, time: patience.interrupts_blocked })
    );
    assert_eq!(spin("on"), RunEvent::Stuck(Stuck::NoProgress { time: patience.no_progress }));
}

#[test]
fn a_triple_fault_ends_the_run() {
    let run = run_program("triple_fault", 1);
    assert_eq!((run.event, &*run.serial), (RunEvent::TripleFault { cpu: 0 }, "about to fault\n"));
}

#[test]
fn a_guest_that_nothing_can_wake_is_found_at_once_and_its_backtrace_names_the_place() {
    let mut machine = machine(1);
    let program = program("deadlock");
    let run = run(&mut machine, &program, "", None, Patience::default());
    assert_eq!((run.event, &*run.serial), (RunEvent::Stuck(Stuck::Dead), "good night\n"));
    let symbols: Symbols = program.symbols();
    let report = CpuReport::new(0, run.accelerator.cpu_state(0), machine.ram(), &symbols).to_string();
    assert!(report.contains("CPU 0: halted, ring 0, interrupts off"), "{report}");
    assert!(report.contains("] asleep+0x2/"), "{report}");
    assert!(report.contains("] main+"), "{report}");
}
