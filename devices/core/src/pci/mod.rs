//! PCI functions: the trait that a device implements, and the configuration space and MSI-X around it.
//!
//! A device model implements [`PciDevice`] and never sees its configuration space: [`Function`] keeps the
//! header, the BAR decoders, the capabilities and the MSI-X table, turns the vectors that the device raises
//! into messages, and gates its DMA by the bus-master bit. The same function can so sit on the PCIe root
//! (found by ECAM) or behind Hyper-V's virtual PCI (found by VMBus messages).

mod address;
mod function;
mod layout;
mod msix;
#[cfg(test)]
mod probe;
mod registers;
mod root;
mod root_port;
mod windows;

pub use function::{BarRange, Function, IdentityError};
pub use root::{Place, Root, Slot};
pub use windows::{NoSpace, Windows};

use crate::{Context, Device};

/// A device model with PCI registers. [`Device::reset`] is what a function-level or bus reset does to it.
pub trait PciDevice: Device {
    /// What the configuration space says about the device. Constant for the device's life.
    fn identity(&self) -> Identity;

    /// The guest reads `data.len()` bytes (1, 2, 4 or 8) at `offset` of BAR `bar`. `data` comes filled with
    /// ones. Accesses never cross the end of the BAR.
    fn read_bar(&mut self, context: &mut Context<'_>, bar: u8, offset: u64, data: &mut [u8]);

    /// The guest writes `data` at `offset` of BAR `bar`.
    fn write_bar(&mut self, context: &mut Context<'_>, bar: u8, offset: u64, data: &[u8]);

    /// The registers of which only matters *that* they are written, not what: a backend may turn any number of
    /// writes in a row into one of zeros. Constant for the device's life.
    fn doorbells(&self) -> Vec<Doorbell> {
        Vec::new()
    }
}

/// A register whose writes only say that they happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbell {
    /// BAR.
    pub bar: u8,
    /// Offset in it, in bytes.
    pub offset: u64,
}

/// What configuration space says about a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Subsystem vendor id.
    pub subsystem_vendor: u16,
    /// Subsystem id.
    pub subsystem: u16,
    /// Base class, subclass, programming interface, as in a 24-bit class code.
    pub class: u32,
    /// Revision id.
    pub revision: u8,
    /// The memory BARs in use. At most one of them may be [`BarKind::Msix`].
    pub bars: Vec<Bar>,
    /// Size of the MSI-X table in vectors; 0 for none, at most 2048.
    pub msix_vectors: u16,
    /// Vendor-specific capabilities (id 9): each the bytes that follow the id, next and length bytes.
    pub vendor_capabilities: Vec<Vec<u8>>,
}

/// One memory BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Register number, 0 to 5 (a 64-bit BAR also takes the next one).
    pub index: u8,
    /// Size in bytes: a power of two, at least 16.
    pub size: u64,
    /// Whether the BAR is 64 bits wide.
    pub wide: bool,
    /// Whether the memory behind it is prefetchable.
    pub prefetchable: bool,
    /// Who answers accesses.
    pub kind: BarKind,
}

/// Who answers accesses to a BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarKind {
    /// The device.
    Device,
    /// The function: MSI-X table at offset 0, pending bits behind it.
    Msix,
}
