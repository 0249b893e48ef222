//! DQO transmit descriptors and completions (`gve_desc_dqo.h`). All fields are little-endian.

use std::fmt;

use nicvisor_core::fault::WireField;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// One entry of a TX ring before its type is known: all kinds keep the type in the same byte.
pub type RawDescriptor = [u8; DESCRIPTOR_SIZE];

/// An entry of a TX ring, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// `struct gve_tx_pkt_desc_dqo`: a piece of a packet.
    Packet(PacketDescriptor),
    /// `struct gve_tx_tso_context_desc_dqo`: the packet that follows is to be segmented.
    Tso(TsoContext),
    /// `struct gve_tx_general_context_desc_dqo`: metadata only.
    General,
    /// None of these, by its type number.
    Unknown(u8),
}

impl Descriptor {
    /// Decodes an entry.
    pub fn decode(raw: &RawDescriptor) -> Descriptor {
        match raw[8] & 0x1f {
            DTYPE_PACKET => Descriptor::Packet(PacketDescriptor::decode(raw)),
            DTYPE_TSO_CONTEXT => Descriptor::Tso(TsoContext::decode(raw)),
            DTYPE_GENERAL_CONTEXT => Descriptor::General,
            other => Descriptor::Unknown(other),
        }
    }
}

/// The fields as evidence, by their names in the driver.
impl fmt::Display for Descriptor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Descriptor::Packet(packet) => {
                let PacketDescriptor { buf_addr, end_of_packet, checksum_offload_enable, .. } = packet;
                let PacketDescriptor { report_event, compl_tag, buf_size, .. } = packet;
                write!(
                    out,
                    "gve_tx_pkt_desc_dqo: buf_addr {buf_addr:#x}, buf_size {buf_size}, compl_tag {compl_tag}, \
                     end_of_packet {}, checksum_offload_enable {}, report_event {}",
                    u8::from(*end_of_packet),
                    u8::from(*checksum_offload_enable),
                    u8::from(*report_event)
                )
            }
            Descriptor::Tso(TsoContext { tso_total_len, mss, header_len, tso }) => write!(
                out,
                "gve_tx_tso_context_desc_dqo: tso {}, tso_total_len {tso_total_len}, mss {mss}, \
                 header_len {header_len}",
                u8::from(*tso)
            ),
            Descriptor::General => out.write_str("gve_tx_general_context_desc_dqo"),
            Descriptor::Unknown(kind) => write!(out, "unknown type {kind:#x}"),
        }
    }
}

/// `struct gve_tx_pkt_desc_dqo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketDescriptor {
    /// Where the piece is.
    pub buf_addr: u64,
    /// Last piece of the packet.
    pub end_of_packet: bool,
    /// Fill in the L4 checksum.
    pub checksum_offload_enable: bool,
    /// Report with a descriptor completion when this descriptor has been fetched.
    pub report_event: bool,
    /// Comes back in the packet completion.
    pub compl_tag: u16,
    /// Bytes of the piece, 14 bits.
    pub buf_size: u16,
}

impl PacketDescriptor {
    fn decode(raw: &RawDescriptor) -> PacketDescriptor {
        PacketDescriptor {
            buf_addr: u64::from_le_bytes([raw[0], raw[1], raw[2], raw[3], raw[4], raw[5], raw[6], raw[7]]),
            end_of_packet: raw[8] & 1 << 5 != 0,
            checksum_offload_enable: raw[8] & 1 << 6 != 0,
            report_event: raw[8] & 1 << 7 != 0,
            compl_tag: u16::from_le_bytes([raw[12], raw[13]]),
            buf_size: u16::from_le_bytes([raw[14], raw[15]]) & MAX_BUF_SIZE,
        }
    }

    /// The entry as it stands in the ring.
    pub fn encode(&self) -> RawDescriptor {
        let mut raw = [0; DESCRIPTOR_SIZE];
        raw[..8].copy_from_slice(&self.buf_addr.to_le_bytes());
        raw[8] = DTYPE_PACKET
            | u8::from(self.end_of_packet) << 5
            | u8::from(self.checksum_offload_enable) << 6
            | u8::from(self.report_event) << 7;
        raw[12..14].copy_from_slice(&self.compl_tag.to_le_bytes());
        raw[14..].copy_from_slice(&(self.buf_size & MAX_BUF_SIZE).to_le_bytes());
        raw
    }
}

