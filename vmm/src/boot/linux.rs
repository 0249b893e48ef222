//! Linux's 64-bit boot protocol: the zero page and what it points to.

use linux_loader::bootparam::{SETUP_RNG_SEED, boot_e820_entry, boot_params};
use nicvisor_memory::GuestRam;
use vm_memory::{ByteValued, Bytes, GuestAddress};

use super::bzimage::{SETUP_SECTORS, SetupHeader};
use super::elf::Elf;
use super::layout::{COMMAND_LINE, SETUP_DATA, STACK_TOP, ZERO_PAGE, memory_map, page_up};
use super::tables::{write_command_line, write_gdt, write_identity_map, write_initrd};
use super::{BootOptions, Entry, EntryMode, LoadError};

/// Writes the zero page, the initrd and the tables for the entry to `elf`, which is already loaded.
pub(super) fn prepare(
    ram: &GuestRam,
    elf: &Elf,
    setup: Option<&SetupHeader>,
    options: &BootOptions<'_>,
) -> Result<Entry, LoadError> {
    let start = elf.segments.iter().map(|segment| segment.physical).min().unwrap_or(0);
    let kernel_end = page_up(elf.end().max(start + setup.map_or(0, |setup| setup.init_size)) + EARLY_ROOM);
    let command_line_limit = setup.map_or(DEFAULT_COMMAND_LINE_LIMIT, |setup| setup.command_line_limit);
    let initrd_limit = setup.map_or(DEFAULT_INITRD_LIMIT, |setup| setup.initrd_limit);

    let mut zero_page = boot_params::default();
    if let Some(setup) = setup {
        zero_page.as_mut_slice()[SETUP_SECTORS..SETUP_SECTORS + setup.bytes.len()]
            .copy_from_slice(&setup.bytes);
    } else {
        zero_page.hdr.boot_flag = 0xaa55;
        zero_page.hdr.header = u32::from_le_bytes(*b"HdrS");
        zero_page.hdr.version = 0x20f;
        zero_page.hdr.kernel_alignment = 0x20_0000;
        zero_page.hdr.loadflags = LOADED_HIGH;
    }
    // Address-space randomisation is the decompressor's doing and was not done.
    zero_page.hdr.loadflags &= !KASLR_FLAG;
    zero_page.hdr.type_of_loader = UNDEFINED_LOADER;
    zero_page.hdr.cmd_line_ptr = COMMAND_LINE as u32;
    zero_page.hdr.cmdline_size = write_command_line(ram, options, command_line_limit)?;
    if let Some((address, size)) = write_initrd(ram, options, kernel_end, initrd_limit)? {
        zero_page.hdr.ramdisk_image = address as u32;
        zero_page.hdr.ramdisk_size = size as u32;
    }
    zero_page.acpi_rsdp_addr = options.rsdp;
    let map = memory_map(ram);
    for (slot, entry) in zero_page.e820_table.iter_mut().zip(&map) {
        *slot = boot_e820_entry { addr: entry.start, size: entry.length, r#type: entry.kind as u32 };
    }
    zero_page.e820_entries = map.len() as u8;
    write_rng_seed(ram, &options.rng_seed)?;
    zero_page.hdr.setup_data = SETUP_DATA;
    ram.write_slice(zero_page.as_slice(), GuestAddress(ZERO_PAGE))?;

    write_gdt(ram, EntryMode::Long)?;
    write_identity_map(ram)?;
    Ok(Entry { mode: EntryMode::Long, ip: elf.entry, sp: STACK_TOP, rax: 0, rbx: 0, rsi: ZERO_PAGE })
}

/// A `setup_data` node: next, type, length, data.
fn write_rng_seed(ram: &GuestRam, seed: &[u8; 32]) -> Result<(), LoadError> {
    let mut node = [0; 48];
    node[8..12].copy_from_slice(&SETUP_RNG_SEED.to_le_bytes());
    node[12..16].copy_from_slice(&(seed.len() as u32).to_le_bytes());
    node[16..].copy_from_slice(seed);
    ram.write_slice(&node, GuestAddress(SETUP_DATA))?;
    Ok(())
}

const LOADED_HIGH: u8 = 1 << 0;
const KASLR_FLAG: u8 = 1 << 1;
const UNDEFINED_LOADER: u8 = 0xff;
/// What x86 kernels are built with (`COMMAND_LINE_SIZE`, less the final zero).
const DEFAULT_COMMAND_LINE_LIMIT: usize = 2047;
const DEFAULT_INITRD_LIMIT: u64 = 0x7fff_ffff;
/// The kernel takes early page tables from behind its end.
const EARLY_ROOM: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::super::Kernel;
    use super::super::elf::testing::elf64;
    use super::*;

    fn kernel() -> Kernel {
        Kernel::parse(elf64(62, 0x100_0000, b"Linux version 6.12\n")).unwrap()
    }

    #[test]
    fn the_zero_page_tells_the_kernel_everything() {
        let ram = nicvisor_memory::allocate(64 << 20).unwrap();
        let options = BootOptions {
            command_line: "console=ttyS0",
            initrd: Some(b"archive"),
            rsdp: 0xe_0000,
            rng_seed: [7; 32],
        };
        let entry = kernel().load(&ram, &options).unwrap();
        let zero_page: boot_params = ram.read_obj(GuestAddress(entry.rsi)).unwrap();
        let header = zero_page.hdr;
        assert_eq!({ zero_page.acpi_rsdp_addr }, 0xe_0000);
        assert_eq!(zero_page.e820_entries, 5);
        let mut initrd = [0; 7];
        assert_eq!({ header.ramdisk_size }, 7);
        ram.read_slice(&mut initrd, GuestAddress(u64::from(header.ramdisk_image))).unwrap();
        assert_eq!(&initrd, b"archive");
        let mut command_line = [0xff; 14];
        ram.read_slice(&mut command_line, GuestAddress(u64::from(header.cmd_line_ptr))).unwrap();
        assert_eq!(&command_line, b"console=ttyS0\0");
        let mut node = [0; 48];
        ram.read_slice(&mut node, GuestAddress(header.setup_data)).unwrap();
        assert_eq!((node[8], node[12], &node[16..]), (9, 32, &[7_u8; 32][..]));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_numbers() {
        let ram = nicvisor_memory::allocate(32 << 20).unwrap();
        let initrd = vec![1; 20 << 20];
        let options = BootOptions { initrd: Some(&initrd), ..BootOptions::default() };
        let error = kernel().load(&ram, &options).unwrap_err();
        assert!(matches!(error, LoadError::InitrdTooBig { size: 20, available: 14 }), "{error}");
        let long = "x".repeat(2048);
        let options = BootOptions { command_line: &long, ..BootOptions::default() };
        let error = kernel().load(&ram, &options).unwrap_err();
        assert!(matches!(error, LoadError::CommandLineTooLong { length: 2048, limit: 2047 }), "{error}");
        let options = BootOptions { command_line: "a\0b", ..BootOptions::default() };
        assert!(matches!(kernel().load(&ram, &options), Err(LoadError::CommandLineZero)));
    }
}
