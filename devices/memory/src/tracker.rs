//! Per-page flags that writers of guest memory keep up to date.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use vm_memory::bitmap::{Bitmap, NewBitmap, RefSlice, WithBitmapSlice};

use crate::GuestRegion;

/// The vm-memory bitmap of a region: a shared handle to its [`PageFlags`].
#[derive(Clone, Debug, Default)]
pub struct PageTracker {
    flags: Arc<PageFlags>,
}

impl PageTracker {
    /// The flags of `region`'s pages.
    pub fn of(region: &GuestRegion) -> Arc<PageFlags> {
        region.bitmap().flags.clone()
    }
}

/// The flags of one region, indexed by page number *within the region*.
#[derive(Debug, Default)]
pub struct PageFlags {
    flags: Box<[AtomicU8]>,
    code_written: AtomicBool,
    code_writes: Mutex<Vec<usize>>,
}

impl PageFlags {
    fn with_pages(pages: usize) -> Self {
        PageFlags { flags: (0..pages).map(|_| AtomicU8::new(0)).collect(), ..PageFlags::default() }
    }

    /// The flags of `page`; 0 beyond the region.
    #[inline]
    pub fn get(&self, page: usize) -> u8 {
        self.flags.get(page).map_or(0, |flags| flags.load(Ordering::Relaxed))
    }

    /// Sets `mask` on `page`. A page beyond the region is ignored.
    #[inline]
    pub fn set(&self, page: usize, mask: u8) {
        if let Some(flags) = self.flags.get(page) {
            flags.fetch_or(mask, Ordering::Relaxed);
        }
    }

    /// Clears `mask` on `page`. A page beyond the region is ignored.
    #[inline]
    pub fn clear(&self, page: usize, mask: u8) {
        if let Some(flags) = self.flags.get(page) {
            flags.fetch_and(!mask, Ordering::Relaxed);
        }
    }

    /// Records a write to `page`: sets `DIRTY`, and queues the page for [`Self::take_code_writes`] when the
    /// decoder holds instructions from it.
    #[inline]
    pub fn written(&self, page: usize) {
        let Some(flags) = self.flags.get(page) else { return };
        let old = flags.load(Ordering::Relaxed);
        if old & DIRTY == 0 {
            flags.fetch_or(DIRTY, Ordering::Relaxed);
        }
        if old & CODE != 0 {
            self.code_writes.lock().unwrap_or_else(|poison| poison.into_inner()).push(page);
            self.code_written.store(true, Ordering::Release);
        }
    }

    /// Whether [`Self::take_code_writes`] would return anything: cheap enough to ask before every block.
    #[inline]
    pub fn code_written(&self) -> bool {
        self.code_written.load(Ordering::Acquire)
    }

    /// The code pages written since the last call, possibly with repetitions.
    pub fn take_code_writes(&self) -> Vec<usize> {
        let mut writes = self.code_writes.lock().unwrap_or_else(|poison| poison.into_inner());
        self.code_written.store(false, Ordering::Release);
        std::mem::take(&mut *writes)
    }

    /// Number of pages in the region.
    pub fn pages(&self) -> usize {
        self.flags.len()
    }
}

impl<'a> WithBitmapSlice<'a> for PageTracker {
    type S = RefSlice<'a, PageTracker>;
}

impl Bitmap for PageTracker {
    fn mark_dirty(&self, offset: usize, len: usize) {
        if len == 0 {
            return;
        }
        let last = (offset + len - 1) >> PAGE_SHIFT;
        for page in offset >> PAGE_SHIFT..=last {
            self.flags.written(page);
        }
    }

    fn dirty_at(&self, offset: usize) -> bool {
        self.flags.get(offset >> PAGE_SHIFT) & DIRTY != 0
    }

    fn slice_at(&self, offset: usize) -> <Self as WithBitmapSlice<'_>>::S {
        RefSlice::new(self, offset)
    }
}

impl NewBitmap for PageTracker {
    fn with_len(len: usize) -> Self {
        PageTracker { flags: Arc::new(PageFlags::with_pages(len.div_ceil(PAGE_SIZE))) }
    }
}

/// Instructions decoded from this page are cached.
pub const CODE: u8 = 1 << 0;
/// The page was written since this flag was last cleared.
pub const DIRTY: u8 = 1 << 1;
/// log2 of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;
/// The granularity of tracking, in bytes.
pub const PAGE_SIZE: usize = 1 << PAGE_SHIFT;
