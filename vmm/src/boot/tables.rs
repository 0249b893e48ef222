//! Descriptor and page tables for the first instruction of a guest.

use nicvisor_memory::GuestRam;
use vm_memory::{Bytes, GuestAddress};

use super::layout::{COMMAND_LINE, COMMAND_LINE_ROOM, GDT, PAGE_TABLES};
use super::{BootOptions, EntryMode, LoadError};

/// Writes the descriptor table that [`super::Entry`] promises.
pub(super) fn write_gdt(ram: &GuestRam, mode: EntryMode) -> Result<(), LoadError> {
    let code = match mode {
        EntryMode::Long => GDT_CODE64,
        EntryMode::Protected => GDT_CODE32,
    };
    for (index, descriptor) in [0, 0, code, GDT_DATA].into_iter().enumerate() {
        ram.write_obj::<u64>(descriptor, GuestAddress(GDT + 8 * index as u64))?;
    }
    Ok(())
}

/// Writes page tables that map the first 4 GiB to themselves with 2 MiB pages.
pub(super) fn write_identity_map(ram: &GuestRam) -> Result<(), LoadError> {
    let directory_pointers = PAGE_TABLES + 0x1000;
    let directories = PAGE_TABLES + 0x2000;
    ram.write_obj::<u64>(directory_pointers | PRESENT_WRITABLE, GuestAddress(PAGE_TABLES))?;
    for gib in 0..4 {
        let directory = directories + 0x1000 * gib;
        ram.write_obj::<u64>(directory | PRESENT_WRITABLE, GuestAddress(directory_pointers + 8 * gib))?;
        let entries: Vec<u8> = (0..512_u64)
            .flat_map(|entry| ((gib << 30) | (entry << 21) | PRESENT_WRITABLE | LARGE).to_le_bytes())
            .collect();
        ram.write_slice(&entries, GuestAddress(directory))?;
    }
    Ok(())
}

/// Writes the command line and its final zero; returns its length without it.
pub(super) fn write_command_line(
    ram: &GuestRam,
    options: &BootOptions<'_>,
    limit: usize,
) -> Result<u32, LoadError> {
    let text = options.command_line.as_bytes();
    let limit = limit.min(COMMAND_LINE_ROOM as usize - 1);
    if text.len() > limit {
        return Err(LoadError::CommandLineTooLong { length: text.len(), limit });
    }
    if text.contains(&0) {
        return Err(LoadError::CommandLineZero);
    }
    ram.write_slice(text, GuestAddress(COMMAND_LINE))?;
    ram.write_slice(&[0], GuestAddress(COMMAND_LINE + text.len() as u64))?;
    Ok(text.len() as u32)
}

/// Writes the initrd as high as possible but behind `kernel_end`, with its last byte at most at `limit`.
/// Returns its address and size.
pub(super) fn write_initrd(
    ram: &GuestRam,
    options: &BootOptions<'_>,
    kernel_end: u64,
    limit: u64,
) -> Result<Option<(u64, u64)>, LoadError> {
    let Some(initrd) = options.initrd else { return Ok(None) };
    let size = initrd.len() as u64;
    let end = super::layout::low_ram_end(ram).min(limit.saturating_add(1));
    let start =
        end.checked_sub(size).map(|start| start & !0xfff).filter(|start| *start >= kernel_end).ok_or(
            LoadError::InitrdTooBig {
                size: size.div_ceil(1 << 20),
                available: end.saturating_sub(kernel_end) >> 20,
            },
        )?;
    ram.write_slice(initrd, GuestAddress(start))?;
    Ok(Some((start, size)))
}

const PRESENT_WRITABLE: u64 = 3;
const LARGE: u64 = 1 << 7;
/// Flat 64-bit code, execute and read.
const GDT_CODE64: u64 = 0x00af_9b00_0000_ffff;
/// Flat 32-bit code, execute and read.
const GDT_CODE32: u64 = 0x00cf_9b00_0000_ffff;
/// Flat data, read and write.
const GDT_DATA: u64 = 0x00cf_9300_0000_ffff;
