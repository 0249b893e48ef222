//! All CPUs of a machine and what they share.

use nicvisor_memory::{CODE, GuestRam};

use crate::Cpu;
use crate::cache::Cache;
use crate::cpuid::{CpuidTable, Features};
use crate::host::Memory;

/// The CPUs of one machine. They run one at a time.
#[derive(Debug)]
pub struct Engine {
    pub(crate) memory: Memory,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) cpuid: CpuidTable,
    pub(crate) features: Features,
    pub(crate) cache: Cache,
    pub(crate) observer: Option<Observer>,
}

/// Told of every executed block: see [`Engine::observe`].
pub(crate) struct Observer(pub(crate) Box<dyn FnMut(BlockRun) + Send>);

impl std::fmt::Debug for Observer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Observer")
    }
}

/// A run of instructions that executed one behind the other. Conditional branches on the way were not taken, so that
/// all three numbers together say which way the control flow went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// Index of the CPU.
    pub cpu: usize,
    /// RIP of the first instruction.
    pub start: u64,
    /// RIP afterwards: where the last of them led.
    pub next: u64,
    /// How many instructions were completed.
    pub instructions: u64,
}

impl Engine {
    /// `cpus` CPUs in power-on state over `ram`, all reporting `cpuid`. CPU 0 starts at the reset vector, the
    /// others wait for a start-up IPI.
    pub fn new(ram: GuestRam, cpus: usize, cpuid: CpuidTable) -> Engine {
        let features = cpuid.features();
        let mut engine = Engine {
            memory: Memory::new(ram),
            cpus: vec![Cpu::default(); cpus],
            cpuid,
            features,
            cache: Cache::new(),
            observer: None,
        };
        for (index, cpu) in engine.cpus.iter_mut().enumerate() {
            cpu.init(index == 0);
        }
        engine
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

    /// Guest RAM.
    pub fn ram(&self) -> &GuestRam {
        self.memory.ram()
    }

    /// Calls `observer` after every run of instructions, for coverage; `None` ends that.
    pub fn observe(&mut self, observer: Option<Box<dyn FnMut(BlockRun) + Send>>) {
        self.observer = observer.map(Observer);
    }

    /// To be called after RAM was changed by somebody who does not mark pages as written, such as another
    /// hypervisor: forgets all decoded instructions and all translations.
    pub fn forget_everything(&mut self) {
        for physical in self.cache.forget_all() {
            if let Some((flags, page)) = self.memory.flags(physical) {
                flags.clear(page, CODE);
            }
        }
        self.memory.take_code_writes();
        self.forget_translations();
    }

    /// Forgets what all CPUs remember of page tables.
    pub fn forget_translations(&mut self) {
        self.cpus.iter_mut().for_each(|cpu| cpu.tlb.flush());
    }

    /// To be called after clearing [`nicvisor_memory::DIRTY`] anywhere: CPUs stop to write directly to pages
    /// that they found dirty.
    pub fn page_flags_cleared(&mut self) {
        for cpu in &mut self.cpus {
            cpu.tlb.forbid_all_writes();
        }
    }
}

/// Why [`Engine::run`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The budget is used up.
    Budget,
    /// The CPU executed `HLT` (or waits for a start-up IPI) and nothing is pending for it. Run it again when
    /// something is; it resumes behind the `HLT` once it has taken an event.
    Halt,
    /// The CPU spins (`PAUSE`): others should run.
    Pause,
    /// The bus asked for it ([`crate::Event::Yield`]).
    Yield,
    /// Triple fault: the machine resets.
    Shutdown,
}
