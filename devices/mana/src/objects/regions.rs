//! DMA regions: lists of pages that a queue or a memory region takes over.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A DMA region that nothing has taken over yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Region {
    /// Bytes.
    pub(crate) length: u64,
    /// Where in the first page it starts.
    pub(crate) offset: u32,
    /// Bytes of a page.
    pub(crate) page_size: u64,
    /// How many pages it has when it is complete.
    pub(crate) page_count: u32,
    /// Addresses of those that were told so far.
    pub(crate) pages: Vec<u64>,
}

/// All DMA regions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Regions {
    free: BTreeMap<u64, Region>,
    /// Those that live on in something else.
    taken: BTreeMap<u64, Taker>,
    /// Addresses in all of [`Self::free`].
    addresses: usize,
}

/// What took a region over. It destroys the region when it is destroyed itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Taker {
    /// An event queue, by number.
    EventQueue(u32),
    /// A completion queue, by number.
    CompletionQueue(u32),
    /// A send or receive queue, by number.
    WorkQueue(u32),
    /// A memory region, by handle.
    MemoryRegion(u64),
}

/// What is wrong with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum RegionError {
    #[error("there is no DMA region {0:#x} (any more)")]
    Unknown(u64),
    #[error("DMA region {0:#x} belongs to {1:?}")]
    Taken(u64, Taker),
    #[error("DMA region {0:#x} has {1} of {2} pages")]
    Incomplete(u64, usize, u32),
    #[error("{0} addresses for the {1} pages that are missing")]
    TooMany(usize, usize),
    #[error("page address {0:#x} is not aligned to its page's {1} bytes")]
    Unaligned(u64, u64),
    #[error("DMA regions with {0} pages in all")]
    Full(usize),
}

impl Region {
    /// Whether all its pages are known.
    pub(crate) fn is_complete(&self) -> bool {
        self.pages.len() == self.page_count as usize
    }

    /// How many pages a region of this extent takes.
    pub(crate) fn pages_for(length: u64, offset: u32, page_size: u64) -> u64 {
        length.saturating_add(offset.into()).div_ceil(page_size)
    }
}

impl Regions {
    /// Adds `region` as `handle`.
    pub(crate) fn insert(&mut self, handle: u64, region: Region) {
        self.addresses += region.pages.len();
        self.free.insert(handle, region);
    }

    /// Whether `additional` addresses can be kept besides those that are.
    pub(crate) fn has_room(&self, additional: usize) -> Result<(), RegionError> {
        match self.addresses + additional {
            all if all > MAX_ADDRESSES => Err(RegionError::Full(all)),
            _ => Ok(()),
        }
    }

    /// Adds the addresses of further pages to region `handle`. Whether it is complete then.
    pub(crate) fn add_pages(&mut self, handle: u64, pages: &[u64]) -> Result<bool, RegionError> {
        self.has_room(pages.len())?;
        self.available(handle)?;
        let region = self.free.get_mut(&handle).ok_or(RegionError::Unknown(handle))?;
        check_pages(region, pages)?;
        region.pages.extend(pages);
        self.addresses += pages.len();
        Ok(region.is_complete())
    }

    /// Region `handle`, complete and not taken.
    pub(crate) fn get(&self, handle: u64) -> Result<&Region, RegionError> {
        let region = self.available(handle)?;
        if !region.is_complete() {
            return Err(RegionError::Incomplete(handle, region.pages.len(), region.page_count));
        }
        Ok(region)
    }

    /// `taker` takes region `handle` over.
    pub(crate) fn take(&mut self, handle: u64, taker: Taker) -> Result<Region, RegionError> {
        self.get(handle)?;
        let region = self.free.remove(&handle).ok_or(RegionError::Unknown(handle))?;
        self.addresses -= region.pages.len();
        self.taken.insert(handle, taker);
        Ok(region)
    }

    /// `taker` is destroyed, and its region with it.
    pub(crate) fn release(&mut self, taker: Taker) {
        self.taken.retain(|_, other| *other != taker);
    }

