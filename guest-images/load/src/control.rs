//! What client and server tell each other: first what is to be done, and at the end what came of it.
//!
//! Both messages have a fixed size and go over a TCP connection of their own. All numbers are little-endian
//! 64 bit. Every data connection starts with the number of its flow.

use std::io::{self, Read, Write};

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) kind: Kind,
    /// Data connections that will come.
    pub(crate) flows: u64,
    /// Sizes of messages in bytes.
    pub(crate) request: u64,
    pub(crate) response: u64,
    /// Whether each byte is checked.
    pub(crate) verify: bool,
}

/// A kind of test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Rr,
    Stream,
    Udp,
}

/// What a server has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Result {
    pub(crate) bytes: u64,
    /// Messages or datagrams.
    pub(crate) messages: u64,
    /// Datagrams that came after one with a higher number.
    pub(crate) reordered: u64,
    /// Calls that received something.
    pub(crate) reads: u64,
    /// Bytes that were not what they should be, or messages with such.
    pub(crate) wrong: u64,
    /// Where the first wrong byte is in its flow.
    pub(crate) first_wrong: u64,
    /// Processor time of the server in microseconds.
    pub(crate) user_microseconds: u64,
    pub(crate) system_microseconds: u64,
}

impl Order {
    pub(crate) fn send(&self, stream: &mut impl Write) -> io::Result<()> {
        let kind = match self.kind {
            Kind::Rr => 0,
            Kind::Stream => 1,
            Kind::Udp => 2,
        };
        send(stream, [ORDER, kind, self.flows, self.request, self.response, self.verify.into(), 0, 0])
    }

    pub(crate) fn receive(stream: &mut impl Read) -> io::Result<Order> {
        let [magic, kind, flows, request, response, verify, ..] = receive(stream)?;
        let kind = match kind {
            0 => Kind::Rr,
            1 => Kind::Stream,
            2 => Kind::Udp,
            _ => return Err(strange()),
        };
        let sizes = request.max(response) <= LARGEST && (1..=1024).contains(&flows);
        if magic != ORDER || !sizes {
            return Err(strange());
        }
        Ok(Order { kind, flows, request, response, verify: verify != 0 })
    }
}

impl Result {
    pub(crate) fn send(&self, stream: &mut impl Write) -> io::Result<()> {
        let &Result { bytes, messages, reordered, reads, wrong, first_wrong, .. } = self;
        let times = [self.user_microseconds, self.system_microseconds];
        send(stream, [bytes, messages, reordered, reads, wrong, first_wrong, times[0], times[1]])
    }

    pub(crate) fn receive(stream: &mut impl Read) -> io::Result<Result> {
        let [bytes, messages, reordered, reads, wrong, first_wrong, user, system] = receive(stream)?;
        Ok(Result {
            bytes,
            messages,
            reordered,
            reads,
            wrong,
            first_wrong,
            user_microseconds: user,
            system_microseconds: system,
        })
    }

    /// Of two flows together.
    pub(crate) fn add(&mut self, other: Result) {
        if self.wrong == 0 {
            self.first_wrong = other.first_wrong;
        }
        self.bytes += other.bytes;
        self.messages += other.messages;
        self.reordered += other.reordered;
        self.reads += other.reads;
        self.wrong += other.wrong;
    }

    /// An error if what arrived is not what was sent.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.wrong {
            0 => Ok(()),
            _ => Err(io::Error::other(format!(
                "the server received wrong data {} times, first at byte {} of a flow",
                self.wrong, self.first_wrong
            ))),
        }
    }
}

/// The number of a data connection's flow.
pub(crate) fn send_number(stream: &mut impl Write, number: u64) -> io::Result<()> {
    stream.write_all(&number.to_le_bytes())
}

/// As [`send_number`].
pub(crate) fn receive_number(stream: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn send(stream: &mut impl Write, numbers: [u64; 8]) -> io::Result<()> {
    let bytes: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
    stream.write_all(&bytes)
}

fn receive(stream: &mut impl Read) -> io::Result<[u64; 8]> {
    let mut numbers = [0; 8];
    for number in &mut numbers {
        *number = receive_number(stream)?;
    }
    Ok(numbers)
}

fn strange() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the client speaks another language")
}

/// `nv-load1`.
const ORDER: u64 = u64::from_le_bytes(*b"nv-load1");
const LARGEST: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let order = Order { kind: Kind::Udp, flows: 3, request: 80_000, response: 7, verify: true };
        let mut bytes = Vec::new();
        order.send(&mut bytes).unwrap();
        assert_eq!(bytes.len(), 64);
        assert_eq!(Order::receive(&mut bytes.as_slice()).unwrap(), order);
        let result = Result {
            bytes: 1,
            messages: 2,
            reordered: 3,
            reads: 4,
            wrong: 5,
            first_wrong: 6,
            user_microseconds: 7,
            system_microseconds: 8,
        };
        bytes.clear();
        result.send(&mut bytes).unwrap();
        assert_eq!(Result::receive(&mut bytes.as_slice()).unwrap(), result);
        assert!(result.check().is_err());
    }

    #[test]
    fn an_order_of_somebody_else_is_refused() {
        assert!(Order::receive(&mut [b'G'; 64].as_slice()).is_err());
        let order = Order { kind: Kind::Rr, flows: 1, request: u64::MAX, response: 1, verify: false };
        let mut bytes = Vec::new();
        order.send(&mut bytes).unwrap();
        assert!(Order::receive(&mut bytes.as_slice()).is_err());
    }
}
