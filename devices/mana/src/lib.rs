//! Microsoft's Azure Network Adapter (MANA), as the `mana` driver of Linux expects it.
#![forbid(unsafe_code)]

pub mod rules;
pub mod wire;

pub use rules::rules;
