//! The parts of a PC that are not on PCI: interrupt controllers, timers, serial port, power and reset.
//!
//! [`Platform`] holds all of them and finds the one that answers a port, memory or MSR access. Like every
//! device model they are sans-IO state machines; all state is serde data.
//!
//! Wired interrupts leave a device as [`nicvisor_core::InterruptLine`]s with global system interrupt numbers
//! (the interval timer's IRQ 0 is GSI 2, as the ACPI tables say), message-signalled ones as
//! [`nicvisor_core::MsiMessage`]s. The machine hands both to [`InterruptFabric`].
#![forbid(unsafe_code)]

mod access;
mod acpi;
mod config;
mod controls;
mod firmware_config;
mod interrupts;
mod pit;
mod platform;
mod rtc;
mod serial;
mod test_device;

pub use acpi::{AcpiPm, PM_BASE, PM_LENGTH, PM_TIMER_HZ, SCI, SLEEP_TYPE_OFF};
pub use config::PlatformConfig;
pub use controls::{DebugExit, FastControl, KeyboardController, ResetControl};
pub use firmware_config::FirmwareConfig;
pub use interrupts::{IO_APIC_BASE, InterruptFabric, IoApic, LOCAL_APIC_BASE, LocalApic, PicPair, Startup};
pub use pit::{PIT_HZ, Pit};
pub use platform::Platform;
pub use rtc::{CMOS_CENTURY, Rtc};
pub use serial::Serial;
pub use test_device::{TEST_MEMORY_BASE, TEST_MEMORY_SIZE, TestDevice};
