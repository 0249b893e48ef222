//! The messages, as plain data.

use serde::{Deserialize, Serialize};

/// Names one command from its start to the end of its output. Chosen by the host, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u32);

/// Names one request that the agent answers once. Chosen by the host, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u32);

/// What each side says first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Always [`crate::MAGIC`].
    pub magic: u32,
    /// The speaker's [`crate::VERSION`].
    pub version: u32,
    /// The guest's kernel release (`uname -r`); empty from the host.
    pub kernel: String,
}

/// From the host to the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToGuest {
    /// First message.
    Hello(Hello),
    /// Start a command.
    Spawn {
        /// Its name from now on.
        job: JobId,
        /// What to run.
        command: Command,
    },
    /// Data for a command's standard input, within its credit.
    Stdin {
        /// The command.
        job: JobId,
        /// The data, at most [`crate::CHUNK`] bytes.
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// End of a command's standard input.
    CloseStdin {
        /// The command.
        job: JobId,
    },
    /// Send a signal to a command and all that it started (its process group).
    Signal {
        /// The command.
        job: JobId,
        /// The signal's number.
        signal: i32,
    },
    /// The size of a command's terminal has changed.
    Resize {
        /// The command.
        job: JobId,
        /// The new size.
        size: TerminalSize,
    },
    /// Load kernel modules and what they depend on, in the order given. Answered by `Done`.
    LoadModules {
        /// Names the answer.
        request: RequestId,
        /// What to load.
        modules: Vec<ModuleRequest>,
    },
    /// Create or replace a file; its contents follow.
    PutFile {
        /// Names the answer, and the contents that follow.
        request: RequestId,
        /// Absolute path; missing directories are created.
        path: String,
        /// Permission bits.
        mode: u32,
    },
    /// Contents of a file that is being put.
    PutData {
        /// The file.
        request: RequestId,
        /// The data, at most [`crate::CHUNK`] bytes.
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// End of a file that is being put. Answered by `Done`.
    PutEnd {
        /// The file.
        request: RequestId,
    },
    /// Send a file to the host: `FileData` until all is sent, then `Done`.
    GetFile {
        /// Names the answer.
        request: RequestId,
        /// Absolute path.
        path: String,
    },
    /// Set the host name. Answered by `Done`.
    SetHostname {
        /// Names the answer.
        request: RequestId,
        /// The name.
        name: String,
    },
    /// Answered by `Done` at once: shows that the agent still runs.
    Ping {
        /// Names the answer.
        request: RequestId,
    },
    /// End the guest. The agent says `Bye` first.
    Power(Power),
}

/// From the agent to the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromGuest {
    /// First message: the guest is ready.
    Hello(Hello),
    /// The answer to a request.
    Done {
        /// The request.
        request: RequestId,
        /// Whether it worked.
        result: Result<(), Failure>,
    },
    /// Contents of a file that the host asked for.
    FileData {
        /// The request.
        request: RequestId,
        /// The data, at most [`crate::CHUNK`] bytes.
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// A command could not be started; nothing else will be said about it.
    SpawnFailed {
        /// The command.
        job: JobId,
        /// The reason.
        failure: Failure,
    },
    /// A command wrote something.
    Output {
        /// The command.
        job: JobId,
        /// Where it wrote.
        channel: Channel,
        /// What it wrote, at most [`crate::CHUNK`] bytes.
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// A command has taken this much of its standard input.
    StdinCredit {
        /// The command.
        job: JobId,
        /// How many bytes more the host may send.
        bytes: u32,
    },
    /// A command has ended and all that it wrote has been sent. Processes that it left behind may still write
    /// `Output` later.
    Exited {
        /// The command.
        job: JobId,
        /// How it ended.
        exit: Exit,
    },
    /// The kernel logged trouble.
    Kernel(KernelLine),
    /// The last message before the guest powers off or reboots.
    Bye,
}

/// A command to run in the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Program and arguments. The program is looked up in `PATH`.
    pub argv: Vec<String>,
    /// Environment variables besides the agent's own (`PATH`, `HOME`, `TERM`).
    pub env: Vec<(String, String)>,
    /// Working directory; `/root` if none is given.
    pub cwd: Option<String>,
    /// Network namespace by the name that `ip netns` gave it. `/sys` shows that namespace's devices.
    pub netns: Option<String>,
    /// Give it a terminal instead of three pipes. All its output then comes as [`Channel::Stdout`].
    pub terminal: Option<TerminalSize>,
    /// Connect its standard input to the host. Without this it reads end of file at once.
    pub stdin: bool,
}

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Height.
    pub rows: u16,
    /// Width.
    pub columns: u16,
}

/// A module to load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleRequest {
    /// The module's name; `-` and `_` are the same. A module that is built in or loaded already is no error.
    pub name: String,
    /// Its parameters as they would be given to `modprobe`, separated by blanks.
    pub parameters: String,
}

/// Where a command wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Channel {
    /// Standard output, or the terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// It returned this status.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

impl Exit {
    /// The status that a shell would report: the code, or 128 and the signal's number.
    pub fn status(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
        }
    }
}

/// Why the agent could not do something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What was tried, and the guest's reason.
    pub message: String,
    /// The guest kernel's error number, if it gave one.
    pub errno: Option<i32>,
}

/// One line of a report of trouble in the guest kernel's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelLine {
    /// The line's number in the kernel's log.
    pub sequence: u64,
    /// The kernel's time stamp.
    pub microseconds: u64,
    /// Set on the line that starts a report, not on those that belong to it (registers, backtrace).
    pub starts: Option<Report>,
    /// The line.
    pub text: String,
}

/// The kinds of trouble that a kernel reports about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Report {
    /// `WARN_ON` and its relatives, lockdep and other debugging facilities included.
    Warning,
    /// `BUG_ON`, "BUG: unable to handle", KASAN and its relatives.
    Bug,
    /// An oops: a fault in kernel mode.
    Oops,
    /// A task, CPU or transmit queue that makes no progress.
    Stall,
    /// Kernel panic. Seldom seen here, since nothing runs after it.
    Panic,
}

/// How a guest is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Power {
    /// Power off.
    Off,
    /// Restart.
    Reboot,
}
