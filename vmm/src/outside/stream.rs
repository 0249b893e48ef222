//! Frames over a Unix stream socket, each behind its length: 32 bits, big-endian (as QEMU's `-netdev stream` and
//! `-netdev socket` do).

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use super::{LONGEST_FRAME, Wire, is_not_now};

/// One end of the line. One that connected and has lost its peer waits for nothing any more.
#[derive(Debug)]
pub(super) struct Stream {
    listener: Option<Listener>,
    peer: Option<Peer>,
    /// Never readable: to wait for when there is nothing to wait for.
    silence: (UnixStream, UnixStream),
}

#[derive(Debug)]
struct Listener {
    socket: UnixListener,
    path: PathBuf,
}

/// The other end, with what has come from it and what it has not taken yet.
#[derive(Debug)]
struct Peer {
    socket: UnixStream,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

impl Stream {
    /// Connects to the socket at `path`; listens there when nobody does.
    pub(super) fn open(path: PathBuf) -> io::Result<Stream> {
        match UnixStream::connect(&path) {
            Ok(socket) => Stream::with(None, Some(Peer::new(socket)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Stream::listen(path),
            // A socket that nobody listens to any more is a leftover.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(&path)?;
                Stream::listen(path)
            }
            Err(error) => Err(error),
        }
    }

    fn listen(path: PathBuf) -> io::Result<Stream> {
        let socket = UnixListener::bind(&path)?;
        socket.set_nonblocking(true)?;
        Stream::with(Some(Listener { socket, path }), None)
    }

    fn with(listener: Option<Listener>, peer: Option<Peer>) -> io::Result<Stream> {
        Ok(Stream { listener, peer, silence: UnixStream::pair()? })
    }

    /// The peer; takes the first that has come while there is none.
    fn peer(&mut self) -> Option<&mut Peer> {
        if self.peer.is_none()
            && let Some(listener) = &self.listener
            && let Ok((socket, _)) = listener.socket.accept()
        {
            self.peer = Peer::new(socket).ok();
        }
        self.peer.as_mut()
    }
}

impl Wire for Stream {
    fn send(&mut self, frame: &[u8]) -> bool {
        let sent = self.peer().map(|peer| peer.send(frame));
        match sent {
            Some(Ok(sent)) => sent,
            Some(Err(_)) => {
                self.peer = None;
                false
            }
            None => false,
        }
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        match self.peer()?.receive() {
            Ok(frame) => frame,
            Err(error) => {
                tracing::info!(%error, "the other end of a stream link has gone");
                self.peer = None;
                None
            }
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match (&self.peer, &self.listener) {
            (Some(peer), _) => peer.socket.as_fd(),
            (None, Some(listener)) => listener.socket.as_fd(),
            (None, None) => self.silence.0.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Peer {
    fn new(socket: UnixStream) -> io::Result<Peer> {
        socket.set_nonblocking(true)?;
        Ok(Peer { socket, incoming: Vec::new(), outgoing: Vec::new() })
    }

    /// Puts a frame behind what is still to go; false when that is too much already.
    fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        self.flush()?;
        if self.outgoing.len() > MOST_OUTGOING {
            return Ok(false);
        }
        self.outgoing.extend((frame.len() as u32).to_be_bytes());
        self.outgoing.extend(frame);
        self.flush()?;
        Ok(true)
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            match self.socket.write(&self.outgoing) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => drop(self.outgoing.drain(..written)),
                Err(error) if is_not_now(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.flush()?;
        loop {
            if let Some(frame) = take_frame(&mut self.incoming)? {
                return Ok(Some(frame));
            }
            let mut chunk = [0; 16 << 10];
            match self.socket.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.incoming.extend(&chunk[..length]),
                Err(error) if is_not_now(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Takes the first frame out of `incoming`, once all of it is there.
fn take_frame(incoming: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let Some(header) = incoming.first_chunk::<HEADER>() else { return Ok(None) };
    let length = u32::from_be_bytes(*header) as usize;
    if length > LONGEST_FRAME {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes")));
    }
    if incoming.len() < HEADER + length {
        return Ok(None);
    }
    let rest = incoming.split_off(HEADER + length);
    let frame = std::mem::replace(incoming, rest).split_off(HEADER);
    Ok(Some(frame))
}

const HEADER: usize = 4;
/// Bytes that may wait for a slow peer before frames are dropped.
const MOST_OUTGOING: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_are_found_however_the_stream_is_cut(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..10),
            cut in 1_usize..50,
        ) {
            let mut stream = Vec::new();
            for frame in &frames {
                stream.extend((frame.len() as u32).to_be_bytes());
                stream.extend(frame);
            }
            let (mut incoming, mut found) = (Vec::new(), Vec::new());
            for piece in stream.chunks(cut) {
                incoming.extend(piece);
                while let Some(frame) = take_frame(&mut incoming).unwrap() {
                    found.push(frame);
                }
            }
            prop_assert_eq!(found, frames);
            prop_assert!(incoming.is_empty());
        }
    }

    #[test]
    fn an_impossible_length_ends_the_line() {
        assert!(take_frame(&mut vec![0xff; 8]).is_err());
    }

    #[test]
    fn the_first_listens_the_second_connects_and_frames_pass_both_ways() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("line");
        let mut first = Stream::open(path.clone()).unwrap();
        assert!(!first.send(b"nobody there"));
        let mut second = Stream::open(path.clone()).unwrap();
        assert!(second.send(b"hello"));
        assert_eq!(first.receive().unwrap(), b"hello");
        assert!(first.send(&[7; 9000]));
        assert_eq!(second.receive().unwrap(), [7; 9000]);
        assert_eq!(second.receive(), None);
        drop(second);
        assert_eq!(first.receive(), None);
        // A new one may come.
        let mut third = Stream::open(path.clone()).unwrap();
        assert!(third.send(b"again"));
        assert_eq!(first.receive().unwrap(), b"again");
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_left_over_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("line");
        drop(UnixListener::bind(&path).unwrap());
        assert!(Stream::open(path).unwrap().listener.is_some());
    }
}
