//! Kernels and initramfs images for the guest, made from Debian's packages.
//!
//! A [`Store`] is a directory of things that were fetched or built before. It is asked for a [`Kernel`] by
//! name and for the [`Initramfs`] that goes with it:
//!
//! ```no_run
//! # fn main() -> Result<(), guest_images::ImageError> {
//! use guest_images::{InitramfsOptions, Store, StoreOptions};
//! let store = Store::open(StoreOptions::default())?;
//! let kernel = store.kernel(&"debian:6.12".parse()?)?;
//! let initramfs = store.initramfs(&kernel, &InitramfsOptions::default())?;
//! println!("{} {:?}", kernel.vmlinuz.display(), initramfs.layers);
//! # Ok(())
//! # }
//! ```
//!
//! Packages come from the mirror that the system's apt uses, with a private apt configuration that leaves the
//! system's alone and needs no privileges; apt checks the archive's signatures and every package's hash. What
//! has been asked for once is there the next time without a network.
//!
//! The store may be used by several processes at a time, and a process may be killed at any moment: whoever
//! changes it holds its lock, and every entry is built aside and renamed into place when it is complete.
#![forbid(unsafe_code)]

mod apt;
mod cache;
mod compression;
mod cpio;
pub mod edit;
mod elf;
mod error;
mod initramfs;
mod kernel;
mod kmod_index;
mod modules;
mod name;
mod offers;
mod packages;
mod progress;
mod room;
mod store;
mod tools;

pub use error::ImageError;
pub use initramfs::{ExtraFile, Initramfs, InitramfsOptions};
pub use kernel::{Kernel, Origin, Package};
pub use name::KernelName;
pub use offers::{Offer, Offers};
pub use progress::{ProgressStyle, bars};
pub use room::{Pruned, Room};
pub use store::{Listing, Store, StoreOptions};

/// The agent, the guest's init, as it goes into every initramfs.
pub const AGENT: &[u8] = include_bytes!(env!("NICVISOR_AGENT"));

/// The load generator, which every initramfs has as `nicvisor-load`.
pub const LOAD: &[u8] = include_bytes!(env!("NICVISOR_LOAD"));

/// What sets ports up as `ip` and `ethtool` cannot, which every initramfs has as `nicvisor-port`.
pub const PORT: &[u8] = include_bytes!(env!("NICVISOR_PORT"));

/// The verified TCP stream, which every initramfs has as `nicvisor-stream`.
pub const STREAM: &[u8] = include_bytes!(env!("NICVISOR_STREAM"));
