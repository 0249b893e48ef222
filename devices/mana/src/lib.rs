//! Microsoft's Azure Network Adapter (MANA), as the `mana` driver of Linux expects it.
//!
//! # Life of the device
//! A driver finds a PCI function whose BAR0 holds a small register file, 32 bytes of shared memory (`registers`,
//! `shared_memory`) and doorbell pages. Through the shared memory it asks for the *hardware channel* (`hwc`): an
//! event queue, a completion queue, a send and a receive queue by which it makes requests (`control`). It says
//! who it is, learns what there is, registers the Ethernet device, which gives it a protection domain, a memory
//! key and a doorbell page, and creates *objects* (`objects`): DMA regions, which queues take over, event queues,
//! and for each virtual port ([`vport`]) work queues with their completion queues. Taking the device apart is the
//! same in reverse, or a reset at any moment.
//!
//! # Data path
//! All queues are of the kinds in [`queue`]. A packet to be sent (`tx`) is a send queue entry with out-of-band
//! data that says what is to be done to it; a received one (`rx`) goes to a queue by the vPort's steering. What
//! became of them is told by completions, which event queues announce, each of which has an interrupt vector.
//!
//! # Contract checking
//! Every rule that the driver's headers state is in [`mod@rules`]; a driver that breaks one gets a finding, and the
//! reaction of hardware. All objects are accounted for: what is destroyed twice, too early, or not at all.
//!
//! # Age
//! Drivers of different age meet devices of different age: `features` lists what came when, what a driver has to
//! announce, and what the configuration ([`config::Config::profile`]) says about it.
//!
//! # Faults
//! `faults` says what can be made to go wrong: requests, registers, completions, and events that no driver asked
//! for.
#![forbid(unsafe_code)]

pub mod config;
mod control;
mod data;
mod device;
mod faults;
mod features;
mod hwc;
mod objects;
pub mod queue;
mod registers;
pub mod rules;
pub mod rx;
mod shared_memory;
pub mod statistics;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod tx;
pub mod vport;
pub mod wire;

pub use config::{Config, ConfigError, KEYS as OPTIONS};
pub use device::Mana;
pub use rules::rules;
