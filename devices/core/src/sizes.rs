//! How large frames were.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A histogram of sizes in bytes: by power of two, and exact for the sizes seen first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sizes {
    /// How many sizes have this many bits: entry `n` counts sizes from `2^(n-1)` up to but not including `2^n`.
    pub by_bits: Vec<u64>,
    /// How many there were of each size, for at most [`Sizes::EXACT`] different ones.
    pub exact: BTreeMap<u32, u64>,
    /// Sizes that found no place in [`Self::exact`].
    pub inexact: u64,
    /// The sum of all sizes.
    pub sum: u64,
    smallest: Option<u64>,
    largest: Option<u64>,
}

impl Sizes {
    /// How many different sizes are kept exactly. The guest decides about sizes, so there must be a bound.
    pub const EXACT: usize = 2048;

    /// Counts one size.
    pub fn record(&mut self, size: usize) {
        self.record_many(size, 1);
    }

    /// Counts one size `count` times.
    pub fn record_many(&mut self, size: usize, count: u64) {
        if count == 0 {
            return;
        }
        let bits = (usize::BITS - size.leading_zeros()) as usize;
        if self.by_bits.len() <= bits {
            self.by_bits.resize(bits + 1, 0);
        }
        self.by_bits[bits] += count;
        let wide = size as u64;
        self.sum = self.sum.saturating_add(wide.saturating_mul(count));
        self.smallest = Some(self.smallest.map_or(wide, |smallest| smallest.min(wide)));
        self.largest = Some(self.largest.map_or(wide, |largest| largest.max(wide)));
        let room = self.exact.len() < Sizes::EXACT;
        match u32::try_from(size) {
            Ok(size) if room || self.exact.contains_key(&size) => {
                *self.exact.entry(size).or_default() += count;
            }
            _ => self.inexact += count,
        }
    }

    /// Counts all that `other` has counted.
    pub fn add(&mut self, other: &Sizes) {
        let (by_bits, sum) = (&other.by_bits, self.sum.saturating_add(other.sum));
        let inexact = self.inexact + other.inexact;
        let bits = self.by_bits.len().max(by_bits.len());
        let mut total = std::mem::take(&mut self.by_bits);
        total.resize(bits, 0);
        total.iter_mut().zip(by_bits).for_each(|(own, more)| *own += more);
        other.exact.iter().for_each(|(size, count)| self.record_many(*size as usize, *count));
        let lost: u64 = self.inexact - (inexact - other.inexact);
        self.by_bits = total;
        self.sum = sum;
        self.inexact = inexact + lost;
        self.smallest = [self.smallest, other.smallest].into_iter().flatten().min();
        self.largest = self.largest.max(other.largest);
    }

    /// How many sizes were counted.
    pub fn count(&self) -> u64 {
        self.by_bits.iter().sum()
    }

    /// The smallest size.
    pub fn smallest(&self) -> Option<u64> {
        self.smallest
    }

    /// The largest size.
    pub fn largest(&self) -> Option<u64> {
        self.largest
    }

    /// The mean of all sizes.
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum as f64 / count as f64)
    }

    /// How many sizes are above `size`: at least the first, at most the second number. They are the same while
    /// no more than [`Self::EXACT`] different sizes were seen.
    pub fn count_above(&self, size: u32) -> (u64, u64) {
        let exact = self.exact.range(size.saturating_add(1)..).map(|(_, count)| count).sum();
        (exact, exact + self.inexact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &[usize]) -> Sizes {
        let mut sizes = Sizes::default();
        list.iter().for_each(|size| sizes.record(*size));
        sizes
    }

    #[test]
    fn sizes_fall_between_powers_of_two() {
        let sizes = of(&[0, 1, 2, 3, 4, 1023, 1024, 524_280]);
        let expected = [(0, 1), (1, 1), (2, 2), (3, 1), (10, 1), (11, 1), (19, 1)];
        for (bits, count) in sizes.by_bits.iter().enumerate() {
            let expected = expected.iter().find(|(at, _)| *at == bits).map_or(0, |(_, count)| *count);
            assert_eq!(*count, expected, "{bits} bits");
        }
    }

    #[test]
    fn exact_sizes_are_bounded_and_nothing_is_lost() {
        let mut sizes = Sizes::default();
        for size in 0..2 * Sizes::EXACT {
            sizes.record(size);
            sizes.record(7);
        }
        assert_eq!(sizes.exact.len(), Sizes::EXACT);
        assert_eq!(sizes.exact[&7], 2 * Sizes::EXACT as u64 + 1);
        assert_eq!(sizes.inexact, Sizes::EXACT as u64);
        assert_eq!(sizes.count(), sizes.exact.values().sum::<u64>() + sizes.inexact);
        assert_eq!(sizes.largest(), Some(2 * Sizes::EXACT as u64 - 1), "beyond what is kept exactly");
        assert_eq!(sizes.count_above(100), (Sizes::EXACT as u64 - 101, 2 * Sizes::EXACT as u64 - 101));
    }

    #[test]
    fn questions_about_sizes() {
        let sizes = of(&[60, 1514, 1514, 65_536]);
        assert_eq!((sizes.smallest(), sizes.largest(), sizes.count()), (Some(60), Some(65_536), 4));
        assert_eq!(sizes.mean(), Some(17_156.0));
        assert_eq!(sizes.count_above(1514), (1, 1));
        assert_eq!(sizes.count_above(1513), (3, 3));
        assert_eq!((Sizes::default().largest(), Sizes::default().mean()), (None, None));
    }

    #[test]
    fn histograms_add_up() {
        let mut sum = of(&[60, 1514]);
        sum.add(&of(&[60, 9014]));
        assert_eq!(sum, of(&[60, 60, 1514, 9014]));
        let mut full = Sizes::default();
        (0..Sizes::EXACT).for_each(|size| full.record(size));
        full.add(&of(&[100_000, 5]));
        assert_eq!((full.count(), full.inexact, full.sum), (2050, 1, 2048 * 2047 / 2 + 100_005));
    }
}
