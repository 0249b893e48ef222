//! Frames over Unix datagram sockets, one each (as QEMU's `-netdev dgram` does).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use super::{LONGEST_FRAME, Wire};

/// A socket of our own, and the name of the other.
#[derive(Debug)]
pub(super) struct Datagram {
    socket: UnixDatagram,
    local: PathBuf,
    remote: PathBuf,
}

impl Datagram {
    /// Binds `local`. The other need not be there yet.
    pub(super) fn open(local: PathBuf, remote: PathBuf) -> io::Result<Datagram> {
        let bind = || UnixDatagram::bind(&local);
        let socket = match bind() {
            // Only a socket that nobody reads any more may be replaced.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_over(&local) => {
                std::fs::remove_file(&local)?;
                bind()?
            }
            other => other?,
        };
        socket.set_nonblocking(true)?;
        Ok(Datagram { socket, local, remote })
    }
}

fn is_left_over(path: &PathBuf) -> bool {
    UnixDatagram::unbound()
        .and_then(|socket| socket.connect(path))
        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

impl Wire for Datagram {
    fn send(&mut self, frame: &[u8]) -> bool {
        self.socket.send_to(frame, &self.remote).is_ok()
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        let mut frame = vec![0; LONGEST_FRAME];
        let length = self.socket.recv(&mut frame).ok()?;
        frame.truncate(length);
        Some(frame)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Datagram {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.local);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_pass_both_ways_once_both_are_there() {
        let directory = tempfile::tempdir().unwrap();
        let [left, right] = ["left", "right"].map(|name| directory.path().join(name));
        let mut first = Datagram::open(left.clone(), right.clone()).unwrap();
        assert!(!first.send(b"nobody there"));
        let mut second = Datagram::open(right.clone(), left.clone()).unwrap();
        assert!(first.send(&[1; 1514]));
        assert!(second.send(b"answer"));
        assert_eq!(second.receive().unwrap(), [1; 1514]);
        assert_eq!(first.receive().unwrap(), b"answer");
        assert_eq!(first.receive(), None);
        // The name is taken while somebody reads, and free afterwards.
        assert!(Datagram::open(left.clone(), right.clone()).is_err());
        drop(first);
        assert!(!left.exists());
        drop(UnixDatagram::bind(&left).unwrap());
        assert!(Datagram::open(left, right).is_ok());
    }
}
