//! ELF executables: what they are for, and placing their segments in guest memory.

use nicvisor_memory::GuestRam;
use object::elf::{EM_386, EM_X86_64, FileHeader32, FileHeader64, PT_LOAD, PT_NOTE};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, FileKind};
use vm_memory::{Bytes, GuestAddress};

use super::layout::{ACPI_START, COMMAND_LINE, COMMAND_LINE_ROOM, low_ram_end};
use super::{ImageError, LoadError};

/// The parts of an x86 ELF executable that booting needs. All file ranges were checked against the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Elf {
    /// Entry point as the header gives it.
    pub(super) entry: u64,
    /// What to load.
    pub(super) segments: Vec<Segment>,
    /// Physical address of the 32-bit PVH entry, from the Xen note.
    pub(super) pvh_entry: Option<u32>,
    /// Whether the file is 64 bits wide.
    pub(super) wide: bool,
}

/// A part of the file and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Physical address.
    pub(super) physical: u64,
    /// Link address.
    pub(super) linked: u64,
    /// Length in memory; what the file does not give is zero.
    pub(super) size: u64,
    /// Place in the file.
    pub(super) offset: usize,
    /// Length in the file.
    pub(super) file_size: usize,
}

impl Segment {
    /// First physical address behind the segment.
    pub(super) fn end(&self) -> u64 {
        self.physical.saturating_add(self.size)
    }
}

impl Elf {
    pub(super) fn parse(file: &[u8]) -> Result<Elf, ImageError> {
        match FileKind::parse(file) {
            Ok(FileKind::Elf64) => parse::<FileHeader64<Endianness>>(file),
            Ok(FileKind::Elf32) => parse::<FileHeader32<Endianness>>(file),
            _ => Err(ImageError::NotAKernel { found: "a damaged ELF header".into() }),
        }
    }

    /// First physical address behind all segments.
    pub(super) fn end(&self) -> u64 {
        self.segments.iter().map(Segment::end).max().unwrap_or(0)
    }

    /// Copies the segments to guest memory.
    pub(super) fn load(&self, file: &[u8], ram: &GuestRam) -> Result<(), LoadError> {
        let available = low_ram_end(ram);
        if self.end() > available {
            return Err(LoadError::TooLittleMemory {
                needed: self.end().div_ceil(1 << 20),
                available: available >> 20,
            });
        }
        for segment in &self.segments {
            let tables = 0..COMMAND_LINE + COMMAND_LINE_ROOM;
            let firmware = super::layout::EBDA_START..super::layout::HIGH_MEMORY_START;
            if [tables, firmware]
                .iter()
                .any(|taken| segment.physical < taken.end && segment.end() > taken.start)
            {
                return Err(LoadError::BadSegment { start: segment.physical, end: segment.end() });
            }
            // Fresh guest memory is zero, so what the file does not give needs no writing.
            let bytes = &file[segment.offset..segment.offset + segment.file_size];
            ram.write_slice(bytes, GuestAddress(segment.physical))?;
        }
        Ok(())
    }
}

fn parse<Header: FileHeader<Endian = Endianness>>(file: &[u8]) -> Result<Elf, ImageError> {
    let damaged =
        |error: object::Error| ImageError::NotAKernel { found: format!("a damaged ELF file: {error}") };
    let header = Header::parse(file).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    let machine = header.e_machine(endian);
    if (machine != EM_X86_64 && machine != EM_386) || header.is_big_endian() {
        return Err(ImageError::WrongArchitecture { architecture: machine_name(machine.0) });
    }
    let length = file.len() as u64;
    let headers = header.program_headers(endian, file).map_err(|_| ImageError::Truncated {
        part: "the program header table",
        end: header
            .e_phoff(endian)
            .into()
            .saturating_add(u64::from(header.e_phnum(endian)) * u64::from(header.e_phentsize(endian))),
        length,
    })?;
    let mut elf = Elf {
        entry: header.e_entry(endian).into(),
        segments: Vec::new(),
        pvh_entry: None,
        wide: header.is_class_64(),
    };
    for program in headers {
        let (offset, file_size) = program.file_range(endian);
        let end = offset.saturating_add(file_size);
        if end > length {
            return Err(ImageError::Truncated { part: "a segment", end, length });
        }
        let kind = program.p_type(endian);
        if kind == PT_LOAD {
            let size = program.p_memsz(endian).into();
            if size < file_size {
                return Err(ImageError::NotAKernel {
                    found: "an ELF file with a segment larger than its place".into(),
                });
            }
            elf.segments.push(Segment {
                physical: program.p_paddr(endian).into(),
                linked: program.p_vaddr(endian).into(),
                size,
                offset: offset as usize,
                file_size: file_size as usize,
            });
        } else if kind == PT_NOTE {
            elf.pvh_entry = elf.pvh_entry.or(pvh_entry::<Header>(program, endian, file).map_err(damaged)?);
        }
    }
    if elf.segments.is_empty() {
        return Err(ImageError::NotAKernel { found: "an ELF file without loadable segments".into() });
    }
    Ok(elf)
}

