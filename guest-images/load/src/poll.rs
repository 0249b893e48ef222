//! Waiting for several sockets.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// What a socket is waited for besides errors, which include the completion of sends without copying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    Room,
    Errors,
}

/// Waits until one of the sockets is ready, for `longest` at most.
pub(crate) fn wait<'a, S: AsRawFd + 'a>(
    sockets: impl Iterator<Item = (&'a S, Interest)>,
    longest: Duration,
) -> io::Result<()> {
    let mut polled: Vec<libc::pollfd> = sockets
        .map(|(socket, interest)| libc::pollfd {
            fd: socket.as_raw_fd(),
            events: if interest == Interest::Room { libc::POLLOUT } else { 0 },
            revents: 0,
        })
        .collect();
    let milliseconds = i32::try_from(longest.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: pointer and length are of one vector.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, milliseconds) };
    if ready >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}
