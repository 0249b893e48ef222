//! What the platform consists of.

use serde::{Deserialize, Serialize};

/// The typed configuration of a [`crate::Platform`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformConfig {
    /// Number of CPUs, 1 to 64; APIC ids are 0 to `cpus - 1`.
    pub cpus: usize,
    /// Time-stamp counter frequency. The counter is 0 at power-on.
    pub tsc_hz: u64,
    /// What the real-time clock shows at power-on, in seconds since 1970.
    pub start_time: u64,
    /// Bytes of RAM below 4 GiB, for the CMOS cells that tell.
    pub low_memory: u64,
    /// Bytes of RAM above 4 GiB.
    pub high_memory: u64,
    /// Whether the devices that third-party CPU test programs expect are present.
    pub test_device: bool,
}

impl Default for PlatformConfig {
    fn default() -> Self {
        PlatformConfig {
            cpus: 1,
            tsc_hz: 1_000_000_000,
            // 2026-01-01 00:00:00 UTC.
            start_time: 1_767_225_600,
            low_memory: 1 << 30,
            high_memory: 0,
            test_device: true,
        }
    }
}
