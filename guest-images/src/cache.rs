//! The directory on disk: its lock, and how entries come to be.

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::{ImageError, ProgressStyle};

/// The cache directory.
#[derive(Debug)]
pub(crate) struct Cache {
    root: PathBuf,
}

/// Entries that this process uses. As long as it is there, nobody removes them.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    held: Mutex<BTreeMap<PathBuf, File>>,
}

impl Uses {
    /// Marks an entry as used, now and until the end. False if it is not there (any more).
    pub(crate) fn hold(&self, entry: &Path) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if !held.contains_key(entry) {
            let Ok(file) = File::open(entry) else { return false };
            // A file system without locks has no protection, and is no reason not to work.
            let _ = file.lock_shared();
            // It may have been removed in between.
            if !is_same(&file, entry) {
                return false;
            }
            // The age of an entry is counted from its last use.
            let _ = file.set_modified(SystemTime::now());
            held.insert(entry.to_owned(), file);
        }
        true
    }
}

/// One entry of the cache, as far as its room and age go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) path: PathBuf,
    /// Bytes on disk.
    pub(crate) size: u64,
    /// When it was last used.
    pub(crate) used: SystemTime,
}

/// Held by whoever changes the cache. Released when dropped, and by the kernel if the process dies.
pub(crate) struct Lock {
    _file: File,
}

impl Cache {
    /// Opens the cache, creating it if it is not there.
    pub(crate) fn open(root: PathBuf) -> Result<Cache, ImageError> {
        fs::create_dir_all(&root).map_err(ImageError::cache(&root))?;
        // apt is run in other directories, and needs to be told in full.
        let root = root.canonicalize().map_err(ImageError::cache(&root))?;
        Ok(Cache { root })
    }

    /// A path below the cache's root.
    pub(crate) fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    /// Waits until nobody else changes the cache, and removes what killed processes left half-built.
    pub(crate) fn lock(&self, progress: ProgressStyle) -> Result<Lock, ImageError> {
        let path = self.path("lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(ImageError::cache(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let _task = progress.start("waiting for another process that prepares guest images");
                file.lock().map_err(ImageError::cache(&path))?;
            }
            Err(TryLockError::Error(error)) => return Err(ImageError::cache(&path)(error)),
        }
        let unfinished = self.path(UNFINISHED);
        remove(&unfinished).map_err(ImageError::cache(&unfinished))?;
        Ok(Lock { _file: file })
    }

    /// A place to build an entry in, on the same file system as the cache.
    pub(crate) fn workspace(&self, _lock: &Lock) -> Result<TempDir, ImageError> {
        let unfinished = self.path(UNFINISHED);
        fs::create_dir_all(&unfinished).map_err(ImageError::cache(&unfinished))?;
        TempDir::new_in(&unfinished).map_err(ImageError::cache(&unfinished))
    }

    /// Makes a finished file or directory the cache's entry at `target`, in place of an earlier one.
    pub(crate) fn publish(&self, _lock: &Lock, finished: &Path, target: &Path) -> Result<(), ImageError> {
        let publish = || -> io::Result<()> {
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent)?;
            }
            if finished.is_dir() {
                // A directory cannot replace another; the earlier one is unusable, or we would not be here.
                remove(target)?;
            } else {
                File::open(finished)?.sync_all()?;
            }
            fs::rename(finished, target)
        };
        publish().map_err(ImageError::cache(target))
    }

    /// The entries in a directory of the cache.
    pub(crate) fn entries(&self, directory: &str) -> Vec<Entry> {
        let listing = fs::read_dir(self.path(directory)).into_iter().flatten().flatten();
        let entries = listing.filter_map(|entry| {
            let used = entry.metadata().and_then(|metadata| metadata.modified()).ok()?;
            Some(Entry { size: size_of(&entry.path()), path: entry.path(), used })
        });
        entries.collect()
    }

    /// Removes an entry; false if somebody uses it.
    pub(crate) fn remove(&self, _lock: &Lock, entry: &Path) -> Result<bool, ImageError> {
        let Ok(file) = File::open(entry) else { return Ok(true) };
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            return Ok(false);
        }
        // What is half removed must not look like an entry.
        let unfinished = self.path(UNFINISHED);
        let aside = unfinished.join("removed");
        let remove = || {
            fs::create_dir_all(&unfinished)?;
            remove(&aside)?;
            fs::rename(entry, &aside)?;
            remove(&aside)
        };
        remove().map_err(ImageError::cache(entry))?;
        Ok(true)
    }

    /// Writes a file of the cache as a whole.
    pub(crate) fn write(&self, lock: &Lock, target: &Path, contents: &[u8]) -> Result<(), ImageError> {
        let workspace = self.workspace(lock)?;
        let path = workspace.path().join("file");
        fs::write(&path, contents).map_err(ImageError::cache(target))?;
        self.publish(lock, &path, target)
    }
}

