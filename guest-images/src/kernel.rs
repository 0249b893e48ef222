//! A kernel that can be booted: from a package, a file or a kernel build.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{ImageError, cache, elf};

/// A kernel and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// How the user named it.
    pub name: String,
    /// `uname -r`.
    pub release: String,
    /// The version of Debian's package; the release if there is none.
    pub version: String,
    /// The kernel: a bzImage or an ELF vmlinux.
    pub vmlinuz: PathBuf,
    /// `vmlinuz`'s SHA-256.
    pub sha256: String,
    /// Addresses of the kernel's functions. Debian ships none: there the kernel's own kallsyms have to do.
    pub system_map: Option<PathBuf>,
    /// The directory with the kernel's modules.
    pub modules: Option<PathBuf>,
    /// Where the kernel is from.
    pub origin: Origin,
}

/// Where a kernel is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Debian's packages.
    Packages(Vec<Package>),
    /// A file.
    File,
    /// The directory of a kernel build.
    Build,
}

/// A package that was used, for the record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its file's SHA-256.
    pub sha256: String,
}

/// Looks at the kernel, or the kernel build, at `path`.
pub(crate) fn at_path(path: &Path) -> Result<Kernel, ImageError> {
    let metadata = fs::metadata(path).map_err(|error| bad(path, error.to_string()))?;
    if metadata.is_dir() { at_build(path) } else { at_file(path, Origin::File) }
}

/// Describes the kernel in a tree of unpacked packages.
pub(crate) fn in_packages(root: &Path, packages: Vec<Package>) -> Result<Kernel, ImageError> {
    let image = packages.first().cloned();
    let (package, version) = image.map(|package| (package.name, package.version)).unwrap_or_default();
    let broken =
        |reason: &str| ImageError::BadPackage { package: package.clone(), reason: reason.to_owned() };
    let vmlinuz = find_image(root).ok_or_else(|| broken("has no kernel in it"))?;
    let mut kernel = at_file(&vmlinuz, Origin::Packages(packages))?;
    kernel.version = version;
    let modules = ["usr/lib/modules", "lib/modules"].map(|place| root.join(place).join(&kernel.release));
    kernel.modules = modules.into_iter().find(|directory| directory.is_dir());
    if kernel.modules.is_none() {
        return Err(broken("has no modules in it"));
    }
    Ok(kernel)
}

/// A kernel's release and how much of the file it needs, from its first bytes and the whole file.
fn identify(path: &Path, bytes: &[u8]) -> Result<String, ImageError> {
    if bytes.is_empty() {
        return Err(bad(path, "the file is empty"));
    }
    if bytes.starts_with(b"\x7fELF") {
        return identify_elf(path, bytes);
    }
    if bytes.get(0x202..0x206) == Some(b"HdrS") {
        return identify_bzimage(path, bytes);
    }
    Err(bad(path, "not a kernel: neither an ELF vmlinux nor a bzImage"))
}

fn identify_elf(path: &Path, bytes: &[u8]) -> Result<String, ImageError> {
    use object::{Object, ObjectSegment};
    if !elf::is_x86_64(bytes) {
        return Err(bad(path, "an ELF file, but not for x86-64"));
    }
    let file =
        object::File::parse(bytes).map_err(|error| bad(path, format!("a damaged ELF file: {error}")))?;
    for segment in file.segments() {
        let (start, length) = segment.file_range();
        if start.checked_add(length).is_none_or(|end| end > bytes.len() as u64) {
            return Err(bad(path, "truncated: parts of the kernel lie beyond the end of the file"));
        }
    }
    let banner = bytes.windows(BANNER.len()).position(|window| window == BANNER);
    let release = banner.and_then(|start| word(&bytes[start + BANNER.len()..]));
    release.ok_or_else(|| bad(path, "an ELF file for x86-64, but not a Linux kernel"))
}

/// Fields of the boot protocol's header: <https://docs.kernel.org/arch/x86/boot.html>.
fn identify_bzimage(path: &Path, bytes: &[u8]) -> Result<String, ImageError> {
    let setup = match bytes[0x1f1] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let field = |offset: usize| bytes.get(offset..offset + 4).and_then(|field| field.try_into().ok());
    let paragraphs = field(0x1f4).map(u32::from_le_bytes).unwrap_or(0) as usize;
    let wanted = (setup + 1) * 512 + paragraphs * 16;
    if bytes.len() < wanted {
        return Err(bad(path, format!("truncated: {} bytes of a bzImage of {wanted}", bytes.len())));
    }
    let loads_64_bit = bytes.get(0x236).is_some_and(|flags| flags & 1 != 0);
    if !loads_64_bit {
        return Err(bad(path, "a bzImage, but not for x86-64"));
    }
    let pointer = usize::from(u16::from_le_bytes([bytes[0x20e], bytes[0x20f]])) + 0x200;
    bytes.get(pointer..).and_then(word).ok_or_else(|| bad(path, "a bzImage that does not tell its version"))
}

