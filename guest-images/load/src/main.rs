//! Network load inside the guest, measured.
//!
//! ```text
//! nicvisor-load serve          [--port P] [--runs N] [--threads T] [--set OPTION=VALUE]...
//! nicvisor-load rr ADDRESS     [--port P] [--request N] [--response N] [--count N|--seconds S] [--flows F]
//! nicvisor-load stream ADDRESS [--port P] [--bytes N|--seconds S] [--flows F] [--threads T] [--write W] [--zerocopy]
//! nicvisor-load udp ADDRESS    [--port P] [--count N|--seconds S] [--flows F] [--size N] [--rate PER_SECOND]
//! ```
//!
//! The server learns from the client what is to be done, so it needs no options of the test; it ends after its
//! runs. Both may be started in any order. The client prints one line of JSON with what both sides measured.
//! With `--verify` each byte is checked by its receiver. All times are the guest's.

mod connect;
mod control;
mod options;
mod pattern;
mod poll;
mod report;
mod rr;
mod server;
mod socket;
mod stream;
#[cfg(test)]
mod test;
mod udp;

use std::io;
use std::process::ExitCode;

use options::{Options, Role};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result =
        Options::parse(&arguments).and_then(|options| run(&options).map_err(|error| error.to_string()));
    match result {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("nicvisor-load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> io::Result<String> {
    match options.role {
        Role::Serve => server::serve(options),
        Role::Rr(peer) => rr::run(peer, options),
        Role::Stream(peer) => stream::run(peer, options),
        Role::Udp(peer) => udp::run(peer, options),
    }
}
