//! Virtual time as a function of executed instructions.

use nicvisor_core::Time;
use serde::{Deserialize, Serialize};

/// The one clock of all CPUs. While one CPU executes `k` instructions and `n` CPUs have something to do, it
/// advances by `k / n` instruction times: as if the `n` ran side by side.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Clock {
    /// Nanoseconds in units of 2^-32.
    #[serde(with = "halves")]
    now: u128,
    /// One instruction of a single CPU, in the same units.
    instruction: u64,
    /// One instruction of the CPU that runs now.
    rate: u64,
}

impl Clock {
    /// A clock at zero for CPUs of `instructions_per_second`.
    pub(super) fn new(instructions_per_second: u64) -> Clock {
        let instruction = (u128::from(NANOSECONDS) << FRACTION) / u128::from(instructions_per_second.max(1));
        let instruction = u64::try_from(instruction).unwrap_or(u64::MAX).max(1);
        Clock { now: 0, instruction, rate: instruction }
    }

    /// The time at the start of the present run.
    pub(super) fn now(&self) -> Time {
        self.after(0)
    }

    /// The time when the running CPU has executed `instructions` in this run.
    #[inline]
    pub(super) fn after(&self, instructions: u64) -> Time {
        let now = self.now + u128::from(self.rate) * u128::from(instructions);
        Time::from_nanos(u64::try_from(now >> FRACTION).unwrap_or(u64::MAX))
    }

    /// Begins a run in which `runnable` CPUs have something to do.
    pub(super) fn share(&mut self, runnable: usize) {
        self.rate = (self.instruction / runnable.max(1) as u64).max(1);
    }

    /// Ends a run of `instructions`.
    pub(super) fn advance(&mut self, instructions: u64) {
        self.now += u128::from(self.rate) * u128::from(instructions);
    }

    /// Jumps forward to `time`; a time in the past changes nothing.
    pub(super) fn jump(&mut self, time: Time) {
        self.now = self.now.max(u128::from(time.as_nanos()) << FRACTION);
    }

    /// How many instructions of this run lead to `time`, rounded up.
    pub(super) fn instructions_until(&self, time: Time) -> u64 {
        let distance = (u128::from(time.as_nanos()) << FRACTION).saturating_sub(self.now);
        u64::try_from(distance.div_ceil(u128::from(self.rate))).unwrap_or(u64::MAX)
    }
}

/// JSON has no numbers of 128 bits: two of 64, the upper first.
mod halves {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        ((value >> 64) as u64, *value as u64).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
        let (upper, lower) = <(u64, u64)>::deserialize(deserializer)?;
        Ok(u128::from(upper) << 64 | u128::from(lower))
    }
}

const FRACTION: u32 = 32;
const NANOSECONDS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn time_never_runs_backwards_and_deadlines_are_hit_exactly(
            runs in prop::collection::vec((1_usize..65, 0_u64..1_000_000, 0_u64..5_000), 1..50),
        ) {
            let mut clock = Clock::new(NANOSECONDS);
            let mut last = Time::ZERO;
            for (runnable, instructions, ahead) in runs {
                clock.share(runnable);
                prop_assert!(clock.now() >= last);
                let target = Time::from_nanos(clock.now().as_nanos() + ahead);
                let needed = clock.instructions_until(target);
                prop_assert!(clock.after(needed) >= target);
                prop_assert!(needed == 0 || clock.after(needed - 1) < target);
                last = clock.after(instructions);
                clock.advance(instructions);
                prop_assert_eq!(clock.now(), last);
            }
        }
    }

    #[test]
    fn a_lone_cpu_of_one_giga_instruction_a_second_counts_nanoseconds() {
        let mut clock = Clock::new(NANOSECONDS);
        clock.share(1);
        clock.advance(12_345);
        assert_eq!(clock.now(), Time::from_nanos(12_345));
        clock.share(2);
        clock.advance(10);
        assert_eq!(clock.now(), Time::from_nanos(12_350));
        clock.jump(Time::from_nanos(1));
        assert_eq!(clock.now(), Time::from_nanos(12_350));
        clock.jump(Time::from_nanos(99_999));
        assert_eq!(clock.now(), Time::from_nanos(99_999));
    }
}
