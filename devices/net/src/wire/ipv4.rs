//! IPv4.

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The fixed part of an IPv4 header; options follow up to [`Self::header_len`]. Layout: RFC 791, 3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv4Header {
    /// Version (4 bits) and header length in 32-bit words (4 bits).
    pub version_ihl: u8,
    /// Differentiated services code point (6 bits) and ECN (2 bits, RFC 3168).
    pub traffic_class: u8,
    /// Length of header and payload; 0 in a BIG TCP packet that is longer than the field can say.
    pub total_len: U16,
    /// Identification, for reassembly.
    pub id: U16,
    /// Flags (3 bits) and fragment offset in units of 8 bytes (13 bits).
    pub flags_fragment: U16,
    /// Time to live.
    pub ttl: u8,
    /// What the payload is: one of [`super::protocol`].
    pub protocol: u8,
    /// Internet checksum over the header.
    pub checksum: U16,
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
}

impl Ipv4Header {
    /// Length in bytes without options.
    pub const LEN: usize = size_of::<Ipv4Header>();
    /// Offset of [`Self::checksum`] in the header.
    pub const CHECKSUM: usize = 10;

    /// IP version: 4 if this is an IPv4 header at all.
    pub fn version(&self) -> u8 {
        self.version_ihl >> 4
    }

    /// Length in bytes with options, as the header says (at least 20 in a valid header).
    pub fn header_len(&self) -> usize {
        usize::from(self.version_ihl & 0xf) * 4
    }

    /// Whether more fragments follow.
    pub fn more_fragments(&self) -> bool {
        self.flags_fragment.get() & 0x2000 != 0
    }

    /// Where this fragment belongs in the payload, in bytes.
    pub fn fragment_offset(&self) -> usize {
        usize::from(self.flags_fragment.get() & 0x1fff) * 8
    }
}

const _: () =
    assert!(Ipv4Header::LEN == 20 && std::mem::offset_of!(Ipv4Header, checksum) == Ipv4Header::CHECKSUM);
