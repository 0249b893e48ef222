//! Header layouts, one protocol a file. Every structure is unaligned, big-endian as on the wire, and says where
//! its layout is documented; nothing here decides anything. [`crate::parse`] finds the headers in a frame.

mod arp;
mod ethernet;
mod geneve;
mod gre;
mod icmp;
mod ipv4;
mod ipv6;
mod tcp;
mod udp;
mod vxlan;

pub use arp::ArpHeader;
pub use ethernet::{EthernetHeader, VlanTag, ethertype, parse_mac};
pub use geneve::GeneveHeader;
pub use gre::GreHeader;
pub use icmp::IcmpHeader;
pub use ipv4::Ipv4Header;
pub use ipv6::{ExtensionHeader, FragmentHeader, Ipv6Header, JumboPayloadOption, option};
pub use tcp::{TcpHeader, flag};
pub use udp::UdpHeader;
pub use vxlan::VxlanHeader;

/// A view of the header `H` at `offset` of `frame`, if the frame holds all of it.
pub fn view<H>(frame: &[u8], offset: usize) -> Option<&H>
where
    H: zerocopy::FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned,
{
    let (header, _) = H::ref_from_prefix(frame.get(offset..)?).ok()?;
    Some(header)
}

/// A writable view of the header `H` at `offset` of `frame`, if the frame holds all of it.
pub fn view_mut<H>(frame: &mut [u8], offset: usize) -> Option<&mut H>
where
    H: zerocopy::FromBytes + zerocopy::IntoBytes + zerocopy::KnownLayout + zerocopy::Unaligned,
{
    let (header, _) = H::mut_from_prefix(frame.get_mut(offset..)?).ok()?;
    Some(header)
}

/// IP protocol and IPv6 next-header numbers (IANA "Protocol Numbers").
pub mod protocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// IPv4 in IP.
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 in IP.
    pub const IPV6: u8 = 41;
    /// IPv6 routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header.
    pub const FRAGMENT: u8 = 44;
    /// Generic routing encapsulation.
    pub const GRE: u8 = 47;
    /// IPsec authentication header.
    pub const AUTHENTICATION: u8 = 51;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    /// IPv6: nothing follows.
    pub const NO_NEXT: u8 = 59;
    /// IPv6 destination options.
    pub const DESTINATION: u8 = 60;
    /// IPv6 mobility header.
    pub const MOBILITY: u8 = 135;
    /// Host identity protocol.
    pub const HIP: u8 = 139;
    /// Site multihoming by IPv6 intermediation.
    pub const SHIM6: u8 = 140;
}
