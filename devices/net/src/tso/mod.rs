//! Segmentation: one large packet from the driver becomes the frames that go on the wire.
//!
//! This is the only segmentation engine; device models translate their descriptors into an [`LsoRequest`]. A
//! device gathers the packet (headers and payload, BIG TCP sizes included), calls [`segment`] and puts each
//! frame it gets on the link:
//!
//! * TCP: sequence numbers advance, FIN and PSH stay on the last segment only, CWR on the first only (or on
//!   all, for accurate ECN). ECE and the ECN bits of the IP header are on every segment.
//! * UDP: each segment becomes a datagram of its own.
//! * IPv4: total length, identification (counting up, or fixed) and header checksum; IPv6: payload length.
//!   What the length fields held before plays no role: for a BIG TCP packet they hold zero.
//! * Tunnels: with [`LsoRequest::inner`] the innermost packet is segmented and the outer IP, UDP and GRE
//!   headers are repeated in front of each segment, with their lengths and checksums.
//!
//! Hardware repeats the bytes that the descriptor calls headers and nothing tells it better. So does this: a
//! wrong header length moves bytes between headers and payload, and an IPv6 jumbo payload header that the
//! driver left in is repeated in front of every segment, where it is wrong. [`crate::check`] reports both.

mod plan;
mod segments;

pub use plan::{Layer, Plan};
pub use segments::Segments;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::parse::Problem;

/// Prepares to cut `packet` into frames as `request` says, finding its headers by parsing.
///
/// # Errors
/// When there is no way to carry out the request; a device drops the packet then.
pub fn segment<'a>(packet: &'a [u8], request: &LsoRequest) -> Result<Segments<'a>, LsoError> {
    segment_with(packet, request, Plan::find(packet, request)?)
}

/// As [`segment`], with the places of the headers given by the descriptor.
///
/// # Errors
/// As [`segment`].
pub fn segment_with<'a>(
    packet: &'a [u8],
    request: &LsoRequest,
    plan: Plan,
) -> Result<Segments<'a>, LsoError> {
    plan.validate(packet, request)?;
    Ok(Segments::new(packet, request, plan))
}

/// What a descriptor asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LsoRequest {
    /// TCP or UDP segmentation.
    pub kind: LsoKind,
    /// How many bytes at the packet's start are headers, to be repeated in front of each segment.
    pub header_len: usize,
    /// Payload bytes in each segment but the last. The guest decides about it, so a device refuses what is
    /// below its minimum before it makes half a million frames of one packet.
    pub mss: usize,
    /// Whether the packet inside the tunnel is meant, not the outer one.
    pub inner: bool,
    /// What the driver left in the transport checksum field.
    pub seed: Seed,
    /// What happens to the IPv4 identification.
    pub ip_id: IpId,
    /// What happens to TCP's CWR flag.
    pub cwr: Cwr,
}

impl LsoRequest {
    /// TCP segmentation in the usual style.
    pub fn tcp(header_len: usize, mss: usize) -> LsoRequest {
        LsoRequest {
            kind: LsoKind::Tcp,
            header_len,
            mss,
            inner: false,
            seed: Seed::Ignored,
            ip_id: IpId::Increment,
            cwr: Cwr::FirstOnly,
        }
    }

    /// UDP segmentation in the usual style.
    pub fn udp(header_len: usize, mss: usize) -> LsoRequest {
        LsoRequest { kind: LsoKind::Udp, ..LsoRequest::tcp(header_len, mss) }
    }
}

/// What is segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LsoKind {
    /// TCP ("TSO", "LSO").
    Tcp,
    /// UDP ("USO", Linux's UDP GSO).
    Udp,
}

/// What a device expects in the transport checksum field of a packet to be segmented. A device that sums on
/// from a seed puts wrong checksums on the wire when the driver's seed is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seed {
    /// Anything: the device computes the checksum from the headers.
    Ignored,
    /// The pseudo header's sum with a length of zero; the device adds each segment's length.
    WithoutLength,
    /// The pseudo header's sum with the length of the unsegmented packet, as the Linux stack leaves it; the
    /// device replaces the length.
    WithLength,
}

/// What happens to the IPv4 identification of successive segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IpId {
    /// It counts up from the packet's.
    Increment,
    /// It stays (allowed for packets that are never fragmented: RFC 6864, 4.1).
    Fixed,
}

/// What happens to the CWR flag of successive TCP segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cwr {
    /// Only the first segment keeps it (RFC 3168, 6.1.2).
    FirstOnly,
    /// All segments keep it, because it is part of a counter (RFC 9768, accurate ECN).
    Every,
}

/// Why a packet cannot be segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LsoError {
    /// The segment size is zero.
    #[error("segment size of 0")]
    ZeroMss,
    /// The packet ends before its headers do.
    #[error("headers of {header_len} bytes in a packet of {packet_len}")]
    HeadersBeyondPacket {
        /// Header length of the request.
        header_len: usize,
        /// The packet's length.
        packet_len: usize,
    },
    /// A header that must be rewritten in each segment is not inside the bytes that are repeated.
    #[error("headers reach to {needed} bytes, but the descriptor says {header_len}")]
    HeadersCut {
        /// Where the headers that must be rewritten end.
        needed: usize,
        /// Header length of the request.
        header_len: usize,
    },
    /// The packet has no such transport header.
    #[error("the packet has no {} header to segment by", match .0 { LsoKind::Tcp => "TCP", LsoKind::Udp => "UDP" })]
    NoTransport(LsoKind),
    /// The headers could not be followed.
    #[error(transparent)]
    Malformed(#[from] Problem),
    /// A segment would not fit the IP or UDP length field.
    #[error("segments of {0} bytes do not fit a 16-bit length field")]
    SegmentTooLong(usize),
}

/// The largest packet that any driver hands over: Linux's GSO_MAX_SIZE plus room for its headers.
pub const MAX_PACKET: usize = 524_288;

#[cfg(test)]
mod tests;