    /// Destroys region `handle`, which nothing has taken over.
    pub(crate) fn destroy(&mut self, handle: u64) -> Result<(), RegionError> {
        self.available(handle)?;
        if let Some(region) = self.free.remove(&handle) {
            self.addresses -= region.pages.len();
        }
        Ok(())
    }

    /// How many are not taken over.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.free.len() + self.taken.len()
    }

    fn available(&self, handle: u64) -> Result<&Region, RegionError> {
        match (self.free.get(&handle), self.taken.get(&handle)) {
            (Some(region), _) => Ok(region),
            (None, Some(&taker)) => Err(RegionError::Taken(handle, taker)),
            (None, None) => Err(RegionError::Unknown(handle)),
        }
    }
}

/// Whether `pages` can be added to `region`.
pub(crate) fn check_pages(region: &Region, pages: &[u64]) -> Result<(), RegionError> {
    let missing = (region.page_count as usize).saturating_sub(region.pages.len());
    if pages.len() > missing {
        return Err(RegionError::TooMany(pages.len(), missing));
    }
    match pages.iter().find(|page| !page.is_multiple_of(region.page_size)) {
        Some(&page) => Err(RegionError::Unaligned(page, region.page_size)),
        None => Ok(()),
    }
}

/// What the device keeps of page lists in all: 8 MiB of addresses, for 4 GiB of pages of 4 KiB.
const MAX_ADDRESSES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn region(page_count: u32, pages: &[u64]) -> Region {
        Region {
            length: u64::from(page_count) * 4096,
            offset: 0,
            page_size: 4096,
            page_count,
            pages: pages.to_vec(),
        }
    }

    #[test]
    fn a_region_grows_is_taken_and_goes_with_its_taker() {
        let mut regions = Regions::default();
        regions.insert(1, region(3, &[0x1000]));
        assert_eq!(regions.take(1, Taker::EventQueue(0)), Err(RegionError::Incomplete(1, 1, 3)));
        assert_eq!(regions.add_pages(1, &[0x2000, 0x3000, 0x4000]), Err(RegionError::TooMany(3, 2)));
        assert_eq!(regions.add_pages(1, &[0x2001]), Err(RegionError::Unaligned(0x2001, 4096)));
        assert_eq!(regions.add_pages(1, &[0x5000]), Ok(false));
        assert_eq!(regions.add_pages(1, &[0x4000]), Ok(true));
        let taken = regions.take(1, Taker::EventQueue(7)).unwrap();
        assert_eq!(taken.pages, [0x1000, 0x5000, 0x4000]);
        assert_eq!(regions.destroy(1), Err(RegionError::Taken(1, Taker::EventQueue(7))));
        assert_eq!(regions.add_pages(1, &[]), Err(RegionError::Taken(1, Taker::EventQueue(7))));
        regions.release(Taker::EventQueue(7));
        assert_eq!(regions.destroy(1), Err(RegionError::Unknown(1)));
        assert_eq!(regions, Regions::default(), "all accounts are closed");
    }

    #[test]
    fn a_region_is_destroyed_once() {
        let mut regions = Regions::default();
        regions.insert(1, region(2, &[0x1000]));
        assert_eq!(regions.destroy(1), Ok(()));
        assert_eq!(regions.destroy(1), Err(RegionError::Unknown(1)));
        assert_eq!(regions, Regions::default());
    }

    #[test]
    fn extents_are_measured_without_overflow() {
        assert_eq!(Region::pages_for(4096, 0, 4096), 1);
        assert_eq!(Region::pages_for(4096, 1, 4096), 2);
        assert_eq!(Region::pages_for(u64::MAX, u32::MAX, 4096), 1 << 52);
    }

    #[test]
    fn there_is_an_end_to_page_lists() {
        let mut regions = Regions::default();
        regions.insert(1, region(u32::MAX, &vec![0; MAX_ADDRESSES]));
        assert_eq!(regions.add_pages(1, &[0]), Err(RegionError::Full(MAX_ADDRESSES + 1)));
    }
}
