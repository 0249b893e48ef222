//! The block cache: decoded code by physical address.
//!
//! A block is a run of ops that lie one behind the other in one page, from the address it was asked for to the
//! first instruction that always leaves (a jump, a call, a system instruction). Conditional branches do not end
//! it: their handlers leave only when taken. Blocks are keyed by physical address and code width, so they
//! survive changes of the page tables and are shared by all CPUs and processes.
//!
//! All ops live in one arena, which is emptied as a whole when it is full: blocks are small and cheap to make
//! again, and an arena never fragments.
//!
//! Correctness against changing code rests on [`nicvisor_memory::CODE`]: a page that blocks come from carries
//! it, every writer reports writes to such pages, and [`Cache::forget_page`] drops its blocks before the next
//! block is looked up.
//!
//! A compiling tier fits behind [`Cache::find_fast`]: a [`Block`] that has been executed often enough gets a
//! compiled form next to its ops, is dropped with them, and has the same contract with the run loop (complete
//! ops until the limit, then say why it stopped).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::op::Op;

/// Where a block's ops are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    start: u32,
    length: u16,
    /// Its only instruction continues on the next page, which has to be the same as when it was decoded.
    pub(crate) crossing: bool,
}

/// Physical address and code width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(u64);

/// All decoded blocks of a machine.
#[derive(Debug)]
pub(crate) struct Cache {
    arena: Vec<Op>,
    /// Direct-mapped, in front of `blocks`.
    front: Box<[Front]>,
    blocks: HashMap<Key, Block, BuildHasherDefault<KeyHasher>>,
    /// What each page has to do with blocks, by its address.
    pages: HashMap<u64, CodePage, BuildHasherDefault<KeyHasher>>,
    /// For blocks that continue on another page: its physical address.
    crossings: HashMap<Key, u64, BuildHasherDefault<KeyHasher>>,
}

#[derive(Debug, Default)]
struct CodePage {
    /// All blocks with bytes in it.
    keys: Vec<Key>,
    /// A bit for each 64 bytes that blocks were decoded from.
    lines: u64,
}

#[derive(Clone, Copy, Debug)]
struct Front {
    key: Key,
    block: Block,
}

impl Key {
    #[inline(always)]
    pub(crate) fn new(physical: u64, code_bits: u8) -> Key {
        // 16, 32 and 64 differ in bits 4 to 6.
        Key(physical | u64::from(code_bits) << 56)
    }

    /// The address of the block.
    pub(crate) fn physical(self) -> u64 {
        self.0 & (PAGE | 0xfff)
    }
}

impl Cache {
    pub(crate) fn new() -> Cache {
        Cache {
            arena: Vec::new(),
            front: vec![Front { key: NO_KEY, block: NO_BLOCK }; FRONT_ENTRIES].into(),
            blocks: HashMap::default(),
            pages: HashMap::default(),
            crossings: HashMap::default(),
        }
    }

    /// The block at `key`, if the first look finds it and nothing has to be checked before executing it.
    #[inline(always)]
    pub(crate) fn find_fast(&self, key: Key) -> Option<Block> {
        let front = &self.front[front_index(key)];
        (front.key == key).then_some(front.block)
    }

    /// The block at `key`, if it has been decoded.
    pub(crate) fn find(&mut self, key: Key) -> Option<Block> {
        let block = *self.blocks.get(&key)?;
        if !block.crossing {
            self.front[front_index(key)] = Front { key, block };
        }
        Some(block)
    }

    /// The ops of `block`.
    #[inline(always)]
    pub(crate) fn ops(&self, block: Block) -> &[Op] {
        let start = block.start as usize;
        &self.arena[start..start + block.length as usize]
    }

    /// The physical page on which a crossing block continued when it was decoded.
    pub(crate) fn crosses_to(&self, key: Key) -> Option<u64> {
        self.crossings.get(&key).copied()
    }

    /// Whether `ops` more ops would fill the arena: then it is time for [`Self::clear`].
    pub(crate) fn is_full(&self, ops: usize) -> bool {
        self.arena.len() + ops > ARENA_OPS
    }

    /// Adds a block. `next_page` is the physical page on which its only instruction continues.
    pub(crate) fn insert(&mut self, key: Key, ops: &[Op], next_page: Option<u64>) -> Block {
        let block =
            Block { start: self.arena.len() as u32, length: ops.len() as u16, crossing: next_page.is_some() };
        self.arena.extend_from_slice(ops);
        self.blocks.insert(key, block);
        if !block.crossing {
            self.front[front_index(key)] = Front { key, block };
        }
        let bytes = ops.iter().map(|op| usize::from(op.length)).sum();
        self.note_code(key.physical(), bytes, key);
        if let Some(page) = next_page {
            self.crossings.insert(key, page);
            self.note_code(page & PAGE, bytes, key);
        }
        block
    }

