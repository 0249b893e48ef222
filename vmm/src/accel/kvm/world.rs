//! Who may run: the gate that every CPU thread goes through before it enters the guest.
//!
//! A thread is *inside* while it is in `KVM_RUN`. The gate can be closed (pause), opened, shut for good (quit),
//! or given to one thread alone (the emulation assist, whose locked instructions are only atomic while nobody
//! else touches memory). Whoever closes it kicks those inside: the immediate-exit flag makes a `KVM_RUN` that
//! has not begun return at once, the signal ends one that has. Both are set and cleared under the gate's lock, so
//! no kick is lost.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::run_page::RunPage;

/// The gate.
#[derive(Debug)]
pub(super) struct World {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// The CPU that has the guest for itself.
    alone: Option<usize>,
    threads: Vec<Thread>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Paused,
    Running,
    Quit,
}

/// One CPU's thread.
#[derive(Debug)]
struct Thread {
    page: RunPage,
    id: Option<libc::pid_t>,
    inside: bool,
}

impl World {
    /// A closed gate for the CPUs with these shared pages.
    pub(super) fn new(pages: &[RunPage]) -> World {
        let threads = pages.iter().map(|&page| Thread { page, id: None, inside: false }).collect();
        World {
            state: Mutex::new(State { phase: Phase::Paused, alone: None, threads }),
            changed: Condvar::new(),
        }
    }

    /// The calling thread is that of `cpu`, and can be signalled from now on until it calls [`Self::sign_off`].
    pub(super) fn sign_on(&self, cpu: usize) {
        self.lock().threads[cpu].id = Some(thread_id());
    }

    /// The thread of `cpu` ends.
    pub(super) fn sign_off(&self, cpu: usize) {
        self.lock().threads[cpu].id = None;
        self.leave(cpu);
    }

    /// Waits until `cpu` may run; false when it is to end.
    pub(super) fn enter(&self, cpu: usize) -> bool {
        let mut state = self.lock();
        loop {
            match (state.phase, state.alone) {
                (Phase::Quit, _) => return false,
                (Phase::Running, None) => break,
                _ => state = self.wait(state),
            }
        }
        state.threads[cpu].page.set_immediate_exit(false);
        state.threads[cpu].inside = true;
        true
    }

    /// `cpu` has come back.
    pub(super) fn leave(&self, cpu: usize) {
        self.lock().threads[cpu].inside = false;
        self.changed.notify_all();
    }

    /// Opens the gate.
    pub(super) fn resume(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Paused {
            state.phase = Phase::Running;
            self.changed.notify_all();
        }
    }

    /// Closes the gate and waits until nobody is inside.
    pub(super) fn pause(&self) {
        self.close(Phase::Paused);
    }

    /// Shuts the gate for good and waits until nobody is inside.
    pub(super) fn quit(&self) {
        self.close(Phase::Quit);
    }

    fn close(&self, phase: Phase) {
        let mut state = self.lock();
        state.phase = phase;
        state.kick();
        self.changed.notify_all();
        while state.threads.iter().any(|thread| thread.inside) {
            state = self.wait(state);
        }
    }

    /// Does `work` on behalf of `cpu`, which is not inside, while nobody else is. Returns nothing when the gate
    /// was shut before.
    pub(super) fn alone<R>(&self, cpu: usize, work: impl FnOnce() -> R) -> Option<R> {
        let mut state = self.lock();
        while state.alone.is_some() {
            state = self.wait(state);
        }
        if state.phase == Phase::Quit {
            return None;
        }
        state.alone = Some(cpu);
        state.kick();
        while state.threads.iter().any(|thread| thread.inside) {
            state = self.wait(state);
        }
        drop(state);
        let result = work();
        self.lock().alone = None;
        self.changed.notify_all();
        Some(result)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Makes everyone inside come back.
    fn kick(&self) {
        for thread in self.threads.iter().filter(|thread| thread.inside) {
            thread.page.set_immediate_exit(true);
            if let Some(id) = thread.id {
                signal(id);
            }
        }
    }
}

/// The signal that takes a thread out of `KVM_RUN`. Its handler does nothing: to interrupt is all.
pub(super) fn install_signal_handler() -> std::io::Result<()> {
    extern "C" fn nothing(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}
    vmm_sys_util::signal::register_signal_handler(kick_signal(), nothing)
        .map_err(|error| std::io::Error::from_raw_os_error(error.errno()))
}

fn kick_signal() -> libc::c_int {
    vmm_sys_util::signal::SIGRTMIN()
}

fn thread_id() -> libc::pid_t {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

fn signal(thread: libc::pid_t) {
    // SAFETY: `tgkill` with a thread of our own process, which has not ended: it is inside the gate. The
    // signal's handler does nothing.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, kick_signal()) };
}
