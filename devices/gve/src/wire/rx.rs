//! DQO receive descriptors and completions (`gve_desc_dqo.h`). All fields are little-endian.

use bitflags::bitflags;
use nicvisor_core::fault::WireField;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `struct gve_rx_desc_dqo`: a buffer that the driver posts.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BufferDescriptor {
    /// Comes back in the completion.
    pub buf_id: U16,
    /// Zero.
    pub reserved0: U16,
    /// Zero.
    pub reserved1: U32,
    /// Where the buffer is.
    pub buf_addr: U64,
    /// Where its header buffer is, with header split.
    pub header_buf_addr: U64,
    /// Zero.
    pub reserved2: U64,
}
const _: () = assert!(size_of::<BufferDescriptor>() == BUFFER_DESCRIPTOR_SIZE);

bitflags! {
    /// The flag byte of a completion that holds the verdicts on the packet.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CompletionStatus: u8 {
        /// The descriptor is filled in.
        const DESCRIPTOR_DONE = 1 << 0;
        /// Last buffer of the packet.
        const END_OF_PACKET = 1 << 1;
        /// L3 and L4 headers were recognised and their checksums verified.
        const L3_L4_PROCESSED = 1 << 3;
        /// The IPv4 header checksum is wrong.
        const CHECKSUM_IP_ERROR = 1 << 4;
        /// The L4 checksum is wrong.
        const CHECKSUM_L4_ERROR = 1 << 5;
    }
}

/// A completion as it stands in the ring.
pub type RawCompletion = [u8; COMPLETION_SIZE];

/// The fields of `struct gve_rx_compl_desc_dqo`.
pub const COMPLETION_LAYOUT: &[WireField] = &[
    WireField::little("rxdid", 0, 1).at_bits(0, 4),
    WireField::little("loopback", 1, 1).at_bits(0, 1),
    WireField::little("ipv6_ex_add", 1, 1).at_bits(1, 1),
    WireField::little("rx_error", 1, 1).at_bits(2, 1),
    WireField::little("packet_type", 2, 2).at_bits(0, 10),
    WireField::little("ip_hdr_err", 2, 2).at_bits(10, 1),
    WireField::little("udp_len_err", 2, 2).at_bits(11, 1),
    WireField::little("raw_cs_invalid", 2, 2).at_bits(12, 1),
    WireField::little("packet_len", 4, 2).at_bits(0, 14),
    WireField::little("generation", 4, 2).at_bits(14, 1),
    WireField::little("buffer_queue_id", 4, 2).at_bits(15, 1),
    WireField::little("header_len", 6, 2).at_bits(0, 10),
    WireField::little("rsc", 6, 2).at_bits(10, 1),
    WireField::little("split_header", 6, 2).at_bits(11, 1),
    WireField::little("descriptor_done", 8, 1).at_bits(0, 1),
    WireField::little("end_of_packet", 8, 1).at_bits(1, 1),
    WireField::little("header_buffer_overflow", 8, 1).at_bits(2, 1),
    WireField::little("l3_l4_processed", 8, 1).at_bits(3, 1),
    WireField::little("csum_ip_err", 8, 1).at_bits(4, 1),
    WireField::little("csum_l4_err", 8, 1).at_bits(5, 1),
    WireField::little("csum_external_ip_err", 8, 1).at_bits(6, 1),
    WireField::little("csum_external_udp_err", 8, 1).at_bits(7, 1),
    WireField::little("status_error1", 9, 1),
    WireField::little("buf_id", 12, 2),
    WireField::little("raw_cs", 14, 2),
    WireField::little("rsc_seg_len", 14, 2),
    WireField::little("hash", 16, 4),
];

/// What a receive completion says: the fields of `struct gve_rx_compl_desc_dqo` that this device uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// An IPv6 destination options or routing header is present.
    pub ipv6_ex_add: bool,
    /// The packet could not be received.
    pub rx_error: bool,
    /// Index into the packet type map, 10 bits.
    pub packet_type: u16,
    /// Bytes in this buffer, 14 bits.
    pub packet_len: u16,
    /// Generation.
    pub generation: bool,
    /// Verdicts.
    pub status: CompletionStatus,
    /// Which buffer.
    pub buf_id: u16,
    /// RSS hash.
    pub hash: u32,
}

