//! Which headers are rewritten in each segment, and whether that is possible.

use super::{LsoError, LsoKind, LsoRequest};
use crate::parse::{IpVersion, Layers, TransportKind, parse};
use crate::wire::{GreHeader, Ipv4Header, Ipv6Header, TcpHeader, UdpHeader, view};

/// The headers that are rewritten in each segment, from the outermost to the innermost IP packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(super) layers: Vec<Layer>,
}

/// One IP packet's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Which version of IP.
    pub version: IpVersion,
    /// Where the IP header starts.
    pub ip_offset: usize,
    /// The transport header and where it starts; `None` for IP in IP.
    pub transport: Option<(TransportKind, usize)>,
}

impl Plan {
    /// A plan for a packet without tunnel, with the places of its headers given by the descriptor.
    pub fn at(version: IpVersion, ip_offset: usize, kind: LsoKind, transport_offset: usize) -> Plan {
        Plan {
            layers: vec![Layer { version, ip_offset, transport: Some((kind.transport(), transport_offset)) }],
        }
    }

    /// Finds the headers of `packet` that `request` concerns.
    ///
    /// # Errors
    /// When the packet has no such headers.
    pub fn find(packet: &[u8], request: &LsoRequest) -> Result<Plan, LsoError> {
        Plan::of(&parse(packet), request)
    }

    /// As [`Self::find`], of a packet whose headers have been found.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn of(layers: &Layers, request: &LsoRequest) -> Result<Plan, LsoError> {
        let mut plan = Plan { layers: Vec::new() };
        let mut current = layers;
        loop {
            plan.layers.extend(Layer::of(current));
            match &current.inner {
                Some(inner) if request.inner => current = &inner.layers,
                _ => break,
            }
        }
        let kind = current.transport.filter(|_| !current.is_fragment()).map(|transport| transport.kind);
        if kind != Some(request.kind.transport()) {
            return Err(current.problem.map_or(LsoError::NoTransport(request.kind), LsoError::Malformed));
        }
        Ok(plan)
    }

    /// Checks that every header that is rewritten lies inside the repeated bytes and that its fields can hold
    /// the values of the longest segment. [`super::Segments`] relies on that.
    pub(super) fn validate(&self, packet: &[u8], request: &LsoRequest) -> Result<(), LsoError> {
        let LsoRequest { header_len, mss, .. } = *request;
        if mss == 0 {
            return Err(LsoError::ZeroMss);
        }
        let Some(headers) = packet.get(..header_len) else {
            return Err(LsoError::HeadersBeyondPacket { header_len, packet_len: packet.len() });
        };
        let last = self.layers.last().and_then(|layer| layer.transport);
        if last.is_none_or(|(kind, _)| kind != request.kind.transport()) {
            return Err(LsoError::NoTransport(request.kind));
        }
        let needed = self.layers.iter().map(|layer| layer.end(headers)).max().unwrap_or(0);
        if needed > header_len {
            return Err(LsoError::HeadersCut { needed, header_len });
        }
        let longest = header_len + mss.min(packet.len() - header_len);
        for layer in &self.layers {
            let limit = match layer.version {
                IpVersion::V4 => usize::from(u16::MAX),
                IpVersion::V6 => usize::from(u16::MAX) + Ipv6Header::LEN,
            };
            if longest.saturating_sub(layer.ip_offset) > limit {
                return Err(LsoError::SegmentTooLong(longest));
            }
        }
        Ok(())
    }
}

impl Layer {
    fn of(layers: &Layers) -> Option<Layer> {
        let ip = layers.ip.as_ref()?;
        let transport = layers.transport.map(|transport| (transport.kind, transport.offset));
        Some(Layer { version: ip.version, ip_offset: ip.offset, transport })
    }

    /// Where the parts that are rewritten end; beyond any packet if they are not all there.
    fn end(&self, headers: &[u8]) -> usize {
        let ip_len = match self.version {
            IpVersion::V4 => view::<Ipv4Header>(headers, self.ip_offset)
                .map_or(Ipv4Header::LEN, |header| header.header_len().max(Ipv4Header::LEN)),
            IpVersion::V6 => Ipv6Header::LEN,
        };
        let transport_end = self.transport.map_or(0, |(kind, offset)| {
            let length = match kind {
                TransportKind::Tcp => TcpHeader::LEN,
                TransportKind::Udp => UdpHeader::LEN,
                TransportKind::Gre => {
                    view::<GreHeader>(headers, offset).map_or(GreHeader::LEN, |header| header.header_len())
                }
                TransportKind::Icmp | TransportKind::Icmpv6 => 0,
            };
            offset.saturating_add(length)
        });
        self.ip_offset.saturating_add(ip_len).max(transport_end)
    }
}

impl LsoKind {
    /// The transport header that goes with it.
    pub fn transport(self) -> TransportKind {
        match self {
            LsoKind::Tcp => TransportKind::Tcp,
            LsoKind::Udp => TransportKind::Udp,
        }
    }
}
