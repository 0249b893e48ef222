//! The command line.

use std::net::IpAddr;
use std::time::Duration;

use crate::socket::SocketOption;

/// What this process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Answers clients.
    Serve,
    /// Requests and responses over TCP, with that peer.
    Rr(IpAddr),
    /// TCP streams to that peer.
    Stream(IpAddr),
    /// Datagrams to that peer.
    Udp(IpAddr),
}

/// How much is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    /// Transactions or datagrams of each flow, or bytes of a stream.
    Count(u64),
    /// For this long.
    Time(Duration),
}

/// All that can be said.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) role: Role,
    pub(crate) port: u16,
    /// Clients that a server waits for.
    pub(crate) runs: u64,
    pub(crate) flows: usize,
    pub(crate) threads: usize,
    /// Sizes of messages in bytes.
    pub(crate) request: usize,
    pub(crate) response: usize,
    /// Bytes handed to one write, or in one datagram.
    pub(crate) write: usize,
    pub(crate) amount: Amount,
    /// Transactions of each flow that are not counted, at the start.
    pub(crate) warm_up: u64,
    /// Datagrams a second of each flow; 0 is as fast as they go.
    pub(crate) rate: u64,
    pub(crate) zerocopy: bool,
    pub(crate) verify: bool,
    pub(crate) sockets: Vec<SocketOption>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Options, String> {
        let mut words = arguments.iter().map(String::as_str);
        let mut options = Options::new(role(&mut words)?);
        while let Some(word) = words.next() {
            match word {
                "--zerocopy" => options.zerocopy = true,
                "--verify" => options.verify = true,
                _ => {
                    let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
                    options.take(word, value)?;
                }
            }
        }
        options.check()
    }

    fn new(role: Role) -> Options {
        let (amount, write) = match role {
            Role::Stream(_) => (Amount::Count(64 << 20), 1 << 20),
            Role::Udp(_) => (Amount::Count(1000), 1000),
            Role::Serve | Role::Rr(_) => (Amount::Count(1000), 1),
        };
        Options {
            role,
            port: 5201,
            runs: 1,
            flows: 1,
            threads: 1,
            request: 1,
            response: 1,
            write,
            amount,
            warm_up: 0,
            rate: 0,
            zerocopy: false,
            verify: false,
            sockets: Vec::new(),
        }
    }

    fn take(&mut self, word: &str, value: &str) -> Result<(), String> {
        if word == "--set" {
            self.sockets.push(SocketOption::parse(value)?);
            return Ok(());
        }
        if word == "--seconds" {
            let seconds: f64 = value.parse().map_err(|_| format!("{word}: {value} is not a number"))?;
            let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
            self.amount = Amount::Time(time.ok_or_else(|| format!("{word} {value} is not possible"))?);
            return Ok(());
        }
        let number = size(value).ok_or_else(|| format!("{word}: {value} is not a number"))?;
        let within = |low: u64, high: u64| match number {
            number if (low..=high).contains(&number) => Ok(number as usize),
            _ => Err(format!("{word} is {low} to {high}")),
        };
        match word {
            "--port" => self.port = within(1, 65_535)? as u16,
            "--runs" => self.runs = within(1, 1 << 20)? as u64,
            "--flows" => self.flows = within(1, 1024)?,
            "--threads" => self.threads = within(1, 64)?,
            "--request" => self.request = within(1, LARGEST)?,
            "--response" => self.response = within(1, LARGEST)?,
            "--write" => self.write = within(1, LARGEST)?,
            "--size" => self.write = within(16, 65_507)?,
            "--count" | "--bytes" => self.amount = Amount::Count(within(1, 1 << 50)? as u64),
            "--warm-up" => self.warm_up = within(0, 1 << 30)? as u64,
            "--rate" => self.rate = within(1, 1 << 30)? as u64,
            _ => return Err(format!("{word} is not known\n{USAGE}")),
        }
        Ok(())
    }

    fn check(self) -> Result<Options, String> {
        if self.zerocopy && !matches!(self.role, Role::Stream(_)) {
            return Err("only streams are sent with --zerocopy".into());
        }
        Ok(Options { threads: self.threads.min(self.flows), ..self })
    }
}

fn role<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<Role, String> {
    let name = words.next().ok_or(USAGE)?;
    if name == "serve" {
        return Ok(Role::Serve);
    }
    if !["rr", "stream", "udp"].contains(&name) {
        return Err(USAGE.into());
    }
    let address = words.next().ok_or_else(|| format!("{name} needs the server's address"))?;
    let address = address.parse().map_err(|_| format!("{address} is not an IP address"))?;
    Ok(match name {
        "rr" => Role::Rr(address),
        "stream" => Role::Stream(address),
        _ => Role::Udp(address),
    })
}

/// A number, or one with K, M or G for powers of 1,024.
fn size(text: &str) -> Option<u64> {
    let shift = match text.chars().last()? {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

const LARGEST: u64 = 64 << 20;
const USAGE: &str = "usage: nicvisor-load serve|rr ADDRESS|stream ADDRESS|udp ADDRESS [OPTION VALUE]...\n\
    serve:  --port P --runs N\n\
    rr:     --request N --response N --count N|--seconds S --flows F --warm-up N\n\
    stream: --bytes N|--seconds S --flows F --threads T --write W --zerocopy\n\
    udp:    --size N --count N|--seconds S --flows F --rate PER_SECOND\n\
    all:    --port P --verify --set OPTION=VALUE (SO_SNDBUF, TCP_NODELAY, TCP_CONGESTION, ...)";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_line_is_read_whole() {
        let options =
            parse("stream 2001:db8::2 --flows 100 --threads 20 --bytes 4M --write 180K --zerocopy").unwrap();
        assert_eq!(options.role, Role::Stream("2001:db8::2".parse().unwrap()));
        assert_eq!((options.flows, options.threads, options.write), (100, 20, 180 << 10));
        assert_eq!(options.amount, Amount::Count(4 << 20));
        assert!(options.zerocopy && !options.verify);
        let options = parse("rr 10.0.0.2 --seconds 0.5 --threads 9").unwrap();
        assert_eq!(options.amount, Amount::Time(Duration::from_millis(500)));
        assert_eq!(options.threads, 1);
    }

    #[test]
    fn mistakes_are_named() {
        for (line, words) in [
            ("listen", "usage"),
            ("rr", "needs the server's address"),
            ("rr here", "not an IP address"),
            ("serve --port 70000", "--port is 1 to 65535"),
            ("serve --port", "needs a value"),
            ("stream 10.0.0.2 --write 0", "--write is 1 to"),
            ("udp 10.0.0.2 --size 10", "--size is 16 to 65507"),
            ("rr 10.0.0.2 --zerocopy", "only streams"),
            ("rr 10.0.0.2 --seconds -1", "not possible"),
            ("rr 10.0.0.2 --seconds nan", "not possible"),
            ("rr 10.0.0.2 --colour 3", "not known"),
            ("rr 10.0.0.2 --set SO_NONE=1", "SO_NONE"),
            ("rr 10.0.0.2 --count 99999999999999999999", "not a number"),
        ] {
            let message = parse(line).unwrap_err();
            assert!(message.contains(words), "{line}: {message}");
        }
    }
}
