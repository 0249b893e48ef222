//! The local APIC's timer: counts down at 1 GHz over the divider, or waits for a time-stamp counter value
//! (Intel SDM vol. 3, 11.5.4).

use nicvisor_core::{Duration, Time};
use serde::{Deserialize, Serialize};

/// The timer's registers and when it expires next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Timer {
    initial: u32,
    divide: u32,
    deadline: u64,
    expiry: Option<Time>,
}

/// What the timer does, from its local vector table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimerMode {
    OneShot,
    Periodic,
    TscDeadline,
}

impl TimerMode {
    pub(super) fn from_entry(entry: u32) -> TimerMode {
        match entry >> 17 & 3 {
            0 => TimerMode::OneShot,
            1 => TimerMode::Periodic,
            _ => TimerMode::TscDeadline,
        }
    }
}

impl Timer {
    pub(super) fn expiry(&self) -> Option<Time> {
        self.expiry
    }

    pub(super) fn initial(&self) -> u32 {
        self.initial
    }

    pub(super) fn divide(&self) -> u32 {
        self.divide
    }

    /// The current count register.
    pub(super) fn current(&self, now: Time, mode: TimerMode) -> u32 {
        match self.expiry {
            Some(expiry) if mode != TimerMode::TscDeadline => {
                let left = expiry.since(now).as_nanos() as u64;
                u32::try_from(left.div_ceil(self.divider())).unwrap_or(u32::MAX).min(self.initial)
            }
            _ => 0,
        }
    }

    /// A write to the initial count register.
    pub(super) fn start(&mut self, now: Time, mode: TimerMode, count: u32) {
        if mode == TimerMode::TscDeadline {
            return;
        }
        self.initial = count;
        self.expiry = (count != 0).then(|| now + self.period(mode));
    }

    /// A write to the divide configuration register.
    pub(super) fn set_divide(&mut self, now: Time, mode: TimerMode, divide: u32) {
        let left = self.current(now, mode);
        self.divide = divide & 0b1011;
        if self.expiry.is_some() && mode != TimerMode::TscDeadline {
            self.expiry = Some(now + Duration::from_nanos(u64::from(left) * self.divider()));
        }
    }

    /// A write to the timer's local vector table entry changed the mode.
    pub(super) fn change_mode(&mut self, old: TimerMode, new: TimerMode) {
        if old != new && (old == TimerMode::TscDeadline || new == TimerMode::TscDeadline) {
            *self = Timer { divide: self.divide, ..Timer::default() };
        }
    }

    /// The IA32_TSC_DEADLINE register.
    pub(super) fn deadline(&self) -> u64 {
        self.deadline
    }

    /// A write to IA32_TSC_DEADLINE; `expiry` is the time of that counter value, if it ever comes.
    pub(super) fn set_deadline(&mut self, mode: TimerMode, deadline: u64, expiry: Option<Time>) {
        if mode == TimerMode::TscDeadline {
            self.deadline = deadline;
            self.expiry = expiry.filter(|_| deadline != 0);
        }
    }

    /// Whether the timer has expired by now. If so, a periodic one is started again; expiries that were
    /// missed are one.
    pub(super) fn expire(&mut self, now: Time, mode: TimerMode) -> bool {
        let Some(expiry) = self.expiry.filter(|&expiry| expiry <= now) else { return false };
        self.deadline = 0;
        self.expiry = (mode == TimerMode::Periodic && self.initial != 0).then(|| {
            let period = self.period(mode);
            let late = now.since(expiry).as_nanos() % period.as_nanos();
            now + (period - Duration::from_nanos(late as u64))
        });
        true
    }

    fn period(&self, mode: TimerMode) -> Duration {
        let period = Duration::from_nanos(u64::from(self.initial) * self.divider());
        if mode == TimerMode::Periodic { period.max(SHORTEST_PERIOD) } else { period }
    }

    fn divider(&self) -> u64 {
        match self.divide >> 1 & 4 | self.divide & 3 {
            7 => 1,
            bits => 2 << bits,
        }
    }
}

/// A guest that asks for less would only see interrupts and no progress.
const SHORTEST_PERIOD: Duration = Duration::from_micros(1);
