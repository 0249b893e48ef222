//! `nicvisor image`.

use guest_images::InitramfsOptions;

use super::args::{ImageArguments, ImageVerb};
use super::failure::Failure;
use super::prepare::open_store;

pub(super) fn image(arguments: &ImageArguments) -> Result<u8, Failure> {
    let store = open_store(&arguments.store)?;
    match &arguments.verb {
        ImageVerb::List => {
            for listing in store.list()? {
                println!(
                    "{}  {}  {}",
                    listing.kernel.release,
                    listing.kernel.version,
                    listing.names.join(" ")
                );
            }
        }
        ImageVerb::Build { kernel, refresh } => {
            let kernel = if *refresh { store.refresh(kernel)? } else { store.kernel(kernel)? };
            let initramfs = store.initramfs(&kernel, &InitramfsOptions::default())?;
            println!("{}\n{}", kernel.vmlinuz.display(), initramfs.path.display());
        }
        ImageVerb::Path { kernel } => {
            let kernel = store.kernel(kernel)?;
            let initramfs = store.initramfs(&kernel, &InitramfsOptions::default())?;
            println!("{}\n{}", kernel.vmlinuz.display(), initramfs.path.display());
        }
    }
    Ok(0)
}
