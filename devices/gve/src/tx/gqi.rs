//! GQI: packets from descriptors, and the counter by which the driver sees what is done.

use nicvisor_core::{Context, DmaError};
use nicvisor_net::checksum::Partial;
use serde::{Deserialize, Serialize};

use super::fetch::{Fetched, Packet, Piece};
use crate::rules;
use crate::wire::gqi::{Descriptor, PacketDescriptor, SegmentDescriptor};
use crate::wire::tx::{RawCompletion, RawDescriptor, TsoContext};

/// How far a queue is. The driver counts the descriptors that it has filled, the device those it is done with,
/// both since the queue was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EventCounter {
    address: u64,
    pub(super) requested: u32,
    pub(super) done: u32,
}

impl EventCounter {
    pub(crate) fn new(address: u64) -> EventCounter {
        EventCounter { address, requested: 0, done: 0 }
    }

    /// Descriptors that the device is not done with.
    pub(super) fn waiting(&self) -> u32 {
        self.requested.wrapping_sub(self.done)
    }

    /// The counter as it is to stand in memory.
    pub(super) fn raw(&self) -> RawCompletion {
        let mut raw = RawCompletion::default();
        raw[..4].copy_from_slice(&self.done.to_be_bytes());
        raw
    }

    /// Shows the driver what `change` makes of the counter in `raw`.
    pub(super) fn write(
        &self,
        context: &Context<'_>,
        change: impl FnOnce(u32) -> u32,
        raw: RawCompletion,
    ) -> Result<(), DmaError> {
        let [a, b, c, d, ..] = raw;
        let shown = change(u32::from_be_bytes([a, b, c, d]));
        context.dma.store_release(self.address, u32::from_ne_bytes(shown.to_be_bytes()))
    }
}

/// Reads the first packet in `descriptors`.
pub(super) fn packet(descriptors: &[RawDescriptor]) -> Fetched {
    let Some(raw) = descriptors.first() else { return Fetched::Unfinished };
    let fault = |rule, message, descriptors| Fetched::Fault { rule, message, descriptors };
    let first = match Descriptor::decode(raw) {
        Descriptor::Packet(first) => first,
        Descriptor::Unknown(kind) => {
            return fault(&rules::TX_DESCRIPTOR_TYPE, format!("descriptor type {kind:#x}"), 1);
        }
        other => return fault(&rules::TX_DESCRIPTOR_ORDER, format!("{other:?} before a packet"), 1),
    };
    let count = usize::from(first.desc_cnt);
    if count == 0 {
        return fault(&rules::TX_DESCRIPTOR_ORDER, "packet of no descriptors".to_owned(), 1);
    }
    let Some(rest) = descriptors.get(1..count) else { return Fetched::Unfinished };
    let mut segments = Vec::new();
    for (index, raw) in rest.iter().enumerate() {
        match Descriptor::decode(raw) {
            Descriptor::Segment(segment) => segments.push(segment),
            Descriptor::Metadata if index == 0 => (),
            other => {
                let message = format!("{other:?} inside a packet");
                return fault(&rules::TX_DESCRIPTOR_ORDER, message, index + 2);
            }
        }
    }
    let pieces = pieces(&first, &segments);
    if pieces.iter().any(|piece| piece.length == 0) {
        return fault(&rules::TX_BUFFER_SIZE, "descriptor without bytes".to_owned(), count);
    }
    if first.tso && first.seg_len > u8::MAX.into() {
        let message = format!("headers of {} bytes", first.seg_len);
        return fault(&rules::TX_HEADER_SIZE, message, count);
    }
    Fetched::Packet(assemble(&first, &segments, pieces))
}

fn pieces(first: &PacketDescriptor, segments: &[SegmentDescriptor]) -> Vec<Piece> {
    let first = Piece { address: first.seg_addr, length: first.seg_len };
    let rest = segments.iter().map(|segment| Piece { address: segment.seg_addr, length: segment.seg_len });
    std::iter::once(first).chain(rest).collect()
}

fn assemble(first: &PacketDescriptor, segments: &[SegmentDescriptor], pieces: Vec<Piece>) -> Packet {
    let tso = first.tso.then(|| TsoContext {
        tso_total_len: u32::from(first.len.saturating_sub(first.seg_len)),
        mss: segments.first().map_or(0, |segment| segment.mss),
        header_len: first.seg_len as u8,
        tso: true,
    });
    let partial = Partial {
        start: 2 * usize::from(first.l4_hdr_offset),
        offset: 2 * usize::from(first.l4_csum_offset),
    };
    Packet {
        descriptors: first.desc_cnt.into(),
        tso,
        length: pieces.iter().map(|piece| usize::from(piece.length)).sum(),
        pieces,
        tag: 0,
        checksum: first.l4_csum,
        report_events: Vec::new(),
        mixed_tags: false,
        mixed_checksum: false,
        gqi: Some(super::fetch::Gqi { declared: first.len.into(), partial }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(desc_cnt: u8, len: u16, seg_len: u16) -> PacketDescriptor {
        PacketDescriptor { desc_cnt, len, seg_len, ..PacketDescriptor::default() }
    }

    fn segment(seg_len: u16) -> RawDescriptor {
        SegmentDescriptor { mss: 1448, seg_len, ..SegmentDescriptor::default() }.encode()
    }

    const METADATA: RawDescriptor = [0x30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    #[test]
    fn a_packet_has_as_many_descriptors_as_its_first_says() {
        let head = PacketDescriptor { tso: true, l4_csum: true, ..first(3, 2066, 66) };
        let ring = [head.encode(), METADATA, segment(2000), segment(9)];
        let Fetched::Packet(packet) = packet(&ring) else { panic!("a packet") };
        assert_eq!((packet.descriptors, packet.length, packet.pieces.len()), (3, 2066, 2));
        let tso = TsoContext { tso_total_len: 2000, mss: 1448, header_len: 66, tso: true };
        assert_eq!(packet.tso, Some(tso));
        for short in 0..3 {
            assert!(matches!(super::packet(&ring[..short]), Fetched::Unfinished));
        }
    }

    #[test]
    fn what_hardware_would_stop_at_is_a_fault() {
        let head = |count| first(count, 100, 60).encode();
        for (ring, rule, count) in [
            (vec![[0xf0; 16]], &rules::TX_DESCRIPTOR_TYPE, 1),
            (vec![segment(9)], &rules::TX_DESCRIPTOR_ORDER, 1),
            (vec![head(0)], &rules::TX_DESCRIPTOR_ORDER, 1),
            (vec![head(3), segment(40), METADATA], &rules::TX_DESCRIPTOR_ORDER, 3),
            (vec![head(2), segment(0)], &rules::TX_BUFFER_SIZE, 2),
        ] {
            let Fetched::Fault { rule: found, descriptors, .. } = packet(&ring) else {
                panic!("{}", rule.id)
            };
            assert_eq!((found.id, descriptors), (rule.id, count));
        }
    }
}
