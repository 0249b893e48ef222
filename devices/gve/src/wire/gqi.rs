//! GQI descriptors (`gve_desc.h`). All fields are big-endian.

use std::fmt;

use nicvisor_core::fault::WireField;

use super::tx::RawDescriptor;

/// An entry of a GQI TX ring, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// `struct gve_tx_pkt_desc`: the first of a packet.
    Packet(PacketDescriptor),
    /// `struct gve_tx_seg_desc`: a further piece.
    Segment(SegmentDescriptor),
    /// `struct gve_tx_mtd_desc`: metadata only.
    Metadata,
    /// None of these, by its type number.
    Unknown(u8),
}

/// `struct gve_tx_pkt_desc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketDescriptor {
    /// `GVE_TXD_TSO`: the packet is to be segmented.
    pub tso: bool,
    /// `GVE_TXF_L4CSUM`: fill in the checksum.
    pub l4_csum: bool,
    /// Where the checksum is, in words of 16 bits from the L4 header.
    pub l4_csum_offset: u8,
    /// Where the L4 header is, in words of 16 bits from the packet's start.
    pub l4_hdr_offset: u8,
    /// Descriptors of the packet.
    pub desc_cnt: u8,
    /// Bytes of the packet.
    pub len: u16,
    /// Bytes of this piece; of a packet to be segmented, its headers.
    pub seg_len: u16,
    /// Where this piece is.
    pub seg_addr: u64,
}

/// `struct gve_tx_seg_desc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentDescriptor {
    /// Payload bytes of each segment.
    pub mss: u16,
    /// Bytes of this piece.
    pub seg_len: u16,
    /// Where it is.
    pub seg_addr: u64,
}

impl Descriptor {
    /// Decodes an entry.
    pub fn decode(raw: &RawDescriptor) -> Descriptor {
        let half = |at: usize| u16::from_be_bytes([raw[at], raw[at + 1]]);
        let [.., a, b, c, d, e, f, g, h] = *raw;
        let seg_addr = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        match raw[0] >> 4 {
            kind @ (TXD_STD | TXD_TSO) => Descriptor::Packet(PacketDescriptor {
                tso: kind == TXD_TSO,
                l4_csum: raw[0] & TXF_L4CSUM != 0,
                l4_csum_offset: raw[1],
                l4_hdr_offset: raw[2],
                desc_cnt: raw[3],
                len: half(4),
                seg_len: half(6),
                seg_addr,
            }),
            TXD_SEG => Descriptor::Segment(SegmentDescriptor { mss: half(4), seg_len: half(6), seg_addr }),
            TXD_MTD => Descriptor::Metadata,
            other => Descriptor::Unknown(other),
        }
    }
}

/// The fields as evidence, by their names in the driver.
impl fmt::Display for Descriptor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Descriptor::Packet(packet) => {
                let PacketDescriptor {
                    l4_csum_offset, l4_hdr_offset, desc_cnt, len, seg_len, seg_addr, ..
                } = packet;
                write!(
                    out,
                    "gve_tx_pkt_desc: tso {}, l4_csum {}, l4_csum_offset {l4_csum_offset}, \
                     l4_hdr_offset {l4_hdr_offset}, desc_cnt {desc_cnt}, len {len}, seg_len {seg_len}, \
                     seg_addr {seg_addr:#x}",
                    u8::from(packet.tso),
                    u8::from(packet.l4_csum)
                )
            }
            Descriptor::Segment(SegmentDescriptor { mss, seg_len, seg_addr }) => {
                write!(out, "gve_tx_seg_desc: mss {mss}, seg_len {seg_len}, seg_addr {seg_addr:#x}")
            }
            Descriptor::Metadata => out.write_str("gve_tx_mtd_desc"),
            Descriptor::Unknown(kind) => write!(out, "unknown type {kind:#x}"),
        }
    }
}

impl PacketDescriptor {
    /// The entry as it stands in the ring.
    pub fn encode(&self) -> RawDescriptor {
        let mut raw = RawDescriptor::default();
        let kind = if self.tso { TXD_TSO } else { TXD_STD };
        raw[0] = kind << 4 | if self.l4_csum { TXF_L4CSUM } else { 0 };
        raw[1..4].copy_from_slice(&[self.l4_csum_offset, self.l4_hdr_offset, self.desc_cnt]);
        raw[4..6].copy_from_slice(&self.len.to_be_bytes());
        raw[6..8].copy_from_slice(&self.seg_len.to_be_bytes());
        raw[8..].copy_from_slice(&self.seg_addr.to_be_bytes());
        raw
    }
}

impl SegmentDescriptor {
    /// The entry as it stands in the ring.
    pub fn encode(&self) -> RawDescriptor {
        let mut raw = RawDescriptor::default();
        raw[0] = TXD_SEG << 4;
        raw[4..6].copy_from_slice(&self.mss.to_be_bytes());
        raw[6..8].copy_from_slice(&self.seg_len.to_be_bytes());
        raw[8..].copy_from_slice(&self.seg_addr.to_be_bytes());
        raw
    }
}

