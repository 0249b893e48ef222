//! Guest memory that is shared by a list of its pages.

use serde::{Deserialize, Serialize};

use crate::{Dma, DmaError};

/// A guest physical address descriptor list: memory that the guest shares under a handle, contiguous to both sides
/// but scattered over pages (Linux include/linux/hyperv.h, struct vmbus_channel_gpadl_header).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpadl {
    /// The guest's name for it.
    pub handle: u32,
    /// Its parts, in order.
    pub ranges: Vec<GpaRange>,
}

/// A part of it (struct gpa_range).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpaRange {
    /// Bytes from the start of the first page.
    pub byte_offset: u32,
    /// Length in bytes.
    pub byte_count: u32,
    /// Page frame numbers, 4096 bytes each.
    pub pages: Vec<u64>,
}

impl Gpadl {
    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        self.ranges.iter().map(|range| u64::from(range.byte_count)).sum()
    }

    /// Fills `data` from `offset` bytes into the shared memory.
    ///
    /// # Errors
    /// When that is not all inside, or a page is not RAM; `data` is then unspecified.
    pub fn read(&self, dma: &Dma<'_>, offset: u64, data: &mut [u8]) -> Result<(), DmaError> {
        let mut rest = data;
        for (address, length) in self.pieces(offset, rest.len())? {
            let (piece, tail) = std::mem::take(&mut rest).split_at_mut(length);
            dma.read(address, piece)?;
            rest = tail;
        }
        Ok(())
    }

    /// Copies `data` to `offset` bytes into the shared memory.
    ///
    /// # Errors
    /// When that is not all inside, or a page is not RAM; part may then have been written.
    pub fn write(&self, dma: &Dma<'_>, offset: u64, data: &[u8]) -> Result<(), DmaError> {
        let mut rest = data;
        for (address, length) in self.pieces(offset, rest.len())? {
            let (piece, tail) = rest.split_at(length);
            dma.write(address, piece)?;
            rest = tail;
        }
        Ok(())
    }

    /// The guest-physical address of the byte at `offset`, and how many more lie behind it in the same page; for a
    /// word that both sides use at once.
    pub fn address(&self, offset: u64) -> Option<(u64, usize)> {
        let mut before = 0;
        for range in &self.ranges {
            let inside = offset.checked_sub(before)?;
            if inside < u64::from(range.byte_count) {
                let place = inside + u64::from(range.byte_offset);
                let page = range.pages.get(usize::try_from(place / PAGE).ok()?)?;
                let room = (PAGE - place % PAGE).min(u64::from(range.byte_count) - inside);
                let address = page.checked_mul(PAGE)?.checked_add(place % PAGE)?;
                return Some((address, room as usize));
            }
            before += u64::from(range.byte_count);
        }
        None
    }

    /// Cuts `length` bytes at `offset` at the borders of pages.
    fn pieces(&self, offset: u64, length: usize) -> Result<Vec<(u64, usize)>, DmaError> {
        let outside = DmaError::NotMemory { address: offset, length };
        let (mut offset, mut left, mut pieces) = (offset, length, Vec::new());
        while left > 0 {
            let (address, room) = self.address(offset).ok_or(outside)?;
            let taken = room.min(left);
            pieces.push((address, taken));
            offset += taken as u64;
            left -= taken;
        }
        Ok(pieces)
    }
}

const PAGE: u64 = 0x1000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::Bench;

    /// Up to three ranges over pages of a small memory, no page twice.
    fn gpadls() -> impl Strategy<Value = Gpadl> {
        let pages = Just((0_u64..16).collect::<Vec<_>>()).prop_shuffle();
        let shape = prop::collection::vec((0_u32..4096, 1_u32..9000), 1..4);
        (pages, shape).prop_map(|(mut pages, shape)| {
            let ranges = shape.into_iter().map(|(byte_offset, byte_count)| {
                let count = u64::from(byte_offset + byte_count).div_ceil(PAGE) as usize;
                GpaRange { byte_offset, byte_count, pages: pages.split_off(pages.len() - count) }
            });
            Gpadl { handle: 7, ranges: ranges.collect() }
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_wherever_the_pages_lie(
            gpadl in gpadls(), start in 0.0..1.0, end in 0.0..1.0,
        ) {
            let length = gpadl.length() as f64;
            let (start, end) = ((start * length) as u64, (end * length) as u64);
            let (start, end) = (start.min(end), start.max(end));
            let mut bench = Bench::default();
            bench.call(|context| {
                let data: Vec<u8> = (start..end).map(|place| (place * 7 + 1) as u8).collect();
                gpadl.write(&context.dma, start, &data).unwrap();
                // Byte by byte, as a naive reader would.
                for (place, expected) in (start..end).zip(&data) {
                    let mut byte = [0];
                    context.dma.read(gpadl.address(place).unwrap().0, &mut byte).unwrap();
                    assert_eq!(byte[0], *expected);
                }
                let mut back = vec![0; data.len()];
                gpadl.read(&context.dma, start, &mut back).unwrap();
                assert_eq!(back, data);
            });
        }

        #[test]
        fn nothing_beyond_the_end_is_reached(gpadl in gpadls(), beyond in 1_u64..10_000) {
            let mut bench = Bench::default();
            bench.call(|context| {
                let end = gpadl.length();
                assert!(gpadl.read(&context.dma, end - 1, &mut [0; 2]).is_err());
                assert!(gpadl.write(&context.dma, end + beyond, &[1]).is_err());
                assert_eq!(gpadl.address(u64::MAX), None);
            });
        }
    }

    #[test]
    fn a_list_with_too_few_pages_or_absurd_ones_is_an_error_where_it_matters() {
        let mut bench = Bench::default();
        let range = GpaRange { byte_offset: 0, byte_count: 0x3000, pages: vec![1, u64::MAX] };
        let gpadl = Gpadl { handle: 1, ranges: vec![range] };
        bench.call(|context| {
            assert!(gpadl.read(&context.dma, 0, &mut [0; 16]).is_ok());
            assert!(gpadl.read(&context.dma, 0x1000, &mut [0; 16]).is_err());
            assert!(gpadl.read(&context.dma, 0x2000, &mut [0; 16]).is_err());
        });
    }
}
