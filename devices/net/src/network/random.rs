//! Chance that repeats: the same seed gives the same faults.

use serde::{Deserialize, Serialize};

/// A small generator of pseudo-random numbers (SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom
/// number generators", OOPSLA 2014). Its whole state is one number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator that always gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// The next number, any 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// True `parts` times in a million.
    pub fn happens(&mut self, parts: u32) -> bool {
        self.next_u64() % 1_000_000 < u64::from(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_chance_is_about_right() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..100_000).map(|_| random.happens(250_000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
        let hits = draw(1).into_iter().filter(|hit| *hit).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
    }
}
