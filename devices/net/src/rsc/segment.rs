//! One TCP segment as coalescing sees it.

use serde::{Deserialize, Serialize};

use crate::checksum::Sum;
use crate::parse::{IpVersion, parse};
use crate::verdict::{Verdicts, pseudo_header};

/// What makes a flow: addresses and ports, as they stand in the headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Flow {
    addresses: Vec<u8>,
    ports: Vec<u8>,
}

/// Where things are in a segment, and what decides whether it can be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Segment {
    pub(super) network_offset: usize,
    v6: bool,
    transport: usize,
    pub(super) payload: usize,
    /// Behind the payload: a frame may be padded.
    pub(super) end: usize,
    pub(super) sequence: u32,
    /// It has payload, right checksums, and no flags but ACK and PSH.
    pub(super) mergeable: bool,
    pub(super) pushes: bool,
}

/// The segment that a frame is, and its flow; `None` if it is none that coalescing looks at.
pub(super) fn find(bytes: &[u8]) -> Option<(Flow, Segment)> {
    let layers = parse(bytes);
    let ip = layers.ip.as_ref().filter(|ip| ip.fragment.is_none() && layers.problem.is_none())?;
    let transport = layers.tcp()?.offset;
    let v6 = ip.version == IpVersion::V6;
    // Behind a tunnel's headers there is another IP header.
    if transport != ip.offset + if v6 { 40 } else { 20 } {
        return None;
    }
    let header = bytes.get(transport..layers.payload).filter(|header| header.len() >= TCP_HEADER)?;
    let addresses = if v6 { 8..40 } else { 12..20 };
    let flow =
        Flow { addresses: bytes.get(ip.offset..)?.get(addresses)?.to_vec(), ports: header[..4].to_vec() };
    let verdicts = Verdicts::of(bytes, &layers);
    let right = verdicts.transport == Some(true) && verdicts.ip != Some(false);
    let flags = header[FLAGS];
    let segment = Segment {
        network_offset: ip.offset,
        v6,
        transport,
        payload: layers.payload,
        end: ip.end,
        sequence: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
        mergeable: right && ip.end > layers.payload && flags & !PUSH == ACKNOWLEDGE && header[12] & 0xf == 0,
        pushes: flags & PUSH != 0,
    };
    Some((flow, segment))
}

impl Segment {
    pub(super) fn payload_len(&self) -> usize {
        self.end - self.payload
    }

    /// Whether the headers of this segment, in `bytes`, are those of another of the flow but for what may differ.
    pub(super) fn has_headers_of(&self, bytes: &[u8], other: &Segment, others: &[u8]) -> bool {
        if (self.network_offset, self.v6, self.payload) != (other.network_offset, other.v6, other.payload) {
            return false;
        }
        let (mut mine, mut theirs) = (bytes[..self.payload].to_vec(), others[..self.payload].to_vec());
        self.blank(&mut mine);
        self.blank(&mut theirs);
        mine == theirs
    }

    /// Takes out of headers what may differ between segments that are merged.
    fn blank(&self, headers: &mut [u8]) {
        let ip = self.network_offset;
        // Length; identification and checksum.
        let fields = if self.v6 { [(4, 2), (4, 0), (4, 0)] } else { [(2, 2), (4, 2), (10, 2)] };
        for (offset, length) in fields {
            headers[ip + offset..ip + offset + length].fill(0);
        }
        let tcp = self.transport;
        headers[tcp + 4..tcp + 12].fill(0);
        headers[tcp + FLAGS] &= !PUSH;
        headers[tcp + WINDOW..tcp + WINDOW + 4].fill(0);
        if let Some(stamps) = self.time_stamps(headers) {
            headers[stamps..stamps + 8].fill(0);
        }
    }

    /// Where the time stamps are, in the one layout of options that is looked into (RFC 7323, appendix A).
    fn time_stamps(&self, headers: &[u8]) -> Option<usize> {
        let options = headers.get(self.transport + TCP_HEADER..self.payload)?;
        (options.len() == 12 && options[..4] == [1, 1, 8, 10]).then_some(self.transport + TCP_HEADER + 4)
    }

    /// Takes over from `other`, the last segment so far, what the last one decides.
    pub(super) fn keep_latest(&self, bytes: &mut [u8], other: &Segment, others: &[u8]) {
        let tcp = self.transport;
        let mut copy = |at: usize, length: usize| {
            bytes[at..at + length].copy_from_slice(&others[at..at + length]);
        };
        copy(tcp + 8, 4);
        copy(tcp + WINDOW, 2);
        if let Some(stamps) = self.time_stamps(&others[..other.payload]) {
            copy(stamps, 8);
        }
        if other.pushes {
            bytes[tcp + FLAGS] |= PUSH;
        }
    }

    /// Makes lengths and checksums those of the whole packet.
    pub(super) fn complete(&self, bytes: &mut [u8]) {
        let ip = self.network_offset;
        if self.v6 {
            let length = (bytes.len() - ip - 40) as u16;
            bytes[ip + 4..ip + 6].copy_from_slice(&length.to_be_bytes());
        } else {
            let length = (bytes.len() - ip) as u16;
            bytes[ip + 2..ip + 4].copy_from_slice(&length.to_be_bytes());
            bytes[ip + 10..ip + 12].fill(0);
            let checksum = Sum::of(&bytes[ip..ip + 20]).checksum();
            bytes[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
        }
        let field = self.transport + 16;
        bytes[field..field + 2].fill(0);
        let Some(header) = parse(bytes).ip else { return };
        let segment = &bytes[self.transport..];
        let sum = pseudo_header(bytes, &header, segment.len() as u32).plus(Sum::of(segment));
        bytes[field..field + 2].copy_from_slice(&sum.checksum().to_be_bytes());
    }
}

const TCP_HEADER: usize = 20;
const FLAGS: usize = 13;
const WINDOW: usize = 14;
const PUSH: u8 = 0x08;
const ACKNOWLEDGE: u8 = 0x10;
