//! Packet types: a number in each receive completion that the driver looks up in a map, which it gets from the
//! device. The numbers are the device's own; here they are made of the two parts of the map's entries.

use crate::wire::admin::{PTYPES, PtypeEntry};

/// `enum gve_l3_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the driver's header")]
#[repr(u8)]
pub(crate) enum L3 {
    Unknown = 0,
    Ipv4 = 2,
    Ipv6 = 3,
}

/// `enum gve_l4_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the driver's header")]
#[repr(u8)]
pub(crate) enum L4 {
    Unknown = 0,
    Other = 1,
    Tcp = 2,
    Udp = 3,
    Icmp = 4,
}

/// The packet type of such packets.
pub(crate) fn number(l3: L3, l4: L4) -> u16 {
    (l3 as u16) * L4_TYPES + l4 as u16
}

/// What each packet type means. Numbers that the device never uses mean that nothing is known.
pub(crate) fn map() -> [PtypeEntry; PTYPES] {
    let mut map = [PtypeEntry { l3_type: 0, l4_type: 0 }; PTYPES];
    for l3 in [L3::Unknown, L3::Ipv4, L3::Ipv6] {
        for l4 in [L4::Unknown, L4::Other, L4::Tcp, L4::Udp, L4::Icmp] {
            map[usize::from(number(l3, l4))] = PtypeEntry { l3_type: l3 as u8, l4_type: l4 as u8 };
        }
    }
    map
}

/// One more than the largest number in `enum gve_l4_type`, rounded up.
const L4_TYPES: u16 = 8;
