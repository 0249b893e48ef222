//! Guest RAM by host pointer: the one place where the CPU touches memory without vm-memory's help.
//!
//! vm-memory's accessors cost a region search, a volatile copy and a bitmap update for every access. The TLB
//! instead keeps a [`HostPage`] for each page and reads or writes it in place. Soundness rests on this:
//! * A [`HostPage`] is made only by [`Memory::page`] for a whole 4 KiB page inside a region's mapping, and
//!   every access is checked to end within that page.
//! * It is kept only in TLBs. An engine empties a CPU's TLB before running it unless the TLB was filled from
//!   the engine's own [`Memory`], which holds a reference to the mapping.
//! * The memory is the guest's: any bit pattern is valid, and no Rust reference to it is ever made. CPUs of an
//!   engine run one at a time; whoever else writes guest RAM does so between calls of the engine or from
//!   within the bus, as all nicvisor devices do.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicvisor_memory::{CODE, DIRTY, GuestRam, PAGE_SHIFT, PAGE_SIZE, PageFlags, PageTracker};
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion, MemoryRegionAddress};

use crate::width::Width;

/// A page of guest RAM in the host's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostPage(NonNull<u8>);

// SAFETY: the pointer is to memory that is shared by design; see the module's rules.
unsafe impl Send for HostPage {}
// SAFETY: as above.
unsafe impl Sync for HostPage {}

impl HostPage {
    /// A page that no access reaches: for TLB entries whose tag matches nothing.
    pub(crate) const NOWHERE: HostPage = HostPage(NonNull::dangling());

    /// Reads the value at `offset`; `None` when it reaches beyond the page.
    #[inline(always)]
    pub(crate) fn read<T: Width>(self, offset: usize) -> Option<T> {
        if offset > PAGE_SIZE - T::BYTES {
            return None;
        }
        // SAFETY: within the page by the check above; see the module's rules. `Width` is only implemented by
        // plain integers.
        Some(unsafe { self.0.as_ptr().add(offset).cast::<T>().read_unaligned() })
    }

    /// Writes `value` at `offset`; false when it would reach beyond the page.
    #[inline(always)]
    pub(crate) fn write<T: Width>(self, offset: usize, value: T) -> bool {
        if offset > PAGE_SIZE - T::BYTES {
            return false;
        }
        // SAFETY: as for `read`.
        unsafe { self.0.as_ptr().add(offset).cast::<T>().write_unaligned(value) };
        true
    }

    /// Fills `data` from `offset`; false when that reaches beyond the page.
    #[inline(always)]
    pub(crate) fn read_bytes(self, offset: usize, data: &mut [u8]) -> bool {
        if offset + data.len() > PAGE_SIZE {
            return false;
        }
        // SAFETY: within the page by the check above; `data` is Rust's, so it cannot overlap guest RAM.
        unsafe { std::ptr::copy_nonoverlapping(self.0.as_ptr().add(offset), data.as_mut_ptr(), data.len()) };
        true
    }

    /// Writes `data` at `offset`; false when it would reach beyond the page.
    #[inline(always)]
    pub(crate) fn write_bytes(self, offset: usize, data: &[u8]) -> bool {
        if offset + data.len() > PAGE_SIZE {
            return false;
        }
        // SAFETY: as for `read_bytes`.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.0.as_ptr().add(offset), data.len()) };
        true
    }
}

/// All guest RAM, ready for access by physical address.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Keeps the mapping alive.
    ram: GuestRam,
    regions: Vec<Region>,
    /// Tells TLBs filled from this memory from others.
    id: u64,
    /// Writes of CPUs to pages that code is cached from: physical address and length. Unlike what others
    /// write, these are known to the byte, so data beside code need not cost the code.
    code_writes: Mutex<Vec<(u64, usize)>>,
}

#[derive(Debug)]
struct Region {
    start: u64,
    bytes: u64,
    base: HostPage,
    flags: Arc<PageFlags>,
}

