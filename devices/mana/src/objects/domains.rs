//! Protection domains and what belongs to them: registered devices, memory regions, device memory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Numbers;
use crate::queue::Owner;
use crate::wire::gdma_requests::{DEVICE_MANA, DEVICE_MANA_IB};

/// Everything that lives in protection domains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Domains {
    ethernet: bool,
    rdma: bool,
    /// Created by the driver: handle to the domain's number.
    pub(crate) created: BTreeMap<u64, u32>,
    /// By handle.
    pub(crate) memory_regions: BTreeMap<u64, MemoryRegion>,
    /// Lengths of pieces of device memory, by handle.
    pub(crate) device_memory: BTreeMap<u64, u64>,
    numbers: Numbers,
}

/// A memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemoryRegion {
    /// Handle of its protection domain.
    pub(crate) domain: u64,
    /// Handle of the device memory that it stands for.
    pub(crate) device_memory: Option<u64>,
}

/// What a device that was registered got.
pub(crate) type Registration = Owner;

impl Default for Domains {
    fn default() -> Domains {
        Domains {
            ethernet: false,
            rdma: false,
            created: BTreeMap::new(),
            memory_regions: BTreeMap::new(),
            device_memory: BTreeMap::new(),
            numbers: Numbers::new(FIRST_CREATED, MAX_DOMAINS),
        }
    }
}

impl Domains {
    /// What the device of this kind gets when it is registered; `None` if it cannot be.
    pub(crate) fn registration(kind: u16) -> Option<Registration> {
        matches!(kind, DEVICE_MANA | DEVICE_MANA_IB).then(|| owner(kind.into()))
    }

    /// What the hardware channel gets by itself.
    pub(crate) fn channel() -> Owner {
        Owner { doorbell_page: 0, ..owner(1) }
    }

    /// Whether the device of this kind is registered.
    pub(crate) fn is_registered(&self, kind: u16) -> bool {
        match kind {
            DEVICE_MANA => self.ethernet,
            DEVICE_MANA_IB => self.rdma,
            _ => false,
        }
    }

    /// Registers or deregisters the device of this kind.
    pub(crate) fn set_registered(&mut self, kind: u16, registered: bool) {
        match kind {
            DEVICE_MANA => self.ethernet = registered,
            DEVICE_MANA_IB => self.rdma = registered,
            _ => (),
        }
    }

    /// How many devices are registered.
    pub(crate) fn registered(&self) -> usize {
        usize::from(self.ethernet) + usize::from(self.rdma)
    }

    /// A number for a new protection domain.
    pub(crate) fn new_number(&mut self) -> Option<u32> {
        let (created, used) = (&self.created, self.created.len());
        self.numbers.take(used, |number| created.values().any(|other| *other == number))
    }

    /// Owner of queues in the protection domain `number` rung by `doorbell_page`; `None` if there is no such
    /// domain. Whether that page may be used is another question.
    pub(crate) fn owner(&self, number: u32, doorbell_page: u32) -> Option<Owner> {
        let kind = u16::try_from(number).unwrap_or(0);
        let exists = self.is_registered(kind) || self.created.values().any(|other| *other == number);
        exists.then(|| Owner { doorbell_page, ..owner(number) })
    }
}

/// Devices have protection domains and doorbell pages by their kind.
fn owner(number: u32) -> Owner {
    Owner { protection_domain: number, doorbell_page: number, memory_key: MEMORY_KEYS + number }
}

/// Above the kinds of devices.
const FIRST_CREATED: u32 = 0x10;
/// `GDMA_PD_FLAG_SHORT_PDN` asks for numbers of 16 bits.
const MAX_DOMAINS: u32 = 0x1_0000;
/// Memory keys for guest-physical addresses, by protection domain. They are sent in 24 bits.
const MEMORY_KEYS: u32 = 0x5_0000;
