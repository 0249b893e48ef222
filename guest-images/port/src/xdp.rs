//! Runs an XDP program on an interface until a signal comes.

use std::io;
use std::os::fd::AsRawFd;

use crate::bpf;
use crate::program::{self, Action};

/// Attaches the program, says so, waits for SIGINT or SIGTERM, and tells how many packets it has met.
pub(crate) fn run(interface: u32, action: &Action, protocol: u8) -> Result<(), String> {
    let signals = Signals::block().map_err(|error| format!("block signals: {error}"))?;
    let counter = bpf::create_array(1).map_err(|error| format!("create a map: {error}"))?;
    let program = bpf::load_xdp(&program::build(counter.as_raw_fd(), action, protocol))?;
    let link =
        bpf::attach_xdp(&program, interface).map_err(|error| format!("attach the program: {error}"))?;
    println!("attached");
    signals.wait();
    drop(link);
    let packets = bpf::array_value(&counter, 0).map_err(|error| format!("read the counter: {error}"))?;
    println!("packets: {packets}");
    Ok(())
}

/// SIGINT and SIGTERM, held back until somebody waits for them.
struct Signals {
    set: libc::sigset_t,
}

impl Signals {
    fn block() -> io::Result<Signals> {
        // SAFETY: a set of signals is plain data; sigemptyset makes it an empty one, and all pointers are to it.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGINT);
            libc::sigaddset(&raw mut set, libc::SIGTERM);
            match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) {
                0 => Ok(Signals { set }),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }

    fn wait(&self) {
        let mut signal = 0;
        // SAFETY: both pointers are to what lives until the call returns.
        unsafe { libc::sigwait(&raw const self.set, &raw mut signal) };
    }
}
