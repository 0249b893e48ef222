//! Kernel images: recognising them and placing them in guest memory so that the first CPU can start.
//!
//! Three protocols, all without firmware in the guest:
//! * Linux, as vmlinux or bzImage: entered directly in 64-bit mode (the bzImage is unpacked on the host).
//! * PVH: any other ELF with the Xen note for the 32-bit PVH entry.
//! * Multiboot 1: ELF with the multiboot header, for bare-metal test programs.

mod bzimage;
mod elf;
mod error;
mod kallsyms;
pub mod layout;
mod linux;
mod multiboot;
mod pvh;
mod symbols;
mod tables;
mod unpack;

use std::path::Path;

use nicvisor_memory::GuestRam;

pub use error::{ImageError, LoadError};
pub use symbols::{Symbol, Symbols};

use bzimage::SetupHeader;
use elf::Elf;

/// A kernel image, read and understood, ready to be loaded.
#[derive(Debug)]
pub struct Kernel {
    file: Vec<u8>,
    elf: Elf,
    setup: Option<SetupHeader>,
    protocol: Protocol,
}

/// How a kernel is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Linux's 64-bit boot protocol.
    Linux,
    /// Xen's PVH protocol.
    Pvh,
    /// Multiboot version 1.
    Multiboot,
}

/// What is handed to the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootOptions<'a> {
    /// The command line.
    pub command_line: &'a str,
    /// The initial RAM disk (the first module, in multiboot's terms).
    pub initrd: Option<&'a [u8]>,
    /// Physical address of the ACPI root pointer.
    pub rsdp: u64,
    /// Seeds the guest's random number generator, so that it is ready at once and the same every time.
    pub rng_seed: [u8; 32],
}

/// How the first CPU starts. Segments are flat: code selector 0x10, data selectors 0x18, from the descriptor
/// table at [`layout::GDT`]; interrupts are off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// 32- or 64-bit mode.
    pub mode: EntryMode,
    /// First instruction.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Value of RAX.
    pub rax: u64,
    /// Value of RBX.
    pub rbx: u64,
    /// Value of RSI.
    pub rsi: u64,
}

/// The processor mode at entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryMode {
    /// 64-bit, with 4-level page tables at [`layout::PAGE_TABLES`] that map the first 4 GiB to themselves.
    Long,
    /// 32-bit, paging off.
    Protected,
}

impl Kernel {
    /// Reads the image file at `path`.
    ///
    /// # Errors
    /// When it cannot be read or is not an x86-64 kernel.
    pub fn read(path: &Path) -> Result<Kernel, ImageError> {
        let file =
            std::fs::read(path).map_err(|source| ImageError::Read { path: path.to_owned(), source })?;
        Kernel::parse(file)
    }

    /// Understands the image in `file`.
    ///
    /// # Errors
    /// When it is not an x86-64 kernel.
    pub fn parse(file: Vec<u8>) -> Result<Kernel, ImageError> {
        if file.is_empty() {
            return Err(ImageError::Empty);
        }
        let (setup, file) = if bzimage::is_bzimage(&file) {
            let (setup, vmlinux) = bzimage::read(&file)?;
            (Some(setup), vmlinux)
        } else if file.starts_with(b"\x7fELF") {
            (None, file)
        } else {
            return Err(foreign(&file));
        };
        let elf = Elf::parse(&file)?;
        let protocol = if setup.is_some() || (elf.wide && contains(&file, LINUX_BANNER)) {
            if !elf.wide {
                return Err(ImageError::WrongArchitecture { architecture: "32-bit x86".into() });
            }
            Protocol::Linux
        } else if multiboot::has_header(&file) {
            Protocol::Multiboot
        } else if elf.pvh_entry.is_some() {
            Protocol::Pvh
        } else {
            return Err(ImageError::NotAKernel {
                found: "an x86 ELF file with neither Linux's banner nor a PVH note nor a multiboot header"
                    .into(),
            });
        };
        Ok(Kernel { file, elf, setup, protocol })
    }

    /// How the kernel will be entered.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The kernel as an ELF file: what a bzImage holds packed.
    pub fn elf(&self) -> &[u8] {
        &self.file
    }

    /// The release of a Linux kernel, as `uname -r` prints it.
    pub fn release(&self) -> Option<&str> {
        let version = match self.setup.as_ref().and_then(|setup| setup.version.as_deref()) {
            Some(version) => version,
            None => {
                let start = find(&self.file, LINUX_BANNER)? + LINUX_BANNER.len();
                let text = &self.file[start..self.file.len().min(start + LONGEST_RELEASE)];
                std::str::from_utf8(text.split(|byte| *byte == b' ').next()?).ok()?
            }
        };
        version.split_ascii_whitespace().next()
    }

