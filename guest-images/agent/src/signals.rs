//! Signals as something to poll.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// Tells when children have ended.
pub(crate) struct ChildSignal {
    descriptor: OwnedFd,
}

impl ChildSignal {
    /// Takes over SIGCHLD. Commands get it back: the standard library unblocks all signals in a child.
    pub(crate) fn new() -> io::Result<ChildSignal> {
        // SAFETY: a zeroed `sigset_t` is valid storage, which sigemptyset then initialises; all three calls
        // only use the set passed to them.
        let descriptor = unsafe {
            let mut set: libc::sigset_t = mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGCHLD);
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: signalfd has just returned this descriptor, and nothing else owns it.
        Ok(ChildSignal { descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) } })
    }

    /// For `poll`.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Takes what has been signalled so far.
    pub(crate) fn clear(&self) {
        let mut info = [0u8; mem::size_of::<libc::signalfd_siginfo>()];
        // SAFETY: the buffer has the length given.
        while unsafe { libc::read(self.descriptor.as_raw_fd(), info.as_mut_ptr().cast(), info.len()) } > 0 {}
    }
}
