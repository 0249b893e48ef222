//! Streams: as many bytes as go, over several connections and from several threads.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use crate::connect;
use crate::control::{self, Kind, Order};
use crate::options::{Amount, Options};
use crate::pattern::Pattern;
use crate::poll::{self, Interest};
use crate::report::{Object, rate};
use crate::socket::{self, Completions, processor_seconds};

pub(crate) fn run(peer: IpAddr, options: &Options) -> io::Result<String> {
    let order = Order {
        kind: Kind::Stream,
        flows: options.flows as u64,
        request: options.write as u64,
        response: 0,
        verify: options.verify,
    };
    let mut control = connect::order(peer, options, &order)?;
    // Sends without copying refer to it for as long as the kernel likes.
    let pattern: &'static Pattern = Box::leak(Box::new(Pattern::new(options.write)));
    let mut flows = Vec::new();
    for number in 0..options.flows as u64 {
        let stream = connect::data(peer, options, number)?;
        if options.zerocopy {
            socket::allow_zerocopy(&stream)?;
        }
        stream.set_nonblocking(true)?;
        flows.push(Flow::new(stream, number));
    }
    let start = Arc::new(Barrier::new(options.threads));
    let before = processor_seconds();
    let began = Instant::now();
    let mut threads = Vec::new();
    for thread in 0..options.threads {
        let left = options.threads - thread;
        let share = flows.split_off(flows.len() - flows.len().div_ceil(left));
        let (start, options) = (Arc::clone(&start), options.clone());
        threads.push(thread::spawn(move || {
            start.wait();
            Sender { pattern, options, began }.run(share)
        }));
    }
    let mut total = Sent::default();
    for thread in threads {
        total.add(thread.join().map_err(|_| io::Error::other("a thread has died"))??);
    }
    // Only when the server has seen the end of all connections has everything arrived.
    let result = control::Result::receive(&mut control)?;
    let (time, after) = (began.elapsed(), processor_seconds());
    result.check()?;
    if result.bytes != total.bytes {
        let text = format!("{} bytes were sent and {} arrived", total.bytes, result.bytes);
        return Err(io::Error::other(text));
    }
    Ok(report(options, total, time, (before, after), &result))
}

fn report(
    options: &Options,
    total: Sent,
    time: Duration,
    processor: ((f64, f64), (f64, f64)),
    result: &control::Result,
) -> String {
    Object::new("stream")
        .number("flows", options.flows as u64)
        .number("threads", options.threads as u64)
        .number("write", options.write as u64)
        .truth("zerocopy", options.zerocopy)
        .number("bytes", total.bytes)
        .fraction("seconds", time.as_secs_f64(), 6)
        .fraction("megabits_per_second", rate(total.bytes as f64 * 8.0 / 1e6, time), 3)
        .number("sends", total.sends)
        .number("zerocopy_completed", total.completed.sends)
        .number("zerocopy_copied", total.completed.copied)
        .truth("verified", options.verify)
        .processor(processor.0, processor.1)
        .server(result)
        .finish()
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    bytes: u64,
    sends: u64,
    completed: Completions,
}

impl Sent {
    fn add(&mut self, other: Sent) {
        self.bytes += other.bytes;
        self.sends += other.sends;
        self.completed.sends += other.completed.sends;
        self.completed.copied += other.completed.copied;
    }
}

/// One connection of a client.
struct Flow {
    stream: TcpStream,
    number: u64,
    sent: Sent,
    /// What stopped it last: no room, or too many sends that have not completed.
    waits_for: Interest,
    ended: bool,
}

impl Flow {
    fn new(stream: TcpStream, number: u64) -> Flow {
        Flow { stream, number, sent: Sent::default(), waits_for: Interest::Room, ended: false }
    }

    /// Whether all sends have completed, too.
    fn is_done(&self) -> bool {
        self.ended && self.sent.completed.sends >= self.sent.sends
    }

    fn reap(&mut self) -> io::Result<()> {
        let completed = socket::completions(&self.stream)?;
        self.sent.completed.sends += completed.sends;
        self.sent.completed.copied += completed.copied;
        Ok(())
    }
}

/// A thread that keeps its connections full.
struct Sender {
    pattern: &'static Pattern,
    options: Options,
    began: Instant,
}

impl Sender {
    fn run(&self, mut flows: Vec<Flow>) -> io::Result<Sent> {
        let mut total = Sent::default();
        while !flows.is_empty() {
            let mut moved = false;
            for flow in &mut flows {
                moved |= self.turn(flow)?;
            }
            for flow in flows.extract_if(.., |flow| self.is_finished(flow)) {
                total.add(flow.sent);
                moved = true;
            }
            if !moved {
                poll::wait(flows.iter().map(|flow| (&flow.stream, flow.waits_for)), LONGEST_WAIT)?;
            }
        }
        Ok(total)
    }

    fn is_finished(&self, flow: &Flow) -> bool {
        if self.options.zerocopy { flow.is_done() } else { flow.ended }
    }

    /// Sends once if possible; whether it was.
    fn turn(&self, flow: &mut Flow) -> io::Result<bool> {
        if self.options.zerocopy {
            flow.reap()?;
        }
        if flow.ended {
            return Ok(false);
        }
        let length = self.next_length(flow);
        if length == 0 {
            flow.stream.shutdown(Shutdown::Write)?;
            flow.ended = true;
            flow.waits_for = Interest::Errors;
            return Ok(true);
        }
        let piece = self.pattern.piece(flow.number, flow.sent.bytes, length);
        let sent = if self.options.zerocopy {
            socket::send_zerocopy(&flow.stream, piece)
        } else {
            (&flow.stream).write(piece)
        };
        match sent {
            Ok(length) => {
                flow.sent.bytes += length as u64;
                flow.sent.sends += 1;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                flow.waits_for = Interest::Room;
                Ok(false)
            }
            // The kernel keeps account of sends that have not completed, and has room for so many.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                flow.waits_for = Interest::Errors;
                Ok(false)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn next_length(&self, flow: &Flow) -> usize {
        match self.options.amount {
            Amount::Count(bytes) => (bytes - flow.sent.bytes).min(self.options.write as u64) as usize,
            Amount::Time(time) if self.began.elapsed() >= time => 0,
            Amount::Time(_) => self.options.write,
        }
    }
}

/// The server's side of one connection.
pub(crate) fn serve(stream: &mut TcpStream, flow: u64, order: &Order) -> io::Result<control::Result> {
    let pattern = Pattern::new(RECEIVE_BUFFER);
    let mut buffer = vec![0; RECEIVE_BUFFER];
    let mut result = control::Result::default();
    loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Ok(result);
        }
        if order.verify
            && let Some(at) = pattern.mismatch(flow, result.bytes, &buffer[..length])
        {
            result.first_wrong = if result.wrong == 0 { at } else { result.first_wrong };
            result.wrong += 1;
        }
        result.bytes += length as u64;
        result.reads += 1;
    }
}

const RECEIVE_BUFFER: usize = 256 << 10;
/// Time may be up while nothing moves.
const LONGEST_WAIT: Duration = Duration::from_millis(10);
