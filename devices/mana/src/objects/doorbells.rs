//! Doorbell pages that a driver allocated for others than the Ethernet device (`GDMA_RESOURCE_DOORBELL_PAGE`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Allocated ranges of doorbell pages: first page to number of pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DoorbellPages {
    ranges: BTreeMap<u32, u32>,
}

impl DoorbellPages {
    /// Takes `count` pages in a row, of which the first is a multiple of `alignment` (0 or 1 for any), below page
    /// `end`. `None` if there are none.
    pub(crate) fn allocate(&mut self, count: u32, alignment: u32, end: u32) -> Option<u32> {
        let mut first = FIRST_PAGE.checked_next_multiple_of(alignment.max(1))?;
        for (&start, &length) in &self.ranges {
            if first.checked_add(count)? <= start {
                break;
            }
            first = first.max(start + length).checked_next_multiple_of(alignment.max(1))?;
        }
        if count == 0 || first.checked_add(count)? > end {
            return None;
        }
        self.ranges.insert(first, count);
        Some(first)
    }

    /// Gives back exactly what [`Self::allocate`] gave out. Whether it had.
    pub(crate) fn release(&mut self, first: u32, count: u32) -> bool {
        let known = self.ranges.get(&first) == Some(&count);
        if known {
            self.ranges.remove(&first);
        }
        known
    }

    /// Whether page number `page` is allocated.
    pub(crate) fn contains(&self, page: u32) -> bool {
        self.ranges.range(..=page).next_back().is_some_and(|(first, count)| page - first < *count)
    }

    /// How many ranges are allocated.
    pub(crate) fn ranges(&self) -> usize {
        self.ranges.len()
    }
}

/// The pages below belong to the devices: hardware channel, Ethernet, RDMA.
const FIRST_PAGE: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_are_aligned_in_bounds_and_apart(
            acts in proptest::collection::vec((any::<u32>(), any::<u32>(), 0_u32..40, 0_u32..9, any::<bool>()), 0..60),
        ) {
            let mut pages = DoorbellPages::default();
            let mut given: Vec<(u32, u32)> = Vec::new();
            for (wild_count, wild_alignment, count, alignment, release) in acts {
                prop_assert_eq!(pages.allocate(wild_count | 1 << 31, wild_alignment, 64), None);
                if release && !given.is_empty() {
                    let (first, length) = given.swap_remove(count as usize % given.len());
                    prop_assert!(!pages.release(first, length + 1));
                    prop_assert!(pages.release(first, length) && !pages.release(first, length));
                } else if let Some(first) = pages.allocate(count, alignment, 64) {
                    prop_assert!(first >= FIRST_PAGE && first + count <= 64);
                    prop_assert!(first.is_multiple_of(alignment.max(1)));
                    prop_assert!(given.iter().all(|(other, length)| first + count <= *other || other + length <= first));
                    given.push((first, count));
                }
                for page in 0..64 {
                    let expected = given.iter().any(|(first, length)| (*first..first + length).contains(&page));
                    prop_assert_eq!(pages.contains(page), expected);
                }
            }
        }
    }
}
