//! IPv6 and its extension headers.

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The fixed IPv6 header. Layout: RFC 8200, 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv6Header {
    /// Version (4 bits), traffic class (8), flow label (20).
    pub version_class_flow: U32,
    /// Length of what follows this header; 0 with a jumbo payload option, and in a BIG TCP packet.
    pub payload_len: U16,
    /// What follows: one of [`super::protocol`].
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
}

impl Ipv6Header {
    /// Length in bytes.
    pub const LEN: usize = size_of::<Ipv6Header>();

    /// IP version: 6 if this is an IPv6 header at all.
    pub fn version(&self) -> u8 {
        (self.version_class_flow.get() >> 28) as u8
    }
}

/// How most extension headers start. Layout: RFC 8200, 4.3 to 4.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ExtensionHeader {
    /// What follows the extension header.
    pub next_header: u8,
    /// Length in units of 8 bytes, not counting the first 8 (of 4 bytes, not counting 8, in an
    /// authentication header: RFC 4302, 2.2).
    pub length: u8,
}

/// The fragment header. Layout: RFC 8200, 4.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FragmentHeader {
    /// What follows the header.
    pub next_header: u8,
    /// Zero.
    pub reserved: u8,
    /// Offset in units of 8 bytes (13 bits), reserved (2), more fragments (1).
    pub offset_more: U16,
    /// Identification.
    pub id: U32,
}

impl FragmentHeader {
    /// Length in bytes.
    pub const LEN: usize = size_of::<FragmentHeader>();

    /// Whether more fragments follow.
    pub fn more_fragments(&self) -> bool {
        self.offset_more.get() & 1 != 0
    }

    /// Where this fragment belongs in the payload, in bytes.
    pub fn fragment_offset(&self) -> usize {
        usize::from(self.offset_more.get() & 0xfff8)
    }
}

/// The jumbo payload option in a hop-by-hop header. Layout: RFC 2675, 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct JumboPayloadOption {
    /// [`option::JUMBO_PAYLOAD`].
    pub kind: u8,
    /// 4.
    pub length: u8,
    /// Length of what follows the IPv6 header, extension headers included.
    pub payload_len: U32,
}

/// Options in hop-by-hop and destination headers (IANA "Destination Options and Hop-by-Hop Options").
pub mod option {
    /// One byte of padding, without a length.
    pub const PAD1: u8 = 0;
    /// Jumbo payload.
    pub const JUMBO_PAYLOAD: u8 = 0xc2;
}

const _: () =
    assert!(Ipv6Header::LEN == 40 && FragmentHeader::LEN == 8 && size_of::<JumboPayloadOption>() == 6);
