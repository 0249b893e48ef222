//! Boots Linux as far as it gets without an initrd, on several numbers of CPUs. (`nicvisor test` boots it all the
//! way; this is for working on the machine alone.) `NICVISOR_TEST_KERNEL` may name another image than Debian's.

mod support;

use guest_images::{Store, StoreOptions};
use nicvisor::accel::{Patience, RunEvent};
use nicvisor::boot::Kernel;
use nicvisor::machine::{Machine, MachineConfig};
use nicvisor_core::Time;
use nicvisor_net::network::{Network, SharedMedium};
use support::{Backend, run};

#[test]
#[ignore = "six boots take minutes"]
fn linux_boots_on_any_number_of_cpus_and_twice_the_same_way() {
    let name = std::env::var("NICVISOR_TEST_KERNEL").unwrap_or_else(|_| "debian:6.12".into());
    let store = Store::open(StoreOptions::default()).unwrap();
    let kernel = Kernel::read(&store.kernel(&name.parse().unwrap()).unwrap().vmlinuz).unwrap();
    for cpus in [1, 2, 8] {
        let first = boot(&kernel, cpus);
        assert!(first.console.contains("Unable to mount root fs"), "{}", first.console);
        assert!(first.console.contains("clocksource: Switched to clocksource tsc"), "{}", first.console);
        for trouble in ["BUG:", "WARNING:", "rcu_sched", "unstable", "ACPI Error", "firmware bug"] {
            assert!(!first.console.contains(trouble), "{trouble}: {}", first.console);
        }
        if cpus > 1 {
            let activated = format!("smp: Brought up 1 node, {cpus} CPUs");
            assert!(first.console.contains(&activated), "{}", first.console);
        }
        assert_eq!(first, boot(&kernel, cpus), "{cpus} CPUs");
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Boot {
    console: String,
    end: Time,
    instructions: Option<u64>,
}

fn boot(kernel: &Kernel, cpus: usize) -> Boot {
    let config = MachineConfig { cpus, ..MachineConfig::default() };
    let mut machine = Machine::new(config, SharedMedium::new(Network::new())).unwrap();
    let run = run(Backend::Soft, &mut machine, kernel, "console=ttyS0 panic=-1", None, Patience::default());
    assert_eq!(run.event, RunEvent::Reset, "{}", run.serial);
    Boot { console: run.serial, end: run.accelerator.now(), instructions: run.accelerator.instructions() }
}
