//! Commands: starting them, their pipes or terminal, their end.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    os::unix::process::CommandExt,
    path::Path,
    process::{self, Stdio},
};

use agent_protocol::{CHUNK, Channel, Command, Exit, Failure, STDIN_WINDOW, TerminalSize};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

/// A command and the host's ends of what it reads and writes.
pub(crate) struct Job {
    pub(crate) pid: Pid,
    pub(crate) exit: Option<Exit>,
    /// The host has been told that the command has ended.
    pub(crate) reported: bool,
    input: Option<OwnedFd>,
    outputs: [Option<OwnedFd>; 2],
    terminal: bool,
    pending: VecDeque<u8>,
    /// No more input will come.
    closing: bool,
    /// Bytes taken off the input since the host last got credit.
    taken: u32,
}

/// What reading from a command gave.
pub(crate) enum Read {
    /// It wrote this.
    Data(Vec<u8>),
    /// Nothing now.
    Nothing,
    /// Nothing ever again.
    End,
}

impl Job {
    /// Starts a command.
    pub(crate) fn start(command: &Command) -> Result<Job, Failure> {
        let [program, arguments @ ..] = command.argv.as_slice() else {
            return Err(Failure { message: "no command given".to_owned(), errno: None });
        };
        let mut child = process::Command::new(program);
        child.args(arguments).envs(command.env.iter().map(|(name, value)| (name, value)));
        child.current_dir(command.cwd.as_deref().unwrap_or("/root"));
        if let Some(name) = &command.netns {
            enter_namespace(&mut child, name)?;
        }
        let started = match command.terminal {
            Some(size) => start_on_terminal(child, size),
            None => start_on_pipes(child, command.stdin),
        };
        started.map_err(|error| failure(program, &error))
    }

    /// What `poll` has to watch for this command.
    pub(crate) fn watched_output(&self, channel: Channel) -> Option<BorrowedFd<'_>> {
        self.outputs[channel as usize].as_ref().map(OwnedFd::as_fd)
    }

    /// The input, if it has to be watched because data waits for it.
    pub(crate) fn watched_input(&self) -> Option<BorrowedFd<'_>> {
        self.input.as_ref().filter(|_| !self.pending.is_empty()).map(OwnedFd::as_fd)
    }

    /// Whether the job can be forgotten.
    pub(crate) fn is_over(&self) -> bool {
        self.reported && self.outputs.iter().all(Option::is_none)
    }

    /// Reads a piece of what the command wrote.
    pub(crate) fn read(&mut self, channel: Channel) -> Read {
        let output = &mut self.outputs[channel as usize];
        let Some(descriptor) = output else {
            return Read::End;
        };
        let mut data = vec![0; CHUNK];
        match rustix::io::read(descriptor, &mut data) {
            Ok(length) if length > 0 => {
                data.truncate(length);
                Read::Data(data)
            }
            Err(Errno::AGAIN | Errno::INTR) => Read::Nothing,
            // A terminal whose last user has gone answers EIO.
            Ok(_) | Err(_) => {
                *output = None;
                Read::End
            }
        }
    }

    /// Adds to what the command is to read.
    pub(crate) fn give(&mut self, data: &[u8]) {
        self.pending.extend(data);
        self.feed();
    }

    /// Ends what the command is to read.
    pub(crate) fn close_input(&mut self) {
        if self.terminal {
            self.pending.push_back(END_OF_TRANSMISSION);
        }
        self.closing = true;
        self.feed();
    }

    /// Passes on as much input as the command takes now.
    pub(crate) fn feed(&mut self) {
        while let Some(input) = &self.input
            && !self.pending.is_empty()
        {
            let (front, _) = self.pending.as_slices();
            match rustix::io::write(input, front) {
                Ok(written) => {
                    self.pending.drain(..written);
                    self.taken += written as u32;
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(_) => self.input = None,
            }
        }
        if self.input.is_none() {
            // Nobody reads any more. The data counts as read, or the host would wait for ever.
            self.taken += self.pending.len() as u32;
            self.pending.clear();
        } else if self.closing && !self.terminal {
            self.input = None;
        }
    }

    /// Credit to give to the host: when it is worth a message, or nothing else waits.
    pub(crate) fn credit(&mut self) -> Option<u32> {
        let due = self.taken >= STDIN_WINDOW / 4 || (self.taken > 0 && self.pending.is_empty());
        due.then(|| std::mem::take(&mut self.taken))
    }

    /// Sends a signal to the command's process group.
    pub(crate) fn signal(&self, number: i32) -> io::Result<()> {
        let signal = Signal::from_named_raw(number).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(rustix::process::kill_process_group(self.pid, signal)?)
    }

    /// Changes the size of the command's terminal.
    pub(crate) fn resize(&self, size: TerminalSize) -> io::Result<()> {
        match &self.input {
            Some(terminal) if self.terminal => Ok(rustix::termios::tcsetwinsize(terminal, window(size))?),
            _ => Ok(()),
        }
    }
}

