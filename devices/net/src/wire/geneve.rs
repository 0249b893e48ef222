//! Geneve.

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Between UDP and the inner packet; options follow up to [`Self::header_len`]. Layout: RFC 8926, 3.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct GeneveHeader {
    /// Version (2 bits) and length of the options in 32-bit words (6).
    pub version_options: u8,
    /// Control packet (1 bit), critical options (1), reserved (6).
    pub flags: u8,
    /// Ethernet type of the inner packet.
    pub protocol: U16,
    /// Network identifier (24 bits), reserved (8).
    pub vni_reserved: U32,
}

impl GeneveHeader {
    /// Length in bytes without options.
    pub const LEN: usize = size_of::<GeneveHeader>();

    /// Version: 0 for what RFC 8926 describes.
    pub fn version(&self) -> u8 {
        self.version_options >> 6
    }

    /// Length in bytes with options.
    pub fn header_len(&self) -> usize {
        GeneveHeader::LEN + usize::from(self.version_options & 0x3f) * 4
    }
}

const _: () = assert!(GeneveHeader::LEN == 8);