/// The SHA-256 of some bytes in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// The SHA-256 of a file in hexadecimal.
pub(crate) fn sha256_file(path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match io::Read::read(&mut file, &mut buffer)? {
            0 => return Ok(hexadecimal(&hash.finalize())),
            length => hash.update(&buffer[..length]),
        }
    }
}

fn is_same(file: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(one), Ok(other)) => identity(one) == identity(other),
        _ => false,
    }
}

/// Bytes on disk of a file, or of a directory with all that is in it.
pub(crate) fn size_of(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    let own = metadata.blocks() * 512;
    if !metadata.is_dir() {
        return own;
    }
    own + fs::read_dir(path).into_iter().flatten().flatten().map(|entry| size_of(&entry.path())).sum::<u64>()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

const UNFINISHED: &str = "unfinished";

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (TempDir, Cache) {
        let directory = TempDir::new().unwrap();
        let cache = Cache::open(directory.path().join("a/b")).unwrap();
        (directory, cache)
    }

    #[test]
    fn what_a_killed_process_left_is_gone_after_the_next_lock() {
        let (_directory, cache) = cache();
        let lock = cache.lock(ProgressStyle::Silent).unwrap();
        let workspace = cache.workspace(&lock).unwrap().keep();
        fs::write(workspace.join("half"), "half").unwrap();
        drop(lock);
        let _lock = cache.lock(ProgressStyle::Silent).unwrap();
        assert!(!workspace.exists());
    }

    #[test]
    fn a_second_process_waits_for_the_first() {
        let (_directory, cache) = cache();
        let lock = cache.lock(ProgressStyle::Silent).unwrap();
        let second = File::options().write(true).open(cache.path("lock")).unwrap();
        assert!(matches!(second.try_lock(), Err(TryLockError::WouldBlock)));
        drop(lock);
        assert!(second.try_lock().is_ok());
    }

    #[test]
    fn an_entry_replaces_an_earlier_one() {
        let (_directory, cache) = cache();
        let lock = cache.lock(ProgressStyle::Silent).unwrap();
        let target = cache.path("kernels/one");
        fs::create_dir_all(&target).unwrap();
        fs::write(target.join("old"), "").unwrap();
        let workspace = cache.workspace(&lock).unwrap();
        let finished = workspace.path().join("new");
        fs::create_dir(&finished).unwrap();
        fs::write(finished.join("new"), "").unwrap();
        cache.publish(&lock, &finished, &target).unwrap();
        assert!(target.join("new").exists() && !target.join("old").exists());
    }

    #[test]
    fn an_entry_in_use_is_not_removed() {
        let (_directory, cache) = cache();
        let lock = cache.lock(ProgressStyle::Silent).unwrap();
        let entry = cache.path("kernels/one");
        fs::create_dir_all(entry.join("boot")).unwrap();
        fs::write(entry.join("boot/vmlinuz"), vec![1; 10_000]).unwrap();
        let uses = Uses::default();
        assert!(uses.hold(&entry) && uses.hold(&entry));
        assert!(!cache.remove(&lock, &entry).unwrap() && entry.is_dir());
        let listed = cache.entries("kernels");
        assert_eq!(listed.len(), 1);
        assert!(listed[0].size >= 10_000 && listed[0].used.elapsed().unwrap().as_secs() < 60);
        drop(uses);
        assert!(cache.remove(&lock, &entry).unwrap() && !entry.exists());
        assert!(!Uses::default().hold(&entry));
        assert!(cache.remove(&lock, &entry).unwrap());
    }

    #[test]
    fn a_full_disk_is_called_that() {
        let error = ImageError::cache(Path::new("x"))(io::ErrorKind::StorageFull.into());
        assert!(matches!(error, ImageError::DiskFull { .. }) && error.is_environment());
    }
}