/// The Xen note of type 18 holds the physical address of the PVH entry, 4 or 8 bytes wide.
fn pvh_entry<Header: FileHeader<Endian = Endianness>>(
    program: &Header::ProgramHeader,
    endian: Endianness,
    file: &[u8],
) -> object::Result<Option<u32>> {
    let Some(mut notes) = program.notes(endian, file)? else { return Ok(None) };
    while let Some(note) = notes.next()? {
        if note.name() == b"Xen" && note.n_type(endian).0 == XEN_ELFNOTE_PHYS32_ENTRY {
            return Ok(note.desc().first_chunk().map(|bytes| u32::from_le_bytes(*bytes)));
        }
    }
    Ok(None)
}

fn machine_name(machine: u16) -> String {
    match machine {
        2 | 43 => "SPARC".into(),
        8 => "MIPS".into(),
        20 | 21 => "PowerPC".into(),
        22 => "S/390".into(),
        40 => "ARM (32-bit)".into(),
        183 => "ARM64".into(),
        243 => "RISC-V".into(),
        258 => "LoongArch".into(),
        other => format!("ELF machine {other}"),
    }
}

const XEN_ELFNOTE_PHYS32_ENTRY: u32 = 18;
const _: () = assert!(COMMAND_LINE + COMMAND_LINE_ROOM < ACPI_START);

/// Small ELF files for tests.
#[cfg(test)]
pub(super) mod testing {
    /// A 64-bit executable for `machine` with one segment holding `code` at `address`, which is the entry.
    pub(in super::super) fn elf64(machine: u16, address: u64, code: &[u8]) -> Vec<u8> {
        let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        file.extend(2_u16.to_le_bytes());
        file.extend(machine.to_le_bytes());
        file.extend(1_u32.to_le_bytes());
        for value in [address, 64, 0] {
            file.extend(value.to_le_bytes());
        }
        file.extend(0_u32.to_le_bytes());
        for value in [64_u16, 56, 1, 0, 0, 0] {
            file.extend(value.to_le_bytes());
        }
        file.extend(1_u32.to_le_bytes());
        file.extend(7_u32.to_le_bytes());
        for value in [120, address, address, code.len() as u64, code.len() as u64, 0x1000] {
            file.extend(value.to_le_bytes());
        }
        file.extend(code);
        file
    }
}

#[cfg(test)]
mod tests {
    use super::testing::elf64;
    use super::*;

    #[test]
    fn segments_land_at_their_physical_address() {
        let file = elf64(62, 0x10_0000, b"code");
        let elf = Elf::parse(&file).unwrap();
        assert_eq!((elf.entry, elf.end(), elf.wide, elf.pvh_entry), (0x10_0000, 0x10_0004, true, None));
        let ram = nicvisor_memory::allocate(4 << 20).unwrap();
        elf.load(&file, &ram).unwrap();
        let mut loaded = [0; 4];
        ram.read_slice(&mut loaded, GuestAddress(0x10_0000)).unwrap();
        assert_eq!(&loaded, b"code");
    }

    #[test]
    fn wrong_architecture_truncation_and_too_little_memory_are_told_apart() {
        assert!(matches!(
            Elf::parse(&elf64(183, 0x10_0000, b"code")),
            Err(ImageError::WrongArchitecture { architecture }) if architecture == "ARM64"
        ));
        let file = elf64(62, 0x10_0000, b"code");
        assert!(matches!(Elf::parse(&file[..file.len() - 1]), Err(ImageError::Truncated { end: 124, .. })));
        assert!(matches!(Elf::parse(&file[..80]), Err(ImageError::Truncated { end: 120, .. })));
        let high = elf64(62, 64 << 20, b"code");
        let ram = nicvisor_memory::allocate(64 << 20).unwrap();
        let error = Elf::parse(&high).unwrap().load(&high, &ram).unwrap_err();
        assert!(matches!(error, LoadError::TooLittleMemory { needed: 65, available: 64 }), "{error}");
    }

    #[test]
    fn a_segment_over_the_loaders_tables_is_refused() {
        let file = elf64(62, 0x7000, b"code");
        let ram = nicvisor_memory::allocate(4 << 20).unwrap();
        assert!(matches!(Elf::parse(&file).unwrap().load(&file, &ram), Err(LoadError::BadSegment { .. })));
    }
}
