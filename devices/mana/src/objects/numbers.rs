//! Numbers of queues: small, and given out in turn.

use serde::{Deserialize, Serialize};

/// A range of numbers of which some are in use. A number that became free is given out again only when all
/// others were, so that a driver that still uses it is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Numbers {
    first: u32,
    end: u32,
    next: u32,
}

impl Numbers {
    /// The numbers from `first` up to but not including `end`.
    pub(crate) fn new(first: u32, end: u32) -> Numbers {
        Numbers { first, end, next: first }
    }

    /// A number that `in_use` does not know, if there is one within the next `used + 1`, where `used` is how many
    /// are in use.
    pub(crate) fn take(&mut self, used: usize, in_use: impl Fn(u32) -> bool) -> Option<u32> {
        let size = self.end.saturating_sub(self.first);
        for _ in 0..(used as u64 + 1).min(size.into()) {
            let number = self.next;
            self.next = if number + 1 < self.end { number + 1 } else { self.first };
            if !in_use(number) {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_in_range_and_free(
            size in 0_u32..20,
            acts in proptest::collection::vec(any::<Option<u8>>(), 0..100),
        ) {
            let mut numbers = Numbers::new(5, 5 + size);
            let mut used = BTreeSet::new();
            for act in acts {
                match act {
                    Some(which) => _ = used.remove(&(5 + u32::from(which) % 20)),
                    None => match numbers.take(used.len(), |number| used.contains(&number)) {
                        Some(number) => {
                            prop_assert!((5..5 + size).contains(&number));
                            prop_assert!(used.insert(number));
                        }
                        None => prop_assert_eq!(used.len(), size as usize),
                    },
                }
            }
        }
    }
}
