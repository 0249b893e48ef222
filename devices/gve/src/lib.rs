//! Google's virtual NIC (gVNIC), as the `gve` driver of Linux expects it.
//!
//! # Life of the device
//! A driver finds a PCI function with a small big-endian register file in BAR0 (`registers`), an MSI-X table
//! in BAR1 and doorbells in BAR2 (`doorbells`). It gives the device an *admin queue* (`admin`) and talks to
//! it through that: it announces what it can do, has the device describe itself and its options, and hands over
//! *device resources*: notification blocks, each of which is one MSI-X vector (`interrupts`), and an array of
//! counters. Then it creates queues. Taking the device back is the same in reverse, or a reset at any moment.
//!
//! # Data path
//! Queues come in four formats: DQO with descriptor and completion queues, or the older GQI with descriptors and
//! counters, each with raw DMA addresses (RDA) or registered pages (QPL, `buffers`). With DQO, a TX queue (`tx`) has a ring of descriptors, a ring of completions and a doorbell with the ring's tail. A
//! packet is an optional segmentation context, a metadata context and up to the ring's size of buffers. An RX
//! queue (`rx`) has a ring of buffers, a ring of completions and a doorbell for the buffers. Completions tell
//! new from old by a generation bit (`ring`).
//!
//! Frames that arrive while no buffer is posted wait in the NIC's memory, and are dropped only when that is
//! full.
//!
//! # Contract checking
//! Every rule that the driver's headers state is in [`rules`]; a driver that breaks one gets a finding, and the
//! reaction of hardware: a failed command, a dropped packet, or a queue that stands still until it is reset.
#![forbid(unsafe_code)]

mod admin;
mod buffers;
pub mod config;
mod counters;
mod device;
mod doorbells;
mod faults;
mod features;
mod interrupts;
mod registers;
mod ring;
pub mod rules;
mod rx;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod tx;
pub mod wire;

pub use config::{Config, ConfigError, Defect, KEYS as OPTIONS, QueueFormat};
pub use device::Gve;
pub use rules::RULES;
