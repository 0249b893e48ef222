//! What can be wrong with the files that a machine is asked to boot.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a kernel image cannot be used. Every message says what to do about it.
#[derive(Debug, Error)]
pub enum ImageError {
    /// The file could not be read.
    #[error("cannot read kernel {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the host said.
        source: io::Error,
    },
    /// The file has no bytes.
    #[error("the kernel image is empty: it was probably cut short when it was copied or built")]
    Empty,
    /// The file ends before a part that its headers promise.
    #[error(
        "the kernel image is truncated: {part} ends at byte {end}, the file at {length}; copy or build it again"
    )]
    Truncated {
        /// What is missing.
        part: &'static str,
        /// First byte after it.
        end: u64,
        /// Length of the file.
        length: u64,
    },
    /// A kernel, but not for this processor.
    #[error(
        "the kernel is built for {architecture}, nicvisor runs x86-64 kernels; build it with ARCH=x86_64"
    )]
    WrongArchitecture {
        /// What it is built for.
        architecture: String,
    },
    /// Something else.
    #[error(
        "not a kernel image ({found}); give a vmlinux, a bzImage (vmlinuz), a PVH ELF or a multiboot ELF image"
    )]
    NotAKernel {
        /// What it looks like.
        found: String,
    },
    /// A bzImage that is too old to have been built with a readable payload.
    #[error(
        "the bzImage uses boot protocol {major}.{minor:02}, at least 2.08 is needed: use the vmlinux of the build"
    )]
    OldProtocol {
        /// Major version.
        major: u8,
        /// Minor version.
        minor: u8,
    },
    /// A payload format that nicvisor does not unpack.
    #[error(
        "the bzImage is compressed in an unknown way (it starts with {magic:02x?}): use the vmlinux of the build, \
         or build with CONFIG_KERNEL_ZSTD"
    )]
    UnknownCompression {
        /// First bytes of the payload.
        magic: [u8; 4],
    },
    /// The payload is damaged.
    #[error(
        "cannot unpack the {format} payload of the bzImage: {source}; the file is damaged, copy or build it again"
    )]
    Unpack {
        /// Compression format.
        format: &'static str,
        /// What the decompressor said.
        source: io::Error,
    },
}

/// Why an image cannot be placed in a machine's memory.
#[derive(Debug, Error)]
pub enum LoadError {
    /// RAM ends before the kernel does.
    #[error("the kernel needs memory up to {needed} MiB, the machine has {available} MiB: raise --memory")]
    TooLittleMemory {
        /// Where the kernel ends.
        needed: u64,
        /// Where low memory ends.
        available: u64,
    },
    /// The initial RAM disk does not fit beside the kernel.
    #[error(
        "the initrd of {size} MiB does not fit beside the kernel, which leaves {available} MiB: raise --memory or \
         make the initrd smaller"
    )]
    InitrdTooBig {
        /// Size, rounded up.
        size: u64,
        /// Room between the kernel's end and the last address that it accepts.
        available: u64,
    },
    /// The kernel would cut the command line.
    #[error(
        "the kernel command line is {length} bytes long, this kernel takes at most {limit}: shorten --append"
    )]
    CommandLineTooLong {
        /// Length without the final zero.
        length: usize,
        /// Longest that is taken whole.
        limit: usize,
    },
    /// A zero byte would end the command line early.
    #[error("the kernel command line contains a zero byte: remove it from --append")]
    CommandLineZero,
    /// The image wants to be loaded where the machine keeps its own tables, or outside RAM.
    #[error(
        "the image's segment at {start:#x}..{end:#x} is outside memory or overlaps what the loader puts below 1 MiB"
    )]
    BadSegment {
        /// First address.
        start: u64,
        /// End address.
        end: u64,
    },
    /// Writing to guest memory failed.
    #[error("cannot write guest memory: {0}")]
    Memory(#[from] vm_memory::GuestMemoryError),
}
