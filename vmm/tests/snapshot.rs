//! A run that is saved, and taken up on another machine, goes on as if nothing had happened.

mod programs;

use std::sync::atomic::AtomicBool;

use nicvisor::accel::soft::{Soft, SoftConfig};
use nicvisor::accel::{Accelerator, Patience, RunControl, RunEvent};
use nicvisor::machine::{HostOutput, Input, Machine, MachineConfig};
use nicvisor::nic::NicSpec;
use nicvisor_core::Time;
use nicvisor_core::pci::Slot;
use nicvisor_net::network::{LinkConfig, Network, SharedMedium};
use programs::program;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryRegion};

mod echo;

/// A machine and its CPUs.
struct Whole {
    machine: Machine,
    soft: Soft,
    serial: Vec<u8>,
}

impl Whole {
    fn new(machine: Machine) -> Whole {
        Whole { soft: Soft::new(&machine, SoftConfig::default()), machine, serial: Vec::new() }
    }

    /// Runs to the position `stop_at`, or to the end.
    fn run(&mut self, stop_at: Option<u64>) -> RunEvent {
        let control = RunControl {
            interrupted: &AtomicBool::new(false),
            host_deadline: None,
            until: None,
            stop_at,
            since: Time::ZERO,
            report_idle: false,
            patience: Patience::default(),
        };
        loop {
            let event = self.soft.run(&mut self.machine, &control);
            for output in self.machine.take_output() {
                if let HostOutput::Serial(bytes) = output {
                    self.serial.extend(bytes);
                }
            }
            if event != RunEvent::Output {
                return event;
            }
        }
    }

    /// Takes over all of what `other` is.
    fn restore(&mut self, other: &mut Whole) {
        // Through text, as in a file.
        let text = |value: serde_json::Value| -> serde_json::Value {
            serde_json::from_str(&value.to_string()).unwrap()
        };
        self.machine.restore(&text(other.machine.save())).unwrap();
        let network = serde_json::to_value(&*other.machine.network()).unwrap();
        *self.machine.network() = serde_json::from_value(text(network)).unwrap();
        for region in other.machine.ram().iter() {
            let mut bytes = vec![0; region.len() as usize];
            let start = GuestAddress(region.start_addr().0);
            other.machine.ram().read_slice(&mut bytes, start).unwrap();
            self.machine.ram().write_slice(&bytes, start).unwrap();
        }
        self.soft.restore(&text(other.soft.save().unwrap())).unwrap();
        self.serial.clone_from(&other.serial);
    }
}

/// Runs `name` as it is, and again with moves to a fresh machine at several points of the run.
fn goes_on(name: &str, machine: impl Fn() -> Machine) {
    let program = program(name);
    let start = || {
        let mut whole = Whole::new(machine());
        let entry = whole.machine.boot(&program, "some words", None).unwrap();
        whole.soft.start(&entry).unwrap();
        whole
    };
    let mut straight = start();
    let expected = straight.run(None);
    let end = straight.soft.position().unwrap();
    let mut moved = start();
    for part in 1..6 {
        assert_eq!(moved.run(Some(end * part / 6)), RunEvent::Until);
        let mut next = Whole::new(machine());
        next.restore(&mut moved);
        moved = next;
    }
    assert_eq!(moved.run(None), expected);
    assert_eq!(String::from_utf8_lossy(&moved.serial), String::from_utf8_lossy(&straight.serial));
    let measure = |whole: &Whole| (whole.soft.instructions(), whole.soft.position(), whole.soft.now());
    assert_eq!(measure(&moved), measure(&straight));
    assert_eq!(moved.machine.network().ledger(), straight.machine.network().ledger());
}

fn machine(cpus: usize) -> Machine {
    let config = MachineConfig { memory: 16 << 20, cpus, ..MachineConfig::default() };
    Machine::new(config, SharedMedium::new(Network::new())).unwrap()
}

#[test]
fn four_cpus() {
    goes_on("smp", || machine(4));
}

#[test]
fn timers_and_interrupts() {
    goes_on("interrupts", || machine(1));
}

#[test]
fn a_nic_and_frames_under_way() {
    goes_on("gve", || {
        let mut machine = machine(1);
        let link = machine.network().add_link(LinkConfig::named("lan"));
        let nic: NicSpec = "gve".parse().unwrap();
        machine.add_device("gve0", nic.build().unwrap(), link).unwrap();
        machine.add_device("echo0", Box::new(echo::Echo), link).unwrap();
        machine
    });
}

#[test]
fn devices_are_where_they_were() {
    let with_two = || {
        let mut machine = machine(1);
        let link = machine.network().add_link(LinkConfig::named("lan"));
        let nic: NicSpec = "gve".parse().unwrap();
        let gve = machine.add_device("gve0", nic.build().unwrap(), link).unwrap();
        let echo = machine.add_device("echo0", Box::new(echo::Echo), link).unwrap();
        (machine, gve, echo)
    };
    let (mut old, gve, echo) = with_two();
    let slot = |device| Some(Slot { device, function: 0 });
    for device in [gve, echo] {
        old.input(Time::ZERO, Input::Unplug { device }).unwrap();
    }
    old.input(Time::ZERO, Input::Plug { device: gve, slot: slot(2) }).unwrap();
    let (mut new, ..) = with_two();
    new.restore(&old.save()).unwrap();
    assert_eq!(new.save(), old.save());
    assert!(new.is_plugged_in(gve) && !new.is_plugged_in(echo));
    // And the other way about: what was nowhere comes back.
    old.input(Time::ZERO, Input::Plug { device: echo, slot: slot(1) }).unwrap();
    new.restore(&old.save()).unwrap();
    assert_eq!(new.save(), old.save());
    assert!(machine(1).restore(&old.save()).unwrap_err().to_string().contains("different devices"));
}

#[test]
fn a_state_of_another_machine_is_refused() {
    let mut four = Whole::new(machine(4));
    let mut two = Whole::new(machine(2));
    let error = two.soft.restore(&four.soft.save().unwrap()).unwrap_err();
    assert!(error.to_string().contains("of 4 CPUs, and the machine has 2"), "{error}");
    assert!(two.soft.restore(&serde_json::json!({ "cpus": [] })).is_err());
    assert!(two.machine.restore(&serde_json::json!({})).is_err());
}

#[test]
fn all_code_that_is_executed_is_observed() {
    let program = program("hello");
    let mut whole = Whole::new(machine(1));
    let entry = whole.machine.boot(&program, "some words", None).unwrap();
    whole.soft.start(&entry).unwrap();
    let (sender, runs) = std::sync::mpsc::channel();
    whole.soft.observe(Some(Box::new(move |run| sender.send(run).unwrap()))).unwrap();
    whole.run(None);
    whole.soft.observe(None).unwrap();
    let runs: Vec<_> = runs.iter().collect();
    assert_eq!(runs[0].start, entry.ip);
    // Without interrupts every run begins where the one before led.
    assert!(runs.windows(2).all(|pair| pair[0].next == pair[1].start));
    assert_eq!(Some(runs.iter().map(|run| run.instructions).sum()), whole.soft.instructions());
}
