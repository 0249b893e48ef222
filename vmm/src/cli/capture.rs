//! Captures: files that only get their name when they are complete, and never cost one that was there before.

use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nicvisor_net::capture::{Capture, CaptureConfig};
use nicvisor_net::network::{Network, SharedMedium};
use tempfile::TempPath;

use super::failure::Failure;

/// A capture that is being written, if any is.
pub(super) struct Pending(Option<(TempPath, PathBuf)>);

/// A network, captured to `path` if there is one.
pub(super) fn network(path: Option<&Path>) -> Result<(SharedMedium, Pending), Failure> {
    let Some(path) = path else { return Ok((SharedMedium::new(Network::new()), Pending(None))) };
    let failure = |source| Failure::Write { path: path.to_owned(), source };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let readable = std::fs::Permissions::from_mode(0o644);
    let file = tempfile::Builder::new().permissions(readable).tempfile_in(directory).map_err(failure)?;
    let (file, unfinished) = file.into_parts();
    let output = BufWriter::with_capacity(1 << 20, file);
    let capture = Capture::new(Network::new(), output, CaptureConfig::default()).map_err(failure)?;
    Ok((SharedMedium::new(capture), Pending(Some((unfinished, path.to_owned())))))
}

impl Pending {
    /// Ends the capture and gives the file its name.
    pub(super) fn finish(self, medium: &SharedMedium) -> Result<(), Failure> {
        let Some((unfinished, path)) = self.0 else { return Ok(()) };
        medium.finish().map_err(|source| Failure::Write { path: path.clone(), source })?;
        unfinished.persist(&path).map_err(|error| Failure::Write { path, source: error.error })
    }
}
