//! Xen's PVH protocol (xen/include/public/arch-x86/hvm/start_info.h): a 32-bit entry with EBX pointing to
//! `hvm_start_info`.

use linux_loader::start_info::{
    XEN_HVM_START_MAGIC_VALUE, hvm_memmap_table_entry, hvm_modlist_entry, hvm_start_info,
};
use nicvisor_memory::GuestRam;
use vm_memory::{Bytes, GuestAddress};

use super::elf::Elf;
use super::layout::{COMMAND_LINE, MODULES, STACK_TOP, START_INFO, START_MAP, memory_map, page_up};
use super::tables::{write_command_line, write_gdt, write_initrd};
use super::{BootOptions, Entry, EntryMode, LoadError};

/// Writes the start information for the entry to `elf`, which is already loaded.
pub(super) fn prepare(ram: &GuestRam, elf: &Elf, options: &BootOptions<'_>) -> Result<Entry, LoadError> {
    write_command_line(ram, options, usize::MAX)?;
    let initrd = write_initrd(ram, options, page_up(elf.end()), u64::from(u32::MAX))?;
    if let Some((paddr, size)) = initrd {
        ram.write_obj(hvm_modlist_entry { paddr, size, ..Default::default() }, GuestAddress(MODULES))?;
    }
    let map = memory_map(ram);
    let mut address = START_MAP;
    for entry in &map {
        let entry = hvm_memmap_table_entry {
            addr: entry.start,
            size: entry.length,
            type_: entry.kind as u32,
            ..Default::default()
        };
        ram.write_obj(entry, GuestAddress(address))?;
        address += size_of::<hvm_memmap_table_entry>() as u64;
    }
    let info = hvm_start_info {
        magic: XEN_HVM_START_MAGIC_VALUE,
        version: 1,
        nr_modules: u32::from(initrd.is_some()),
        modlist_paddr: if initrd.is_some() { MODULES } else { 0 },
        cmdline_paddr: COMMAND_LINE,
        rsdp_paddr: options.rsdp,
        memmap_paddr: START_MAP,
        memmap_entries: map.len() as u32,
        ..Default::default()
    };
    ram.write_obj(info, GuestAddress(START_INFO))?;
    write_gdt(ram, EntryMode::Protected)?;
    Ok(Entry {
        mode: EntryMode::Protected,
        ip: elf.pvh_entry.unwrap_or_default().into(),
        sp: STACK_TOP,
        rax: 0,
        rbx: START_INFO,
        rsi: 0,
    })
}
