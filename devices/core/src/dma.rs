//! Guest memory as a device reaches it.

use nicvisor_memory::GuestRam;
use thiserror::Error;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// A device's view of guest memory: all of RAM while bus mastering is on, nothing otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Dma<'a> {
    memory: &'a GuestRam,
    bus_master: bool,
}

impl<'a> Dma<'a> {
    /// A view of `memory` for a device whose bus-master enable bit is `bus_master`.
    pub fn new(memory: &'a GuestRam, bus_master: bool) -> Self {
        Dma { memory, bus_master }
    }

    /// The same view, further restricted by a bus-master enable bit.
    #[must_use]
    pub fn gated(self, bus_master: bool) -> Self {
        Dma { memory: self.memory, bus_master: self.bus_master && bus_master }
    }

    /// The memory itself, for libraries that take a `vm_memory` object (virtio-queue).
    ///
    /// # Errors
    /// When bus mastering is off.
    pub fn memory(&self) -> Result<&'a GuestRam, DmaError> {
        if self.bus_master { Ok(self.memory) } else { Err(DmaError::BusMasterOff) }
    }

    /// Fills `data` from guest memory at `address`.
    ///
    /// # Errors
    /// When any byte of the range is not RAM, or bus mastering is off; `data` is then unspecified.
    pub fn read(&self, address: u64, data: &mut [u8]) -> Result<(), DmaError> {
        let length = data.len();
        self.memory()?
            .read_slice(data, GuestAddress(address))
            .map_err(|_| DmaError::NotMemory { address, length })
    }

    /// Copies `data` to guest memory at `address`.
    ///
    /// # Errors
    /// When any byte of the range is not RAM, or bus mastering is off; part may then have been written.
    pub fn write(&self, address: u64, data: &[u8]) -> Result<(), DmaError> {
        self.memory()?
            .write_slice(data, GuestAddress(address))
            .map_err(|_| DmaError::NotMemory { address, length: data.len() })
    }

    /// Reads one wire structure.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_object<T: FromBytes + FromZeros + IntoBytes>(&self, address: u64) -> Result<T, DmaError> {
        let mut object = T::new_zeroed();
        self.read(address, object.as_mut_bytes())?;
        Ok(object)
    }

    /// Writes one wire structure.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_object<T: IntoBytes + Immutable>(&self, address: u64, object: &T) -> Result<(), DmaError> {
        self.write(address, object.as_bytes())
    }

    /// Whether all of `address..address + length` is RAM that this device may reach now.
    pub fn is_memory(&self, address: u64, length: usize) -> bool {
        self.bus_master && self.memory.check_range(GuestAddress(address), length)
    }
}

/// Why a device could not reach guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DmaError {
    /// The driver has not set the bus-master enable bit in the command register.
    #[error("DMA while bus mastering is disabled")]
    BusMasterOff,
    /// The range is not (all) RAM.
    #[error("DMA of {length} bytes at {address:#x}, which is not guest memory")]
    NotMemory {
        /// First guest-physical address.
        address: u64,
        /// Length in bytes.
        length: usize,
    },
}
