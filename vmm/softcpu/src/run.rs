//! The loop that executes blocks and looks at what is pending between them.

use nicvisor_memory::CODE;

use crate::access::{Access, Env};
use crate::cache::{Block, Cache, Key, MAX_BLOCK_OPS};
use crate::control::DR6_BS;
use crate::cpu::{Activity, RIP};
use crate::decode::{BlockDecoder, decode};
use crate::engine::{BlockRun, Engine, Exit};
use crate::flags::{IF, RF, TF};
use crate::op::Op;
use crate::segment::CS;
use crate::{Bus, Cpu, Event, Exception, Stop};

/// What to do after looking at what is pending.
enum Boundary {
    /// Execute the next block.
    Go,
    /// Look again.
    Again,
    /// An exception or interrupt was delivered, which counts as an instruction; look again.
    Delivered,
    /// End the run.
    Leave(Exit),
}

/// How a sequence of blocks ended.
struct BlocksEnd {
    /// What is pending has to be looked at.
    look: bool,
    stop: Option<Stop>,
}

/// How the search for the next block ended.
enum Next {
    Cached(Block),
    /// Not to be cached: code outside RAM.
    Single(Op),
    /// Fetching faulted: [`Cpu::pending_fault`].
    Fault,
}

impl Engine {
    /// Runs CPU `index` for at most `budget` instructions. Returns how many were completed and why it ended.
    /// The delivery of an exception counts as one, so that every run ends.
    ///
    /// Pending events are asked for ([`Bus::attention`]) at the start and after every call into the bus: what
    /// becomes pending by other means waits for the end of the budget.
    pub fn run(&mut self, index: usize, bus: &mut dyn Bus, budget: u64) -> (u64, Exit) {
        self.prepare(index);
        let mut executed = 0;
        let mut look = true;
        while executed < budget {
            if look {
                self.forget_written_code();
                let mut env = Env::between_blocks(&self.memory, &self.cpuid, bus, index, executed);
                match self.cpus[index].boundary(&mut env) {
                    Boundary::Go => {}
                    Boundary::Again => continue,
                    Boundary::Delivered => {
                        executed += 1;
                        continue;
                    }
                    Boundary::Leave(exit) => return (executed, exit),
                }
            }
            let stop = match self.find_block(index, bus, executed) {
                Next::Cached(block) => {
                    let run = self.run_blocks(index, bus, block, &mut executed, budget);
                    look = run.look;
                    run.stop
                }
                Next::Single(op) => {
                    look = true;
                    self.run_single(index, bus, &op, &mut executed)
                }
                Next::Fault => Some(Stop::Fault),
            };
            match stop {
                None | Some(Stop::Resume) => {}
                Some(Stop::Repeat) => look = true,
                Some(Stop::Fault) => {
                    let mut env = Env::between_blocks(&self.memory, &self.cpuid, bus, index, executed);
                    self.cpus[index].raise_pending(&mut env);
                    executed += 1;
                    look = true;
                }
                Some(Stop::Pause) => return (executed, Exit::Pause),
                Some(Stop::Halt) => {
                    self.cpus[index].activity = Activity::Halted;
                    look = true;
                }
            }
        }
        (executed, Exit::Budget)
    }

