//! Virtio devices on PCI (OASIS virtio 1.2): the modern transport, and the console that carries the agent's
//! messages.
//!
//! [`VirtioPci`] is the transport: registers, capabilities, feature negotiation, queues (the `virtio-queue`
//! crate) and interrupts. A [`VirtioDevice`] sits behind it and only deals with buffers. A driver that breaks
//! the rules of a ring gets what hardware would give it: the device stops and asks to be reset.
#![forbid(unsafe_code)]

mod console;
mod device;
#[cfg(test)]
mod driver;
mod queue;
mod transport;
mod wire;

pub use console::{AGENT_PORT, AGENT_PORT_NAME, Console, ConsolePort};
pub use device::{Kind, VirtioDevice};
pub use queue::{Chain, Queues};
pub use transport::VirtioPci;
