//! Cuts a packet into frames.

use super::{Cwr, IpId, Layer, LsoRequest, Plan, Seed};
use crate::checksum::{Sum, pseudo_ipv4, pseudo_ipv6};
use crate::parse::{IpVersion, TransportKind};
use crate::wire::{GreHeader, Ipv4Header, Ipv6Header, TcpHeader, UdpHeader, flag, protocol, view, view_mut};

/// The frames of one packet, in order.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    headers: &'a [u8],
    payload: &'a [u8],
    request: LsoRequest,
    plan: Plan,
    next: usize,
    count: usize,
}

impl<'a> Segments<'a> {
    /// `plan` has been validated for the packet and request.
    pub(super) fn new(packet: &'a [u8], request: &LsoRequest, plan: Plan) -> Segments<'a> {
        let (headers, payload) = packet.split_at(request.header_len);
        let count = payload.len().div_ceil(request.mss).max(1);
        Segments { headers, payload, request: *request, plan, next: 0, count }
    }

    fn frame(&self, index: usize) -> Vec<u8> {
        let start = index * self.request.mss;
        let end = (start + self.request.mss).min(self.payload.len());
        let part = &self.payload[start..end];
        let mut frame = Vec::with_capacity(self.headers.len() + part.len());
        frame.extend_from_slice(self.headers);
        frame.extend_from_slice(part);

        // From the inside out: an outer checksum covers the inner headers.
        for (depth, layer) in self.plan.layers.iter().enumerate().rev() {
            let innermost = depth + 1 == self.plan.layers.len();
            match layer.transport {
                Some((TransportKind::Tcp, offset)) if innermost => {
                    self.rewrite_tcp(&mut frame, offset, index, start);
                    self.rewrite_checksum(&mut frame, layer, offset, TcpHeader::CHECKSUM, protocol::TCP);
                }
                Some((TransportKind::Udp, offset)) => {
                    rewrite_udp_length(&mut frame, offset);
                    if innermost {
                        self.rewrite_checksum(&mut frame, layer, offset, UdpHeader::CHECKSUM, protocol::UDP);
                    } else {
                        rewrite_outer_udp_checksum(&mut frame, layer, offset);
                    }
                }
                Some((TransportKind::Gre, offset)) => rewrite_gre_checksum(&mut frame, offset),
                _ => {}
            }
            self.rewrite_ip(&mut frame, layer, index);
        }
        frame
    }

    fn rewrite_tcp(&self, frame: &mut [u8], offset: usize, index: usize, start: usize) {
        let Some(header) = view_mut::<TcpHeader>(frame, offset) else { return };
        header.sequence.set(header.sequence.get().wrapping_add(start as u32));
        if index + 1 != self.count {
            header.flags &= !(flag::FIN | flag::PSH);
        }
        if index != 0 && self.request.cwr == Cwr::FirstOnly {
            header.flags &= !flag::CWR;
        }
    }

    fn rewrite_ip(&self, frame: &mut [u8], layer: &Layer, index: usize) {
        let length = frame.len() - layer.ip_offset;
        match layer.version {
            IpVersion::V4 => {
                let Some(header) = view_mut::<Ipv4Header>(frame, layer.ip_offset) else { return };
                header.total_len.set(length as u16);
                if self.request.ip_id == IpId::Increment {
                    header.id.set(header.id.get().wrapping_add(index as u16));
                }
                header.checksum.set(0);
                let header_len = header.header_len().max(Ipv4Header::LEN);
                let checksum = Sum::of(&frame[layer.ip_offset..layer.ip_offset + header_len]).checksum();
                put(frame, layer.ip_offset + Ipv4Header::CHECKSUM, checksum);
            }
            IpVersion::V6 => {
                let Some(header) = view_mut::<Ipv6Header>(frame, layer.ip_offset) else { return };
                header.payload_len.set((length - Ipv6Header::LEN) as u16);
            }
        }
    }

    /// Computes the innermost transport checksum, from the seed that the driver left where the request says so.
    fn rewrite_checksum(&self, frame: &mut [u8], layer: &Layer, offset: usize, field: usize, number: u8) {
        let length = (frame.len() - offset) as u32;
        let seed = Sum::word(u16::from_be_bytes([frame[offset + field], frame[offset + field + 1]]));
        let unsegmented = (self.headers.len() + self.payload.len() - offset) as u32;
        let pseudo = match self.request.seed {
            Seed::Ignored => pseudo_header(frame, layer, number, length),
            Seed::WithoutLength => seed.plus(Sum::long(length)),
            Seed::WithLength => seed.minus(Sum::long(unsegmented)).plus(Sum::long(length)),
        };
        put(frame, offset + field, 0);
        let sum = pseudo.plus(Sum::of(&frame[offset..]));
        let checksum = if number == protocol::UDP { sum.udp_checksum() } else { sum.checksum() };
        put(frame, offset + field, checksum);
    }
}

impl Iterator for Segments<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if self.next == self.count {
            return None;
        }
        self.next += 1;
        Some(self.frame(self.next - 1))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count - self.next, Some(self.count - self.next))
    }
}

impl ExactSizeIterator for Segments<'_> {}

/// The pseudo header's sum for a transport header with `length` bytes from its start.
fn pseudo_header(frame: &[u8], layer: &Layer, number: u8, length: u32) -> Sum {
    match layer.version {
        IpVersion::V4 => view::<Ipv4Header>(frame, layer.ip_offset)
            .map_or(Sum::ZERO, |ip| pseudo_ipv4(ip.source, ip.destination, number, length)),
        IpVersion::V6 => view::<Ipv6Header>(frame, layer.ip_offset)
            .map_or(Sum::ZERO, |ip| pseudo_ipv6(&ip.source, &ip.destination, number, length)),
    }
}

fn rewrite_udp_length(frame: &mut [u8], offset: usize) {
    let length = frame.len() - offset;
    if let Some(header) = view_mut::<UdpHeader>(frame, offset) {
        header.length.set(length as u16);
    }
}

/// A tunnel without UDP checksum keeps none.
fn rewrite_outer_udp_checksum(frame: &mut [u8], layer: &Layer, offset: usize) {
    if view::<UdpHeader>(frame, offset).is_none_or(|header| header.checksum.get() == 0) {
        return;
    }
    put(frame, offset + UdpHeader::CHECKSUM, 0);
    let length = (frame.len() - offset) as u32;
    let sum = pseudo_header(frame, layer, protocol::UDP, length).plus(Sum::of(&frame[offset..]));
    put(frame, offset + UdpHeader::CHECKSUM, sum.udp_checksum());
}

/// The checksum follows the fixed GRE header and covers all from that header on (RFC 2784, 2.3).
fn rewrite_gre_checksum(frame: &mut [u8], offset: usize) {
    if view::<GreHeader>(frame, offset).is_some_and(|header| header.has_checksum()) {
        put(frame, offset + GreHeader::LEN, 0);
        let checksum = Sum::of(&frame[offset..]).checksum();
        put(frame, offset + GreHeader::LEN, checksum);
    }
}

fn put(frame: &mut [u8], at: usize, word: u16) {
    frame[at..at + 2].copy_from_slice(&word.to_be_bytes());
}
