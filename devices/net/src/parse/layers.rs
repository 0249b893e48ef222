//! What [`super::parse`] finds.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::wire::{IcmpHeader, TcpHeader, UdpHeader};

/// The headers of a frame, or of the packet inside a tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers {
    /// Where the Ethernet header is; `None` for an IP packet directly inside a tunnel.
    pub ethernet: Option<usize>,
    /// Control field of the outermost VLAN tag.
    pub vlan: Option<u16>,
    /// Type of what follows the Ethernet header and its VLAN tags.
    pub ethertype: u16,
    /// Where the network header starts, if one follows.
    pub network_offset: usize,
    /// The IP header.
    pub ip: Option<Ip>,
    /// The header after IP, unless this is a fragment other than the first.
    pub transport: Option<Transport>,
    /// Where the payload of the last header found starts. With a tunnel, it is the tunnel's inner packet.
    pub payload: usize,
    /// The packet inside, if this one carries a tunnel.
    pub inner: Option<Box<Inner>>,
    /// Why the search stopped early.
    pub problem: Option<Problem>,
}

impl Layers {
    /// The headers inside the last tunnel; these headers where there is no tunnel.
    pub fn innermost(&self) -> &Layers {
        self.inner.as_ref().map_or(self, |inner| inner.layers.innermost())
    }

    /// The TCP header, if there is one outside of tunnels.
    pub fn tcp(&self) -> Option<&Transport> {
        self.transport.as_ref().filter(|transport| transport.kind == TransportKind::Tcp)
    }

    /// Whether this is one fragment of a packet.
    pub fn is_fragment(&self) -> bool {
        self.ip.as_ref().is_some_and(|ip| ip.fragment.is_some())
    }

    /// The problem of these headers or of those inside their tunnels.
    pub fn any_problem(&self) -> Option<Problem> {
        self.problem.or_else(|| self.inner.as_ref()?.layers.any_problem())
    }
}

/// An IP header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ip {
    /// Which version.
    pub version: IpVersion,
    /// Where the header starts.
    pub offset: usize,
    /// Length with options (IPv4) or extension headers (IPv6).
    pub header_len: usize,
    /// The length field as it is: of the whole packet for IPv4, of what follows the fixed header for IPv6.
    pub stated_len: u16,
    /// Where the packet ends by its length field or jumbo option, at most at the frame's end; the frame's end
    /// where the length is 0.
    pub end: usize,
    /// The protocol after the header and its extensions.
    pub protocol: u8,
    /// Set if this is one fragment of a packet.
    pub fragment: Option<Fragment>,
    /// Set if the packet has an IPv6 jumbo payload option.
    pub jumbo: Option<Jumbo>,
    /// Whether the packet has an IPv6 routing header: its destination address may then be an intermediate one.
    pub routing_header: bool,
}

impl Ip {
    /// Where the transport header starts.
    pub fn transport_offset(&self) -> usize {
        self.offset + self.header_len
    }
}

/// The two versions of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Which part of a packet a fragment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fragment {
    /// Where it belongs in the payload, in bytes.
    pub offset: usize,
    /// Whether more follow.
    pub more: bool,
}

/// An IPv6 jumbo payload option (RFC 2675).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jumbo {
    /// Where the hop-by-hop header that holds it starts.
    pub header_offset: usize,
    /// The length it states.
    pub payload_len: u32,
}

/// The header after IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transport {
    /// Which protocol.
    pub kind: TransportKind,
    /// Where the header starts.
    pub offset: usize,
    /// Length with options.
    pub header_len: usize,
}

impl Transport {
    /// Where the header ends and the payload starts.
    pub fn end(&self) -> usize {
        self.offset + self.header_len
    }

    /// Where in the frame the checksum field is, for protocols that have one.
    pub fn checksum_offset(&self) -> Option<usize> {
        match self.kind {
            TransportKind::Tcp => Some(self.offset + TcpHeader::CHECKSUM),
            TransportKind::Udp => Some(self.offset + UdpHeader::CHECKSUM),
            TransportKind::Icmp | TransportKind::Icmpv6 => Some(self.offset + IcmpHeader::CHECKSUM),
            TransportKind::Gre => None,
        }
    }
}

/// The transport protocols whose headers are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransportKind {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP in IPv4.
    Icmp,
    /// ICMP in IPv6.
    Icmpv6,
    /// GRE.
    Gre,
}

/// The packet inside a tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inner {
    /// Which tunnel.
    pub tunnel: Tunnel,
    /// The headers inside.
    pub layers: Layers,
}

/// The tunnels that are looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tunnel {
    /// VXLAN (UDP port 4789).
    Vxlan,
    /// Geneve (UDP port 6081).
    Geneve,
    /// GRE.
    Gre,
    /// IP directly in IP.
    Ip,
    /// One that nothing in the packet tells of: a descriptor says where its inside is.
    Described,
}

/// Why headers could not be followed to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Problem {
    /// The frame ends inside a header.
    #[error("the frame ends inside its {0} header")]
    Truncated(Header),
    /// A header's own length field is below its minimum.
    #[error("the {0} header states an impossible length")]
    BadHeaderLength(Header),
    /// The version number does not fit the type that announced the header.
    #[error("the {0} header has the wrong version number")]
    BadVersion(Header),
    /// More extension headers, or tunnels in tunnels, than any real packet has.
    #[error("too many {0} headers")]
    TooMany(Header),
}

/// Names of headers, for [`Problem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Header {
    Ethernet,
    Vlan,
    Ipv4,
    Ipv6,
    Extension,
    Tcp,
    Udp,
    Icmp,
    Gre,
    Geneve,
    Vxlan,
    Tunnel,
}

impl std::fmt::Display for Header {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Header::Ethernet => "Ethernet",
            Header::Vlan => "VLAN",
            Header::Ipv4 => "IPv4",
            Header::Ipv6 => "IPv6",
            Header::Extension => "IPv6 extension",
            Header::Tcp => "TCP",
            Header::Udp => "UDP",
            Header::Icmp => "ICMP",
            Header::Gre => "GRE",
            Header::Geneve => "Geneve",
            Header::Vxlan => "VXLAN",
            Header::Tunnel => "tunnel",
        })
    }
}

/// What the search does to its result as it goes.
impl Layers {
    pub(super) fn empty(start: usize) -> Layers {
        Layers {
            ethernet: None,
            vlan: None,
            ethertype: 0,
            network_offset: start,
            ip: None,
            transport: None,
            payload: start,
            inner: None,
            problem: None,
        }
    }

    pub(super) fn stop(mut self, problem: Problem) -> Layers {
        self.problem = Some(problem);
        self
    }

    pub(super) fn with_transport(mut self, kind: TransportKind, header_len: usize) -> Layers {
        self.transport = Some(Transport { kind, offset: self.payload, header_len });
        self.payload += header_len;
        self
    }
}