impl Memory {
    pub(crate) fn new(ram: GuestRam) -> Memory {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let regions = ram
            .iter()
            .filter_map(|region| {
                let base = region.get_host_address(MemoryRegionAddress(0)).ok()?;
                Some(Region {
                    start: region.start_addr().0,
                    // A partial page at the end would not be accessible as a page: it is not RAM to the CPU.
                    bytes: region.len() & !(PAGE_SIZE as u64 - 1),
                    base: HostPage(NonNull::new(base)?),
                    flags: PageTracker::of(region),
                })
            })
            .collect();
        Memory { ram, regions, id: NEXT_ID.fetch_add(1, Ordering::Relaxed), code_writes: Mutex::default() }
    }

    /// The RAM as everybody else sees it.
    pub(crate) fn ram(&self) -> &GuestRam {
        &self.ram
    }

    /// Unique among all memories of the process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    fn region(&self, physical: u64) -> Option<(&Region, usize)> {
        self.regions.iter().find_map(|region| {
            let offset = physical.wrapping_sub(region.start);
            (offset < region.bytes).then_some((region, (offset >> PAGE_SHIFT) as usize))
        })
    }

    /// The page that holds `physical`, if that is RAM.
    pub(crate) fn page(&self, physical: u64) -> Option<HostPage> {
        let (region, page) = self.region(physical)?;
        // SAFETY: the page lies within the region's mapping, as `region` has checked.
        Some(HostPage(unsafe { region.base.0.add(page << PAGE_SHIFT) }))
    }

    /// The page that holds `physical` and its flags, if that is RAM.
    pub(crate) fn flags(&self, physical: u64) -> Option<(&PageFlags, usize)> {
        let (region, page) = self.region(physical)?;
        Some((&region.flags, page))
    }

    /// Whether decoded instructions from the page at `physical` are cached.
    pub(crate) fn is_code(&self, physical: u64) -> bool {
        self.flags(physical).is_some_and(|(flags, page)| flags.get(page) & CODE != 0)
    }

    /// Reads within one page of RAM; false (and `data` unchanged) when `physical` is not RAM.
    pub(crate) fn read(&self, physical: u64, data: &mut [u8]) -> bool {
        self.page(physical).is_some_and(|page| page.read_bytes(physical as usize & (PAGE_SIZE - 1), data))
    }

    /// Writes within one page of RAM; false when `physical` is not RAM. What it may change of cached code waits
    /// for [`Self::take_code_writes`].
    pub(crate) fn write(&self, physical: u64, data: &[u8]) -> bool {
        let Some(page) = self.page(physical) else { return false };
        if let Some((flags, index)) = self.flags(physical) {
            flags.set(index, DIRTY);
            if flags.get(index) & CODE != 0 {
                self.own_code_writes().push((physical, data.len()));
            }
        }
        page.write_bytes(physical as usize & (PAGE_SIZE - 1), data)
    }

    fn own_code_writes(&self) -> MutexGuard<'_, Vec<(u64, usize)>> {
        self.code_writes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prepares the page at `physical` for writes that nobody is told about: marks it dirty. False when it may
    /// not have such, because instructions from it are cached.
    pub(crate) fn allow_direct_writes(&self, physical: u64) -> bool {
        self.flags(physical).is_some_and(|(flags, page)| {
            flags.set(page, DIRTY);
            flags.get(page) & CODE == 0
        })
    }

    /// What was written to pages that code is cached from since the last call: physical addresses and lengths.
    pub(crate) fn take_code_writes(&self) -> Vec<(u64, usize)> {
        let mut writes = std::mem::take(&mut *self.own_code_writes());
        for region in self.regions.iter().filter(|region| region.flags.code_written()) {
            let pages = region.flags.take_code_writes().into_iter();
            writes.extend(pages.map(|page| (region.start + ((page as u64) << PAGE_SHIFT), PAGE_SIZE)));
        }
        writes
    }
}