    /// Executes `block` and those that follow it, for as long as they are found without effort and nothing
    /// needs a look.
    fn run_blocks(
        &mut self,
        index: usize,
        bus: &mut dyn Bus,
        block: Block,
        executed: &mut u64,
        budget: u64,
    ) -> BlocksEnd {
        let cpu = &mut self.cpus[index];
        let cache = &self.cache;
        let mut env = Env::between_blocks(&self.memory, &self.cpuid, bus, index, *executed);
        let mut block = block;
        loop {
            env.ops = cache.ops(block);
            env.block_rip = cpu.rip();
            env.limit = cpu.block_limit(env.ops, budget - env.executed);
            if env.limit == 0 {
                *executed = env.executed;
                return BlocksEnd { look: true, stop: Some(cpu.fault(Exception::general_protection(0))) };
            }
            let (completed, stop) = cpu.execute(&mut env);
            env.executed += completed as u64;
            let run = BlockRun {
                cpu: index,
                start: env.block_rip,
                next: cpu.rip(),
                instructions: completed as u64,
            };
            if let Some(observer) = &mut self.observer {
                (observer.0)(run);
            }
            let leave = env.look || !matches!(stop, None | Some(Stop::Resume)) || env.executed >= budget;
            if leave || cpu.derived.one_instruction {
                *executed = env.executed;
                let look = env.look || cpu.after_single(completed);
                return BlocksEnd { look, stop };
            }
            match cpu.next_block(cache) {
                Some(next) => block = next,
                None => {
                    *executed = env.executed;
                    return BlocksEnd { look: false, stop };
                }
            }
        }
    }

    /// Executes one instruction that is not cached.
    #[cold]
    fn run_single(&mut self, index: usize, bus: &mut dyn Bus, op: &Op, executed: &mut u64) -> Option<Stop> {
        let cpu = &mut self.cpus[index];
        let mut env = Env::between_blocks(&self.memory, &self.cpuid, bus, index, *executed);
        env.ops = std::slice::from_ref(op);
        env.block_rip = cpu.rip();
        env.limit = 1;
        let (completed, stop) = cpu.execute(&mut env);
        cpu.after_single(completed);
        let run =
            BlockRun { cpu: index, start: env.block_rip, next: cpu.rip(), instructions: completed as u64 };
        if let Some(observer) = &mut self.observer {
            (observer.0)(run);
        }
        *executed += completed as u64;
        stop
    }

    /// Brings a CPU that may have been changed from outside into a consistent state.
    fn prepare(&mut self, index: usize) {
        let cpu = &mut self.cpus[index];
        if cpu.tlb.memory != self.memory.id() {
            cpu.tlb.flush();
            cpu.tlb.memory = self.memory.id();
        }
        cpu.derived.features = self.features;
        cpu.refresh();
    }

    fn forget_written_code(&mut self) {
        for (physical, bytes) in self.memory.take_code_writes() {
            if self.cache.has_code_at(physical, bytes) {
                self.cache.forget_page(physical);
                if let Some((flags, page)) = self.memory.flags(physical) {
                    flags.clear(page, CODE);
                }
            }
        }
    }

    /// The block at the current instruction, decoded if need be.
    fn find_block(&mut self, index: usize, bus: &mut dyn Bus, executed: u64) -> Next {
        let mut env = Env::between_blocks(&self.memory, &self.cpuid, bus, index, executed);
        let cpu = &mut self.cpus[index];
        if let Some(block) = cpu.next_block(&self.cache) {
            return Next::Cached(block);
        }
        let linear = cpu.code_linear();
        let bits = cpu.derived.code_bits;
        let rip = cpu.rip();
        let Ok(physical) = cpu.resolve_code(&mut env, linear) else { return Next::Fault };
        let key = Key::new(physical, bits);
        if let Some(block) = self.cache.find(key) {
            if !block.crossing {
                return Next::Cached(block);
            }
            let Ok(next) = cpu.resolve_code(&mut env, (linear | 0xfff).wrapping_add(1)) else {
                return Next::Fault;
            };
            if self.cache.crosses_to(key) == Some(next) {
                return Next::Cached(block);
            }
        }
        let mut page = [0; 4096];
        let here = 4096 - (physical & 0xfff) as usize;
        let Some(host) = self.memory.page(physical) else {
            return cpu.fetch_outside_ram(&mut env, linear);
        };
        host.read_bytes((physical & 0xfff) as usize, &mut page[..here]);
        let mut ops = Vec::with_capacity(MAX_BLOCK_OPS);
        ops.extend(BlockDecoder::new(&page[..here], rip, bits).take(MAX_BLOCK_OPS));
        if !ops.is_empty() {
            return Next::Cached(self.insert(key, &ops, None));
        }
        // The instruction goes on in the next page.
        let Ok(next) = cpu.resolve_code(&mut env, (linear | 0xfff).wrapping_add(1)) else {
            return Next::Fault;
        };
        let mut bytes = [0; 30];
        bytes[..here].copy_from_slice(&page[..here]);
        let rest = 15 - here.min(15);
        if !self.memory.read(next, &mut bytes[here..here + rest]) {
            return cpu.fetch_outside_ram(&mut env, linear);
        }
        match decode(&bytes[..here + rest], rip, u32::from(bits)) {
            Some((op, _)) => Next::Cached(self.insert(key, &[op], Some(next))),
            None => {
                cpu.fault(Exception::general_protection(0));
                Next::Fault
            }
        }
    }

