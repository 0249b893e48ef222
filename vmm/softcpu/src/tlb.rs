//! The software TLB: from linear pages to host pages.
//!
//! One direct-mapped array each for reads, writes and instruction fetches, and a set of them for each
//! [`Context`], since the same page may be open to the kernel and closed to user code. An entry says that the
//! access needs no more checks: the page is mapped with the right permissions, accessed and dirty bits are set,
//! it is RAM, nobody watches it. Pages for which that is not so never get an entry and take the slow path:
//! MMIO, pages with cached code (writes only), pages with an armed data breakpoint.

use crate::host::HostPage;
use crate::width::Width;

/// Whose permissions an access is checked against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Context {
    /// Privilege 0 to 2.
    #[default]
    Supervisor,
    /// The same with RFLAGS.AC set: SMAP does not apply.
    SupervisorOverride,
    /// Privilege 3.
    User,
    /// Privilege 3 with alignment checks: never has entries, so that every access is looked at.
    UserAligned,
}

/// What else is known about a page that gets an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    /// It survives writes to CR3.
    pub(crate) global: bool,
    /// It is a piece of a page larger than 4 KiB.
    pub(crate) large: bool,
}

/// All translations that a CPU caches.
#[derive(Debug)]
pub(crate) struct Tlb {
    active: Box<Bank>,
    context: Context,
    parked: [Option<Box<Bank>>; 4],
    /// [`crate::host::Memory::id`] of the memory that entries point into.
    pub(crate) memory: u64,
}

#[derive(Debug)]
struct Bank {
    read: Table<HostPage>,
    write: Table<HostPage>,
    execute: Table<u64>,
}

/// One direct-mapped array.
#[derive(Debug)]
struct Table<P> {
    entries: [Entry<P>; ENTRIES],
    /// A bit for each entry filled since the last flush, so that a flush costs what was used.
    used: [u64; ENTRIES / 64],
    /// Which entries are of global pages: here and not in the tag, so that a hit is a plain comparison.
    global: [u64; ENTRIES / 64],
    /// Which entries are pieces of pages larger than 4 KiB.
    large: [u64; ENTRIES / 64],
}

#[derive(Clone, Copy, Debug)]
struct Entry<P> {
    /// The linear page's address, or [`NO_PAGE`].
    tag: u64,
    page: P,
}

impl Tlb {
    /// Reads through the TLB; `None` when there is no entry or the value crosses a page.
    #[inline(always)]
    pub(crate) fn read<T: Width>(&self, linear: u64) -> Option<T> {
        self.active.read.get(linear)?.read((linear & OFFSET) as usize)
    }

    /// Writes through the TLB; false when there is no entry or the value crosses a page.
    #[inline(always)]
    pub(crate) fn write<T: Width>(&self, linear: u64, value: T) -> bool {
        self.active.write.get(linear).is_some_and(|page| page.write((linear & OFFSET) as usize, value))
    }

    /// The page at `linear` for reading.
    #[inline(always)]
    pub(crate) fn readable(&self, linear: u64) -> Option<HostPage> {
        self.active.read.get(linear)
    }

    /// The page at `linear` for writing.
    #[inline(always)]
    pub(crate) fn writable(&self, linear: u64) -> Option<HostPage> {
        self.active.write.get(linear)
    }

    /// The physical address of the instruction at `linear`.
    #[inline(always)]
    pub(crate) fn executable(&self, linear: u64) -> Option<u64> {
        Some(self.active.execute.get(linear)? | linear & OFFSET)
    }

    /// Whose permissions are being checked.
    pub(crate) fn context(&self) -> Context {
        self.context
    }

    /// Switches to `context`'s permissions.
    #[inline]
    pub(crate) fn set_context(&mut self, context: Context) {
        if context != self.context {
            let bank = self.parked[context as usize].take().unwrap_or_default();
            self.parked[self.context as usize] = Some(std::mem::replace(&mut self.active, bank));
            self.context = context;
        }
    }

    /// Lets the active context read `linear`'s page from `page`.
    pub(crate) fn allow_read(&mut self, linear: u64, page: HostPage, scope: Scope) {
        if self.context != Context::UserAligned {
            self.active.read.set(linear, page, scope);
        }
    }

    /// Lets the active context write `linear`'s page at `page`.
    pub(crate) fn allow_write(&mut self, linear: u64, page: HostPage, scope: Scope) {
        if self.context != Context::UserAligned {
            self.active.write.set(linear, page, scope);
        }
    }

    /// Lets the active context execute from `linear`'s page, which lies at `physical`.
    pub(crate) fn allow_execute(&mut self, linear: u64, physical: u64, scope: Scope) {
        self.active.execute.set(linear, physical & !OFFSET, scope);
    }

