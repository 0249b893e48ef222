//! How much room the cache takes, and making it smaller.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{ImageError, Store, cache::Entry};

/// What a part of the cache takes up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Room {
    /// What is in it.
    pub what: &'static str,
    /// How many entries it has.
    pub entries: usize,
    /// Bytes on disk.
    pub size: u64,
}

/// What pruning came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// Bytes on disk before.
    pub before: u64,
    /// Bytes on disk after.
    pub after: u64,
    /// Entries that were removed.
    pub removed: usize,
    /// Entries that would have been removed, had they not been in use.
    pub in_use: usize,
}

impl Store {
    /// What each part of the cache takes up.
    pub fn room(&self) -> Vec<Room> {
        let parts = PARTS.iter().map(|&(directory, what)| {
            let entries = self.entries(directory);
            let count = entries.iter().filter(|entry| !is_description(&entry.path)).count();
            Room { what, entries: count, size: entries.iter().map(|entry| entry.size).sum() }
        });
        parts.collect()
    }

    /// Removes what was not used for longest, until the cache takes up no more than `keep` bytes. What another
    /// process uses, a guest that runs, stays.
    ///
    /// # Errors
    /// When the cache cannot be changed.
    pub fn prune(&self, keep: u64) -> Result<Pruned, ImageError> {
        let lock = self.cache.lock(self.progress)?;
        let mut entries: Vec<Entry> =
            PARTS.iter().flat_map(|&(directory, _)| self.entries(directory)).collect();
        let mut pruned = Pruned { before: entries.iter().map(|entry| entry.size).sum(), ..Pruned::default() };
        pruned.after = pruned.before;
        entries.retain(|entry| !is_description(&entry.path));
        entries.sort_by_key(|entry| entry.used);
        for entry in entries {
            if pruned.after <= keep {
                break;
            }
            if !self.cache.remove(&lock, &entry.path)? {
                pruned.in_use += 1;
                continue;
            }
            let beside = description(&entry.path);
            let small = fs::metadata(&beside).map_or(0, |metadata| metadata.len().div_ceil(4096) * 4096);
            let _ = fs::remove_file(beside);
            pruned.after = pruned.after.saturating_sub(entry.size + small);
            pruned.removed += 1;
        }
        self.forget_names();
        Ok(pruned)
    }

    fn entries(&self, directory: &str) -> Vec<Entry> {
        let mut entries = self.cache.entries(directory);
        // Packages have a part of their own.
        entries.retain(|entry| directory != LISTS || !entry.path.ends_with("packages"));
        entries
    }

    /// Removes names whose kernels are gone.
    fn forget_names(&self) {
        for entry in self.cache.entries(crate::store::NAMES) {
            if self.named_directory(&entry.path).is_none_or(|directory| !directory.is_dir()) {
                let _ = fs::remove_file(&entry.path);
            }
        }
    }
}

/// An archive has its description beside it.
fn description(entry: &Path) -> PathBuf {
    entry.with_extension("json")
}

fn is_description(path: &Path) -> bool {
    path.extension().is_some_and(|suffix| suffix == "json")
}

const LISTS: &str = "apt";

/// Directories below the cache's root, each with entries of their own.
const PARTS: &[(&str, &str)] = &[
    (crate::store::KERNELS, "kernels"),
    (crate::store::INITRAMFS, "initramfs images"),
    (crate::store::TOOLS, "the guest's tools"),
    ("modules", "edited modules"),
    ("build/headers", "headers"),
    ("build/sources", "drivers' source"),
    ("build/toolchains", "compilers"),
    ("apt/packages", "packages that were not unpacked"),
    (LISTS, "package lists"),
];