    fn insert(&mut self, key: Key, ops: &[Op], next_page: Option<u64>) -> Block {
        if self.cache.is_full(ops.len()) {
            for physical in self.cache.clear() {
                if let Some((flags, page)) = self.memory.flags(physical) {
                    flags.clear(page, CODE);
                }
            }
        }
        for physical in [Some(key.physical()), next_page].into_iter().flatten() {
            if let Some((flags, page)) = self.memory.flags(physical)
                && flags.get(page) & CODE == 0
            {
                flags.set(page, CODE);
                if let Some(page) = self.memory.page(physical) {
                    self.cpus.iter_mut().for_each(|cpu| cpu.tlb.forbid_writes(page));
                }
            }
        }
        self.cache.insert(key, ops, next_page)
    }
}

impl<'a> Env<'a> {
    /// For accesses that no instruction of a block makes.
    pub(crate) fn between_blocks(
        memory: &'a crate::host::Memory,
        cpuid: &'a crate::CpuidTable,
        bus: &'a mut dyn Bus,
        cpu_index: usize,
        executed: u64,
    ) -> Env<'a> {
        Env { bus, cpu_index, memory, cpuid, ops: &[], block_rip: 0, executed, limit: 0, look: false }
    }
}

impl Cpu {
    /// Executes `env`'s block. Returns how many instructions were completed and why it ended before its limit.
    #[inline(always)]
    fn execute(&mut self, env: &mut Env<'_>) -> (usize, Option<Stop>) {
        let mut rip = env.block_rip;
        let mut completed = 0;
        for op in env.ops {
            rip = rip.wrapping_add(u64::from(op.length));
            self.registers[RIP as usize] = rip;
            if let Err(stop) = (op.handler)(self, env, op) {
                if matches!(stop, Stop::Fault | Stop::Repeat) {
                    self.set_rip(rip.wrapping_sub(u64::from(op.length)));
                }
                return (completed + usize::from(stop != Stop::Fault), Some(stop));
            }
            completed += 1;
            if completed >= env.limit {
                break;
            }
        }
        (completed, None)
    }

    /// The block at the current instruction, if that takes two table look-ups.
    #[inline(always)]
    fn next_block(&self, cache: &Cache) -> Option<Block> {
        let physical = self.tlb.executable(self.code_linear())?;
        cache.find_fast(Key::new(physical, self.derived.code_bits))
    }

    /// After a block that may have been cut to one instruction; true if it was.
    fn after_single(&mut self, completed: usize) -> bool {
        if self.derived.single_step && completed != 0 {
            self.debug_trap |= DR6_BS;
        }
        self.derived.single_step = false;
        std::mem::take(&mut self.derived.one_instruction)
    }

