//! Where the buffers of a queue are: anywhere in memory, or only in pages that the driver has registered.
//!
//! With raw addressing (RDA) a descriptor has the address of its buffer. With a queue page list (QPL) the driver
//! first registers pages and copies packets through them: DQO descriptors still have addresses, which must lie
//! in these pages; GQI descriptors have offsets into the list, as if its pages were one behind the other.

use nicvisor_core::{Dma, DmaError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The pages of a list, in its order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageList {
    pages: Vec<u64>,
    sorted: Vec<u64>,
}

/// What the addresses in a queue's descriptors are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Buffers {
    /// Addresses.
    Raw,
    /// Addresses within the pages of a list.
    Registered(PageList),
    /// Offsets into a list.
    Offsets(PageList),
}

/// Why a buffer cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum BufferError {
    #[error(transparent)]
    Dma(#[from] DmaError),
    #[error("{length} bytes at {address:#x}, which is not all in the queue's page list")]
    NotRegistered { address: u64, length: usize },
}

impl PageList {
    pub(crate) fn new(pages: Vec<u64>) -> PageList {
        let mut sorted = pages.clone();
        sorted.sort_unstable();
        PageList { pages, sorted }
    }

    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether all of these addresses are in pages of the list.
    fn contains(&self, address: u64, length: usize) -> bool {
        let Some(last) = address.checked_add((length as u64).saturating_sub(1)) else { return false };
        let pages = (address / PAGE)..=(last / PAGE);
        let count = pages.end() - pages.start() + 1;
        count <= self.sorted.len() as u64
            && pages.into_iter().all(|page| self.sorted.binary_search(&(page * PAGE)).is_ok())
    }

    /// Address and length of each part of the `length` bytes at `offset`; `None` beyond the end.
    fn parts(&self, offset: u64, length: usize) -> Option<Vec<(u64, usize)>> {
        let end = offset.checked_add(length as u64)?;
        if end > self.pages.len() as u64 * PAGE {
            return None;
        }
        let mut parts = Vec::new();
        let mut at = offset;
        while at < end {
            let within = at % PAGE;
            let part = (PAGE - within).min(end - at);
            parts.push((self.pages.get((at / PAGE) as usize)? + within, part as usize));
            at += part;
        }
        Some(parts)
    }
}

impl Buffers {
    /// Fills `data` from the buffer at `address`.
    pub(crate) fn read(&self, dma: &Dma<'_>, address: u64, data: &mut [u8]) -> Result<(), BufferError> {
        let mut rest = data;
        for (address, length) in self.parts(address, rest.len())? {
            let (part, behind) = rest.split_at_mut(length);
            dma.read(address, part)?;
            rest = behind;
        }
        Ok(())
    }

    /// Copies `data` to the buffer at `address`.
    pub(crate) fn write(&self, dma: &Dma<'_>, address: u64, data: &[u8]) -> Result<(), BufferError> {
        let mut rest = data;
        for (address, length) in self.parts(address, rest.len())? {
            let (part, behind) = rest.split_at(length);
            dma.write(address, part)?;
            rest = behind;
        }
        Ok(())
    }

    /// Whether a buffer of `length` bytes at `address` can be reached.
    pub(crate) fn hold(&self, dma: &Dma<'_>, address: u64, length: usize) -> bool {
        let parts = self.parts(address, length);
        parts.is_ok_and(|parts| parts.iter().all(|(address, length)| dma.is_memory(*address, *length)))
    }

    fn parts(&self, address: u64, length: usize) -> Result<Vec<(u64, usize)>, BufferError> {
        let whole = || Some(vec![(address, length)]);
        let parts = match self {
            Buffers::Raw => whole(),
            Buffers::Registered(list) => list.contains(address, length).then(whole).flatten(),
            Buffers::Offsets(list) => list.parts(address, length),
        };
        parts.ok_or(BufferError::NotRegistered { address, length })
    }
}

/// Bytes of a registered page.
pub(crate) const PAGE: u64 = 4096;

#[cfg(test)]
mod tests {
    use nicvisor_core::testing::Bench;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_outside_the_list_are_refused() {
        let bench = Bench::default();
        let list = PageList::new(vec![0x5000, 0x2000, 0x3000]);
        let registered = Buffers::Registered(list.clone());
        assert!(registered.hold(&bench.dma(), 0x2000, 0x2000));
        assert!(!registered.hold(&bench.dma(), 0x3001, 0x1000));
        assert!(!registered.hold(&bench.dma(), u64::MAX, 2));
        let offsets = Buffers::Offsets(list);
        assert!(offsets.hold(&bench.dma(), 0x2fff, 1));
        assert!(!offsets.hold(&bench.dma(), 0x2fff, 2));
        let error = offsets.write(&bench.dma(), u64::MAX, &[1]).unwrap_err();
        assert_eq!(error, BufferError::NotRegistered { address: u64::MAX, length: 1 });
    }

    proptest! {
        /// Byte by byte.
        #[test]
        fn offsets_go_through_the_pages_in_their_order(
            pages in Just((1..9_u64).map(|page| page * PAGE).collect::<Vec<_>>()).prop_shuffle(),
            offset in 0..8 * PAGE, length in 0..10_000_usize,
        ) {
            let bench = Bench::default();
            let data: Vec<u8> = (0..length).map(|index| index as u8).collect();
            let buffers = Buffers::Offsets(PageList::new(pages.clone()));
            let fits = offset + length as u64 <= 8 * PAGE;
            prop_assert_eq!(buffers.write(&bench.dma(), offset, &data).is_ok(), fits);
            for (at, byte) in data.iter().enumerate().filter(|_| fits) {
                let at = offset + at as u64;
                let address = pages[(at / PAGE) as usize] + at % PAGE;
                prop_assert_eq!(bench.dma().read_object::<u8>(address), Ok(*byte));
            }
            let mut back = vec![0; length];
            prop_assert_eq!(buffers.read(&bench.dma(), offset, &mut back).is_ok(), fits);
            prop_assert!(!fits || back == data);
        }
    }
}