    /// The kernel's symbols: from its ELF symbol table, else from the kallsyms tables that Linux carries. Takes
    /// tens of milliseconds: for the moment when a backtrace is wanted.
    pub fn symbols(&self) -> Symbols {
        let symbols = Symbols::from_elf(&self.file);
        if symbols.is_empty() && self.protocol == Protocol::Linux {
            return kallsyms::decode(&self.file, &self.elf).unwrap_or_default();
        }
        symbols
    }

    /// Places the kernel and what it is handed in `ram`.
    ///
    /// # Errors
    /// When memory is too small, or the command line or initrd too large.
    pub fn load(&self, ram: &GuestRam, options: &BootOptions<'_>) -> Result<Entry, LoadError> {
        self.elf.load(&self.file, ram)?;
        match self.protocol {
            Protocol::Linux => linux::prepare(ram, &self.elf, self.setup.as_ref(), options),
            Protocol::Pvh => pvh::prepare(ram, &self.elf, options),
            Protocol::Multiboot => multiboot::prepare(ram, &self.elf, options),
        }
    }
}

/// How 64-bit code that is already in `ram` at `ip` starts, on tables that this writes.
///
/// # Errors
/// When memory is too small.
pub fn bare_entry(ram: &GuestRam, ip: u64) -> Result<Entry, LoadError> {
    tables::write_gdt(ram, EntryMode::Long)?;
    tables::write_identity_map(ram)?;
    Ok(Entry { mode: EntryMode::Long, ip, sp: layout::STACK_TOP, rax: 0, rbx: 0, rsi: 0 })
}

/// What a file that is neither ELF nor a bzImage looks like.
fn foreign(file: &[u8]) -> ImageError {
    if file.get(56..60) == Some(b"ARM\x64") {
        return ImageError::WrongArchitecture { architecture: "ARM64".into() };
    }
    if file.get(56..60) == Some(b"RSC\x05") {
        return ImageError::WrongArchitecture { architecture: "RISC-V".into() };
    }
    let found = match file {
        [b'M', b'Z', ..] => "an EFI program",
        [0x1f, 0x8b, ..] => "a gzip file; unpack it first",
        [0xfd, b'7', b'z', b'X', ..] => "an xz file; unpack it first",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "a zstd file; unpack it first",
        [b'0', b'7', b'0', b'7', ..] => "a cpio archive: perhaps the initrd",
        [b'!', b'<', b'a', b'r', b'c', b'h', b'>', ..] => "an ar archive: perhaps a Debian package",
        [b'Q', b'F', b'I', 0xfb, ..] => "a qcow2 disk image",
        _ if file.len() < 0x290 => "too short for one",
        _ if file.iter().take(512).all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) => {
            "a text file"
        }
        _ => "an unknown format",
    };
    ImageError::NotAKernel { found: found.into() }
}

fn contains(file: &[u8], text: &[u8]) -> bool {
    find(file, text).is_some()
}

/// First place of `text` in `file`.
fn find(file: &[u8], text: &[u8]) -> Option<usize> {
    memchr::memmem::find(file, text)
}

const LINUX_BANNER: &[u8] = b"Linux version ";
const LONGEST_RELEASE: usize = 65;

#[cfg(test)]
mod tests {
    use super::bzimage::testing::bzimage;
    use super::elf::testing::elf64;
    use super::*;

    fn error(file: &[u8]) -> String {
        Kernel::parse(file.to_vec()).unwrap_err().to_string()
    }

    #[test]
    fn files_that_are_no_kernels_are_named() {
        assert!(error(b"").contains("empty"));
        assert!(error(b"#!/bin/sh\n").contains("too short"));
        assert!(error(&[b'x'; 4096]).contains("a text file"));
        assert!(error(&elf64(62, 0x10_0000, b"code")).contains("neither Linux's banner"));
        assert!(error(&elf64(183, 0x10_0000, b"Linux version 6.12")).contains("ARM64"));
        let mut image = vec![0; 4096];
        image[56..60].copy_from_slice(b"ARM\x64");
        assert!(error(&image).contains("ARM64"));
        let missing = Kernel::read(Path::new("/nonexistent/vmlinux")).unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/vmlinux"), "{missing}");
    }

    #[test]
    fn a_bzimage_boots_like_the_vmlinux_inside() {
        let vmlinux = elf64(62, 0x100_0000, b"Linux version 6.12 (build)\n\0");
        let packed = bzimage(&zstd::encode_all(&vmlinux[..], 1).unwrap());
        let kernels = [Kernel::parse(vmlinux).unwrap(), Kernel::parse(packed).unwrap()];
        let entries = kernels.map(|kernel| {
            assert_eq!(kernel.protocol(), Protocol::Linux);
            assert_eq!(kernel.release(), Some("6.12"));
            let ram = nicvisor_memory::allocate(64 << 20).unwrap();
            kernel.load(&ram, &BootOptions { command_line: "quiet", ..BootOptions::default() }).unwrap()
        });
        assert_eq!(entries[0], entries[1]);
        assert_eq!(entries[0].ip, 0x100_0000);
    }
}
