//! Address resolution.

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An ARP packet for Ethernet and IPv4. Layout: RFC 826.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ArpHeader {
    /// Hardware type: 1 for Ethernet.
    pub hardware_type: U16,
    /// Protocol type: 0x0800 for IPv4.
    pub protocol_type: U16,
    /// Length of a hardware address: 6.
    pub hardware_len: u8,
    /// Length of a protocol address: 4.
    pub protocol_len: u8,
    /// 1 for a request, 2 for a reply.
    pub operation: U16,
    /// The sender's MAC address.
    pub sender_mac: [u8; 6],
    /// The sender's IPv4 address.
    pub sender_ip: [u8; 4],
    /// The target's MAC address, zero in a request.
    pub target_mac: [u8; 6],
    /// The target's IPv4 address.
    pub target_ip: [u8; 4],
}

const _: () = assert!(size_of::<ArpHeader>() == 28);