    fn note_code(&mut self, physical: u64, bytes: usize, key: Key) {
        let page = self.pages.entry(physical & PAGE).or_default();
        page.keys.push(key);
        page.lines |= lines(physical, bytes);
    }

    /// Whether blocks may have been decoded from the `bytes` bytes at `physical`, which lie in one page.
    pub(crate) fn has_code_at(&self, physical: u64, bytes: usize) -> bool {
        self.pages.get(&(physical & PAGE)).is_some_and(|page| page.lines & lines(physical, bytes) != 0)
    }

    /// Drops all blocks with bytes in the page at `physical`.
    pub(crate) fn forget_page(&mut self, physical: u64) {
        for key in self.pages.remove(&(physical & PAGE)).unwrap_or_default().keys {
            self.blocks.remove(&key);
            self.crossings.remove(&key);
            let front = &mut self.front[front_index(key)];
            if front.key == key {
                front.key = NO_KEY;
            }
        }
    }

    /// Drops everything, at a cost that follows from how much there is. Returns the physical pages that blocks
    /// came from.
    pub(crate) fn forget_all(&mut self) -> Vec<u64> {
        let pages: Vec<u64> = self.pages.keys().copied().collect();
        pages.iter().for_each(|page| self.forget_page(*page));
        self.arena.clear();
        pages
    }

    /// Drops everything, at the cost of a large table. Returns the physical pages that blocks came from.
    pub(crate) fn clear(&mut self) -> Vec<u64> {
        self.arena.clear();
        self.front.fill(Front { key: NO_KEY, block: NO_BLOCK });
        self.blocks.clear();
        self.crossings.clear();
        self.pages.drain().map(|(page, _)| page).collect()
    }
}

/// The lines of a page that the `bytes` bytes from `physical` to the page's end at most touch.
fn lines(physical: u64, bytes: usize) -> u64 {
    let first = (physical & 0xfff) as usize;
    let last = (first + bytes.max(1) - 1).min(0xfff);
    (u64::MAX >> (63 - last / 64)) & (u64::MAX << (first / 64))
}

#[inline(always)]
fn front_index(key: Key) -> usize {
    // The same offsets of different pages must spread.
    (key.0 ^ key.0 >> 9) as usize % FRONT_ENTRIES
}

/// Keys are addresses: a multiplication spreads them well enough, and guests gain nothing by collisions that
/// they could not have by spinning.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}

/// Ops in a block.
pub(crate) const MAX_BLOCK_OPS: usize = 48;
const FRONT_ENTRIES: usize = 1 << 15;
/// 64 MiB.
const ARENA_OPS: usize = (64 << 20) / size_of::<Op>();
const PAGE: u64 = 0x000f_ffff_ffff_f000;
const NO_KEY: Key = Key(u64::MAX);
const NO_BLOCK: Block = Block { start: 0, length: 0, crossing: false };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode;

    #[test]
    fn lines_cover_what_bytes_touch() {
        assert_eq!(lines(0x1000, 1), 1);
        assert_eq!(lines(0x103f, 2), 3);
        assert_eq!(lines(0x1fff, 100), 1 << 63);
        assert_eq!(lines(0x1000, 4096), u64::MAX);
    }

    #[test]
    fn a_page_is_forgotten_with_all_its_blocks() {
        let mut cache = Cache::new();
        let (nop, _) = decode(&[0x90], 0, 64).unwrap();
        let (here, crossing, elsewhere) = (Key::new(0x1040, 64), Key::new(0x0fff, 64), Key::new(0x3040, 64));
        cache.insert(here, &[nop], None);
        cache.insert(crossing, &[nop], Some(0x1000));
        cache.insert(elsewhere, &[nop], None);
        assert!(cache.has_code_at(0x1000, 0x41) && !cache.has_code_at(0x1080, 0x100));
        assert_eq!(cache.crosses_to(crossing), Some(0x1000));
        cache.forget_page(0x1abc);
        assert_eq!((cache.find(here), cache.find_fast(here), cache.find(crossing)), (None, None, None));
        assert!(cache.find(elsewhere).is_some());
        let mut pages = cache.forget_all();
        pages.sort_unstable();
        // The first page's only block went with the page that it crossed to.
        assert_eq!(pages, [0, 0x3000]);
        assert_eq!((cache.find(elsewhere), cache.find_fast(elsewhere)), (None, None));
        let again = cache.insert(here, &[nop], None);
        assert_eq!(cache.ops(again).len(), 1);
    }
}
