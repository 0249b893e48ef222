//! Where things lie in a guest's physical memory before it runs, and the memory map that tells it.

use nicvisor_memory::{GuestRam, HIGH_RAM_START};
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};

/// A range of physical addresses with its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
    /// What may be done with it.
    pub kind: MapKind,
}

/// Address range types; the numbers are those of ACPI 6.5, table 15.1, which e820, PVH and multiboot share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MapKind {
    /// Memory that the guest may use.
    Ram = 1,
    /// Not memory, or not the guest's.
    Reserved = 2,
    /// ACPI tables.
    Acpi = 3,
}

/// The memory map of a machine with this RAM.
pub fn memory_map(ram: &GuestRam) -> Vec<MapEntry> {
    let low_end = low_ram_end(ram);
    let mut map = vec![
        entry(0, EBDA_START, MapKind::Ram),
        entry(EBDA_START, ACPI_START, MapKind::Reserved),
        entry(ACPI_START, HIGH_MEMORY_START, MapKind::Acpi),
        entry(HIGH_MEMORY_START, low_end, MapKind::Ram),
        entry(ECAM_START, ECAM_START + ECAM_SIZE, MapKind::Reserved),
    ];
    map.extend(ram.iter().filter(|region| region.start_addr().0 >= HIGH_RAM_START).map(|region| MapEntry {
        start: region.start_addr().0,
        length: region.len(),
        kind: MapKind::Ram,
    }));
    map
}

/// End of the RAM that starts at address zero.
pub fn low_ram_end(ram: &GuestRam) -> u64 {
    ram.iter().next().map_or(0, |region| region.len())
}

fn entry(start: u64, end: u64, kind: MapKind) -> MapEntry {
    MapEntry { start, length: end - start, kind }
}

/// Rounds `address` up to the next page.
pub(crate) fn page_up(address: u64) -> u64 {
    address.next_multiple_of(0x1000)
}

/// Descriptor table for the entry into 32- or 64-bit code.
pub const GDT: u64 = 0x500;
/// `hvm_start_info` or the multiboot information.
pub const START_INFO: u64 = 0x6000;
/// Modules of a PVH or multiboot start.
pub const MODULES: u64 = 0x6200;
/// Memory map of a PVH or multiboot start.
pub const START_MAP: u64 = 0x6400;
/// The zero page of the Linux boot protocol.
pub const ZERO_PAGE: u64 = 0x7000;
/// Top of the stack that entry code may use.
pub const STACK_TOP: u64 = 0x8ff0;
/// Identity page tables: one page of each of the two upper levels, then four page directories.
pub const PAGE_TABLES: u64 = 0x9000;
/// `setup_data` nodes of the Linux boot protocol.
pub const SETUP_DATA: u64 = 0x1_0000;
/// Kernel command line.
pub const COMMAND_LINE: u64 = 0x2_0000;
/// Longest command line, with its final zero, that fits there.
pub const COMMAND_LINE_ROOM: u64 = 0x1_0000;
/// Traditional place of the extended BIOS data area: end of conventional memory.
pub const EBDA_START: u64 = 0x9_fc00;
/// The ACPI tables, with the root pointer first, where a legacy search finds it.
pub const ACPI_START: u64 = 0xe_0000;
/// End of the first megabyte.
pub const HIGH_MEMORY_START: u64 = 0x10_0000;
/// PCI memory window below 4 GiB.
pub const PCI_WINDOW_START: u64 = 0xc000_0000;
/// Its size: up to the ECAM.
pub const PCI_WINDOW_SIZE: u64 = ECAM_START - PCI_WINDOW_START;
/// PCIe enhanced configuration space of 256 buses.
pub const ECAM_START: u64 = 0xe000_0000;
/// Its size.
pub const ECAM_SIZE: u64 = 256 << 20;
/// Address space below 4 GiB for devices behind a hypervisor's own interface.
pub const HYPERVISOR_WINDOW_START: u64 = ECAM_START + ECAM_SIZE;
/// Its size.
pub const HYPERVISOR_WINDOW_SIZE: u64 = 128 << 20;
/// PCI memory window above RAM, well inside 40 physical address bits.
pub const PCI_HIGH_WINDOW_START: u64 = 0x40_0000_0000;
/// Its size.
pub const PCI_HIGH_WINDOW_SIZE: u64 = 0x40_0000_0000;
/// The same above RAM.
pub const HYPERVISOR_HIGH_WINDOW_START: u64 = PCI_HIGH_WINDOW_START + PCI_HIGH_WINDOW_SIZE;
/// Its size.
pub const HYPERVISOR_HIGH_WINDOW_SIZE: u64 = 0x40_0000_0000;
/// First I/O APIC.
pub const IO_APIC_START: u64 = 0xfec0_0000;
/// Local APICs.
pub const LOCAL_APIC_START: u64 = 0xfee0_0000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_is_sorted_disjoint_and_covers_all_ram_but_the_legacy_hole() {
        for size in [64 << 20, 3 << 30, (3 << 30) + (1 << 20), 16_u64 << 30] {
            let map = memory_map(&nicvisor_memory::allocate(size).unwrap());
            for pair in map.windows(2) {
                assert!(pair[0].start + pair[0].length <= pair[1].start, "{size:#x}: {pair:x?}");
            }
            let ram: u64 =
                map.iter().filter(|entry| entry.kind == MapKind::Ram).map(|entry| entry.length).sum();
            assert_eq!(ram, size - (HIGH_MEMORY_START - EBDA_START));
        }
    }
}
