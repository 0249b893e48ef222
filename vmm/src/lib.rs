//! nicvisor boots an unmodified Linux kernel on emulated cloud NICs to test the drivers in it.
//!
//! This library is the machine: [`boot`] reads kernels, [`acpi`] describes the hardware to them, [`machine`]
//! holds memory and devices, [`accel`] runs the CPUs. [`Trial`] carries scenarios out that a program has put
//! together; `examples/` shows how.

pub mod accel;
pub mod acpi;
pub mod boot;
pub mod cli;
pub mod guest;
pub mod machine;
pub mod nic;
pub mod outside;

pub use cli::{Failure, Trial};
