//! What a machine consists of, and what can be wrong with that.

use thiserror::Error;

use crate::boot::LoadError;

/// The fixed parts of a machine. Devices are added one by one ([`super::Machine::add_device`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineConfig {
    /// Bytes of RAM.
    pub memory: u64,
    /// Number of CPUs, 1 to 64.
    pub cpus: usize,
    /// Where all randomness of the run comes from, including the guest's own.
    pub seed: u64,
    /// What the real-time clock shows at power-on, in seconds since 1970.
    pub start_time: u64,
}

impl Default for MachineConfig {
    fn default() -> Self {
        // 2026-01-01 00:00:00 UTC: a run must not depend on when it is run.
        MachineConfig { memory: 1 << 30, cpus: 1, seed: 0, start_time: 1_767_225_600 }
    }
}

impl MachineConfig {
    /// Whether there can be such a machine.
    ///
    /// # Errors
    /// Says what is wrong and what is possible.
    pub fn check(&self) -> Result<(), MachineError> {
        if !(1..=MOST_CPUS).contains(&self.cpus) {
            return Err(MachineError::Cpus { cpus: self.cpus });
        }
        if self.memory < LEAST_MEMORY {
            return Err(MachineError::TooLittleMemory { mib: self.memory >> 20 });
        }
        if self.memory > MOST_MEMORY {
            return Err(MachineError::TooMuchMemory { gib: self.memory >> 30 });
        }
        if !self.memory.is_multiple_of(0x1000) {
            return Err(MachineError::OddMemory { bytes: self.memory });
        }
        Ok(())
    }
}

/// Why a machine could not be put together.
#[derive(Debug, Error)]
pub enum MachineError {
    /// Too few or too many CPUs.
    #[error("a machine with {cpus} CPUs is not possible: use 1 to {MOST_CPUS}")]
    Cpus {
        /// What was asked for.
        cpus: usize,
    },
    /// No guest fits.
    #[error("{mib} MiB of memory are too little for any guest: use at least {} MiB", LEAST_MEMORY >> 20)]
    TooLittleMemory {
        /// What was asked for.
        mib: u64,
    },
    /// The address space has no room.
    #[error("{gib} GiB of memory are too much: use at most {} GiB", MOST_MEMORY >> 30)]
    TooMuchMemory {
        /// What was asked for.
        gib: u64,
    },
    /// Not whole pages.
    #[error("a memory size of {bytes} bytes is not a multiple of 4 KiB")]
    OddMemory {
        /// What was asked for.
        bytes: u64,
    },
    /// The host has no room.
    #[error("cannot reserve {mib} MiB of address space for the guest's memory: {source}")]
    Allocate {
        /// What was asked for.
        mib: u64,
        /// What the host said.
        source: vm_memory::mmap::FromRangesError,
    },
    /// All 31 slots of the bus are taken.
    #[error("there is no free PCI slot for {name}: a machine has 31")]
    NoSlot {
        /// The device.
        name: String,
    },
    /// The device is for a bus that this machine has not.
    #[error("{name} needs a hypervisor's channel bus, and this machine has none")]
    NoBus {
        /// The device.
        name: String,
    },
    /// A device model describes itself in an impossible way.
    #[error("device {name} cannot be put on the bus: {source}")]
    Device {
        /// The device.
        name: String,
        /// What is wrong.
        source: nicvisor_core::pci::IdentityError,
    },
    /// The devices' registers do not fit the address windows.
    #[error(transparent)]
    NoSpace(#[from] nicvisor_core::pci::NoSpace),
    /// The kernel does not fit.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// The interrupt controllers and tables are made for this many.
pub const MOST_CPUS: usize = 64;
const LEAST_MEMORY: u64 = 4 << 20;
/// RAM ends below the high PCI window.
pub(super) const MOST_MEMORY: u64 = 128 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn error(change: impl FnOnce(&mut MachineConfig)) -> String {
        let mut config = MachineConfig::default();
        change(&mut config);
        config.check().unwrap_err().to_string()
    }

    #[test]
    fn impossible_machines_are_refused_with_what_is_possible() {
        assert!(MachineConfig::default().check().is_ok());
        assert!(error(|config| config.cpus = 0).contains("1 to 64"));
        assert!(error(|config| config.cpus = 65).contains("1 to 64"));
        assert!(error(|config| config.memory = 1 << 20).contains("at least 4 MiB"));
        assert!(error(|config| config.memory = 1 << 40).contains("at most 128 GiB"));
        assert!(error(|config| config.memory += 1).contains("4 KiB"));
    }
}
