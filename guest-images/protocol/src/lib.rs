//! What the host and the agent in the guest say to each other.
//!
//! The two sides share one byte stream: the virtio-console port named [`PORT_NAME`]. Each message is a
//! little-endian 32-bit length followed by that many bytes of [postcard]; see [`frame`] for the framing. Both
//! sides start with a `Hello` that carries [`VERSION`]; nothing else may come before it.
//!
//! # Flow control
//! The port itself pushes back: a side that does not read stops the other from writing. What that alone would
//! not give is fairness, so:
//! * The agent stops reading the output of commands while too much is waiting for the port. A host that is
//!   slow makes commands wait, as a slow terminal would; nothing is buffered without bound or thrown away.
//! * Standard input is sent against credit. A command starts with [`STDIN_WINDOW`] bytes, and the agent gives
//!   back what the command has taken. A command that never reads its input so holds up nothing but itself.
//! * Files are written by the agent as they arrive and read as the port takes them.
//!
//! [`Session`] is the host's side of all this as a state machine without input or output of its own.
//!
//! [postcard]: https://postcard.jamesmunns.com/
#![forbid(unsafe_code)]

pub mod frame;
mod message;
mod session;

pub use frame::{Decoder, FrameError};
pub use message::{
    Channel, Command, Exit, Failure, FromGuest, Hello, JobId, KernelLine, ModuleRequest, Power, Report,
    RequestId, TerminalSize, ToGuest,
};
pub use session::{Event, Session, SessionError};

/// The name of the virtio-console port that the agent looks for.
pub const PORT_NAME: &str = "nicvisor.agent";

/// The version of this protocol. There is no negotiation: host and agent are built together, and a difference
/// means that an old initramfs is in use.
pub const VERSION: u32 = 1;

/// The number with which a `Hello` starts ("nicv"), so that a stranger on the port is told from an old agent.
pub const MAGIC: u32 = 0x6e69_6376;

/// The largest piece of data in one message.
pub const CHUNK: usize = 32 * 1024;

/// How many bytes of standard input a command may have that it has not read yet.
pub const STDIN_WINDOW: u32 = 128 * 1024;
