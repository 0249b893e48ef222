//! What the machine's thread sleeps on: requests of CPUs, doorbells, its timer, and whatever else the host has
//! for the machine.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use event_manager::{
    EventManager, EventOps, EventSet, Events as Ready, MutEventSubscriber, SubscriberId, SubscriberOps,
};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};
use vmm_sys_util::timerfd::TimerFd;

use super::error::KvmError;

/// The event loop's sources.
pub(super) struct Events {
    manager: EventManager<Sources>,
    id: SubscriberId,
    /// File descriptors of others.
    watched: Vec<RawFd>,
}

/// All file descriptors, and which doorbells have rung since they were last asked for.
struct Sources {
    requests: EventFd,
    timer: TimerFd,
    doorbells: BTreeMap<u64, EventFd>,
    rung: Vec<u64>,
}

impl Events {
    pub(super) fn new() -> Result<Events, KvmError> {
        let requests =
            EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).map_err(KvmError::host("create an event counter"))?;
        let timer = TimerFd::new().map_err(|error| {
            KvmError::host("create a timer")(std::io::Error::from_raw_os_error(error.errno()))
        })?;
        let mut manager = EventManager::new()
            .map_err(|error| KvmError::host("create an event loop")(std::io::Error::other(error)))?;
        let id =
            manager.add_subscriber(Sources { requests, timer, doorbells: BTreeMap::new(), rung: Vec::new() });
        Ok(Events { manager, id, watched: Vec::new() })
    }

    /// A handle to wake the loop.
    pub(super) fn waker(&mut self) -> Result<EventFd, KvmError> {
        self.sources().requests.try_clone().map_err(KvmError::host("copy an event counter"))
    }

    /// Sleeps until something happens, or for `longest`.
    pub(super) fn wait(&mut self, longest: Duration) {
        if !longest.is_zero() {
            // A timer that cannot be set costs punctuality, not progress: the wait is bounded anyway.
            let _ = self.sources().timer.reset(longest, None);
        }
        let milliseconds = longest.as_millis().min(LONGEST_WAIT_MS) as i32 + i32::from(!longest.is_zero());
        if let Err(error) = self.manager.run_with_timeout(milliseconds) {
            tracing::warn!(%error, "the event loop could not wait");
        }
    }

    /// The doorbells that have rung.
    pub(super) fn take_rung(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.sources().rung)
    }

    /// Listens to `bell`, which stands for `address`.
    pub(super) fn add_doorbell(&mut self, address: u64, bell: EventFd) {
        let fd = bell.as_raw_fd();
        self.sources().doorbells.insert(address, bell);
        self.watch(fd);
    }

    /// Stops listening; returns the bell.
    pub(super) fn remove_doorbell(&mut self, address: u64) -> Option<EventFd> {
        let bell = self.sources().doorbells.remove(&address)?;
        self.unwatch(bell.as_raw_fd());
        Some(bell)
    }

    /// Wakes up when one of `fds`, and none of those of the last call, can be read.
    pub(super) fn watch_only(&mut self, fds: &[RawFd]) {
        if self.watched == fds {
            return;
        }
        for fd in std::mem::take(&mut self.watched) {
            self.unwatch(fd);
        }
        self.watched = fds.to_vec();
        fds.iter().for_each(|fd| self.watch(*fd));
    }

    /// Wakes up when `fd` can be read.
    fn watch(&mut self, fd: RawFd) {
        if let Ok(mut ops) = self.manager.event_ops(self.id)
            && let Err(error) = ops.add(Ready::new_raw(fd, EventSet::IN))
        {
            tracing::warn!(%error, "the event loop cannot watch a file descriptor");
        }
    }

    /// Undoes [`Self::watch`].
    fn unwatch(&mut self, fd: RawFd) {
        if let Ok(mut ops) = self.manager.event_ops(self.id) {
            let _ = ops.remove(Ready::new_raw(fd, EventSet::IN));
        }
    }

    fn sources(&mut self) -> &mut Sources {
        self.manager.subscriber_mut(self.id).expect("the one subscriber is never removed")
    }
}

impl MutEventSubscriber for Sources {
    fn init(&mut self, ops: &mut EventOps<'_>) {
        for source in [Ready::new(&self.requests, EventSet::IN), Ready::new(&self.timer, EventSet::IN)] {
            // Two fresh descriptors in a fresh epoll instance: nothing that could refuse them.
            ops.add(source).expect("fresh file descriptors can be watched");
        }
    }

    fn process(&mut self, ready: Ready, _ops: &mut EventOps<'_>) {
        if ready.fd() == self.requests.as_raw_fd() {
            let _ = self.requests.read();
        }
        for (address, bell) in &self.doorbells {
            if ready.fd() == bell.as_raw_fd() && bell.read().is_ok() {
                self.rung.push(*address);
            }
        }
    }
}

/// However quiet it is, the user's interruptions and the host's clock are looked at so often.
const LONGEST_WAIT_MS: u128 = 100;
