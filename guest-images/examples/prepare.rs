//! Fetches a kernel and builds its initramfs, and prints where they are: `prepare [NAME] [MODULE.ko...]`.

use guest_images::{ImageError, InitramfsOptions, Store, StoreOptions};

fn main() -> Result<(), ImageError> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "debian:6.12".to_owned());
    let options =
        InitramfsOptions { module_files: arguments.map(Into::into).collect(), ..InitramfsOptions::default() };
    let store = Store::open(StoreOptions::default())?;
    let kernel = store.kernel(&name.parse()?)?;
    let initramfs = store.initramfs(&kernel, &options)?;
    println!("{}", kernel.vmlinuz.display());
    for layer in initramfs.layers {
        println!("{}", layer.display());
    }
    Ok(())
}
