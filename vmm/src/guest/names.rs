//! The names of the kernel's functions, for backtraces.

use std::path::PathBuf;

use crate::boot::{Kernel, Symbols};

/// Where the names are. They are only read when a backtrace is wanted: most guests end well.
#[derive(Debug)]
pub(super) struct NameSource {
    /// The kernel image, which carries its own table.
    pub(super) kernel: PathBuf,
    /// A System.map, preferred where there is one.
    pub(super) system_map: Option<PathBuf>,
}

impl NameSource {
    /// Reads them. A backtrace without names is better than none, so nothing here fails.
    pub(super) fn read(&self) -> Symbols {
        let map = self.system_map.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        match map {
            Some(map) => Symbols::from_system_map(&map),
            None => Kernel::read(&self.kernel).map(|kernel| kernel.symbols()).unwrap_or_default(),
        }
    }
}
