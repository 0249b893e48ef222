//! The user's terminal, or what stands in its place on standard input.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use agent_protocol::TerminalSize;
use event_manager::{EventManager, EventOps, EventSet, Events, MutEventSubscriber, SubscriberOps};
use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr};

/// Standard input, read by a thread of its own so that the guest need not wait for it.
pub(super) struct Input {
    bytes: Receiver<Vec<u8>>,
    ended: bool,
    end_told: bool,
}

impl Input {
    /// Starts to read.
    pub(super) fn start() -> Input {
        // A small channel: whoever writes faster than the guest reads has to wait.
        let (sender, bytes) = sync_channel(4);
        thread::spawn(move || watch(sender));
        Input { bytes, ended: false, end_told: false }
    }

    /// What has come, if anything.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        match self.bytes.try_recv() {
            Ok(bytes) => Some(bytes),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                self.ended = true;
                None
            }
        }
    }

    /// What has come, waiting for it at most `limit`.
    pub(super) fn wait(&mut self, limit: Duration) -> Option<Vec<u8>> {
        match self.bytes.recv_timeout(limit) {
            Ok(bytes) => Some(bytes),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                if self.ended {
                    thread::sleep(limit);
                }
                self.ended = true;
                None
            }
        }
    }

    /// Whether the input has ended; says so once.
    pub(super) fn take_end(&mut self) -> bool {
        let news = self.ended && !self.end_told;
        self.end_told |= news;
        news
    }
}

/// Reads standard input whenever it has something, until its end.
fn watch(sender: SyncSender<Vec<u8>>) {
    let Ok(mut manager) = EventManager::<StandardInput>::new() else { return };
    let id = manager.add_subscriber(StandardInput { sender, ended: false });
    // The input may have ended while it was being added.
    while manager.subscriber_mut(id).is_ok_and(|input| !input.ended) {
        if manager.run().is_err() {
            return;
        }
    }
}

struct StandardInput {
    sender: SyncSender<Vec<u8>>,
    ended: bool,
}

impl StandardInput {
    fn read(&mut self) {
        let mut bytes = vec![0; 4096];
        match io::stdin().lock().read(&mut bytes) {
            Ok(length) if length > 0 => {
                bytes.truncate(length);
                self.ended = self.sender.send(bytes).is_err();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => self.ended = true,
        }
    }
}

impl MutEventSubscriber for StandardInput {
    fn process(&mut self, _events: Events, _ops: &mut EventOps<'_>) {
        self.read();
    }

    fn init(&mut self, ops: &mut EventOps<'_>) {
        let events = Events::new_raw(io::stdin().as_raw_fd(), EventSet::IN);
        if ops.add(events).is_err() {
            // A regular file cannot be polled: it always has something, until its end.
            while !self.ended {
                self.read();
            }
        }
    }
}

/// The terminal is set up differently as long as this lives. There is one at a time.
pub(super) struct Mode(());

impl Mode {
    /// Every key is passed on.
    pub(super) fn raw() -> Mode {
        Mode::change(Termios::make_raw)
    }

    /// `^C` is not shown when it is typed: it would move what is drawn.
    pub(super) fn without_control_characters() -> Mode {
        // In the background, to change the terminal is to be stopped.
        match tcgetpgrp(io::stdin()) == Ok(getpgrp()) {
            true => Mode::change(|mode| mode.local_modes.remove(LocalModes::ECHOCTL)),
            false => Mode(()),
        }
    }

    fn change(change: impl FnOnce(&mut Termios)) -> Mode {
        if let Ok(before) = tcgetattr(io::stdin()) {
            let mut mode = before.clone();
            change(&mut mode);
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &mode);
            *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        }
        Mode(())
    }
}

impl Drop for Mode {
    fn drop(&mut self) {
        restore();
    }
}

/// Sets the terminal up as it was, if it was changed.
pub(super) fn restore() {
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

/// How the terminal was set up before it was changed.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal's size.
pub(super) fn size() -> TerminalSize {
    tcgetwinsize(io::stdout()).map_or(TerminalSize { rows: 24, columns: 80 }, |size| TerminalSize {
        rows: size.ws_row,
        columns: size.ws_col,
    })
}
