//! Work queue entries (Linux `include/net/mana/gdma.h`: `struct gdma_wqe`, `struct gdma_sge`). A header of 8
//! bytes, inline out-of-band data of 8 or 24 bytes, then the scatter-gather list; padded to a multiple of the
//! basic unit. All fields are little-endian.

use std::fmt;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `struct gdma_wqe`: how an entry starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WqeHeader {
    /// Bytes of the first scatter-gather element, where it holds the headers (8 bits).
    pub last_vbytes: u8,
    /// Elements of the scatter-gather list.
    pub num_sge: u8,
    /// Bytes of inline out-of-band data, a multiple of 4 up to 28.
    pub inline_oob_size: u8,
    /// The first scatter-gather element holds the headers of a packet to be segmented (`GDMA_WR_OOB_IN_SGL`).
    pub client_oob_in_sgl: bool,
    /// Payload bytes of each segment, 14 bits; 0 if the packet is not to be segmented.
    pub client_data_unit: u16,
    /// Whether any reserved bit is set.
    pub reserved: bool,
}

/// The fields as evidence, by their names in the driver.
impl fmt::Display for WqeHeader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WqeHeader { last_vbytes, num_sge, inline_oob_size, client_data_unit, .. } = self;
        write!(
            out,
            "gdma_wqe: num_sge {num_sge}, inline_oob_size {inline_oob_size}, client_oob_in_sgl {}, \
             client_data_unit {client_data_unit}, last_vbytes {last_vbytes}",
            u8::from(self.client_oob_in_sgl)
        )
    }
}

impl WqeHeader {
    /// Reads a header.
    pub fn decode(raw: &[u8; HEADER_SIZE]) -> WqeHeader {
        let [a, b, c, d, rest @ ..] = *raw;
        let (first, flags) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(rest));
        WqeHeader {
            last_vbytes: (first >> 24) as u8,
            num_sge: flags as u8,
            inline_oob_size: (flags >> 8 & 7) as u8 * 4,
            client_oob_in_sgl: flags & 1 << 11 != 0,
            client_data_unit: (flags >> 16) as u16 & MAX_DATA_UNIT,
            reserved: first & 0x00ff_ffff != 0 || flags & RESERVED_FLAGS != 0,
        }
    }

    /// The header as it stands in the queue, reserved bits clear.
    pub fn encode(&self) -> [u8; HEADER_SIZE] {
        let flags = u32::from(self.num_sge)
            | ((u32::from(self.inline_oob_size) / 4) & 7) << 8
            | u32::from(self.client_oob_in_sgl) << 11
            | u32::from(self.client_data_unit & MAX_DATA_UNIT) << 16;
        let mut raw = [0; HEADER_SIZE];
        raw[3] = self.last_vbytes;
        raw[4..].copy_from_slice(&flags.to_le_bytes());
        raw
    }

    /// Bytes before the scatter-gather list.
    pub fn sgl_offset(&self) -> usize {
        HEADER_SIZE + usize::from(self.inline_oob_size)
    }

    /// Bytes of the whole entry, padding included.
    pub fn size(&self) -> usize {
        (self.sgl_offset() + usize::from(self.num_sge) * SGE_SIZE).next_multiple_of(BASIC_UNIT)
    }
}

/// `struct gdma_sge`: a piece of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct RawSge {
    /// Guest address.
    pub address: U64,
    /// Memory key: which registration the address belongs to.
    pub mem_key: U32,
    /// Bytes.
    pub size: U32,
}
const _: () = assert!(size_of::<RawSge>() == SGE_SIZE);

/// Bytes of a header.
pub const HEADER_SIZE: usize = 8;
/// Bytes of a scatter-gather element.
pub const SGE_SIZE: usize = 16;
/// `GDMA_WQE_BU_SIZE`: entries are multiples of this many bytes.
pub const BASIC_UNIT: usize = 32;
/// `GDMA_MAX_SQE_SIZE`: most bytes of a send queue's entry.
pub const MAX_SQE_SIZE: usize = 512;
/// `GDMA_MAX_RQE_SIZE`: most bytes of a receive queue's entry.
pub const MAX_RQE_SIZE: usize = 256;
/// `INLINE_OOB_SMALL_SIZE`.
pub const INLINE_OOB_SMALL_SIZE: u8 = 8;
/// `INLINE_OOB_LARGE_SIZE`.
pub const INLINE_OOB_LARGE_SIZE: u8 = 24;
/// `MAX_TX_WQE_SGL_ENTRIES`: most elements of a send queue's entry with small out-of-band data.
pub const MAX_TX_SGL_ENTRIES: usize = (MAX_SQE_SIZE - SGE_SIZE - INLINE_OOB_SMALL_SIZE as usize) / SGE_SIZE;
/// `MAX_RX_WQE_SGL_ENTRIES`: most elements of a receive queue's entry.
pub const MAX_RX_SGL_ENTRIES: usize = (MAX_RQE_SIZE - SGE_SIZE) / SGE_SIZE;

const MAX_DATA_UNIT: u16 = (1 << 14) - 1;
/// `reserved1` and `reserved2`.
const RESERVED_FLAGS: u32 = 0xf << 12 | 3 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn evidence_has_the_names_of_the_driver() {
        let header =
            WqeHeader { num_sge: 2, inline_oob_size: 8, client_data_unit: 1428, ..Default::default() };
        assert_eq!(
            header.to_string(),
            "gdma_wqe: num_sge 2, inline_oob_size 8, client_oob_in_sgl 0, client_data_unit 1428, last_vbytes 0"
        );
    }

    #[test]
    fn the_bytes_are_those_of_the_header() {
        let header = WqeHeader {
            last_vbytes: 66,
            num_sge: 17,
            inline_oob_size: INLINE_OOB_LARGE_SIZE,
            client_oob_in_sgl: true,
            client_data_unit: 1448,
            reserved: false,
        };
        assert_eq!(header.encode(), [0, 0, 0, 66, 17, 0x0e, 0xa8, 0x05]);
        assert_eq!(header.size(), 320);
        assert_eq!((MAX_TX_SGL_ENTRIES, MAX_RX_SGL_ENTRIES), (30, 15));
        let sge = RawSge { address: 0x1_0000.into(), mem_key: 7.into(), size: 99.into() };
        assert_eq!(sge.as_bytes(), [0, 0, 1, 0, 0, 0, 0, 0, 7, 0, 0, 0, 99, 0, 0, 0]);
    }

    #[test]
    fn the_smallest_entry_is_one_basic_unit() {
        let header = WqeHeader { num_sge: 1, inline_oob_size: INLINE_OOB_SMALL_SIZE, ..Default::default() };
        assert_eq!(header.size(), BASIC_UNIT);
    }

    #[test]
    fn any_reserved_bit_is_seen() {
        for bit in (0..24).chain(44..48).chain(62..64) {
            assert!(WqeHeader::decode(&(1_u64 << bit).to_le_bytes()).reserved, "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn headers_survive_the_queue(
            last_vbytes: u8, num_sge: u8, words in 0..8_u8, client_oob_in_sgl: bool,
            client_data_unit in 0..=MAX_DATA_UNIT,
        ) {
            let inline_oob_size = words * 4;
            let header = WqeHeader {
                last_vbytes, num_sge, inline_oob_size, client_oob_in_sgl, client_data_unit, reserved: false,
            };
            prop_assert_eq!(WqeHeader::decode(&header.encode()), header);
        }
    }
}
