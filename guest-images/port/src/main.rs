//! Sets on a network port what the guest's `ip` and `ethtool` cannot: an XDP program that needs no object file, and
//! what only newer kernels know.
//!
//! ```text
//! nicvisor-port xdp PORT drop|pass|echo [PROTOCOL]
//! nicvisor-port xdp PORT redirect TO SOURCE DESTINATION [PROTOCOL]
//! nicvisor-port shape PORT MBITS        (0 takes the limit away)
//! nicvisor-port coalesce PORT FRAMES
//! ```
//!
//! The XDP program stays until the command gets SIGINT or SIGTERM; then the number of packets that it has met is
//! printed. It is about IPv4 packets of one protocol (17, UDP, if nothing is said) and lets all others pass.

mod bpf;
mod netlink;
mod program;
mod settings;
mod xdp;

use std::ffi::CString;
use std::io;
use std::process::ExitCode;

use program::Action;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nicvisor-port: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<(), String> {
    let told = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    match words {
        ["xdp", port, rest @ ..] => {
            let (action, protocol) = action(rest)?;
            xdp::run(index(port)?, &action, protocol)
        }
        ["shape", port, rate] => {
            let rate = rate.parse().map_err(|_| format!("{rate} is not a number of Mb/s"))?;
            settings::shape(index(port)?, rate).map_err(told("limit the bandwidth"))
        }
        ["coalesce", port, frames] => {
            let frames = frames.parse().map_err(|_| format!("{frames} is not a number of frames"))?;
            settings::coalesce(port, frames).map_err(told("let frames share a completion"))
        }
        _ => Err(USAGE.to_owned()),
    }
}

/// What an XDP program does, and with packets of which protocol.
fn action(words: &[&str]) -> Result<(Action, u8), String> {
    let (action, rest) = match words {
        ["drop", rest @ ..] => (Action::Drop, rest),
        ["pass", rest @ ..] => (Action::Pass, rest),
        ["echo", rest @ ..] => (Action::Echo, rest),
        ["redirect", to, source, destination, rest @ ..] => {
            let action =
                Action::Redirect { port: index(to)?, source: mac(source)?, destination: mac(destination)? };
            (action, rest)
        }
        _ => return Err(USAGE.to_owned()),
    };
    match rest {
        [] => Ok((action, UDP)),
        [protocol] => {
            let number =
                protocol.parse().map_err(|_| format!("{protocol} is not the number of a protocol"))?;
            Ok((action, number))
        }
        _ => Err(USAGE.to_owned()),
    }
}

/// The number of the interface of that name, in this network namespace.
fn index(name: &str) -> Result<u32, String> {
    let text = CString::new(name).map_err(|_| "a name with a zero byte".to_owned())?;
    // SAFETY: the pointer is to a text that ends with a zero byte and lives until the call returns.
    match unsafe { libc::if_nametoindex(text.as_ptr()) } {
        0 => Err(format!("{name}: {}", io::Error::last_os_error())),
        index => Ok(index),
    }
}

fn mac(text: &str) -> Result<[u8; 6], String> {
    let bytes: Option<Vec<u8>> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    bytes
        .and_then(|bytes| <[u8; 6]>::try_from(bytes).ok())
        .ok_or_else(|| format!("{text} is not a MAC address"))
}

const UDP: u8 = 17;
const USAGE: &str = "usage: nicvisor-port xdp PORT drop|pass|echo [PROTOCOL]\n\
    nicvisor-port xdp PORT redirect TO SOURCE DESTINATION [PROTOCOL]\n\
    nicvisor-port shape PORT MBITS\n\
    nicvisor-port coalesce PORT FRAMES";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        for (words, message) in [
            (&["xdp", "lo", "eat"][..], "usage"),
            (&["xdp", "lo", "drop", "300"][..], "300 is not the number of a protocol"),
            (&["xdp", "lo", "redirect", "lo", "1:2", "3"][..], "1:2 is not a MAC address"),
            (&["xdp", "no such port", "drop"][..], "no such port: "),
            (&["shape", "lo", "fast"][..], "fast is not a number"),
            (&["coalesce", "lo"][..], "usage"),
            (&[][..], "usage"),
        ] {
            let told = run(words).unwrap_err();
            assert!(told.contains(message), "{words:?}: {told}");
        }
    }

    #[test]
    fn an_action_is_about_udp_unless_something_else_is_said() {
        assert_eq!(action(&["drop"]), Ok((Action::Drop, 17)));
        assert_eq!(action(&["echo", "1"]), Ok((Action::Echo, 1)));
        let redirect = action(&["redirect", "lo", "02:00:00:00:00:01", "ff:ff:ff:ff:ff:ff"]);
        let expected = Action::Redirect { port: 1, source: [2, 0, 0, 0, 0, 1], destination: [0xff; 6] };
        assert_eq!(redirect, Ok((expected, 17)));
    }
}
