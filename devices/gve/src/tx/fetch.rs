//! From descriptors to packets.

use nicvisor_core::Rule;
use nicvisor_net::checksum::Partial;

use crate::rules;
use crate::wire::tx::{Descriptor, PacketDescriptor, RawDescriptor, TsoContext};

/// A packet as its descriptors say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    /// How many descriptors it takes.
    pub(super) descriptors: usize,
    /// Set if the packet is to be segmented.
    pub(super) tso: Option<TsoContext>,
    /// Where its pieces are.
    pub(super) pieces: Vec<Piece>,
    /// Bytes in all pieces.
    pub(super) length: usize,
    /// Completion tag.
    pub(super) tag: u16,
    /// Whether the checksum is to be filled in.
    pub(super) checksum: bool,
    /// Which of its descriptors (from 0) ask for a descriptor completion.
    pub(super) report_events: Vec<u16>,
    /// Whether descriptors of the packet differ in their tag.
    pub(super) mixed_tags: bool,
    /// Whether descriptors of the packet differ in their checksum flag.
    pub(super) mixed_checksum: bool,
    /// What only GQI descriptors say.
    pub(super) gqi: Option<Gqi>,
}

/// What only GQI descriptors say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gqi {
    /// Length of the packet.
    pub(super) declared: usize,
    /// Where the checksum is, and what it is over.
    pub(super) partial: Partial,
}

/// A piece of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) address: u64,
    pub(super) length: u16,
}

/// What stands at the head of a ring.
#[derive(Debug)]
pub(super) enum Fetched {
    /// A whole packet.
    Packet(Packet),
    /// The start of one.
    Unfinished,
    /// Something that stops hardware.
    Fault {
        rule: &'static Rule,
        message: String,
        /// Descriptors up to and with the one at fault.
        descriptors: usize,
    },
}

/// Reads the first packet in `descriptors`.
pub(super) fn packet(descriptors: &[RawDescriptor]) -> Fetched {
    let mut tso = None;
    let mut general = false;
    for (index, raw) in descriptors.iter().enumerate() {
        let repeated = match Descriptor::decode(raw) {
            Descriptor::Packet(first) => return pieces(descriptors, index, first, tso),
            Descriptor::Tso(context) => tso.replace(context).is_some(),
            Descriptor::General => std::mem::replace(&mut general, true),
            Descriptor::Unknown(kind) => return unknown(kind, index),
        };
        if repeated {
            let message = "two context descriptors of a kind before a packet".to_owned();
            return Fetched::Fault { rule: &rules::TX_DESCRIPTOR_ORDER, message, descriptors: index + 1 };
        }
    }
    Fetched::Unfinished
}

/// Reads the packet descriptors, of which `first` is at `start`.
fn pieces(
    descriptors: &[RawDescriptor],
    start: usize,
    first: PacketDescriptor,
    tso: Option<TsoContext>,
) -> Fetched {
    let mut packet = Packet {
        descriptors: 0,
        tso: tso.filter(|context| context.tso),
        pieces: Vec::new(),
        length: 0,
        tag: first.compl_tag,
        checksum: first.checksum_offload_enable,
        report_events: Vec::new(),
        mixed_tags: false,
        mixed_checksum: false,
        gqi: None,
    };
    for (index, raw) in descriptors.iter().enumerate().skip(start) {
        let fault = |rule, message| Fetched::Fault { rule, message, descriptors: index + 1 };
        let descriptor = match Descriptor::decode(raw) {
            Descriptor::Packet(descriptor) => descriptor,
            Descriptor::Unknown(kind) => return unknown(kind, index),
            Descriptor::Tso(_) | Descriptor::General => {
                let message = "a context descriptor inside a packet".to_owned();
                return fault(&rules::TX_DESCRIPTOR_ORDER, message);
            }
        };
        if descriptor.buf_size == 0 {
            return fault(&rules::TX_BUFFER_SIZE, "packet descriptor without bytes".to_owned());
        }
        if descriptor.report_event {
            packet.report_events.push(index as u16);
        }
        packet.mixed_tags |= descriptor.compl_tag != packet.tag;
        packet.mixed_checksum |= descriptor.checksum_offload_enable != packet.checksum;
        packet.length += usize::from(descriptor.buf_size);
        packet.pieces.push(Piece { address: descriptor.buf_addr, length: descriptor.buf_size });
        if descriptor.end_of_packet {
            packet.descriptors = index + 1;
            return Fetched::Packet(packet);
        }
    }
    Fetched::Unfinished
}

fn unknown(kind: u8, index: usize) -> Fetched {
    let message = format!("descriptor type {kind:#x}");
    Fetched::Fault { rule: &rules::TX_DESCRIPTOR_TYPE, message, descriptors: index + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn general() -> RawDescriptor {
        let mut raw = RawDescriptor::default();
        raw[8] = crate::wire::tx::DTYPE_GENERAL_CONTEXT;
        raw
    }

    fn piece(length: u16, last: bool) -> RawDescriptor {
        let descriptor = PacketDescriptor { buf_size: length, end_of_packet: last, ..Default::default() };
        descriptor.encode()
    }

    #[test]
    fn a_packet_ends_with_its_last_piece() {
        let tso = TsoContext { mss: 1448, header_len: 66, tso_total_len: 2000, tso: true };
        let ring = [tso.encode(), general(), piece(66, false), piece(2000, true), general()];
        let Fetched::Packet(packet) = packet(&ring) else { panic!("a packet") };
        assert_eq!((packet.descriptors, packet.length, packet.pieces.len()), (4, 2066, 2));
        assert_eq!(packet.tso, Some(tso));
    }

    #[test]
    fn what_hardware_would_stop_at_is_a_fault() {
        for (ring, rule) in [
            (vec![general(), general()], &rules::TX_DESCRIPTOR_ORDER),
            (vec![general(), piece(9, false), general()], &rules::TX_DESCRIPTOR_ORDER),
            (vec![general(), piece(0, true)], &rules::TX_BUFFER_SIZE),
            (vec![[0xff; 16]], &rules::TX_DESCRIPTOR_TYPE),
        ] {
            let Fetched::Fault { rule: found, descriptors, .. } = packet(&ring) else {
                panic!("{}", rule.id)
            };
            assert_eq!((found.id, descriptors), (rule.id, ring.len()));
        }
    }

    #[test]
    fn a_packet_without_an_end_is_unfinished() {
        for ring in [vec![], vec![general()], vec![general(), piece(100, false)]] {
            assert!(matches!(packet(&ring), Fetched::Unfinished));
        }
    }
}
