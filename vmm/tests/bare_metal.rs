//! Runs the bare-metal programs and compares what they print. The expected texts are the same on real hardware:
//! nothing in them is particular to a backend.

mod programs;
mod support;

use nicvisor::accel::{Patience, RunEvent, Stuck};
use nicvisor::boot::Symbols;
use nicvisor::machine::{CpuReport, Machine, MachineConfig};
use nicvisor::nic::NicSpec;
use nicvisor_core::Duration;
use nicvisor_net::network::{LinkConfig, Network, SharedMedium};
use programs::program;
use support::{Backend, Run, backends, run};

mod doorbell;
mod echo;
mod hypervisor;

fn machine(cpus: usize) -> Machine {
    let config = MachineConfig { memory: 64 << 20, cpus, ..MachineConfig::default() };
    Machine::new(config, SharedMedium::new(Network::new())).unwrap()
}

/// Runs a program on every backend that this host has, each time on a fresh machine.
fn run_on_each(name: &str, machine: impl Fn() -> Machine, initrd: Option<&[u8]>) -> Vec<Run> {
    let program = program(name);
    let run_on = |backend| run(backend, &mut machine(), &program, "some words", initrd, Patience::default());
    backends().into_iter().map(run_on).collect()
}

fn run_program(name: &str, cpus: usize) -> Vec<Run> {
    run_on_each(name, || machine(cpus), None)
}

#[track_caller]
fn expect(runs: &[Run], status: u32, serial: &str) {
    for run in runs {
        let name = run.accelerator.name();
        assert_eq!(run.serial, serial, "on {name}: {:?}, {:?}", run.event, run.accelerator.statistics());
        assert_eq!(run.event, RunEvent::DebugExit(status << 1 | 1), "on {name}");
    }
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
fn system_calls() {
    let expected = "\
0000000000001234 called, code segment 0000000000000008
0000000000005678 called, code segment 0000000000000008
0000000000000033 was user mode's
0000000000000033 came by a gate, stack 0000000000000028
";
    expect(&run_program("system_calls", 1), 0, expected);
}

#[test]
fn user_mode() {
    let expected = "\
00000000000000f5 at FS
0000000000000065 at GS
0000000000000200 interrupt flag
0000000000000200 before
0000000000002222 in XMM7
0000000000000030 on the page fault's stack, error 0000000000000004, address 0000100000000000
000000000000face in place of what is not mapped
0000000000000028 on the division's stack, stack segment 000000000000002b
0000000000000d1f in place of the quotient
0000000000000d1f before the timer
0000000000000003 from the timer's handler
";
    expect(&run_program("user_mode", 1), 0, expected);
}

#[test]
fn smp() {
    let expected = "\
started 0000000000000003
counted 0000000000009c40
time-stamp steps backwards 0000000000000000
and it runs
every CPU answered
";
    let runs = [run_program("smp", 4), run_program("smp", 4)];
    expect(&runs[0], 0, expected);
    // Where runs are reproducible, the same program takes the same instructions and the same time, to the last one.
    assert!(runs[0][0].accelerator.is_reproducible());
    let measures = runs.map(|runs| (runs[0].accelerator.instructions(), runs[0].accelerator.now()));
    assert_eq!(measures[0], measures[1]);
}

#[test]
fn pci() {
    let with_doorbell = || {
        let mut machine = machine(1);
        let link = machine.network().add_link(LinkConfig::named("unused"));
        machine.add_device("doorbell", Box::new(doorbell::Doorbell), link).unwrap();
        machine
    };
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
    expect(&run_on_each("pci", with_doorbell, None), 0, expected);
}

#[test]
fn gve() {
    let with_nic = || {
        let mut machine = machine(1);
        let link = machine.network().add_link(LinkConfig::named("lan"));
        let nic: NicSpec = "gve".parse().unwrap();
        machine.add_device("gve0", nic.build().unwrap(), link).unwrap();
        machine.add_device("echo", Box::new(echo::Echo), link).unwrap();
        machine
    };
    let expected = "\
device
verified
00000000000005b4 MTU
queues
0000000000000007 sent
0000000000000040 bytes received
the same as sent
";
    expect(&run_on_each("gve", with_nic, None), 0, expected);
}

#[test]
fn hypervisor_interface() {
    let with_interface = || {
        let mut machine = machine(1);
        machine.set_hypervisor("adder", Box::new(hypervisor::Adder::default()));
        machine
    };
    let expected = "\
0000000000000001 hypervisor present
0000000065646441 its name
0000000000000000 off the page's address
0000000000000057 from the call
000000000000000a in R8
0000000040000105 refused
000000004b564d00 refused
0000000000012345 refused
refused
";
    let runs = run_on_each("hypervisor", with_interface, None);
    expect(&runs, 0, expected);
    for run in runs.iter().filter(|run| run.accelerator.name() == "kvm") {
        // All of them have come to the machine.
        let exits = run.accelerator.statistics().exits;
        assert!(exits["msr_read"] >= 4 && exits["msr_write"] >= 2, "{exits:?}");
    }
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
    expect(&run_on_each("pvh", || machine(1), Some(b"an initrd\0")), 0, expected);
}

#[test]
fn a_guest_that_spins_is_stuck_with_interrupts_off_and_with_interrupts_on() {
    let patience =
        Patience { interrupts_blocked: Duration::from_millis(10), no_progress: Duration::from_millis(40) };
    let blocked = Stuck::InterruptsBlocked { cpu: 0, time: patience.interrupts_blocked };
    let no_progress = Stuck::NoProgress { time: patience.no_progress };
    let program = program("spin");
    for backend in backends() {
        // Where time is the host's, busy hosts make a guest seem slow: only one of the two can be short.
        let long = Duration::from_secs(60);
        for (how, stuck) in [("off", blocked), ("on", no_progress)] {
            let patience = match (backend, how) {
                (Backend::Kvm, "off") => Patience { no_progress: long, ..patience },
                _ => patience,
            };
            let event = run(backend, &mut machine(1), &program, how, None, patience).event;
            assert_eq!(event, RunEvent::Stuck(stuck), "{backend:?}, interrupts {how}");
        }
    }
}

#[test]
fn a_triple_fault_ends_the_run() {
    for run in run_program("triple_fault", 1) {
        assert_eq!((run.event, &*run.serial), (RunEvent::TripleFault { cpu: 0 }, "about to fault\n"));
    }
}

#[test]
fn a_guest_that_nothing_can_wake_is_found_at_once_and_its_backtrace_names_the_place() {
    let program = program("deadlock");
    let symbols: Symbols = program.symbols();
    for backend in backends() {
        let mut machine = machine(1);
        let run = run(backend, &mut machine, &program, "", None, Patience::default());
        assert_eq!((run.event, &*run.serial), (RunEvent::Stuck(Stuck::Dead), "good night\n"));
        let report = CpuReport::new(0, run.accelerator.cpu_state(0), machine.ram(), &symbols).to_string();
        assert!(report.contains("CPU 0: halted, ring 0, interrupts off"), "{report}");
        assert!(report.contains("] asleep+0x2/"), "{report}");
        assert!(report.contains("] main+"), "{report}");
    }
}
