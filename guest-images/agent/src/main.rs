//! The guest's init: prepares the system, then does what the host asks for over a virtio-console port.
//!
//! It is one thread around one `poll`, so that an idle guest is idle: nothing wakes up unless the host, a
//! command or the kernel's log has something to say. The guest may run on an interpreter, where every
//! instruction counts; that is why there is neither an async runtime nor a thread a command.
//!
//! * [`boot`]: mounts, environment, loopback.
//! * [`port`]: the connection to the host.
//! * [`agent`]: the loop, and what each message does.
//! * [`job`]: commands, their pipes and terminals.
//! * [`modules`]: loading kernel modules in dependency order.
//! * [`kmsg`]: the kernel's reports about itself.

mod agent;
mod boot;
mod files;
mod job;
mod kmsg;
mod modules;
mod port;
mod signals;

fn main() {
    if let Err(error) = boot::prepare() {
        eprintln!("agent: cannot prepare the system: {error}");
    }
    let error = match port::Port::open() {
        Ok(port) => agent::Agent::new(port).and_then(agent::Agent::run).err(),
        Err(error) => Some(error),
    };
    if let Some(error) = error {
        eprintln!("agent: {error}");
    }
    // The end of init would be a kernel panic, which means something else to whoever watches the guest.
    boot::power(agent_protocol::Power::Off);
}