    /// Looks at everything that can happen at an instruction boundary, in order of priority (SDM vol. 3, 6.9).
    #[cold]
    fn boundary(&mut self, env: &mut Env<'_>) -> Boundary {
        if self.activity == Activity::Shutdown {
            return Boundary::Leave(Exit::Shutdown);
        }
        if self.debug_trap != 0 {
            let causes = std::mem::take(&mut self.debug_trap);
            self.raise_debug(env, causes, false);
            return Boundary::Delivered;
        }
        let shadow = self.interrupt_shadow;
        if self.nmi_pending && !self.nmi_blocked && !shadow && self.activity != Activity::WaitForStartUp {
            self.nmi_pending = false;
            self.deliver_nmi(env);
            return Boundary::Delivered;
        }
        if env.bus.attention(env.cpu_index) {
            let interruptible =
                self.system_flags & IF != 0 && !shadow && self.activity != Activity::WaitForStartUp;
            match env.bus.take_event(env.cpu_index, interruptible) {
                Some(Event::Interrupt(vector)) => {
                    self.activity = Activity::Running;
                    self.deliver_interrupt(env, vector);
                    return Boundary::Delivered;
                }
                Some(Event::Nmi) => {
                    self.nmi_pending = true;
                    return Boundary::Again;
                }
                Some(Event::Yield) => return Boundary::Leave(Exit::Yield),
                None => {}
            }
        }
        if self.activity != Activity::Running {
            return Boundary::Leave(Exit::Halt);
        }
        let resume = self.system_flags & RF != 0;
        self.system_flags &= !RF;
        if self.derived.debugging && !resume {
            let causes = self.instruction_breakpoints(self.code_linear());
            if causes != 0 {
                self.raise_debug(env, causes, true);
                return Boundary::Delivered;
            }
        }
        self.interrupt_shadow = false;
        self.derived.single_step = self.system_flags & TF != 0;
        self.derived.one_instruction = shadow || self.derived.single_step || self.derived.debugging;
        Boundary::Go
    }

    /// How many of `ops` may be executed before the next look at what is pending; 0 when not even the first
    /// lies within the code segment.
    #[inline(always)]
    fn block_limit(&mut self, ops: &[Op], budget: u64) -> usize {
        if self.derived.code_bits != 64 || self.derived.one_instruction {
            return self.block_limit_checked(ops, budget);
        }
        ops.len().min(budget as usize)
    }

    #[cold]
    fn block_limit_checked(&self, ops: &[Op], budget: u64) -> usize {
        let limit = if self.derived.one_instruction { 1 } else { ops.len().min(budget as usize) };
        if self.derived.code_bits == 64 {
            return limit;
        }
        let mut end = self.rip();
        let last = u64::from(self.segments[CS].limit);
        let fitting = ops.iter().take_while(|op| {
            end += u64::from(op.length);
            end - 1 <= last
        });
        fitting.count().min(limit)
    }

    /// The linear address of the next instruction.
    #[inline(always)]
    pub(crate) fn code_linear(&self) -> u64 {
        let linear = self.derived.code_base.wrapping_add(self.rip());
        if self.derived.code_bits == 64 { linear } else { linear & 0xffff_ffff }
    }

    fn resolve_code(&mut self, env: &mut Env<'_>, linear: u64) -> Result<u64, Stop> {
        let linear = if self.derived.code_bits == 64 { linear } else { linear & 0xffff_ffff };
        match self.tlb.executable(linear) {
            Some(physical) => Ok(physical),
            None => self.resolve(env, linear, Access::Execute),
        }
    }

    /// Decodes an instruction that lies, at least in part, outside RAM.
    fn fetch_outside_ram(&mut self, env: &mut Env<'_>, linear: u64) -> Next {
        let mut bytes = [0; 15];
        for length in 1..=bytes.len() {
            let at = env.position(self);
            let Ok(physical) = self.resolve_code(env, linear.wrapping_add(length as u64 - 1)) else {
                return Next::Fault;
            };
            let byte = &mut bytes[length - 1..length];
            if !env.memory.read(physical, byte) {
                env.bus.read_memory(at, physical, byte);
            }
            if let Some((op, _)) = decode(&bytes[..length], self.rip(), u32::from(self.derived.code_bits)) {
                return Next::Single(op);
            }
        }
        self.fault(Exception::general_protection(0));
        Next::Fault
    }
}