/// `struct gve_tx_tso_context_desc_dqo` without its metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TsoContext {
    /// L4 payload bytes that follow the headers, 24 bits.
    pub tso_total_len: u32,
    /// Payload bytes of each segment, 14 bits.
    pub mss: u16,
    /// Bytes of the headers that each segment repeats.
    pub header_len: u8,
    /// Segmentation is wanted.
    pub tso: bool,
}

impl TsoContext {
    fn decode(raw: &RawDescriptor) -> TsoContext {
        TsoContext {
            tso_total_len: u32::from_le_bytes([raw[0], raw[1], raw[2], 0]),
            mss: u16::from_le_bytes([raw[4], raw[5]]) & 0x3fff,
            header_len: raw[6],
            tso: raw[8] & 1 << 5 != 0,
        }
    }

    /// The entry as it stands in the ring.
    pub fn encode(&self) -> RawDescriptor {
        let mut raw = [0; DESCRIPTOR_SIZE];
        raw[..3].copy_from_slice(&self.tso_total_len.to_le_bytes()[..3]);
        raw[4..6].copy_from_slice(&(self.mss & 0x3fff).to_le_bytes());
        raw[6] = self.header_len;
        raw[8] = DTYPE_TSO_CONTEXT | u8::from(self.tso) << 5;
        raw
    }
}

/// `struct gve_tx_compl_desc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Completion {
    /// Queue id (11 bits), [`CompletionType`] (3), reserved (1), generation (1).
    head: [u8; 2],
    /// Completion tag, or the TX head of a descriptor completion.
    value: [u8; 2],
    reserved: [u8; 4],
}
const _: () = assert!(size_of::<Completion>() == COMPLETION_SIZE);

impl Completion {
    /// A completion of `kind` for TX queue `queue`.
    pub fn new(queue: u16, kind: CompletionType, generation: bool, value: u16) -> Completion {
        let head = queue & 0x7ff | (kind as u16) << 11 | u16::from(generation) << 15;
        Completion { head: head.to_le_bytes(), value: value.to_le_bytes(), reserved: [0; 4] }
    }

    /// The generation bit.
    pub fn generation(&self) -> bool {
        self.head[1] & 0x80 != 0
    }

    /// The type's number.
    pub fn kind(&self) -> u8 {
        self.head[1] >> 3 & 7
    }

    /// The queue id.
    pub fn queue(&self) -> u16 {
        u16::from_le_bytes(self.head) & 0x7ff
    }

    /// Completion tag or TX head.
    pub fn value(&self) -> u16 {
        u16::from_le_bytes(self.value)
    }
}

/// A completion as it stands in the ring.
pub type RawCompletion = [u8; COMPLETION_SIZE];

/// The fields of `struct gve_tx_compl_desc`.
pub const COMPLETION_LAYOUT: &[WireField] = &[
    WireField::little("id", 0, 2).at_bits(0, 11),
    WireField::little("type", 0, 2).at_bits(11, 3).named(COMPLETION_TYPES),
    WireField::little("generation", 0, 2).at_bits(15, 1),
    WireField::little("completion_tag", 2, 2),
    WireField::little("tx_head", 2, 2),
];

/// The completion types by name (`GVE_COMPL_TYPE_DQO_*`).
pub const COMPLETION_TYPES: &[(&str, u64)] = &[
    ("packet", CompletionType::Packet as u64),
    ("descriptor", CompletionType::Descriptor as u64),
    ("miss", CompletionType::Miss as u64),
    ("reinjection", CompletionType::Reinjection as u64),
];

/// `GVE_COMPL_TYPE_DQO_*`: the completions that this device writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CompletionType {
    /// The packet with this tag took a slow path; its re-injection completion follows.
    Miss = 1,
    /// The packet with this tag was sent.
    Packet = 2,
    /// The packet with this tag, for which there was a miss completion, was sent.
    Reinjection = 3,
    /// Descriptors up to this index were fetched.
    Descriptor = 4,
}

