//! ICMP for IPv4 and IPv6.

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What all messages of both versions start with. Layout: RFC 792 and RFC 4443, 2.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IcmpHeader {
    /// Message type.
    pub kind: u8,
    /// Message code.
    pub code: u8,
    /// Internet checksum over the message (and, for IPv6 only, the pseudo header).
    pub checksum: U16,
}

impl IcmpHeader {
    /// Length in bytes.
    pub const LEN: usize = size_of::<IcmpHeader>();
    /// Offset of [`Self::checksum`] in the header.
    pub const CHECKSUM: usize = 2;
}

const _: () =
    assert!(IcmpHeader::LEN == 4 && std::mem::offset_of!(IcmpHeader, checksum) == IcmpHeader::CHECKSUM);
