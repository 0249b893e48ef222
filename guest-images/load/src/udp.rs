//! Datagrams: numbered, so that it is seen which were lost or came out of order.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::connect;
use crate::control::{self, Kind, Order};
use crate::options::{Amount, Options};
use crate::pattern::Pattern;
use crate::report::{Object, rate};
use crate::socket::processor_seconds;

pub(crate) fn run(peer: IpAddr, options: &Options) -> io::Result<String> {
    let order = Order {
        kind: Kind::Udp,
        flows: options.flows as u64,
        request: options.write as u64,
        response: 0,
        verify: options.verify,
    };
    let mut control = connect::order(peer, options, &order)?;
    let before = processor_seconds();
    let began = Instant::now();
    let flows: Vec<_> = (0..order.flows)
        .map(|flow| {
            let options = options.clone();
            thread::spawn(move || send(peer, &options, flow))
        })
        .collect();
    let mut sent = 0;
    for flow in flows {
        sent += flow.join().map_err(|_| io::Error::other("a flow has died"))??;
    }
    let (time, after) = (began.elapsed(), processor_seconds());
    control::send_number(&mut control, sent)?;
    let result = control::Result::receive(&mut control)?;
    result.check()?;
    Ok(Object::new("udp")
        .number("flows", order.flows)
        .number("size", order.request)
        .number("sent", sent)
        .number("received", result.messages)
        .number("lost", sent.saturating_sub(result.messages))
        .number("reordered", result.reordered)
        .fraction("seconds", time.as_secs_f64(), 6)
        .fraction("sent_megabits_per_second", rate((sent * order.request) as f64 * 8.0 / 1e6, time), 3)
        .truth("verified", options.verify)
        .processor(before, after)
        .server(&result)
        .finish())
}

/// Sends one flow's datagrams; returns how many.
fn send(peer: IpAddr, options: &Options, flow: u64) -> io::Result<u64> {
    let any: IpAddr = match peer {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    for option in &options.sockets {
        option.set(&socket)?;
    }
    socket.connect((peer, options.port))?;
    let pattern = Pattern::new(options.write);
    let mut datagram = vec![0; options.write];
    datagram[..8].copy_from_slice(&flow.to_le_bytes());
    let began = Instant::now();
    let mut number = 0;
    loop {
        match options.amount {
            Amount::Count(count) if number >= count => return Ok(number),
            Amount::Time(time) if began.elapsed() >= time => return Ok(number),
            _ => {}
        }
        datagram[8..HEADER].copy_from_slice(&number.to_le_bytes());
        let rest = options.write - HEADER;
        datagram[HEADER..].copy_from_slice(pattern.piece(flow, number * rest as u64, rest));
        match socket.send(&datagram) {
            Ok(_) => number += 1,
            // A full queue drops it, and the sender is told.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => thread::sleep(PAUSE),
            Err(error) => return Err(error),
        }
        if let Some(due) = number.saturating_mul(1_000_000_000).checked_div(options.rate) {
            thread::sleep((began + Duration::from_nanos(due)).saturating_duration_since(Instant::now()));
        }
    }
}

/// The server's side of a run. Everything is over when the client has said how much it sent, and that has come or
/// nothing comes any more.
pub(crate) fn serve(
    control: &mut TcpStream,
    socket: &UdpSocket,
    order: &Order,
) -> io::Result<control::Result> {
    socket.set_read_timeout(Some(QUIET))?;
    let expected = AtomicU64::new(u64::MAX);
    thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(socket, order, &expected));
        let sent = control::receive_number(control);
        // A client that has gone away sends nothing more.
        expected.store(*sent.as_ref().unwrap_or(&0), Ordering::Release);
        let result = receiver.join().map_err(|_| io::Error::other("the receiver has died"))?;
        sent.and(result)
    })
}

fn receive(socket: &UdpSocket, order: &Order, expected: &AtomicU64) -> io::Result<control::Result> {
    let pattern = Pattern::new(LARGEST_DATAGRAM);
    let mut buffer = vec![0; LARGEST_DATAGRAM];
    let mut seen = Seen { next: vec![0; order.flows as usize], result: control::Result::default() };
    loop {
        match socket.recv(&mut buffer) {
            Ok(length) => {
                seen.result.reads += 1;
                // Several come together where the kernel has merged them (UDP_GRO).
                for datagram in buffer[..length].chunks(order.request as usize) {
                    seen.take(datagram, order, &pattern);
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if expected.load(Ordering::Acquire) != u64::MAX {
                    return Ok(seen.result);
                }
            }
            Err(error) => return Err(error),
        }
        if seen.result.messages >= expected.load(Ordering::Acquire) {
            return Ok(seen.result);
        }
    }
}

struct Seen {
    /// The number after the highest, of each flow.
    next: Vec<u64>,
    result: control::Result,
}

impl Seen {
    fn take(&mut self, datagram: &[u8], order: &Order, pattern: &Pattern) {
        let word = |at: usize| {
            datagram.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes)
        };
        let (Some(flow), Some(number)) = (word(0), word(8)) else { return };
        let Some(next) = usize::try_from(flow).ok().and_then(|flow| self.next.get_mut(flow)) else { return };
        if number < *next {
            self.result.reordered += 1;
        }
        *next = (*next).max(number.saturating_add(1));
        self.result.messages += 1;
        self.result.bytes += datagram.len() as u64;
        if order.verify {
            let rest = order.request - HEADER as u64;
            let wrong = pattern.mismatch(flow, number.wrapping_mul(rest), &datagram[HEADER..]);
            let whole = datagram.len() as u64 == order.request;
            if wrong.is_some() || !whole {
                self.result.wrong += 1;
            }
        }
    }
}

/// Numbers of flow and datagram.
const HEADER: usize = 16;
const LARGEST_DATAGRAM: usize = 65_536;
/// Nothing comes any more when nothing has come for this long.
const QUIET: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_micros(100);
