//! `nicvisor image`.

use std::fmt::Write;
use std::sync::Arc;
use std::time::SystemTime;

use guest_images::edit::build_module;
use guest_images::{InitramfsOptions, KernelName, Listing, Offers, Room, Store};
use serde::Serialize;

use super::args::{BuildArguments, ImageArguments, ImageVerb, ListArguments};
use super::edits;
use super::failure::Failure;
use super::prepare::open_store;
use super::report::say;

pub(super) fn image(arguments: &ImageArguments) -> Result<u8, Failure> {
    let store = open_store(&arguments.store, &Arc::default())?;
    match &arguments.verb {
        ImageVerb::List(arguments) => list(&store, arguments)?,
        ImageVerb::Build(arguments) => build(&store, arguments)?,
        ImageVerb::Path { kernel } => show_image(&store, kernel, false)?,
        ImageVerb::Prune { keep } => {
            let pruned = store.prune(keep.0)?;
            let kept = match pruned.in_use {
                0 => String::new(),
                count => format!("; {count} that are in use were kept"),
            };
            say(&format!(
                "{} entries removed, the cache takes up {} instead of {}{kept}\n",
                pruned.removed,
                size(pruned.after),
                size(pruned.before)
            ))?;
        }
    }
    Ok(0)
}

/// A kernel with its initramfs, or one module.
fn build(store: &Store, arguments: &BuildArguments) -> Result<(), Failure> {
    let edits = edits::load(&arguments.edits)?;
    let driver = edits::driver(arguments.driver.as_deref(), &edits)?;
    let Some(driver) = driver else {
        return show_image(store, &arguments.kernel(), arguments.refresh);
    };
    let name = arguments.kernel();
    let kernel = if arguments.refresh { store.refresh(&name)? } else { store.kernel(&name)? };
    say(&format!("{}\n", build_module(store, &kernel, &driver, &edits)?.path.display()))
}

fn show_image(store: &Store, name: &KernelName, refresh: bool) -> Result<(), Failure> {
    let kernel = if refresh { store.refresh(name)? } else { store.kernel(name)? };
    let initramfs = store.initramfs(&kernel, &InitramfsOptions::default())?;
    let layers = initramfs.layers.iter().map(|layer| format!("{}\n", layer.display()));
    say(&format!("{}\n{}", kernel.vmlinuz.display(), layers.collect::<String>()))
}

/// What is listed, for other programs.
#[derive(Serialize)]
struct List {
    cached: Vec<Listing>,
    room: Vec<Room>,
    offers: Option<Offers>,
}

fn list(store: &Store, arguments: &ListArguments) -> Result<(), Failure> {
    let cached = store.list()?;
    // What is cached can be said without a network.
    let offers = match store.offers(arguments.update) {
        Ok(offers) => Some(offers),
        Err(error) if arguments.update => return Err(error.into()),
        Err(error) => {
            complain!("nicvisor: what the mirror has is not known: {error}");
            None
        }
    };
    let list = List { cached, room: store.room(), offers };
    if arguments.json {
        return say(&(serde_json::to_string_pretty(&list).expect("lists are plain data") + "\n"));
    }
    say(&text(&list))
}

fn text(list: &List) -> String {
    let mut text = String::from("in the cache:\n");
    for listing in &list.cached {
        let names = if listing.names.is_empty() { "(no name)".to_owned() } else { listing.names.join(" ") };
        let _ = writeln!(text, "  {names:<28} {:<24} {:>8}", listing.kernel.version, size(listing.size));
    }
    for room in list.room.iter().filter(|room| room.entries > 0) {
        let _ = writeln!(text, "  {:<53} {:>8}", format!("{} {}", room.entries, room.what), size(room.size));
    }
    let Some(offers) = &list.offers else { return text };
    let _ = writeln!(text, "on offer, as of {} (--update asks the mirror again):", age(offers.known_at));
    for offer in &offers.kernels {
        let cached = list.cached.iter().any(|listing| listing.kernel.version == offer.version);
        let marks = [(cached, "cached"), (offer.editable, "drivers can be edited")];
        let marks: Vec<&str> = marks.into_iter().filter_map(|(is, mark)| is.then_some(mark)).collect();
        let line = format!(
            "  {:<28} {:<24} {:>8}  {}",
            offer.name,
            offer.version,
            size(offer.download),
            marks.join(", ")
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn age(then: SystemTime) -> String {
    let minutes = then.elapsed().map_or(0, |age| age.as_secs() / 60);
    match minutes {
        0..=1 => "now".to_owned(),
        2..=119 => format!("{minutes} minutes ago"),
        120..=2879 => format!("{} hours ago", minutes / 60),
        _ => format!("{} days ago", minutes / 1440),
    }
}

/// In units of 1,000,000 bytes, as downloads and disks are sold.
fn size(bytes: u64) -> String {
    match bytes {
        0..=999_999 => format!("{} kB", bytes.div_ceil(1000)),
        1_000_000..=9_999_999_999 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        assert_eq!(
            [size(0), size(1), size(29_400_000), size(12_340_000_000)],
            ["0 kB", "1 kB", "29 MB", "12.3 GB"]
        );
    }
}
