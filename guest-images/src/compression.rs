//! Kernel modules as they are stored: plain or compressed.

use std::{fs, io, io::Read, path::Path};

/// Endings of module files, with the dot.
pub(crate) const MODULE_SUFFIXES: [&str; 4] = [".ko", ".ko.xz", ".ko.zst", ".ko.gz"];

/// Reads a file, decompressed if its name says that it is compressed.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let stored = fs::read(path)?;
    let mut contents = Vec::new();
    match path.extension().and_then(|suffix| suffix.to_str()) {
        Some("xz") => liblzma::read::XzDecoder::new(stored.as_slice()).read_to_end(&mut contents)?,
        Some("zst") => zstd::stream::read::Decoder::new(stored.as_slice())?.read_to_end(&mut contents)?,
        Some("gz") => flate2::read::MultiGzDecoder::new(stored.as_slice()).read_to_end(&mut contents)?,
        _ => return Ok(stored),
    };
    Ok(contents)
}
