//! The directory on disk: its lock, and how entries come to be.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::{ImageError, ProgressStyle};

/// The cache directory.
#[derive(Debug)]
pub(crate) struct Cache {
    root: PathBuf,
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
    fn a_full_disk_is_called_that() {
        let error = ImageError::cache(Path::new("x"))(io::ErrorKind::StorageFull.into());
        assert!(matches!(error, ImageError::DiskFull { .. }) && error.is_environment());
    }
}
