//! Initramfs images in the store.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{INITRAMFS, Store, read_json, to_json};
use crate::{
    AGENT, ExtraFile, ImageError, Initramfs, InitramfsOptions, Kernel, LOAD, PORT, STREAM,
    cache::{self, Lock},
    initramfs,
};

impl Store {
    /// An initramfs for that kernel: from the cache, or built. What the options add is kept apart from what all
    /// guests of the kernel have, so that variations take up little room.
    pub fn initramfs(&self, kernel: &Kernel, options: &InitramfsOptions) -> Result<Initramfs, ImageError> {
        let tools = self.tools()?;
        let common = InitramfsOptions::default();
        let base = initramfs_key(kernel, &tools, &common)?;
        let key = initramfs_key(kernel, &tools, options)?;
        if let Some(known) = self.known_initramfs(&key, &base) {
            return Ok(known);
        }
        let lock = self.cache.lock(self.progress)?;
        if let Some(known) = self.known_initramfs(&key, &base) {
            return Ok(known);
        }
        let _task = self.progress.start(&format!("building the initramfs for {}", kernel.release));
        let (bottom, modules) = initramfs::build(kernel, &tools, &common)?;
        let bytes = bottom.to_bytes();
        if self.known_layer(&base).is_none() {
            self.write_initramfs(&lock, &base, &bytes, &bytes, modules)?;
        }
        if key != base {
            let (whole, modules) = initramfs::build(kernel, &tools, options)?;
            let top = whole.on_top_of(&bottom).to_bytes();
            self.write_initramfs(&lock, &key, &top, &[bytes, top.clone()].concat(), modules)?;
            self.prune_initramfs(&lock, &[&base, &key]);
        }
        self.known_initramfs(&key, &base).ok_or_else(|| {
            ImageError::cache(&self.cache.path(INITRAMFS))(std::io::Error::other(
                "the initramfs is gone again",
            ))
        })
    }

    /// Writes one layer of an initramfs and the description of the whole that it completes.
    fn write_initramfs(
        &self,
        lock: &Lock,
        key: &str,
        layer: &[u8],
        whole: &[u8],
        modules: BTreeMap<String, String>,
    ) -> Result<(), ImageError> {
        let record = InitramfsRecord { sha256: cache::sha256(whole), length: layer.len() as u64, modules };
        let (archive, description) = self.initramfs_paths(key);
        self.cache.write(lock, &archive, layer)?;
        // The description comes last: it says that the archive is complete.
        self.cache.write(lock, &description, &to_json(&record))
    }

    fn known_initramfs(&self, key: &str, base: &str) -> Option<Initramfs> {
        let (bottom, _) = self.known_layer(base)?;
        if key == base {
            let (path, record) = self.known_layer(key)?;
            return Some(Initramfs { layers: vec![path], sha256: record.sha256, modules: record.modules });
        }
        let (top, record) = self.known_layer(key)?;
        Some(Initramfs { layers: vec![bottom, top], sha256: record.sha256, modules: record.modules })
    }

    fn known_layer(&self, key: &str) -> Option<(PathBuf, InitramfsRecord)> {
        let (path, description) = self.initramfs_paths(key);
        let record: InitramfsRecord = read_json(&description)?;
        let complete = fs::metadata(&path).is_ok_and(|metadata| metadata.len() == record.length);
        (complete && self.uses.hold(&path)).then_some((path, record))
    }

    fn initramfs_paths(&self, key: &str) -> (PathBuf, PathBuf) {
        let directory = self.cache.path(INITRAMFS);
        (directory.join(format!("{key}.cpio")), directory.join(format!("{key}.json")))
    }

    /// Removes the images that were not used for longest beyond a number. Each change of a module under test makes
    /// a new one.
    fn prune_initramfs(&self, lock: &Lock, keep: &[&String]) {
        let mut entries = self.cache.entries(INITRAMFS);
        entries.retain(|entry| {
            entry.path.extension().is_some_and(|suffix| suffix == "cpio")
                && !keep.iter().any(|key| entry.path.file_stem().is_some_and(|stem| stem == key.as_str()))
        });
        entries.sort_by_key(|entry| entry.used);
        for entry in entries.iter().take(entries.len().saturating_sub(MOST_INITRAMFS)) {
            // One that cannot be removed only takes up room.
            if self.cache.remove(lock, &entry.path).is_ok_and(|removed| removed) {
                let _ = fs::remove_file(entry.path.with_extension("json"));
            }
        }
    }
}

#[derive(Serialize, Deserialize)]
struct InitramfsRecord {
    sha256: String,
    length: u64,
    modules: BTreeMap<String, String>,
}

/// Everything that an initramfs depends on, as one hash.
fn initramfs_key(kernel: &Kernel, tools: &Path, options: &InitramfsOptions) -> Result<String, ImageError> {
    let mut parts = vec![
        INITRAMFS_FORMAT.to_string(),
        cache::sha256(AGENT),
        cache::sha256(LOAD),
        cache::sha256(PORT),
        cache::sha256(STREAM),
        kernel.sha256.clone(),
        kernel.release.clone(),
        format!("{:?}", kernel.modules),
        tools.display().to_string(),
        options.modules.join(" "),
    ];
    for file in &options.module_files {
        parts.push(format!("{} {}", file.display(), hash(file)?));
    }
    for ExtraFile { source, target } in &options.files {
        parts.push(target.clone());
        hash_tree(source, &mut parts)?;
    }
    if kernel.origin == crate::Origin::Build {
        // Modules of a build change under their names.
        for file in kernel.modules.iter().map(|root| root.join("modules.order")) {
            parts.push(hash(&file)?);
            let text = fs::read_to_string(&file).unwrap_or_default();
            for object in text.lines() {
                let module = file.with_file_name(Path::new(object).with_extension("ko"));
                parts.push(format!(
                    "{:?}",
                    fs::metadata(module).and_then(|metadata| metadata.modified()).ok()
                ));
            }
        }
    }
    Ok(cache::sha256(&to_json(&parts))[..32].to_owned())
}

fn hash(file: &Path) -> Result<String, ImageError> {
    cache::sha256_file(file).map_err(|source| ImageError::BadFile { path: file.to_owned(), source })
}

fn hash_tree(path: &Path, parts: &mut Vec<String>) -> Result<(), ImageError> {
    let unreadable = |source| ImageError::BadFile { path: path.to_owned(), source };
    let metadata = fs::symlink_metadata(path).map_err(unreadable)?;
    parts.push(format!("{} {:o}", path.display(), std::os::unix::fs::MetadataExt::mode(&metadata)));
    if metadata.is_symlink() {
        parts.push(fs::read_link(path).map_err(unreadable)?.display().to_string());
    } else if metadata.is_dir() {
        let entries = fs::read_dir(path).map_err(unreadable)?;
        let mut entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        entries.sort();
        return entries.iter().try_for_each(|entry| hash_tree(entry, parts));
    } else {
        parts.push(hash(path)?);
    }
    Ok(())
}

/// Changed when the same parts would make another archive.
const INITRAMFS_FORMAT: u32 = 2;

const MOST_INITRAMFS: usize = 64;
