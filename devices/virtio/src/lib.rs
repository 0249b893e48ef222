//! Virtio devices on PCI (OASIS virtio 1.2): the modern transport, the console that carries the agent's
//! messages, and a plain network device to compare the cloud NICs with.
//!
//! [`VirtioPci`] is the transport: registers, capabilities, feature negotiation, queues (the `virtio-queue`
//! crate) and interrupts. A [`VirtioDevice`] sits behind it and only deals with buffers. A driver that breaks
//! the rules of a ring gets what hardware would give it: the device stops and asks to be reset.
#![forbid(unsafe_code)]

mod console;
mod device;
#[cfg(test)]
mod driver;
mod net;
mod queue;
mod transport;
mod wire;

pub use console::{AGENT_PORT, AGENT_PORT_NAME, Console, ConsolePort};
pub use device::{Kind, VirtioDevice};
pub use net::{Net, NetConfig};
pub use queue::{Chain, Queues};
pub use transport::VirtioPci;