fn start_on_pipes(mut child: process::Command, stdin: bool) -> io::Result<Job> {
    child.process_group(0);
    child.stdin(if stdin { Stdio::piped() } else { Stdio::null() });
    child.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn()?;
    let input = child.stdin.take().map(OwnedFd::from);
    let outputs = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
    for descriptor in input.iter().chain(outputs.iter().flatten()) {
        rustix::fs::fcntl_setfl(descriptor, OFlags::NONBLOCK)?;
    }
    Ok(job(&child, input, outputs, false))
}

fn start_on_terminal(mut child: process::Command, size: TerminalSize) -> io::Result<Job> {
    let host = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&host)?;
    rustix::pty::unlockpt(&host)?;
    rustix::termios::tcsetwinsize(&host, window(size))?;
    let path = rustix::pty::ptsname(&host, Vec::new())?;
    let guest = rustix::fs::open(path, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    child.stdin(guest.try_clone()?).stdout(guest.try_clone()?).stderr(guest);
    // SAFETY: the closure makes two system calls and allocates nothing, as must be between fork and exec.
    unsafe {
        child.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?)
        });
    }
    let started = child.spawn()?;
    // The command's descriptors of the terminal live in `child`; as long as they are open it never ends.
    drop(child);
    rustix::fs::fcntl_setfl(&host, OFlags::RDWR | OFlags::NONBLOCK)?;
    Ok(job(&started, Some(host.try_clone()?), [Some(host), None], true))
}

fn job(child: &process::Child, input: Option<OwnedFd>, outputs: [Option<OwnedFd>; 2], terminal: bool) -> Job {
    Job {
        pid: Pid::from_child(child),
        exit: None,
        reported: false,
        input,
        outputs,
        terminal,
        pending: VecDeque::new(),
        closing: false,
        taken: 0,
    }
}

/// Arranges for the child to be in a network namespace, with a `/sys` that shows that namespace's devices: the
/// same that `ip netns exec` does.
fn enter_namespace(child: &mut process::Command, name: &str) -> Result<(), Failure> {
    use rustix::mount::{self, MountFlags, MountPropagationFlags, UnmountFlags};
    use rustix::thread::{LinkNameSpaceType, UnshareFlags};

    let path = Path::new("/run/netns").join(name);
    let namespace = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| failure(&path.display().to_string(), &error.into()))?;
    // SAFETY: the closure makes system calls with constant arguments and allocates nothing, as must be between
    // fork and exec. `unshare` affects only the child, which has one thread.
    unsafe {
        child.pre_exec(move || {
            rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            rustix::thread::unshare_unsafe(UnshareFlags::NEWNS)?;
            mount::mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
            mount::unmount(c"/sys", UnmountFlags::DETACH)?;
            Ok(mount::mount(c"sysfs", c"/sys", c"sysfs", MountFlags::NOSUID, None)?)
        });
    }
    Ok(())
}

fn window(size: TerminalSize) -> Winsize {
    Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 }
}

fn failure(what: &str, error: &io::Error) -> Failure {
    Failure { message: format!("{what}: {error}"), errno: error.raw_os_error() }
}

/// What a terminal takes for the end of the input.
const END_OF_TRANSMISSION: u8 = 4;
