//! Captures: files that only get their name when they are complete.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use nicvisor_net::capture::{Capture, CaptureConfig};
use nicvisor_net::network::{Medium, Network};

use super::failure::Failure;

/// A network, captured to `path` if there is one.
pub(super) fn network(path: Option<&Path>) -> Result<Box<dyn Medium>, Failure> {
    let Some(path) = path else { return Ok(Box::new(Network::new())) };
    let failure = |source| Failure::Write { path: path.to_owned(), source };
    let file = BufWriter::with_capacity(1 << 20, File::create(path).map_err(failure)?);
    let capture = Capture::new(Network::new(), file, CaptureConfig::default()).map_err(failure)?;
    Ok(Box::new(capture))
}
