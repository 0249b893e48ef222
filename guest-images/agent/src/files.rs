//! Files on their way in and out.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

use agent_protocol::{CHUNK, Failure};

/// A file that the host is putting. After a failure the rest of its contents is taken and dropped, and the
/// host hears about it at the end.
pub(crate) struct Incoming {
    path: String,
    file: Result<File, Failure>,
}

impl Incoming {
    /// Creates or truncates the file.
    pub(crate) fn create(path: String, mode: u32) -> Incoming {
        let file = create(Path::new(&path), mode).map_err(|error| failure("cannot create", &path, &error));
        Incoming { path, file }
    }

    /// Adds contents.
    pub(crate) fn write(&mut self, data: &[u8]) {
        if let Ok(file) = &mut self.file
            && let Err(error) = file.write_all(data)
        {
            self.file = Err(failure("cannot write", &self.path, &error));
        }
    }

    /// The outcome.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        self.file.map(drop)
    }
}

/// A file that the host is getting.
pub(crate) struct Outgoing {
    path: String,
    file: File,
}

impl Outgoing {
    /// Opens the file.
    pub(crate) fn open(path: String) -> Result<Outgoing, Failure> {
        match File::open(&path) {
            Ok(file) => Ok(Outgoing { path, file }),
            Err(error) => Err(failure("cannot open", &path, &error)),
        }
    }

    /// The next piece; an empty one at the end.
    pub(crate) fn read(&mut self) -> Result<Vec<u8>, Failure> {
        let mut data = vec![0; CHUNK];
        match self.file.read(&mut data) {
            Ok(length) => {
                data.truncate(length);
                Ok(data)
            }
            Err(error) => Err(failure("cannot read", &self.path, &error)),
        }
    }
}

fn create(path: &Path, mode: u32) -> io::Result<File> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
    // The mode above counts only for a new file, and less the umask.
    if file.metadata()?.is_file() {
        file.set_permissions(fs::Permissions::from_mode(mode & 0o7777))?;
    }
    Ok(file)
}

fn failure(what: &str, path: &str, error: &io::Error) -> Failure {
    Failure { message: format!("{what} {path}: {error}"), errno: error.raw_os_error() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_is_told_at_the_end() {
        let mut file = Incoming::create("/dev/full".to_owned(), 0o666);
        file.write(b"some");
        file.write(b"more");
        let failure = file.finish().unwrap_err();
        assert_eq!(failure.errno, Some(28), "{failure}");
        assert!(failure.message.contains("/dev/full"));
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let failure = Outgoing::open("/nonexistent/file".to_owned()).err().unwrap();
        assert_eq!(failure.errno, Some(2));
        assert!(failure.message.contains("/nonexistent/file"));
    }
}
