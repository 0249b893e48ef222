//! Multiboot specification 0.6.96, for bare-metal test programs: a 32-bit entry with EAX holding the magic
//! number and EBX pointing to the information structure.

use nicvisor_memory::GuestRam;
use vm_memory::{Bytes, GuestAddress};

use super::elf::Elf;
use super::layout::{
    COMMAND_LINE, EBDA_START, HIGH_MEMORY_START, MODULES, STACK_TOP, START_INFO, START_MAP, low_ram_end,
    memory_map, page_up,
};
use super::tables::{write_command_line, write_gdt, write_initrd};
use super::{BootOptions, Entry, EntryMode, LoadError};

/// Whether the file has a valid header in its first 8 KiB.
pub(super) fn has_header(file: &[u8]) -> bool {
    let (words, _) = file[..file.len().min(HEADER_SEARCH)].as_chunks::<4>();
    let words: Vec<u32> = words.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
    words.windows(3).any(|header| {
        header[0] == HEADER_MAGIC && header[0].wrapping_add(header[1]).wrapping_add(header[2]) == 0
    })
}

/// Writes the information structure for the entry to `elf`, which is already loaded.
pub(super) fn prepare(ram: &GuestRam, elf: &Elf, options: &BootOptions<'_>) -> Result<Entry, LoadError> {
    // The command line starts with the image's name; programs skip the first word.
    let command_line = format!("kernel {}", options.command_line);
    write_command_line(ram, &BootOptions { command_line: command_line.trim_end(), ..*options }, usize::MAX)?;
    let mut modules = 0;
    if let Some((start, size)) = write_initrd(ram, options, page_up(elf.end()), u64::from(u32::MAX))? {
        modules = 1;
        let empty_string = COMMAND_LINE as u32 + command_line.trim_end().len() as u32;
        write_words(ram, MODULES, &[start as u32, (start + size) as u32, empty_string, 0])?;
    }
    let map = memory_map(ram);
    for (index, entry) in map.iter().enumerate() {
        let words = [
            MAP_ENTRY_SIZE - 4,
            entry.start as u32,
            (entry.start >> 32) as u32,
            entry.length as u32,
            (entry.length >> 32) as u32,
            entry.kind as u32,
        ];
        write_words(ram, START_MAP + u64::from(MAP_ENTRY_SIZE) * index as u64, &words)?;
    }
    let mut info = [0; INFO_WORDS];
    info[0] = FLAG_MEMORY | FLAG_COMMAND_LINE | FLAG_MODULES | FLAG_MAP;
    info[1] = (EBDA_START >> 10) as u32;
    info[2] = (low_ram_end(ram).saturating_sub(HIGH_MEMORY_START) >> 10) as u32;
    info[4] = COMMAND_LINE as u32;
    info[5] = modules;
    info[6] = MODULES as u32;
    info[11] = MAP_ENTRY_SIZE * map.len() as u32;
    info[12] = START_MAP as u32;
    write_words(ram, START_INFO, &info)?;
    write_gdt(ram, EntryMode::Protected)?;
    Ok(Entry {
        mode: EntryMode::Protected,
        ip: elf.entry,
        sp: STACK_TOP,
        rax: LOADER_MAGIC,
        rbx: START_INFO,
        rsi: 0,
    })
}

fn write_words(ram: &GuestRam, address: u64, words: &[u32]) -> Result<(), LoadError> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    ram.write_slice(&bytes, GuestAddress(address))?;
    Ok(())
}

const HEADER_SEARCH: usize = 8192;
const HEADER_MAGIC: u32 = 0x1bad_b002;
const LOADER_MAGIC: u64 = 0x2bad_b002;
const FLAG_MEMORY: u32 = 1 << 0;
const FLAG_COMMAND_LINE: u32 = 1 << 2;
const FLAG_MODULES: u32 = 1 << 3;
const FLAG_MAP: u32 = 1 << 6;
const MAP_ENTRY_SIZE: u32 = 24;
const INFO_WORDS: usize = 22;

#[cfg(test)]
mod tests {
    use super::super::elf::testing::elf64;
    use super::super::{Kernel, Protocol};
    use super::*;

    #[test]
    fn the_information_structure_holds_memory_command_line_and_module() {
        let mut code = vec![0; 32];
        for (index, word) in [HEADER_MAGIC, 0, HEADER_MAGIC.wrapping_neg()].iter().enumerate() {
            code[4 * index..4 * index + 4].copy_from_slice(&word.to_le_bytes());
        }
        let kernel = Kernel::parse(elf64(62, 0x10_0000, &code)).unwrap();
        assert_eq!(kernel.protocol(), Protocol::Multiboot);
        let ram = nicvisor_memory::allocate(16 << 20).unwrap();
        let options = BootOptions { command_line: "a b", initrd: Some(b"env"), ..BootOptions::default() };
        let entry = kernel.load(&ram, &options).unwrap();
        assert_eq!((entry.ip, entry.rax, entry.mode), (0x10_0000, 0x2bad_b002, EntryMode::Protected));
        let word = |address: u64| ram.read_obj::<u32>(GuestAddress(address)).unwrap();
        assert_eq!(word(entry.rbx + 8), 15 << 10);
        assert_eq!(word(entry.rbx + 20), 1);
        let module = u64::from(word(entry.rbx + 24));
        assert_eq!(word(module + 4) - word(module), 3);
        let mut text = [0; 11];
        ram.read_slice(&mut text, GuestAddress(u64::from(word(entry.rbx + 16)))).unwrap();
        assert_eq!(&text, b"kernel a b\0");
        assert_eq!(ram.read_obj::<u8>(GuestAddress(u64::from(word(module + 8)))).unwrap(), 0);
    }
}
