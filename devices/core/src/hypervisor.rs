//! What a hypervisor offers a guest besides devices on a bus.

use crate::{ChannelBus, Context, Device, FirmwareDevice};

/// A hypervisor's own interface: CPUID leaves, model-specific registers, calls, timers. One model in user space
/// serves every backend, none of which has an idea of it.
///
/// A call reaches the model as an `OUT` to [`Self::call_port`], which the model writes into the page that the
/// guest calls; so it works wherever port accesses do.
///
/// It is a [`Device`] as well: its faults, events and counters are those of the interface and its bus (messages,
/// offers, channels), its deadlines and its reset those of the devices on the bus too.
pub trait HypervisorInterface: Device {
    /// The CPUID leaves that tell a guest of the interface, each with EAX, EBX, ECX and EDX.
    fn cpuid(&self) -> Vec<(u32, [u32; 4])>;

    /// CPU `cpu` reads register `index`; `None` when it is not one of the interface's.
    fn read_msr(
        &mut self,
        context: &mut Context<'_>,
        cpu: usize,
        index: u32,
    ) -> Option<Result<u64, MsrFault>>;

    /// CPU `cpu` writes register `index`; `None` when it is not one of the interface's.
    fn write_msr(
        &mut self,
        context: &mut Context<'_>,
        cpu: usize,
        index: u32,
        value: u64,
    ) -> Option<Result<(), MsrFault>>;

    /// The I/O port through which calls arrive.
    fn call_port(&self) -> u16;

    /// CPU `cpu` makes a call; arguments and results are in `registers`.
    fn call(&mut self, context: &mut Context<'_>, cpu: usize, registers: &mut GeneralRegisters);

    /// The bus of devices that comes with the interface, if one does.
    fn bus(&self) -> Option<&dyn ChannelBus> {
        None
    }

    /// The same bus, to be used.
    fn bus_mut(&mut self) -> Option<&mut dyn ChannelBus> {
        None
    }

    /// What the ACPI tables must say about the interface.
    fn firmware(&self) -> Vec<FirmwareDevice> {
        Vec::new()
    }
}

/// A CPU's general-purpose registers, by their encoding: RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 to R15.
pub type GeneralRegisters = [u64; 16];

/// There is no such model-specific register, or it does not take this value: the CPU raises #GP(0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsrFault;
