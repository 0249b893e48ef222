//! Microsoft's Azure Network Adapter (MANA), as the `mana` driver of Linux expects it.
#![forbid(unsafe_code)]

pub mod config;
pub mod queue;
pub mod rules;
pub mod statistics;
pub mod vport;
pub mod wire;

pub use config::{Config, ConfigError};
pub use rules::rules;
