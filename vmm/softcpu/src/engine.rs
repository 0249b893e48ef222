//! All CPUs of a machine and what they share.

use nicvisor_memory::GuestRam;

use crate::cpuid::CpuidTable;
use crate::decode::decode;
use crate::{Bus, Cpu, Env, Stop};

/// The CPUs of one machine. They run one at a time.
#[derive(Debug)]
pub struct Engine {
    ram: GuestRam,
    cpus: Vec<Cpu>,
    cpuid: CpuidTable,
}

impl Engine {
    /// `cpus` CPUs in power-on state over `ram`, all reporting `cpuid`.
    pub fn new(ram: GuestRam, cpus: usize, cpuid: CpuidTable) -> Engine {
        Engine { ram, cpus: vec![Cpu::default(); cpus], cpuid }
    }

    /// Number of CPUs.
    pub fn cpu_count(&self) -> usize {
        self.cpus.len()
    }

    /// The state of CPU `index`.
    pub fn cpu(&self, index: usize) -> &Cpu {
        &self.cpus[index]
    }

    /// The state of CPU `index`, to be set up for a boot protocol or restored.
    pub fn cpu_mut(&mut self, index: usize) -> &mut Cpu {
        &mut self.cpus[index]
    }

    /// What `CPUID` reports.
    pub fn cpuid(&self) -> &CpuidTable {
        &self.cpuid
    }

    /// Runs CPU `index` for at most `budget` instructions. Events from outside are asked for at block
    /// boundaries ([`Bus::attention`]). Returns how many instructions were completed and why it ended.
    pub fn run(&mut self, index: usize, bus: &mut dyn Bus, budget: u64) -> (u64, Exit) {
        let cpu = &mut self.cpus[index];
        let mut env = Env { ram: &self.ram, bus, cpu_index: index };
        for executed in 0..budget {
            let mut bytes = [0; 15];
            let rip = cpu.rip();
            let Ok(()) = cpu.load_bytes(&mut env, rip, &mut bytes) else { return (executed, Exit::Shutdown) };
            let Some((op, _)) = decode(&bytes, rip, 64) else { return (executed, Exit::Shutdown) };
            cpu.set_rip(rip.wrapping_add(u64::from(op.length)));
            match (op.handler)(cpu, &mut env, &op) {
                Ok(()) | Err(Stop::Resume) => {}
                Err(Stop::Repeat) => cpu.set_rip(rip),
                Err(Stop::Pause) => return (executed + 1, Exit::Pause),
                Err(Stop::Halt) => return (executed + 1, Exit::Halt),
                Err(Stop::Fault) => return (executed, Exit::Shutdown),
            }
        }
        (budget, Exit::Budget)
    }
}

/// Why [`Engine::run`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The budget is used up.
    Budget,
    /// The CPU executed `HLT` and nothing is pending for it. Run it again when something is; it resumes behind
    /// the `HLT` once it has taken an event.
    Halt,
    /// The CPU spins (`PAUSE`): others should run.
    Pause,
    /// The bus asked for it ([`crate::Event::Yield`]).
    Yield,
    /// Triple fault: the machine resets.
    Shutdown,
}