fn at_file(path: &Path, origin: Origin) -> Result<Kernel, ImageError> {
    let bytes = fs::read(path).map_err(|error| bad(path, error.to_string()))?;
    let release = identify(path, &bytes)?;
    let path = path.canonicalize().map_err(|error| bad(path, error.to_string()))?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    let maps = [format!("System.map-{release}"), "System.map".to_owned()].map(|name| directory.join(name));
    // Beside the kernel in a tree of unpacked packages, or installed on this system.
    let above = directory.parent().unwrap_or(directory);
    let trees = [above.join("usr/lib/modules"), above.join("lib/modules"), PathBuf::from("/lib/modules")];
    Ok(Kernel {
        name: path.display().to_string(),
        version: release.clone(),
        sha256: cache::sha256(&bytes),
        system_map: maps.into_iter().find(|map| has_symbols(map)),
        modules: trees.into_iter().map(|tree| tree.join(&release)).find(|modules| modules.is_dir()),
        release,
        vmlinuz: path,
        origin,
    })
}

fn at_build(directory: &Path) -> Result<Kernel, ImageError> {
    let candidates = ["arch/x86/boot/bzImage", "vmlinux"].map(|name| directory.join(name));
    let vmlinuz = candidates.into_iter().find(|candidate| candidate.is_file()).ok_or_else(|| {
        bad(
            directory,
            "not a kernel build: it has neither vmlinux nor arch/x86/boot/bzImage (is the build complete?)",
        )
    })?;
    let mut kernel = at_file(&vmlinuz, Origin::Build)?;
    let directory = directory.canonicalize().map_err(|error| bad(directory, error.to_string()))?;
    let map = directory.join("System.map");
    kernel.system_map = has_symbols(&map).then_some(map);
    kernel.modules = directory.join("modules.order").is_file().then(|| directory.clone());
    kernel.name = directory.display().to_string();
    Ok(kernel)
}

/// Debian's System.map is a line of text that says where to find the real one.
fn has_symbols(map: &Path) -> bool {
    fs::metadata(map).is_ok_and(|metadata| metadata.is_file() && metadata.len() > 4096)
}

/// In packages the kernel is below `/boot`, or with its modules where the packages are split.
fn find_image(root: &Path) -> Option<PathBuf> {
    let boot = files(&root.join("boot"));
    let beside = ["usr/lib/modules", "lib/modules"].into_iter().flat_map(|place| files(&root.join(place)));
    let beside = beside.map(|release| release.join("vmlinuz"));
    let is_image = |path: &PathBuf| {
        path.is_file() && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"))
    };
    boot.into_iter().chain(beside).find(is_image)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn word(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| !byte.is_ascii_graphic())?;
    (1..=64).contains(&end).then(|| String::from_utf8_lossy(&bytes[..end]).into_owned())
}

fn bad(path: &Path, reason: impl Into<String>) -> ImageError {
    ImageError::BadKernel { path: path.to_owned(), reason: reason.into() }
}

/// Whether a kernel described earlier is still there, as far as a glance tells.
pub(crate) fn is_intact(kernel: &Kernel) -> io::Result<bool> {
    let file = fs::metadata(&kernel.vmlinuz)?;
    Ok(file.len() > 0 && kernel.modules.as_ref().is_none_or(|modules| modules.is_dir()))
}

const BANNER: &[u8] = b"Linux version ";

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(bytes: &[u8]) -> String {
        identify(Path::new("kernel"), bytes).unwrap_err().to_string()
    }

    fn bzimage(paragraphs: u32) -> Vec<u8> {
        let mut bytes = vec![0; 0x1000];
        bytes[0x1f1] = 1;
        bytes[0x1f4..0x1f8].copy_from_slice(&paragraphs.to_le_bytes());
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        bytes[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
        bytes[0x236] = 1;
        bytes[0x300..0x30f].copy_from_slice(b"6.12.1-x (a@b)\0");
        bytes
    }

    #[test]
    fn a_bzimage_tells_its_release() {
        assert_eq!(identify(Path::new("kernel"), &bzimage(0xc0)).unwrap(), "6.12.1-x");
    }

    #[test]
    fn what_is_no_kernel_is_told_by_what_it_is() {
        assert!(reason(b"").contains("empty"));
        assert!(reason(b"#!/bin/sh\n").contains("not a kernel"));
        assert!(reason(&bzimage(0xc1)).contains("truncated"));
        let mut other = bzimage(0xc0);
        other[0x236] = 0;
        assert!(reason(&other).contains("not for x86-64"));
        let mut arm = vec![0; 64];
        arm[..5].copy_from_slice(b"\x7fELF\x02");
        arm[18] = 183;
        assert!(reason(&arm).contains("not for x86-64"));
        arm[18] = 62;
        assert!(reason(&arm).contains("damaged"));
    }

    #[test]
    fn a_program_is_not_a_kernel() {
        let program = std::env::current_exe().unwrap();
        let bytes = fs::read(&program).unwrap();
        // This very test binary holds the words it looks for, so cut at what every program starts with.
        assert!(elf::is_x86_64(&bytes));
        let directory = tempfile::tempdir().unwrap();
        let error = at_path(directory.path()).unwrap_err();
        assert!(error.to_string().contains("not a kernel build"), "{error}");
    }
}
