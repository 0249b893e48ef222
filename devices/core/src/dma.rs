//! Guest memory as a device reaches it.
//!
//! # Order
//! Under KVM the guest runs while a device works. Where driver and device tell each other by memory that
//! something else is ready (a generation or owner bit, a status, an index that is polled), plain accesses do not
//! do: what was written before may become visible after. [`Dma::store_release`] makes everything that the device
//! wrote before visible first; [`Dma::load_acquire`] makes everything that the driver wrote before its store
//! visible to later reads; [`Dma::fence`] is for the case where a store must be visible before a *load* (does the
//! driver want an interrupt, now that it can see my entry?). What the driver announces by a doorbell needs none
//! of this: the access itself orders.

use std::sync::atomic::{Ordering, fence};

use nicvisor_memory::GuestRam;
use thiserror::Error;
use vm_memory::{AtomicAccess, Bytes, GuestAddress, GuestMemoryBackend};
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

    /// Reads a word of 1, 2, 4 or 8 bytes; whatever the driver wrote before it wrote the word is visible to
    /// later reads. An address that is not a multiple of the word's size is not read in one piece.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn load_acquire<T>(&self, address: u64) -> Result<T, DmaError>
    where
        T: AtomicAccess + FromBytes + FromZeros + IntoBytes,
    {
        if address.is_multiple_of(size_of::<T>() as u64) {
            let value = self.memory()?.load(GuestAddress(address), Ordering::Acquire);
            return value.map_err(|_| DmaError::NotMemory { address, length: size_of::<T>() });
        }
        let value = self.read_object(address);
        fence(Ordering::Acquire);
        value
    }

    /// Writes a word of 1, 2, 4 or 8 bytes; a driver that sees it sees whatever the device wrote before. An
    /// address that is not a multiple of the word's size is not written in one piece.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn store_release<T>(&self, address: u64, value: T) -> Result<(), DmaError>
    where
        T: AtomicAccess + IntoBytes + Immutable,
    {
        if address.is_multiple_of(size_of::<T>() as u64) {
            let stored = self.memory()?.store(value, GuestAddress(address), Ordering::Release);
            return stored.map_err(|_| DmaError::NotMemory { address, length: size_of::<T>() });
        }
        fence(Ordering::Release);
        self.write_object(address, &value)
    }

    /// Everything that the device wrote is visible before anything is read from here on.
    pub fn fence(&self) {
        fence(Ordering::SeqCst);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_stored_and_loaded_wherever_they_are() {
        let ram = nicvisor_memory::allocate(0x2000).unwrap();
        let dma = Dma::new(&ram, true);
        for address in [0x100, 0x101, 0x1ffe] {
            dma.store_release(address, 0x1234_u16).unwrap();
            assert_eq!(dma.load_acquire::<u16>(address), Ok(0x1234));
            let mut bytes = [0; 2];
            dma.read(address, &mut bytes).unwrap();
            assert_eq!(bytes, 0x1234_u16.to_ne_bytes());
        }
        for address in [0x1ffd, 0x2000, u64::MAX - 3] {
            let outside = DmaError::NotMemory { address, length: 4 };
            assert_eq!(dma.store_release(address, 1_u32), Err(outside));
            assert_eq!(dma.load_acquire::<u32>(address), Err(outside));
        }
        let off = dma.gated(false);
        assert_eq!(off.store_release(0, 1_u64), Err(DmaError::BusMasterOff));
        assert_eq!(off.load_acquire::<u64>(0), Err(DmaError::BusMasterOff));
    }

    #[test]
    fn a_released_word_marks_its_page_as_written() {
        let ram = nicvisor_memory::allocate(0x2000).unwrap();
        Dma::new(&ram, true).store_release(0x1008, 1_u32).unwrap();
        let flags = nicvisor_memory::PageTracker::of(ram.find_region(GuestAddress(0)).unwrap());
        assert_eq!((flags.get(0), flags.get(1)), (0, nicvisor_memory::DIRTY));
    }
}
