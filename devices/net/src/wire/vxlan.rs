//! VXLAN.

use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Between UDP and the inner Ethernet frame. Layout: RFC 7348, 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct VxlanHeader {
    /// Flags: 0x08 says that the network identifier counts.
    pub flags: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// Network identifier (24 bits), reserved (8).
    pub vni_reserved: U32,
}

impl VxlanHeader {
    /// Length in bytes.
    pub const LEN: usize = size_of::<VxlanHeader>();

    /// Whether the flag that every VXLAN packet must set is set.
    pub fn is_valid(&self) -> bool {
        self.flags & 0x08 != 0
    }
}

const _: () = assert!(VxlanHeader::LEN == 8);
