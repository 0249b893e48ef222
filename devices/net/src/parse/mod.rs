//! Finds the headers in a frame.
//!
//! [`parse`] takes anything and never panics: where the headers stop making sense it stops too, says why in
//! [`Layers::problem`], and what it found before stands. All offsets are from the first byte that was given to
//! [`parse`], those of the headers inside a tunnel too.
//!
//! Length fields are reported as they are, not enforced: a packet handed to a NIC for segmentation may well
//! carry a total length of zero. [`crate::check`] judges them.

mod described;
mod layers;

pub use described::{InnerPlace, Misplaced, parse_described};
pub use layers::{
    Fragment, Header, Inner, Ip, IpVersion, Jumbo, Layers, Problem, Transport, TransportKind, Tunnel,
};

use crate::wire::{
    EthernetHeader, ExtensionHeader, FragmentHeader, GeneveHeader, GreHeader, IcmpHeader, Ipv4Header,
    Ipv6Header, JumboPayloadOption, TcpHeader, UdpHeader, VlanTag, VxlanHeader, ethertype, option, protocol,
    view,
};

/// Finds the headers in an Ethernet frame.
pub fn parse(frame: &[u8]) -> Layers {
    parse_ethernet(frame, 0, 0)
}

fn parse_ethernet(frame: &[u8], start: usize, depth: usize) -> Layers {
    let mut layers = Layers::empty(start);
    let Some(header) = view::<EthernetHeader>(frame, start) else {
        return layers.stop(Problem::Truncated(Header::Ethernet));
    };
    layers.ethernet = Some(start);
    layers.payload = start + EthernetHeader::LEN;
    layers.ethertype = header.ethertype.get();
    for _ in 0..MAX_VLAN_TAGS {
        if !matches!(layers.ethertype, ethertype::VLAN | ethertype::SERVICE_VLAN) {
            break;
        }
        let Some(tag) = view::<VlanTag>(frame, layers.payload) else {
            return layers.stop(Problem::Truncated(Header::Vlan));
        };
        layers.vlan.get_or_insert(tag.control.get());
        layers.ethertype = tag.ethertype.get();
        layers.payload += VlanTag::LEN;
    }
    parse_network(frame, layers, depth)
}

/// Follows what [`Layers::ethertype`] announces at [`Layers::payload`].
fn parse_network(frame: &[u8], mut layers: Layers, depth: usize) -> Layers {
    layers.network_offset = layers.payload;
    match layers.ethertype {
        ethertype::IPV4 => parse_ipv4(frame, layers, depth),
        ethertype::IPV6 => parse_ipv6(frame, layers, depth),
        _ => layers,
    }
}

fn parse_ipv4(frame: &[u8], mut layers: Layers, depth: usize) -> Layers {
    let offset = layers.payload;
    let Some(header) = view::<Ipv4Header>(frame, offset) else {
        return layers.stop(Problem::Truncated(Header::Ipv4));
    };
    if header.version() != 4 {
        return layers.stop(Problem::BadVersion(Header::Ipv4));
    }
    let header_len = header.header_len();
    if header_len < Ipv4Header::LEN {
        return layers.stop(Problem::BadHeaderLength(Header::Ipv4));
    }
    if offset + header_len > frame.len() {
        return layers.stop(Problem::Truncated(Header::Ipv4));
    }
    let fragment = Fragment { offset: header.fragment_offset(), more: header.more_fragments() };
    let stated_len = header.total_len.get();
    layers.payload = offset + header_len;
    layers.ip = Some(Ip {
        version: IpVersion::V4,
        offset,
        header_len,
        stated_len,
        end: packet_end(frame, offset, stated_len.into()).max(layers.payload),
        protocol: header.protocol,
        fragment: (fragment.more || fragment.offset != 0).then_some(fragment),
        jumbo: None,
        routing_header: false,
    });
    parse_transport(frame, layers, depth)
}

