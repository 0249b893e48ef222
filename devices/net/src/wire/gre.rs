//! GRE.

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The fixed part of a GRE header; optional fields follow up to [`Self::header_len`]. Layout: RFC 2784, 2.1 and
/// RFC 2890, 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct GreHeader {
    /// Checksum, key and sequence number present (bits 15, 13, 12), version (bits 2 to 0).
    pub flags_version: U16,
    /// Ethernet type of the inner packet.
    pub protocol: U16,
}

impl GreHeader {
    /// Length in bytes without optional fields.
    pub const LEN: usize = size_of::<GreHeader>();

    /// Whether a checksum over the GRE header and the inner packet follows the fixed part.
    pub fn has_checksum(&self) -> bool {
        self.flags_version.get() & 0x8000 != 0
    }

    /// Length in bytes with optional fields.
    pub fn header_len(&self) -> usize {
        let optional = (self.flags_version.get() & 0xb000).count_ones() as usize;
        GreHeader::LEN + optional * 4
    }

    /// Version: 0 for what RFC 2784 describes.
    pub fn version(&self) -> u16 {
        self.flags_version.get() & 7
    }
}

const _: () = assert!(GreHeader::LEN == 4);
