//! Everything outside the CPUs and RAM, as the engine reaches it.

/// Where in a run an access happens, so that the bus can tell the exact time of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Index of the CPU that executes.
    pub cpu: usize,
    /// Instructions that this CPU has completed since [`crate::Engine::run`] was called.
    pub executed: u64,
}

/// An access that the machine answers with a general-protection fault (an MSR that does not exist).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneralProtection;

/// The machine around the CPUs.
///
/// After every call into the bus that may change what interrupts are pending (port, memory and MSR accesses)
/// the engine ends the block and asks [`Bus::attention`] again.
pub trait Bus {
    /// Reads `data.len()` bytes (1, 2, 4 or 8, never crossing a page) at a physical address that is not RAM.
    fn read_memory(&mut self, at: Position, address: u64, data: &mut [u8]);

    /// Writes to a physical address that is not RAM.
    fn write_memory(&mut self, at: Position, address: u64, data: &[u8]);

    /// `IN`: `data.len()` is 1, 2 or 4.
    fn read_port(&mut self, at: Position, port: u16, data: &mut [u8]);

    /// `OUT`, offered first as a call: a hypervisor's interface may give a port this meaning, and then reads and
    /// changes the general-purpose registers. Returns whether it was one; if not, [`Self::write_port`] follows.
    fn call(&mut self, _at: Position, _port: u16, _registers: &mut [u64; 16]) -> bool {
        false
    }

    /// `OUT`.
    fn write_port(&mut self, at: Position, port: u16, data: &[u8]);

    /// `RDMSR` of a register that the CPU itself does not keep.
    ///
    /// # Errors
    /// When there is no such register.
    fn read_msr(&mut self, at: Position, index: u32) -> Result<u64, GeneralProtection>;

    /// `WRMSR` of a register that the CPU itself does not keep.
    ///
    /// # Errors
    /// When there is no such register or it does not take this value.
    fn write_msr(&mut self, at: Position, index: u32, value: u64) -> Result<(), GeneralProtection>;

    /// The time-stamp counter, before the CPU's own offset. Never runs backwards.
    fn time_stamp(&mut self, at: Position) -> u64;

    /// `CR8` reads: the task priority, 0 to 15.
    fn task_priority(&mut self, at: Position) -> u8;

    /// `CR8` writes.
    fn set_task_priority(&mut self, at: Position, priority: u8);

    /// Whether CPU `cpu` has an interrupt, NMI or other event to take, or the machine wants the run to end.
    /// Asked at the start of a run, after calls into the bus, and after instructions that may make the CPU
    /// interruptible; it should be no more than a look at a flag.
    fn attention(&self, cpu: usize) -> bool;

    /// The event that CPU `cpu` is to take now. `interruptible` says whether it would accept a maskable
    /// interrupt; if so, returning [`Event::Interrupt`] acknowledges it.
    fn take_event(&mut self, cpu: usize, interruptible: bool) -> Option<Event>;
}

/// What a CPU can be made to do from outside at an instruction boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A maskable interrupt with this vector.
    Interrupt(u8),
    /// A non-maskable interrupt.
    Nmi,
    /// End the run ([`crate::Exit::Yield`]).
    Yield,
}
