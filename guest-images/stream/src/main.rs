//! A TCP stream inside the guest whose every byte is checked.
//!
//! ```text
//! nicvisor-stream receive        --port P --bytes N --seed S
//! nicvisor-stream send ADDRESS   --port P --bytes N --seed S [--write W]
//! ```
//!
//! The payload is a pseudo-random sequence that both ends derive from the seed. The receiver compares each
//! byte with what it must be; both print the XXH64 of what they saw as one line of JSON. The sender waits for
//! the receiver to appear, so the two may be started in any order.
#![forbid(unsafe_code)]

mod payload;

use std::hash::Hasher;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use twox_hash::XxHash64;

use crate::payload::Payload;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match Options::parse(&arguments).and_then(|options| transfer(&options).map_err(|error| error.to_string()))
    {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("nicvisor-stream: {error}");
            ExitCode::FAILURE
        }
    }
}

fn transfer(options: &Options) -> io::Result<String> {
    let (hash, elapsed) = match options.peer {
        Some(peer) => send(&mut connect(peer, options.port)?, options)?,
        None => {
            let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, options.port))?;
            receive(&mut listener.accept()?.0, options)?
        }
    };
    Ok(format!(
        r#"{{"bytes": {}, "hash": "{hash:016x}", "seconds": {:.6}}}"#,
        options.bytes,
        elapsed.as_secs_f64()
    ))
}

/// The peer may not be listening yet, or its address not be reachable for the first moments.
fn connect(peer: IpAddr, port: u16) -> io::Result<TcpStream> {
    let give_up = Instant::now() + CONNECT_TIMEOUT;
    loop {
        match TcpStream::connect_timeout(&SocketAddr::new(peer, port), CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() >= give_up => return Err(error),
            Err(_) => std::thread::sleep(CONNECT_RETRY),
        }
    }
}

fn send(stream: &mut TcpStream, options: &Options) -> io::Result<(u64, Duration)> {
    let start = Instant::now();
    let mut payload = Payload::new(options.seed);
    let mut hash = XxHash64::default();
    let mut buffer = vec![0; options.write];
    let mut left = options.bytes;
    while left > 0 {
        let piece = &mut buffer[..usize::try_from(left).unwrap_or(usize::MAX).min(options.write)];
        payload.fill(piece);
        hash.write(piece);
        stream.write_all(piece)?;
        left -= piece.len() as u64;
    }
    stream.shutdown(Shutdown::Write)?;
    // Only when the receiver has closed its side, too, has everything arrived.
    stream.read_to_end(&mut Vec::new())?;
    Ok((hash.finish(), start.elapsed()))
}

fn receive(stream: &mut TcpStream, options: &Options) -> io::Result<(u64, Duration)> {
    let start = Instant::now();
    let mut payload = Payload::new(options.seed);
    let mut hash = XxHash64::default();
    let mut buffer = vec![0; RECEIVE_BUFFER];
    let mut received = 0;
    loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            break;
        }
        let piece = &buffer[..length];
        if let Some(at) = payload.mismatch(piece) {
            let offset = received + at as u64;
            return Err(io::Error::other(format!(
                "byte {offset} of the stream is {:#04x}, which is wrong",
                piece[at]
            )));
        }
        hash.write(piece);
        received += length as u64;
    }
    if received != options.bytes {
        return Err(io::Error::other(format!(
            "the stream ended after {received} of {} bytes",
            options.bytes
        )));
    }
    Ok((hash.finish(), start.elapsed()))
}

/// What the command line says.
struct Options {
    /// Whom to send to; `None` to receive.
    peer: Option<IpAddr>,
    port: u16,
    bytes: u64,
    seed: u64,
    write: usize,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Options, String> {
        let mut words = arguments.iter();
        let peer = match words.next().map(String::as_str) {
            Some("receive") => None,
            Some("send") => {
                let address = words.next().ok_or("send needs an address")?;
                Some(address.parse().map_err(|_| format!("{address} is not an IP address"))?)
            }
            _ => return Err(USAGE.into()),
        };
        let mut options = Options { peer, port: 5001, bytes: 1 << 20, seed: 0, write: 1 << 20 };
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
            let number: u64 = value.parse().map_err(|_| format!("{word}: {value} is not a number"))?;
            match word.as_str() {
                "--port" => {
                    options.port = number.try_into().map_err(|_| format!("there is no port {number}"))?
                }
                "--bytes" => options.bytes = number,
                "--seed" => options.seed = number,
                "--write" if (1..=LARGEST_WRITE).contains(&number) => options.write = number as usize,
                _ => return Err(format!("{word} {value} is not possible\n{USAGE}")),
            }
        }
        Ok(options)
    }
}

const USAGE: &str =
    "usage: nicvisor-stream receive|send ADDRESS [--port P] [--bytes N] [--seed S] [--write W]";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const CONNECT_RETRY: Duration = Duration::from_millis(10);
const RECEIVE_BUFFER: usize = 1 << 20;
const LARGEST_WRITE: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn options(seed: u64, bytes: u64) -> Options {
        Options { peer: None, port: 0, bytes, seed, write: 10_000 }
    }

    type Seen = io::Result<(u64, Duration)>;

    fn exchange(sender: Options, receiver: Options) -> (Seen, Seen) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sending = std::thread::spawn(move || send(&mut connect(address.ip(), address.port())?, &sender));
        let received = receive(&mut listener.accept().unwrap().0, &receiver);
        (sending.join().unwrap(), received)
    }

    #[test]
    fn both_ends_agree_on_a_stream_that_arrives() {
        let (sent, received) = exchange(options(7, 123_457), options(7, 123_457));
        assert_eq!(sent.unwrap().0, received.unwrap().0);
    }

    #[test]
    fn a_wrong_byte_and_a_short_stream_are_errors() {
        let wrong = exchange(options(7, 50_000), options(8, 50_000)).1.unwrap_err().to_string();
        assert!(wrong.contains("byte 0 of the stream"), "{wrong}");
        let short = exchange(options(7, 50_000), options(7, 50_001)).1.unwrap_err().to_string();
        assert!(short.contains("after 50000 of 50001"), "{short}");
    }

    #[test]
    fn mistakes_on_the_command_line_are_named() {
        let mistake = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            Options::parse(&words).err().unwrap()
        };
        assert!(mistake("send").contains("needs an address"));
        assert!(mistake("send here").contains("not an IP address"));
        assert!(mistake("receive --port 70000").contains("no port 70000"));
        assert!(mistake("receive --write 0").contains("not possible"));
        assert!(mistake("listen").contains("usage"));
    }
}
