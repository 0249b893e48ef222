//! The machine's time: nanoseconds since power-on, virtual or real.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

pub use std::time::Duration;

/// A point in the machine's time. On the software CPU it is a function of instructions executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time {
    nanoseconds: u64,
}

impl Time {
    /// Power-on.
    pub const ZERO: Time = Time { nanoseconds: 0 };

    /// The time `nanoseconds` after power-on.
    pub const fn from_nanos(nanoseconds: u64) -> Time {
        Time { nanoseconds }
    }

    /// Nanoseconds since power-on.
    pub const fn as_nanos(self) -> u64 {
        self.nanoseconds
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.nanoseconds.saturating_sub(earlier.nanoseconds))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, duration: Duration) -> Time {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Time { nanoseconds: self.nanoseconds.saturating_add(nanoseconds) }
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub for Time {
    type Output = Duration;
    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{:09} s", self.nanoseconds / 1_000_000_000, self.nanoseconds % 1_000_000_000)
    }
}
