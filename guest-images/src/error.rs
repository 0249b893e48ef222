//! What can go wrong, in words for the person who has to do something about it.

use std::{io, path::Path, path::PathBuf};

/// Why an image is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The text is not the name of a kernel.
    #[error("{name:?} is not a kernel: {reason}")]
    BadName {
        /// What was given.
        name: String,
        /// What is wrong with it, or what would be right.
        reason: String,
    },
    /// The file is not a kernel that can be booted here.
    #[error("{}: {reason}", path.display())]
    BadKernel {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A kernel module cannot be used.
    #[error("module {module}: {reason}")]
    BadModule {
        /// The module's name or file.
        module: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file to be put into the initramfs cannot be read.
    #[error("{}: {source}", path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// An edit is not one, or does not go with the source.
    #[error("{}{}: {reason}", path.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
    BadEdit {
        /// The edit file.
        path: PathBuf,
        /// The line in it, from 1, if it is about one.
        line: Option<usize>,
        /// What is wrong.
        reason: String,
    },
    /// A driver does not build with its edits.
    #[error("{driver} of kernel {version} does not build with {edits}:\n{complaints}")]
    Build {
        /// The driver.
        driver: String,
        /// The kernel's version.
        version: String,
        /// The names of the edits.
        edits: String,
        /// What the compiler said.
        complaints: String,
    },
    /// A program is needed that is not installed.
    #[error("{tool} is needed to fetch guest images and is not installed (Debian package: {package})")]
    MissingTool {
        /// The program.
        tool: &'static str,
        /// The package that has it.
        package: &'static str,
    },
    /// No Debian mirror is known.
    #[error(
        "no Debian mirror is known: apt on this system is set up with none. \
         Set NICVISOR_MIRROR to the address of one, or give a kernel file instead of a name"
    )]
    NoMirror,
    /// The mirror does not answer, or what it answers is not authentic.
    #[error("cannot fetch {what} from the Debian mirror:\n{detail}")]
    Fetch {
        /// What was wanted.
        what: String,
        /// What apt said.
        detail: String,
    },
    /// The user stopped it.
    #[error("fetching {what} was interrupted; the next time it goes on where it stopped")]
    Interrupted {
        /// What was being fetched.
        what: String,
    },
    /// The mirror does not have it.
    #[error("the Debian mirror has no {what}{hint}")]
    NotOnMirror {
        /// What was wanted.
        what: String,
        /// What there is instead, or nothing.
        hint: String,
    },
    /// A package does not hold what it should.
    #[error("package {package}: {reason}")]
    BadPackage {
        /// The package.
        package: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no room for the cache.
    #[error("the disk is full: no room for {}", path.display())]
    DiskFull {
        /// What was being written.
        path: PathBuf,
    },
    /// The cache cannot be used.
    #[error("{}: {source}", path.display())]
    Cache {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl ImageError {
    /// Whether the surroundings are at fault (a missing program, no network, a full disk) rather than what the
    /// user asked for.
    pub fn is_environment(&self) -> bool {
        match self {
            ImageError::BadName { .. }
            | ImageError::BadKernel { .. }
            | ImageError::BadModule { .. }
            | ImageError::BadEdit { .. }
            | ImageError::Build { .. }
            | ImageError::Interrupted { .. }
            | ImageError::BadFile { .. } => false,
            ImageError::MissingTool { .. }
            | ImageError::NoMirror
            | ImageError::Fetch { .. }
            | ImageError::NotOnMirror { .. }
            | ImageError::BadPackage { .. }
            | ImageError::DiskFull { .. }
            | ImageError::Cache { .. } => true,
        }
    }

    /// An error of the cache at `path`.
    pub(crate) fn cache(path: &Path) -> impl FnOnce(io::Error) -> ImageError + '_ {
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                ImageError::DiskFull { path: path.to_owned() }
            }
            _ => ImageError::Cache { path: path.to_owned(), source },
        }
    }
}