fn parse_ipv6(frame: &[u8], mut layers: Layers, depth: usize) -> Layers {
    let offset = layers.payload;
    let Some(header) = view::<Ipv6Header>(frame, offset) else {
        return layers.stop(Problem::Truncated(Header::Ipv6));
    };
    if header.version() != 6 {
        return layers.stop(Problem::BadVersion(Header::Ipv6));
    }
    let stated_len = header.payload_len.get();
    layers.payload = offset + Ipv6Header::LEN;
    let mut ip = Ip {
        version: IpVersion::V6,
        offset,
        header_len: Ipv6Header::LEN,
        stated_len,
        end: packet_end(frame, layers.payload, stated_len.into()),
        protocol: header.next_header,
        fragment: None,
        jumbo: None,
        routing_header: false,
    };
    let problem = follow_extensions(frame, &mut ip).err();
    if stated_len == 0
        && let Some(jumbo) = ip.jumbo
    {
        ip.end = packet_end(frame, layers.payload, jumbo.payload_len);
    }
    layers.payload = ip.transport_offset();
    ip.end = ip.end.max(layers.payload);
    layers.ip = Some(ip);
    match problem {
        Some(problem) => layers.stop(problem),
        None => parse_transport(frame, layers, depth),
    }
}

/// Walks the extension headers: moves `ip.header_len` and `ip.protocol` past them.
fn follow_extensions(frame: &[u8], ip: &mut Ip) -> Result<(), Problem> {
    for _ in 0..MAX_EXTENSIONS {
        let offset = ip.transport_offset();
        let length = match ip.protocol {
            protocol::FRAGMENT => {
                let header =
                    view::<FragmentHeader>(frame, offset).ok_or(Problem::Truncated(Header::Extension))?;
                ip.fragment =
                    Some(Fragment { offset: header.fragment_offset(), more: header.more_fragments() });
                FragmentHeader::LEN
            }
            protocol::HOP_BY_HOP
            | protocol::ROUTING
            | protocol::DESTINATION
            | protocol::MOBILITY
            | protocol::HIP
            | protocol::SHIM6 => (extension(frame, offset)?.length as usize + 1) * 8,
            protocol::AUTHENTICATION => (extension(frame, offset)?.length as usize + 2) * 4,
            _ => return Ok(()),
        };
        let Some(header) = frame.get(offset..offset + length) else {
            return Err(Problem::Truncated(Header::Extension));
        };
        if ip.protocol == protocol::HOP_BY_HOP
            && let Some(payload_len) = jumbo_payload_len(header)
        {
            ip.jumbo.get_or_insert(Jumbo { header_offset: offset, payload_len });
        }
        ip.routing_header |= ip.protocol == protocol::ROUTING;
        ip.protocol = header[0];
        ip.header_len += length;
        if ip.fragment.is_some_and(|fragment| fragment.offset != 0) {
            return Ok(());
        }
    }
    Err(Problem::TooMany(Header::Extension))
}

fn extension(frame: &[u8], offset: usize) -> Result<&ExtensionHeader, Problem> {
    view(frame, offset).ok_or(Problem::Truncated(Header::Extension))
}

/// Looks for the jumbo payload option among the options of a hop-by-hop header.
fn jumbo_payload_len(header: &[u8]) -> Option<u32> {
    let mut at = size_of::<ExtensionHeader>();
    loop {
        match *header.get(at)? {
            option::PAD1 => at += 1,
            option::JUMBO_PAYLOAD => return Some(view::<JumboPayloadOption>(header, at)?.payload_len.get()),
            _ => at += 2 + usize::from(*header.get(at + 1)?),
        }
    }
}

/// Follows what [`Ip::protocol`] announces at [`Layers::payload`].
fn parse_transport(frame: &[u8], layers: Layers, depth: usize) -> Layers {
    let Some(ip) = &layers.ip else { return layers };
    if ip.fragment.is_some_and(|fragment| fragment.offset != 0) {
        return layers;
    }
    match (ip.protocol, ip.version) {
        (protocol::TCP, _) => parse_tcp(frame, layers),
        (protocol::UDP, _) => parse_udp(frame, layers, depth),
        (protocol::ICMP, IpVersion::V4) => parse_icmp(frame, layers, TransportKind::Icmp),
        (protocol::ICMPV6, IpVersion::V6) => parse_icmp(frame, layers, TransportKind::Icmpv6),
        (protocol::GRE, _) => parse_gre(frame, layers, depth),
        (protocol::IPV4, _) => enter_tunnel(frame, layers, Tunnel::Ip, ethertype::IPV4, depth),
        (protocol::IPV6, _) => enter_tunnel(frame, layers, Tunnel::Ip, ethertype::IPV6, depth),
        _ => layers,
    }
}