/// The event counter of a TX queue: descriptors done with since the queue was created.
pub const EVENT_COUNTER_LAYOUT: &[WireField] = &[WireField::big("event_counter", 0, 4)];

/// `struct gve_rx_desc` without the padding of 48 bytes in front.
pub const RX_LAYOUT: &[WireField] = &[
    WireField::big("rss_hash", 0, 4),
    WireField::big("mss", 4, 2),
    WireField::big("hdr_len", 8, 1),
    WireField::big("hdr_off", 9, 1),
    WireField::big("csum", 10, 2),
    WireField::big("len", 12, 2),
    WireField::big("flags_seq", 14, 2),
    WireField::big("seqno", 14, 2).at_bits(0, 3),
    WireField::big("frag", 14, 2).at_bits(6, 1),
    WireField::big("ipv4", 14, 2).at_bits(7, 1),
    WireField::big("ipv6", 14, 2).at_bits(8, 1),
    WireField::big("tcp", 14, 2).at_bits(9, 1),
    WireField::big("udp", 14, 2).at_bits(10, 1),
    WireField::big("err", 14, 2).at_bits(11, 1),
    WireField::big("pkt_cont", 14, 2).at_bits(13, 1),
];

/// Bytes of `struct gve_rx_desc`.
pub const RX_DESCRIPTOR_SIZE: usize = 64;
/// Bytes of its padding.
pub const RX_DESCRIPTOR_PADDING: usize = 48;
/// Bytes of `union gve_rx_data_slot`: the address or offset of a buffer.
pub const DATA_SLOT_SIZE: usize = 8;
/// `GVE_RX_PAD`: bytes that the device leaves free in front of a packet.
pub const RX_PAD: usize = 2;
/// `GVE_RXF_FRAG`.
pub const RXF_FRAG: u16 = 1 << 6;
/// `GVE_RXF_IPV4`.
pub const RXF_IPV4: u16 = 1 << 7;
/// `GVE_RXF_IPV6`.
pub const RXF_IPV6: u16 = 1 << 8;
/// `GVE_RXF_TCP`.
pub const RXF_TCP: u16 = 1 << 9;
/// `GVE_RXF_UDP`.
pub const RXF_UDP: u16 = 1 << 10;
/// `GVE_RXF_ERR`.
pub const RXF_ERR: u16 = 1 << 11;
/// `GVE_RXF_PKT_CONT`: the packet goes on in the next buffer.
pub const RXF_PKT_CONT: u16 = 1 << 13;
/// `GVE_IRQ_MASK`, written to the doorbell of a notification block.
pub const IRQ_MASK: u32 = 1 << 30;
const TXD_STD: u8 = 0;
const TXD_TSO: u8 = 1;
const TXD_SEG: u8 = 2;
const TXD_MTD: u8 = 3;
const TXF_L4CSUM: u8 = 1 << 0;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn evidence_has_the_names_of_the_driver() {
        let segment = SegmentDescriptor { mss: 1428, seg_len: 4096, seg_addr: 0x2000 };
        assert_eq!(
            Descriptor::decode(&segment.encode()).to_string(),
            "gve_tx_seg_desc: mss 1428, seg_len 4096, seg_addr 0x2000"
        );
        let packet =
            PacketDescriptor { tso: true, desc_cnt: 2, len: 9000, seg_len: 66, ..Default::default() };
        assert_eq!(
            Descriptor::decode(&packet.encode()).to_string(),
            "gve_tx_pkt_desc: tso 1, l4_csum 0, l4_csum_offset 0, l4_hdr_offset 0, desc_cnt 2, len 9000, \
             seg_len 66, seg_addr 0x0"
        );
    }

    #[test]
    fn the_bytes_of_a_packet_descriptor_are_those_of_the_header() {
        let descriptor = PacketDescriptor {
            tso: true,
            l4_csum: true,
            l4_csum_offset: 8,
            l4_hdr_offset: 17,
            desc_cnt: 3,
            len: 0x1234,
            seg_len: 0x0042,
            seg_addr: 0x1122_3344_5566_7788,
        };
        let bytes = [0x11, 8, 17, 3, 0x12, 0x34, 0, 0x42, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88];
        assert_eq!(descriptor.encode(), bytes);
    }

    proptest! {
        #[test]
        fn descriptors_survive_the_ring(
            tso: bool, l4_csum: bool, l4_csum_offset: u8, l4_hdr_offset: u8, desc_cnt: u8, len: u16,
            seg_len: u16, seg_addr: u64, mss: u16,
        ) {
            let packet = PacketDescriptor {
                tso, l4_csum, l4_csum_offset, l4_hdr_offset, desc_cnt, len, seg_len, seg_addr,
            };
            prop_assert_eq!(Descriptor::decode(&packet.encode()), Descriptor::Packet(packet));
            let segment = SegmentDescriptor { mss, seg_len, seg_addr };
            prop_assert_eq!(Descriptor::decode(&segment.encode()), Descriptor::Segment(segment));
        }
    }
}
