//! Address space for BARs, and who gets which part of it.

use std::ops::Range;

use thiserror::Error;

use super::Slot;

/// The guest-physical address ranges that the root bus forwards to its functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Below 4 GiB: 32-bit BARs, and all that are not prefetchable.
    pub low: Range<u64>,
    /// Above RAM: prefetchable 64-bit BARs.
    pub high: Range<u64>,
}

/// A window is too small for the BARs of the functions on the bus.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no room for BAR {bar} ({size:#x} bytes) of PCI function {slot}")]
pub struct NoSpace {
    /// The function.
    pub slot: Slot,
    /// Its BAR.
    pub bar: u8,
    /// The BAR's size in bytes.
    pub size: u64,
}

/// Finds the first place in `window`, aligned to `size`, that keeps clear of `taken`, and takes it.
pub(super) fn allocate(window: &Range<u64>, size: u64, taken: &mut Vec<Range<u64>>) -> Option<u64> {
    let mut address = window.start.max(size).checked_next_multiple_of(size)?;
    while address.checked_add(size)? <= window.end {
        let conflict = taken.iter().find(|range| range.start < address + size && address < range.end);
        match conflict {
            None => {
                taken.push(address..address + size);
                return Some(address);
            }
            Some(range) => address = range.end.checked_next_multiple_of(size)?,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn places_are_aligned_disjoint_and_inside(sizes in prop::collection::vec(4_u32..24, 1..40)) {
            let window = 0xc000_0000..0xe000_0000;
            let mut taken: Vec<_> = std::iter::once(0xc800_0000..0xc800_1000).collect();
            for size in sizes.into_iter().map(|bits| 1 << bits) {
                let before = taken.clone();
                let address = allocate(&window, size, &mut taken).unwrap();
                prop_assert_eq!(address % size, 0);
                prop_assert!(window.start <= address && address + size <= window.end);
                prop_assert!(before.iter().all(|range| range.end <= address || address + size <= range.start));
            }
        }
    }

    #[test]
    fn a_full_window_is_noticed() {
        let window = 0x1000..0x3000;
        let mut taken = Vec::new();
        assert_eq!(allocate(&window, 0x1000, &mut taken), Some(0x1000));
        assert_eq!(allocate(&window, 0x2000, &mut taken), None);
        assert_eq!(allocate(&window, 0x1000, &mut taken), Some(0x2000));
        assert_eq!(allocate(&window, 0x10, &mut taken), None);
    }
}
