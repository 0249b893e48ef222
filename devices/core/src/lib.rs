//! What every device model is written against.
//!
//! A device model is a *sans-IO state machine*: it owns no thread, socket, clock or file. It is called with a
//! [`Context`] (what time it is, the guest's memory) and leaves what it wants to happen in the context's
//! [`Effects`] (interrupts, frames, findings), which the machine carries out after the call. So one model runs
//! under KVM with real time, under the software CPU with virtual time, inside a property test and inside a
//! fuzzer, and a test can look at the effects as plain data.
//!
//! Three rules hold for every model:
//! * Nothing that the guest does may panic, loop without bound or allocate by a guest-given size.
//! * All state is plain data that [`serde`] can save, restore and print.
//! * Time only enters as [`Context::now`]; a model that wants to be called later says so with
//!   [`Device::next_deadline`].
#![forbid(unsafe_code)]

mod context;
mod device;
mod dma;
mod event;
pub mod fault;
mod finding;
mod firmware;
mod frame;
mod hypervisor;
pub mod io;
pub mod pci;
pub mod profile;
mod sizes;
pub mod testing;
mod time;
pub mod vmbus;

pub use context::{Context, DataPath, Effects, HostMessage, InterruptLine, MsiMessage, PowerEvent};
pub use device::{Device, DeviceId, Port, RestoreError};
pub use dma::{Dma, DmaError};
pub use event::{DeviceEvent, EventFilter, EventKind, EventKinds, EventPattern};
pub use finding::{Finding, Rule, Severity};
pub use firmware::FirmwareDevice;
pub use frame::{DropReason, Fate, Frame, FrameId};
pub use hypervisor::{GeneralRegisters, HypervisorInterface, MsrFault};
pub use nicvisor_memory as memory;
pub use pci::PciDevice;
pub use profile::{KernelVersion, Profile, Since};
pub use sizes::Sizes;
pub use time::{Duration, Time};
pub use vmbus::{ChannelBus, VmbusDevice};
