//! Messages as length-prefixed frames in a byte stream.

use serde::{Serialize, de::DeserializeOwned};

/// The largest frame body that either side accepts: a full data chunk and ample room for the longest command.
pub const MAX_BODY: usize = 256 * 1024;

/// Why a message could not be written to or read from the stream. After an error the stream has lost its
/// frame boundaries and cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A frame announces more than either side ever sends.
    #[error("a frame of {0} bytes is larger than the protocol's limit of {MAX_BODY}")]
    TooLarge(usize),
    /// The body of a frame is not a message.
    #[error("a frame does not hold a message")]
    Malformed,
}

/// Appends `message` to `stream` as one frame.
pub fn encode<M: Serialize>(message: &M, stream: &mut Vec<u8>) -> Result<(), FrameError> {
    let body = postcard::to_allocvec(message).map_err(|_| FrameError::Malformed)?;
    if body.len() > MAX_BODY {
        return Err(FrameError::TooLarge(body.len()));
    }
    stream.extend_from_slice(&(body.len() as u32).to_le_bytes());
    stream.extend_from_slice(&body);
    Ok(())
}

/// Takes a byte stream apart into messages, whatever the pieces in which it arrives.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// How much of `buffer` has been handed out as messages. Bytes are removed in bulk, not per message.
    taken: usize,
}

impl Decoder {
    /// Adds bytes that came from the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message, if one has arrived.
    pub fn next_message<M: DeserializeOwned>(&mut self) -> Result<Option<M>, FrameError> {
        let waiting = &self.buffer[self.taken..];
        let Some((header, rest)) = waiting.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*header) as usize;
        if length > MAX_BODY {
            return Err(FrameError::TooLarge(length));
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let (message, surplus) = postcard::take_from_bytes(body).map_err(|_| FrameError::Malformed)?;
        if !surplus.is_empty() {
            return Err(FrameError::Malformed);
        }
        self.taken += HEADER + length;
        Ok(Some(message))
    }
}

const HEADER: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Channel, FromGuest, JobId};
    use proptest::prelude::*;

    fn output(job: u32, data: Vec<u8>) -> FromGuest {
        FromGuest::Output { job: JobId(job), channel: Channel::Stderr, data }
    }

    #[test]
    fn a_frame_larger_than_the_limit_is_refused_before_its_body_arrives() {
        let mut decoder = Decoder::default();
        decoder.feed(&(MAX_BODY as u32 + 1).to_le_bytes());
        assert_eq!(decoder.next_message::<FromGuest>(), Err(FrameError::TooLarge(MAX_BODY + 1)));
        assert_eq!(
            encode(&output(0, vec![0; MAX_BODY]), &mut Vec::new()),
            Err(FrameError::TooLarge(MAX_BODY + 6))
        );
    }

    #[test]
    fn bytes_after_the_message_in_a_frame_are_refused() {
        let mut stream = Vec::new();
        encode(&output(1, vec![7]), &mut stream).unwrap();
        stream[0] += 1;
        stream.push(0);
        let mut decoder = Decoder::default();
        decoder.feed(&stream);
        assert_eq!(decoder.next_message::<FromGuest>(), Err(FrameError::Malformed));
    }

    proptest! {
        #[test]
        fn messages_survive_any_split_of_the_stream(
            messages in proptest::collection::vec((any::<u32>(), proptest::collection::vec(any::<u8>(), 0..300)), 0..20),
            pieces in proptest::collection::vec(1usize..97, 1..20),
        ) {
            let messages: Vec<_> = messages.into_iter().map(|(job, data)| output(job, data)).collect();
            let mut stream = Vec::new();
            for message in &messages {
                encode(message, &mut stream).unwrap();
            }
            let mut decoder = Decoder::default();
            let mut received = Vec::new();
            let mut sizes = pieces.iter().cycle();
            let mut rest = stream.as_slice();
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                rest = after;
                decoder.feed(piece);
                while let Some(message) = decoder.next_message::<FromGuest>().unwrap() {
                    received.push(message);
                }
            }
            prop_assert_eq!(received, messages);
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..2000), small in any::<bool>()) {
            let mut bytes = bytes;
            if small && bytes.len() > 4 {
                // Keep the announced length small enough for the body to be looked at.
                let length = (bytes.len() - 4) as u32;
                bytes[..4].copy_from_slice(&length.to_le_bytes());
            }
            let mut decoder = Decoder::default();
            decoder.feed(&bytes);
            while let Ok(Some(_)) = decoder.next_message::<FromGuest>() {}
            let mut decoder = Decoder::default();
            decoder.feed(&bytes);
            while let Ok(Some(_)) = decoder.next_message::<crate::ToGuest>() {}
        }
    }
}
