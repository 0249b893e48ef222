//! Edits: small, described changes of a driver's source, and the modules that are built from them.
//!
//! An edit is a TOML file (its format is told in `scenarios/edits/README.md`). The driver's source comes from
//! Debian's `linux-source` of the very release that the kernel has, the module is built against that kernel's
//! headers with the compiler that Debian built the kernel with. All of it is fetched once, unpacked into the
//! cache, and never installed; what has been built once is there the next time without a network.
//!
//! ```no_run
//! # fn main() -> Result<(), guest_images::ImageError> {
//! use guest_images::{InitramfsOptions, Store, StoreOptions, edit::{Edit, build_modules}};
//! let store = Store::open(StoreOptions::default())?;
//! let kernel = store.kernel(&"debian:6.12".parse()?)?;
//! let edits = [Edit::load("scenarios/edits/gve-keep-jumbo-header.toml".as_ref())?];
//! let modules = build_modules(&store, &kernel, &edits)?;
//! let module_files = modules.into_iter().map(|module| module.path).collect();
//! let options = InitramfsOptions { module_files, ..InitramfsOptions::default() };
//! let initramfs = store.initramfs(&kernel, &options)?;
//! # Ok(())
//! # }
//! ```

mod build;
mod drivers;
mod format;
mod headers;
mod kbuild;
mod lines;
mod source;
mod toolchain;
mod wrap;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use build::{build_module, build_modules};
pub use drivers::known as known_drivers;
pub use format::Edit;

/// A module that was built from edited source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditedModule {
    /// The driver, by the name that the kernel gives its module.
    pub driver: String,
    /// The module's file, in the cache. It has no debugging information.
    pub path: PathBuf,
    /// Its SHA-256.
    pub sha256: String,
    /// `uname -r` of the kernel that it is for.
    pub release: String,
    /// The names of the edits, in the order in which they were applied.
    pub edits: Vec<String>,
}
