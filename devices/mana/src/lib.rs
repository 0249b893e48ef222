//! Microsoft's Azure Network Adapter (MANA), as the `mana` driver of Linux expects it.
#![forbid(unsafe_code)]

pub mod config;
mod control;
mod data;
mod device;
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

pub use config::{Config, ConfigError};
pub use device::Mana;
pub use rules::rules;
