//! The memory that a queue lives in.

use nicvisor_core::{Dma, DmaError};
use serde::{Deserialize, Serialize};

/// A piece of a DMA region: guest pages in the driver's order, used as one ring of bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueMemory {
    pages: Vec<u64>,
    page_size: u32,
    /// Bytes before the ring in the first page.
    offset: u32,
    length: u32,
}

impl QueueMemory {
    /// A ring of `length` bytes that starts `offset` bytes into the first of `pages`, each of `page_size` bytes;
    /// `None` if the pages do not hold that much or the sizes make no sense.
    pub fn new(pages: Vec<u64>, page_size: u32, offset: u32, length: u32) -> Option<QueueMemory> {
        let memory = QueueMemory { pages, page_size, offset, length };
        memory.is_sound().then_some(memory)
    }

    /// Bytes of the ring.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Whether a state from outside is one that the code can go on from.
    pub(crate) fn is_sound(&self) -> bool {
        let held = self.pages.len() as u64 * u64::from(self.page_size);
        let needed = u64::from(self.offset) + u64::from(self.length);
        self.page_size.is_power_of_two()
            && self.page_size >= SMALLEST_PAGE
            && self.length != 0
            && self.offset < self.page_size
            && needed <= held
    }

    /// Fills `bytes` from the ring at `offset`, which counts on past the ring's end.
    ///
    /// # Errors
    /// When a page is not guest memory, or bus mastering is off.
    pub fn read(&self, dma: &Dma<'_>, offset: u32, bytes: &mut [u8]) -> Result<(), DmaError> {
        let mut at = offset % self.length;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (address, contiguous) = self.place(at);
            let (part, behind) = rest.split_at_mut(rest.len().min(contiguous));
            dma.read(address, part)?;
            at = (at + part.len() as u32) % self.length;
            rest = behind;
        }
        Ok(())
    }

    /// Writes `bytes` to the ring at `offset`, which counts on past the ring's end.
    ///
    /// # Errors
    /// As [`Self::read`]; part may then have been written.
    pub fn write(&self, dma: &Dma<'_>, offset: u32, bytes: &[u8]) -> Result<(), DmaError> {
        let mut at = offset % self.length;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (address, contiguous) = self.place(at);
            let (part, behind) = rest.split_at(rest.len().min(contiguous));
            dma.write(address, part)?;
            at = (at + part.len() as u32) % self.length;
            rest = behind;
        }
        Ok(())
    }

    /// Where byte `at` of the ring is in guest memory, and how many bytes follow it there up to the end of its
    /// page or of the ring.
    fn place(&self, at: u32) -> (u64, usize) {
        let in_region = u64::from(self.offset) + u64::from(at);
        let page_size = u64::from(self.page_size);
        let (page, in_page) = ((in_region / page_size) as usize, in_region % page_size);
        let address = self.pages.get(page).copied().unwrap_or(u64::MAX).saturating_add(in_page);
        (address, (page_size - in_page).min(u64::from(self.length - at)) as usize)
    }
}

/// `MANA_PAGE_SIZE`.
const SMALLEST_PAGE: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use nicvisor_core::testing::Bench;
    use proptest::prelude::*;

    #[test]
    fn pages_must_hold_the_ring() {
        let pages = || vec![0x1000, 0x5000];
        assert!(QueueMemory::new(pages(), 4096, 0, 8192).is_some());
        assert!(QueueMemory::new(pages(), 4096, 1, 8192).is_none());
        assert!(QueueMemory::new(pages(), 4096, 4095, 4097).is_some());
        assert!(QueueMemory::new(pages(), 4096, 4096, 64).is_none());
        assert!(QueueMemory::new(pages(), 4096, 0, 0).is_none());
        assert!(QueueMemory::new(pages(), 4097, 0, 64).is_none());
        assert!(QueueMemory::new(pages(), 512, 0, 64).is_none());
        assert!(QueueMemory::new(Vec::new(), 4096, 0, 64).is_none());
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let bench = Bench::with_memory(1 << 20);
        let memory = QueueMemory::new(vec![0x1000, 1 << 20], 4096, 0, 8192).unwrap();
        assert!(memory.read(&bench.dma(), 0, &mut [0; 64]).is_ok());
        assert!(memory.write(&bench.dma(), 4000, &[0; 200]).is_err());
        let memory = QueueMemory::new(vec![u64::MAX - 10], 4096, 0, 4096).unwrap();
        assert!(memory.read(&bench.dma(), 64, &mut [0; 64]).is_err());
    }

    proptest! {
        #[test]
        fn the_ring_is_its_pages_in_order(
            order in Just((1..9_u64).collect::<Vec<_>>()).prop_shuffle(), offset in 0..4096_u32,
            length in 1..28_000_u32, at: u32, count in 1..600_usize,
        ) {
            let bench = Bench::with_memory(1 << 20);
            let dma = bench.dma();
            let pages: Vec<u64> = order.iter().map(|page| page * 0x1000).collect();
            let memory = QueueMemory::new(pages.clone(), 4096, offset, length).unwrap();
            let bytes: Vec<u8> = (0..count).map(|value| (value * 7 + 1) as u8).collect();
            let count = count.min(length as usize);
            memory.write(&dma, at, &bytes[..count]).unwrap();
            let mut back = vec![0; count];
            memory.read(&dma, at, &mut back).unwrap();
            prop_assert_eq!(&back, &bytes[..count]);
            for (index, byte) in bytes[..count].iter().enumerate() {
                let place = (at % length) as usize + index;
                let region = offset as usize + place % length as usize;
                let address = pages[region / 4096] + (region % 4096) as u64;
                prop_assert_eq!(dma.read_object::<u8>(address).unwrap(), *byte);
            }
        }
    }
}