    fn banks(&mut self) -> impl Iterator<Item = &mut Bank> {
        std::iter::once(&mut *self.active).chain(self.parked.iter_mut().flatten().map(|bank| &mut **bank))
    }

    /// Forgets everything.
    pub(crate) fn flush(&mut self) {
        for bank in self.banks() {
            bank.read.flush();
            bank.write.flush();
            bank.execute.flush();
        }
    }

    /// Forgets all but global pages.
    pub(crate) fn flush_local(&mut self) {
        for bank in self.banks() {
            bank.read.flush_local();
            bank.write.flush_local();
            bank.execute.flush_local();
        }
    }

    /// Forgets `linear`'s page.
    pub(crate) fn flush_page(&mut self, linear: u64) {
        for bank in self.banks() {
            bank.read.remove(linear);
            bank.write.remove(linear);
            bank.execute.remove(linear);
        }
    }

    /// Takes away direct writes to `page`, wherever it is mapped.
    pub(crate) fn forbid_writes(&mut self, page: HostPage) {
        for bank in self.banks() {
            bank.write.remove_target(page);
        }
    }

    /// Takes away all direct writes: somebody cleared page flags that writers have to set.
    pub(crate) fn forbid_all_writes(&mut self) {
        for bank in self.banks() {
            bank.write.flush();
        }
    }
}

impl Default for Tlb {
    fn default() -> Self {
        Tlb { active: Box::default(), context: Context::default(), parked: [const { None }; 4], memory: 0 }
    }
}

/// A copy of a CPU starts with nothing cached.
impl Clone for Tlb {
    fn clone(&self) -> Self {
        Tlb::default()
    }
}

impl Default for Bank {
    fn default() -> Self {
        Bank {
            read: Table::new(HostPage::NOWHERE),
            write: Table::new(HostPage::NOWHERE),
            execute: Table::new(0),
        }
    }
}

impl<P: Copy + PartialEq> Table<P> {
    fn new(page: P) -> Self {
        Table {
            entries: [Entry { tag: NO_PAGE, page }; ENTRIES],
            used: [0; ENTRIES / 64],
            global: [0; ENTRIES / 64],
            large: [0; ENTRIES / 64],
        }
    }

    #[inline(always)]
    fn index(linear: u64) -> usize {
        (linear >> 12) as usize % ENTRIES
    }

    #[inline(always)]
    fn get(&self, linear: u64) -> Option<P> {
        let entry = &self.entries[Self::index(linear)];
        (entry.tag == linear & !OFFSET).then_some(entry.page)
    }

    fn set(&mut self, linear: u64, page: P, scope: Scope) {
        let index = Self::index(linear);
        self.entries[index] = Entry { tag: linear & !OFFSET, page };
        let (word, bit) = (index / 64, 1 << (index % 64));
        self.used[word] |= bit;
        let assign = |word: &mut u64, value| *word = if value { *word | bit } else { *word & !bit };
        assign(&mut self.global[word], scope.global);
        assign(&mut self.large[word], scope.large);
    }

    fn remove(&mut self, linear: u64) {
        let entry = &mut self.entries[Self::index(linear)];
        if entry.tag == linear & !OFFSET {
            entry.tag = NO_PAGE;
        }
        // `linear` may lie anywhere in a large page, all of whose pieces have to go. Its size is not kept:
        // those of the largest are dropped.
        for_each_bit(&self.large, |index| {
            let entry = &mut self.entries[index];
            if (entry.tag ^ linear) >> 30 == 0 {
                entry.tag = NO_PAGE;
            }
        });
    }

    fn remove_target(&mut self, page: P) {
        for_each_bit(&self.used, |index| {
            let entry = &mut self.entries[index];
            if entry.page == page {
                entry.tag = NO_PAGE;
            }
        });
    }

    fn flush(&mut self) {
        for_each_bit(&self.used, |index| self.entries[index].tag = NO_PAGE);
        self.used = [0; ENTRIES / 64];
        self.large = [0; ENTRIES / 64];
    }

    fn flush_local(&mut self) {
        let mut local = self.used;
        for (local, global) in local.iter_mut().zip(&self.global) {
            *local &= !global;
        }
        for_each_bit(&local, |index| self.entries[index].tag = NO_PAGE);
        for (index, global) in self.global.iter().enumerate() {
            self.used[index] &= global;
            self.large[index] &= global;
        }
    }
}

fn for_each_bit(words: &[u64], mut visit: impl FnMut(usize)) {
    for (position, &word) in words.iter().enumerate() {
        let mut rest = word;
        while rest != 0 {
            visit(position * 64 + rest.trailing_zeros() as usize);
            rest &= rest - 1;
        }
    }
}

/// Entries of each array.
const ENTRIES: usize = 1024;
/// Offset within a page.
const OFFSET: u64 = 0xfff;
/// A tag that no page has.
const NO_PAGE: u64 = u64::MAX;
