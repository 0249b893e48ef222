//! `nicvisor image`.

use guest_images::edit::build_module;
use guest_images::{InitramfsOptions, Store};

use super::args::{BuildArguments, ImageArguments, ImageVerb};
use super::edits;
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
        ImageVerb::Build(arguments) => build(&store, arguments)?,
        ImageVerb::Path { kernel } => {
            let kernel = store.kernel(kernel)?;
            let initramfs = store.initramfs(&kernel, &InitramfsOptions::default())?;
            println!("{}\n{}", kernel.vmlinuz.display(), initramfs.path.display());
        }
    }
    Ok(0)
}

/// A kernel with its initramfs, or one module.
fn build(store: &Store, arguments: &BuildArguments) -> Result<(), Failure> {
    let edits = edits::load(&arguments.edits)?;
    let driver = edits::driver(arguments.driver.as_deref(), &edits)?;
    let name = arguments.kernel();
    let kernel = if arguments.refresh { store.refresh(&name)? } else { store.kernel(&name)? };
    match driver {
        Some(driver) => println!("{}", build_module(store, &kernel, &driver, &edits)?.path.display()),
        None => {
            let initramfs = store.initramfs(&kernel, &InitramfsOptions::default())?;
            println!("{}\n{}", kernel.vmlinuz.display(), initramfs.path.display());
        }
    }
    Ok(())
}
