//! UDP.

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The UDP header. Layout: RFC 768.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct UdpHeader {
    /// Source port.
    pub source: U16,
    /// Destination port.
    pub destination: U16,
    /// Length of header and payload; 0 in a packet longer than the field can say (RFC 2675, 4).
    pub length: U16,
    /// Internet checksum over pseudo header, header and payload; 0 for none.
    pub checksum: U16,
}

impl UdpHeader {
    /// Length in bytes.
    pub const LEN: usize = size_of::<UdpHeader>();
    /// Offset of [`Self::checksum`] in the header.
    pub const CHECKSUM: usize = 6;
    /// Port of VXLAN (RFC 7348, 5).
    pub const VXLAN_PORT: u16 = 4789;
    /// Port of Geneve (RFC 8926, 3.3).
    pub const GENEVE_PORT: u16 = 6081;
}

const _: () =
    assert!(UdpHeader::LEN == 8 && std::mem::offset_of!(UdpHeader, checksum) == UdpHeader::CHECKSUM);
