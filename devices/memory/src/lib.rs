//! Guest memory as every part of nicvisor sees it.
//!
//! Guest RAM is a [`vm_memory`] mapping whose write bitmap is a [`PageTracker`]: one byte of flags per 4 KiB
//! page. Everything that writes guest memory through vm-memory (device DMA, the boot loader) marks pages by
//! itself; the software CPU, which writes through host pointers, consults the same flags. Two users so far:
//!
//! * `CODE`: the software CPU has decoded instructions from this page. A write to it must reach the decoder's
//!   cache before the next instruction is fetched from there.
//! * `DIRTY`: the page was written since the flag was last cleared (snapshots reset only such pages).
#![forbid(unsafe_code)]

mod tracker;

pub use tracker::{CODE, DIRTY, PAGE_SHIFT, PAGE_SIZE, PageFlags, PageTracker};

use vm_memory::{GuestAddress, GuestMemoryMmap, GuestRegionMmap, mmap::FromRangesError};

/// All of guest RAM: one or two regions (below and above the PCI hole) of private anonymous memory.
pub type GuestRam = GuestMemoryMmap<PageTracker>;

/// One region of guest RAM.
pub type GuestRegion = GuestRegionMmap<PageTracker>;

/// First address of the hole below 4 GiB that holds PCI windows, ECAM, APICs and firmware.
pub const PCI_HOLE_START: u64 = 0xc000_0000;

/// First address above the 32-bit space, where RAM that does not fit under the hole continues.
pub const HIGH_RAM_START: u64 = 0x1_0000_0000;

/// Maps `size` bytes of guest RAM, leaving the PCI hole free. The host hands out pages as they are touched.
///
/// # Errors
/// When the host refuses the mapping, or `size` is zero.
pub fn allocate(size: u64) -> Result<GuestRam, FromRangesError> {
    let low = size.min(PCI_HOLE_START);
    let mut ranges = vec![(GuestAddress(0), low as usize)];
    if size > low {
        ranges.push((GuestAddress(HIGH_RAM_START), (size - low) as usize));
    }
    GuestRam::from_ranges(&ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_memory::{Bytes, GuestMemoryBackend, GuestMemoryRegion};

    #[test]
    fn memory_above_three_gib_continues_at_four() {
        let ram = allocate(PCI_HOLE_START + 0x10_0000).unwrap();
        let regions: Vec<_> = ram.iter().map(|region| (region.start_addr().0, region.len())).collect();
        assert_eq!(regions, [(0, PCI_HOLE_START), (HIGH_RAM_START, 0x10_0000)]);
    }

    #[test]
    fn a_write_through_vm_memory_to_a_code_page_is_reported() {
        let ram = allocate(0x10_000).unwrap();
        let region = ram.find_region(GuestAddress(0x3000)).unwrap();
        let flags = PageTracker::of(region);
        flags.set(3, CODE);
        ram.write_slice(&[1, 2, 3], GuestAddress(0x2ffe)).unwrap();
        assert_eq!(flags.take_code_writes(), [3]);
        assert_eq!(flags.get(2), DIRTY);
        assert_eq!(flags.get(3), CODE | DIRTY);
        assert!(flags.take_code_writes().is_empty());
    }
}