fn parse_tcp(frame: &[u8], layers: Layers) -> Layers {
    let Some(header) = view::<TcpHeader>(frame, layers.payload) else {
        return layers.stop(Problem::Truncated(Header::Tcp));
    };
    let header_len = header.header_len();
    if header_len < TcpHeader::LEN {
        return layers.stop(Problem::BadHeaderLength(Header::Tcp));
    }
    if layers.payload + header_len > frame.len() {
        return layers.stop(Problem::Truncated(Header::Tcp));
    }
    layers.with_transport(TransportKind::Tcp, header_len)
}

fn parse_udp(frame: &[u8], layers: Layers, depth: usize) -> Layers {
    let Some(header) = view::<UdpHeader>(frame, layers.payload) else {
        return layers.stop(Problem::Truncated(Header::Udp));
    };
    let first_of_many = layers.is_fragment();
    let mut layers = layers.with_transport(TransportKind::Udp, UdpHeader::LEN);
    match header.destination.get() {
        _ if first_of_many => layers,
        UdpHeader::VXLAN_PORT => {
            let Some(vxlan) = view::<VxlanHeader>(frame, layers.payload) else {
                return layers.stop(Problem::Truncated(Header::Vxlan));
            };
            if !vxlan.is_valid() {
                return layers; // Something else on VXLAN's port.
            }
            layers.payload += VxlanHeader::LEN;
            enter_tunnel(frame, layers, Tunnel::Vxlan, ethertype::ETHERNET, depth)
        }
        UdpHeader::GENEVE_PORT => {
            let Some(geneve) = view::<GeneveHeader>(frame, layers.payload) else {
                return layers.stop(Problem::Truncated(Header::Geneve));
            };
            if geneve.version() != 0 {
                return layers; // Something else on Geneve's port.
            }
            layers.payload += geneve.header_len();
            if layers.payload > frame.len() {
                return layers.stop(Problem::Truncated(Header::Geneve));
            }
            enter_tunnel(frame, layers, Tunnel::Geneve, geneve.protocol.get(), depth)
        }
        _ => layers,
    }
}

fn parse_icmp(frame: &[u8], layers: Layers, kind: TransportKind) -> Layers {
    if view::<IcmpHeader>(frame, layers.payload).is_none() {
        return layers.stop(Problem::Truncated(Header::Icmp));
    }
    layers.with_transport(kind, IcmpHeader::LEN)
}

fn parse_gre(frame: &[u8], layers: Layers, depth: usize) -> Layers {
    let Some(header) = view::<GreHeader>(frame, layers.payload) else {
        return layers.stop(Problem::Truncated(Header::Gre));
    };
    if layers.payload + header.header_len() > frame.len() {
        return layers.stop(Problem::Truncated(Header::Gre));
    }
    let layers = layers.with_transport(TransportKind::Gre, header.header_len());
    if header.version() != 0 || layers.is_fragment() {
        return layers; // Version 1 is PPTP's, which carries no IP directly.
    }
    enter_tunnel(frame, layers, Tunnel::Gre, header.protocol.get(), depth)
}

/// Parses the packet at [`Layers::payload`], of type `ethertype`, as the inside of a tunnel.
fn enter_tunnel(frame: &[u8], mut layers: Layers, tunnel: Tunnel, inside: u16, depth: usize) -> Layers {
    if depth == MAX_TUNNELS {
        return layers.stop(Problem::TooMany(Header::Tunnel));
    }
    let inner = match inside {
        ethertype::ETHERNET => parse_ethernet(frame, layers.payload, depth + 1),
        ethertype::IPV4 | ethertype::IPV6 => {
            let inner = Layers { ethertype: inside, ..Layers::empty(layers.payload) };
            parse_network(frame, inner, depth + 1)
        }
        _ => return layers,
    };
    layers.inner = Some(Box::new(Inner { tunnel, layers: inner }));
    layers
}

/// Where a packet of `length` bytes from `start` ends in `frame`; length 0 stands for all there is.
fn packet_end(frame: &[u8], start: usize, length: u32) -> usize {
    match length {
        0 => frame.len(),
        length => start.saturating_add(length as usize).min(frame.len()),
    }
}

/// Linux itself stops at fewer tags than this when it looks for the network header.
const MAX_VLAN_TAGS: usize = 4;
/// RFC 8200, 4.1 recommends at most seven in a packet.
const MAX_EXTENSIONS: usize = 16;
/// Tunnels inside tunnels.
const MAX_TUNNELS: usize = 4;

#[cfg(test)]
mod tests;