impl Completion {
    /// The entry as it stands in the ring. The generation bit is within the first eight bytes.
    pub fn encode(&self) -> [u8; COMPLETION_SIZE] {
        let mut raw = [0; COMPLETION_SIZE];
        raw[0] = RXDID;
        raw[1] = u8::from(self.ipv6_ex_add) << 1 | u8::from(self.rx_error) << 2;
        let packet_type = self.packet_type & 0x3ff | RAW_CHECKSUM_INVALID;
        raw[2..4].copy_from_slice(&packet_type.to_le_bytes());
        let length = self.packet_len & MAX_PACKET_LEN | u16::from(self.generation) << 14;
        raw[4..6].copy_from_slice(&length.to_le_bytes());
        raw[8] = self.status.bits();
        raw[12..14].copy_from_slice(&self.buf_id.to_le_bytes());
        raw[16..20].copy_from_slice(&self.hash.to_le_bytes());
        raw
    }

    /// Decodes an entry, as the driver does.
    pub fn decode(raw: &[u8; COMPLETION_SIZE]) -> Completion {
        let length = u16::from_le_bytes([raw[4], raw[5]]);
        Completion {
            ipv6_ex_add: raw[1] & 2 != 0,
            rx_error: raw[1] & 4 != 0,
            packet_type: u16::from_le_bytes([raw[2], raw[3]]) & 0x3ff,
            packet_len: length & MAX_PACKET_LEN,
            generation: length & 1 << 14 != 0,
            status: CompletionStatus::from_bits_truncate(raw[8]),
            buf_id: u16::from_le_bytes([raw[12], raw[13]]),
            hash: u32::from_le_bytes([raw[16], raw[17], raw[18], raw[19]]),
        }
    }
}

/// Bytes of a buffer descriptor.
pub const BUFFER_DESCRIPTOR_SIZE: usize = 32;
/// Bytes of a receive completion.
pub const COMPLETION_SIZE: usize = 32;
/// Most bytes that one completion can report.
pub const MAX_PACKET_LEN: u16 = 0x3fff;
/// The hardware wants the buffer doorbell to move by at least this (`GVE_RX_BUF_THRESH_DQO`'s comment).
pub const MIN_DOORBELL_STEP: u16 = 8;
/// The only completion format.
const RXDID: u8 = 1;
/// This device reports no raw packet checksum.
const RAW_CHECKSUM_INVALID: u16 = 1 << 12;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_of_a_completion_are_those_of_the_header() {
        let completion = Completion {
            packet_type: 0x155,
            packet_len: 0x0123,
            generation: true,
            status: CompletionStatus::DESCRIPTOR_DONE | CompletionStatus::END_OF_PACKET,
            buf_id: 0x0a0b,
            hash: 0x0102_0304,
            ..Completion::default()
        };
        let raw = completion.encode();
        assert_eq!(raw[..8], [0x01, 0, 0x55, 0x11, 0x23, 0x41, 0, 0]);
        assert_eq!(raw[8..20], [3, 0, 0, 0, 0x0b, 0x0a, 0, 0, 4, 3, 2, 1]);
    }

    proptest! {
        #[test]
        fn completions_survive_the_ring(
            ipv6_ex_add: bool, rx_error: bool, packet_type in 0..1024_u16, packet_len in 0..=MAX_PACKET_LEN,
            generation: bool, status: u8, buf_id: u16, hash: u32,
        ) {
            let status = CompletionStatus::from_bits_truncate(status);
            let completion = Completion {
                ipv6_ex_add, rx_error, packet_type, packet_len, generation, status, buf_id, hash,
            };
            prop_assert_eq!(Completion::decode(&completion.encode()), completion);
        }
    }
}
