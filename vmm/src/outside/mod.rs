//! Links that lead out of the program: to the host's network, to another nicvisor, to QEMU.
//!
//! A link whose name has one of these forms has a port more than the machine's devices, and a [`Wire`] behind it:
//!
//! | link | leads to |
//! |---|---|
//! | `tap:NAME` | the host's tap interface NAME, made if it is not there (that needs CAP_NET_ADMIN) |
//! | `stream:PATH` | a Unix stream socket: connects to PATH, or listens there when nobody does. QEMU's `-netdev stream` |
//! | `dgram:LOCAL:REMOTE` | a Unix datagram socket at LOCAL that sends to REMOTE. QEMU's `-netdev dgram` |
//!
//! What comes from outside comes when it comes: such a run is not reproducible.

mod datagram;
mod stream;
mod tap;

use std::fmt::Debug;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::path::PathBuf;

use thiserror::Error;

/// The way out of a link: takes and gives whole Ethernet frames without ever blocking.
pub trait Wire: Debug + Send {
    /// Sends a frame; false when nobody is there to take it, or they cannot take more now.
    fn send(&mut self, frame: &[u8]) -> bool;

    /// A frame that has come, if one has.
    fn receive(&mut self) -> Option<Vec<u8>>;

    /// What to wait for: can be read when there may be a frame. Changes when a peer comes or goes.
    fn fd(&self) -> BorrowedFd<'_>;
}

/// Where a link leads.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    Tap(String),
    Stream(PathBuf),
    Datagram { local: PathBuf, remote: PathBuf },
}

/// Checks that a link's name is a plain one or says where it leads.
///
/// # Errors
/// When it is malformed.
pub fn check(link: &str) -> Result<(), OutsideError> {
    parse(link).map(drop)
}

/// Opens the way out that a link's name asks for; `None` when the name is just a name.
///
/// # Errors
/// When it is malformed, or the host does not have it.
pub fn open(link: &str) -> Result<Option<Box<dyn Wire>>, OutsideError> {
    let Some(way) = parse(link)? else { return Ok(None) };
    let wire: io::Result<Box<dyn Wire>> = match way {
        Way::Tap(name) => tap::Tap::open(&name).map(|tap| Box::new(tap) as _),
        Way::Stream(path) => stream::Stream::open(path).map(|stream| Box::new(stream) as _),
        Way::Datagram { local, remote } => {
            datagram::Datagram::open(local, remote).map(|datagram| Box::new(datagram) as _)
        }
    };
    wire.map(Some).map_err(|source| OutsideError::Open { link: link.to_owned(), source })
}

fn parse(link: &str) -> Result<Option<Way>, OutsideError> {
    let Some((scheme, rest)) = link.split_once(':') else { return Ok(None) };
    let way = match (scheme, rest) {
        (_, "") => None,
        ("tap", name) => Some(Way::Tap(name.into())),
        ("stream", path) => Some(Way::Stream(path.into())),
        ("dgram", paths) => paths
            .split_once(':')
            .filter(|(local, remote)| !local.is_empty() && !remote.is_empty())
            .map(|(local, remote)| Way::Datagram { local: local.into(), remote: remote.into() }),
        _ => None,
    };
    way.map(Some).ok_or_else(|| OutsideError::Malformed { link: link.to_owned() })
}

/// Waits until one of `wires` may have a frame, or for `longest`.
pub(crate) fn wait<'a>(wires: impl Iterator<Item = &'a dyn Wire>, longest: std::time::Duration) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let fds: Vec<BorrowedFd<'a>> = wires.map(|wire| wire.fd()).collect();
    let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let timeout =
        Timespec { tv_sec: longest.as_secs().min(1) as i64, tv_nsec: longest.subsec_nanos().into() };
    // A signal ends the wait early, which is what it is for.
    let _ = poll(&mut polled, Some(&timeout));
}

/// The file descriptors of `wires`, for an event loop.
pub(crate) fn descriptors<'a>(wires: impl Iterator<Item = &'a dyn Wire>) -> Vec<RawFd> {
    use std::os::fd::AsRawFd;
    wires.map(|wire| wire.fd().as_raw_fd()).collect()
}

/// Whether an error only says "not now".
fn is_not_now(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Why a link does not lead anywhere.
#[derive(Debug, Error)]
pub enum OutsideError {
    /// Its name is none of the known forms.
    #[error("link {link:?} leads nowhere: use a plain name, tap:NAME, stream:PATH or dgram:LOCAL:REMOTE")]
    Malformed {
        /// The link.
        link: String,
    },
    /// The host refuses.
    #[error("link {link:?} cannot be opened: {source}")]
    Open {
        /// The link.
        link: String,
        /// What the host said.
        source: io::Error,
    },
}

/// Longest frame that is taken from outside: the longest IP packet without jumbo options, and its headers.
const LONGEST_FRAME: usize = 65_535 + 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_name_stays_inside_and_a_malformed_one_is_refused() {
        assert!(open("lan").unwrap().is_none());
        assert!(check("dgram:/tmp/a:/tmp/b").is_ok());
        for link in ["vde:switch", "stream:", "tap:", "dgram:/tmp/only-one", "dgram::/tmp/x"] {
            let error = check(link).unwrap_err().to_string();
            assert!(error.contains(link) && error.contains("stream:PATH"), "{error}");
        }
    }
}