/// Bytes of a TX descriptor.
pub const DESCRIPTOR_SIZE: usize = 16;
/// Bytes of a TX completion.
pub const COMPLETION_SIZE: usize = 8;
/// `GVE_TX_MAX_BUF_SIZE_DQO`: most bytes of one packet descriptor.
pub const MAX_BUF_SIZE: u16 = 16 * 1024 - 1;
/// `GVE_TX_PKT_DESC_DTYPE_DQO`.
pub const DTYPE_PACKET: u8 = 0xc;
/// `GVE_TX_TSO_CTX_DESC_DTYPE_DQO`.
pub const DTYPE_TSO_CONTEXT: u8 = 0x5;
/// `GVE_TX_GENERAL_CTX_DESC_DTYPE_DQO`.
pub const DTYPE_GENERAL_CONTEXT: u8 = 0x4;
/// `GVE_TX_MAX_HDR_SIZE_DQO`.
pub const MAX_HEADER_SIZE: usize = 255;
/// `GVE_TX_MIN_TSO_MSS_DQO`.
pub const MIN_TSO_MSS: u16 = 88;
/// `GVE_TX_MAX_DATA_DESCS`: most buffers of a packet, or of one segment.
pub const MAX_DATA_DESCRIPTORS: usize = 10;
/// `GVE_TX_MIN_RE_INTERVAL`: least distance between descriptors with `report_event`.
pub const MIN_REPORT_EVENT_INTERVAL: u16 = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn evidence_has_the_names_of_the_driver() {
        let tso = TsoContext { tso_total_len: 80_352, mss: 8928, header_len: 94, tso: true };
        assert_eq!(
            Descriptor::decode(&tso.encode()).to_string(),
            "gve_tx_tso_context_desc_dqo: tso 1, tso_total_len 80352, mss 8928, header_len 94"
        );
        let packet = PacketDescriptor {
            buf_addr: 0x1000,
            end_of_packet: true,
            compl_tag: 7,
            buf_size: 66,
            ..Default::default()
        };
        assert_eq!(
            Descriptor::decode(&packet.encode()).to_string(),
            "gve_tx_pkt_desc_dqo: buf_addr 0x1000, buf_size 66, compl_tag 7, end_of_packet 1, \
             checksum_offload_enable 0, report_event 0"
        );
    }

    #[test]
    fn the_bytes_of_a_packet_descriptor_are_those_of_the_header() {
        let descriptor = PacketDescriptor {
            buf_addr: 0x1122_3344_5566_7788,
            end_of_packet: true,
            checksum_offload_enable: false,
            report_event: true,
            compl_tag: 0x1234,
            buf_size: 0x3fff,
        };
        let bytes = [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xac, 0, 0, 0, 0x34, 0x12, 0xff, 0x3f];
        assert_eq!(descriptor.encode(), bytes);
    }

    #[test]
    fn the_bytes_of_a_completion_are_those_of_the_header() {
        let completion = Completion::new(3, CompletionType::Descriptor, true, 0x0102);
        assert_eq!(completion.as_bytes(), [0x03, 0xa0, 0x02, 0x01, 0, 0, 0, 0]);
        assert_eq!((completion.queue(), completion.kind(), completion.generation()), (3, 4, true));
    }

    proptest! {
        #[test]
        fn packet_descriptors_survive_the_ring(
            buf_addr: u64, end_of_packet: bool, checksum_offload_enable: bool, report_event: bool,
            compl_tag: u16, buf_size in 0..=MAX_BUF_SIZE,
        ) {
            let descriptor = PacketDescriptor {
                buf_addr, end_of_packet, checksum_offload_enable, report_event, compl_tag, buf_size,
            };
            prop_assert_eq!(Descriptor::decode(&descriptor.encode()), Descriptor::Packet(descriptor));
        }

        #[test]
        fn tso_contexts_survive_the_ring(
            tso_total_len in 0..1_u32 << 24, mss in 0..1_u16 << 14, header_len: u8, tso: bool,
        ) {
            let context = TsoContext { tso_total_len, mss, header_len, tso };
            prop_assert_eq!(Descriptor::decode(&context.encode()), Descriptor::Tso(context));
        }
    }
}
