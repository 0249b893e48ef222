//! Ethernet II and its VLAN tags.

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The header of a frame. Layout: IEEE 802.3-2022, 3.1.1 and 3.2.6 (type interpretation).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EthernetHeader {
    /// Destination MAC address.
    pub destination: [u8; 6],
    /// Source MAC address.
    pub source: [u8; 6],
    /// What follows: one of [`ethertype`], or below 0x600 a length (IEEE 802.2 frames).
    pub ethertype: U16,
}

impl EthernetHeader {
    /// Length in bytes.
    pub const LEN: usize = size_of::<EthernetHeader>();
}

/// What follows the type field that announces a VLAN tag. Layout: IEEE 802.1Q-2022, 9.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct VlanTag {
    /// Priority (3 bits), drop eligible (1), VLAN id (12).
    pub control: U16,
    /// What follows the tag.
    pub ethertype: U16,
}

impl VlanTag {
    /// Length in bytes.
    pub const LEN: usize = size_of::<VlanTag>();
}

/// A MAC address as people write it: six pairs of hexadecimal digits with colons between.
pub fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

/// Ethernet type numbers (IANA "IEEE 802 Numbers").
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// Ethernet inside GRE or Geneve (transparent Ethernet bridging).
    pub const ETHERNET: u16 = 0x6558;
    /// Customer VLAN tag.
    pub const VLAN: u16 = 0x8100;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// Service VLAN tag (802.1ad).
    pub const SERVICE_VLAN: u16 = 0x88a8;
    /// Types below this one are lengths.
    pub const FIRST: u16 = 0x0600;
}

const _: () = assert!(EthernetHeader::LEN == 14 && VlanTag::LEN == 4);
