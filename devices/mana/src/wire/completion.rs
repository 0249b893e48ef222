//! What completions of a vPort's queues say (Linux `include/net/mana/mana.h`: `struct mana_rxcomp_oob`,
//! `struct mana_tx_comp_oob`). All fields are little-endian.

use super::cqe::PAYLOAD_SIZE;

/// `enum mana_cqe_type`: what became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub enum CqeType {
    /// A packet arrived.
    RxOkay = 1,
    /// Up to four packets arrived.
    RxCoalesced4 = 2,
    /// All packets that arrived before a fence was asked for have been completed.
    RxObjectFence = 3,
    /// A packet arrived that did not fit its buffer.
    RxTruncated = 4,
    /// Up to eight packets arrived.
    RxCoalesced8 = 7,
    /// The packet was sent.
    TxOkay = 32,
    /// Dropped: the source address is not the vPort's.
    TxSaDrop = 33,
    /// Dropped: longer than the link's MTU.
    TxMtuDrop = 34,
    /// Dropped: the out-of-band data contradicts itself or the queue.
    TxInvalidOob = 35,
    /// Dropped: a type of packet that the vPort may not send.
    TxInvalidEthType = 36,
    /// Dropped: the headers are not what the offload needs.
    TxHdrProcessingError = 37,
    /// Dropped: the function is disabled.
    TxVfDisabled = 38,
    /// Dropped: not the vPort's number.
    TxVportIdxOutOfRange = 39,
    /// Dropped: the vPort is not configured for sending.
    TxVportDisabled = 40,
    /// Dropped: a VLAN tag where the vPort may send none.
    TxVlanTaggingViolation = 41,
}

/// The first word of every completion, `struct mana_cqe_header`.
fn header(kind: u8, vendor_err: u32) -> u32 {
    u32::from(kind & 0x3f) | CLIENT_TYPE << 6 | vendor_err << 8
}

/// `struct mana_tx_comp_oob`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxCompletion {
    /// `cqe_type`, a number of [`CqeType`]; 6 bits.
    pub kind: u8,
    /// `vendor_err`, 24 bits.
    pub vendor_err: u32,
    /// `tx_data_offset`: bytes of the packet that were read.
    pub tx_data_offset: u32,
    /// `tx_sgl_offset`: the element of the list that was read last, 5 bits.
    pub tx_sgl_offset: u8,
    /// `tx_wqe_offset`: where in the queue the entry is, in basic units; 27 bits.
    pub tx_wqe_offset: u32,
}

impl TxCompletion {
    /// Reads a completion's payload.
    pub fn decode(payload: &[u8; PAYLOAD_SIZE]) -> TxCompletion {
        let (first, place) = (word(payload, 0), word(payload, 2));
        TxCompletion {
            kind: first as u8 & 0x3f,
            vendor_err: first >> 8,
            tx_data_offset: word(payload, 1),
            tx_sgl_offset: place as u8 & 0x1f,
            tx_wqe_offset: place >> 5,
        }
    }

    /// A completion's payload.
    pub fn encode(&self) -> [u8; PAYLOAD_SIZE] {
        let mut payload = [0; PAYLOAD_SIZE];
        put(&mut payload, 0, header(self.kind, self.vendor_err));
        put(&mut payload, 1, self.tx_data_offset);
        put(&mut payload, 2, u32::from(self.tx_sgl_offset & 0x1f) | self.tx_wqe_offset << 5);
        payload
    }
}

/// `struct mana_rxcomp_oob`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxCompletion {
    /// `cqe_type`, a number of [`CqeType`]; 6 bits.
    pub kind: u8,
    /// `vendor_err`, 24 bits.
    pub vendor_err: u32,
    /// VLAN, priority and flags that hold for all packets of the completion.
    pub flags: RxFlags,
    /// Length and hash of each packet; a length of 0 ends the list. Only in the type for eight are there more
    /// than four.
    pub packets: [RxPacket; MAX_PACKETS],
    /// `rx_wqe_offset`: where in the queue the (first) packet's entry is, in bytes.
    pub rx_wqe_offset: u32,
}

/// `union mana_rxcomp_perpkt_info`, one packet of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RxPacket {
    /// `pkt_len`: bytes written.
    pub length: u16,
    /// `pkt_hash`.
    pub hash: u32,
}

/// The second word of `struct mana_rxcomp_oob`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RxFlags {
    /// `rx_vlan_id`, 12 bits, if a VLAN tag was taken out of the packet.
    pub vlan_id: Option<u16>,
    /// `rx_outer_iphdr_csum_succeed` (true) or `rx_outer_iphdr_csum_fail` (false).
    pub outer_iphdr_csum: Option<bool>,
    /// `rx_hashtype`: what went into the hash, one bit of [`hash_type`] or none.
    pub hash_type: u16,
    /// `rx_iphdr_csum_succeed` (true) or `rx_iphdr_csum_fail` (false).
    pub iphdr_csum: Option<bool>,
    /// `rx_tcp_csum_succeed` (true) or `rx_tcp_csum_fail` (false).
    pub tcp_csum: Option<bool>,
    /// `rx_udp_csum_succeed` (true) or `rx_udp_csum_fail` (false).
    pub udp_csum: Option<bool>,
}

impl RxCompletion {
    /// Reads a completion's payload.
    pub fn decode(payload: &[u8; PAYLOAD_SIZE]) -> RxCompletion {
        let first = word(payload, 0);
        let kind = first as u8 & 0x3f;
        let mut packets = [RxPacket::default(); MAX_PACKETS];
        for entry in 0..MAX_ENTRIES {
            let [a, b, c] = [0, 1, 2].map(|index| word(payload, FIRST_ENTRY + entry * 3 + index));
            if kind == CqeType::RxCoalesced8 as u8 {
                packets[entry * 2] = RxPacket { length: b as u16, hash: a };
                packets[entry * 2 + 1] = RxPacket { length: (b >> 16) as u16, hash: c };
            } else {
                packets[entry] = RxPacket { length: a as u16, hash: c };
            }
        }
        RxCompletion {
            kind,
            vendor_err: first >> 8,
            flags: RxFlags::decode(word(payload, 1)),
            packets,
            rx_wqe_offset: word(payload, WQE_OFFSET),
        }
    }

    /// A completion's payload.
    pub fn encode(&self) -> [u8; PAYLOAD_SIZE] {
        let mut payload = [0; PAYLOAD_SIZE];
        put(&mut payload, 0, header(self.kind, self.vendor_err));
        put(&mut payload, 1, self.flags.encode());
        for entry in 0..MAX_ENTRIES {
            let words = if self.kind == CqeType::RxCoalesced8 as u8 {
                let (first, second) = (self.packets[entry * 2], self.packets[entry * 2 + 1]);
                let lengths = u32::from(first.length) | u32::from(second.length) << 16;
                [first.hash, lengths, second.hash]
            } else {
                [self.packets[entry].length.into(), 0, self.packets[entry].hash]
            };
            for (index, value) in words.into_iter().enumerate() {
                put(&mut payload, FIRST_ENTRY + entry * 3 + index, value);
            }
        }
        put(&mut payload, WQE_OFFSET, self.rx_wqe_offset);
        payload
    }
}

impl RxFlags {
    fn decode(word: u32) -> RxFlags {
        let bit = |number: u32| word & 1 << number != 0;
        let verdict = |succeed, fail| match (bit(succeed), bit(fail)) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        };
        RxFlags {
            vlan_id: bit(12).then_some(word as u16 & 0xfff),
            outer_iphdr_csum: verdict(13, 14),
            hash_type: (word >> 16) as u16 & 0x1ff,
            iphdr_csum: verdict(25, 26),
            tcp_csum: verdict(27, 28),
            udp_csum: verdict(29, 30),
        }
    }

    fn encode(&self) -> u32 {
        let verdict = |verdict: Option<bool>, succeed: u32| match verdict {
            Some(true) => 1 << succeed,
            Some(false) => 1 << (succeed + 1),
            None => 0,
        };
        self.vlan_id.map_or(0, |id| u32::from(id & 0xfff) | 1 << 12)
            | verdict(self.outer_iphdr_csum, 13)
            | u32::from(self.hash_type & 0x1ff) << 16
            | verdict(self.iphdr_csum, 25)
            | verdict(self.tcp_csum, 27)
            | verdict(self.udp_csum, 29)
    }
}

fn word(payload: &[u8; PAYLOAD_SIZE], index: usize) -> u32 {
    payload.as_chunks().0.get(index).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn put(payload: &mut [u8; PAYLOAD_SIZE], index: usize, value: u32) {
    if let Some(bytes) = payload.as_chunks_mut().0.get_mut(index) {
        *bytes = value.to_le_bytes();
    }
}

/// `NDIS_HASH_*`: what goes into a hash.
pub mod hash_type {
    /// IPv4 addresses.
    pub const IPV4: u16 = 1 << 0;
    /// IPv4 addresses and TCP ports.
    pub const TCP_IPV4: u16 = 1 << 1;
    /// IPv4 addresses and UDP ports.
    pub const UDP_IPV4: u16 = 1 << 2;
    /// IPv6 addresses.
    pub const IPV6: u16 = 1 << 3;
    /// IPv6 addresses and TCP ports.
    pub const TCP_IPV6: u16 = 1 << 4;
    /// IPv6 addresses and UDP ports.
    pub const UDP_IPV6: u16 = 1 << 5;
}

/// Most packets that one completion announces.
pub const MAX_PACKETS: usize = 8;
/// `MANA_RXCOMP_OOB_NUM_PPI`.
pub const MAX_ENTRIES: usize = 4;
/// `MANA_CQE_COMPLETION`.
const CLIENT_TYPE: u32 = 1;
/// Words before `ppi`.
const FIRST_ENTRY: usize = 2;
/// Words before `rx_wqe_offset`.
const WQE_OFFSET: usize = FIRST_ENTRY + MAX_ENTRIES * 3;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_of_a_tx_completion_are_those_of_the_header() {
        let completion = TxCompletion {
            kind: CqeType::TxMtuDrop as u8,
            vendor_err: 0x030201,
            tx_data_offset: 5,
            tx_sgl_offset: 3,
            tx_wqe_offset: 1,
        };
        let payload = completion.encode();
        assert_eq!(payload[..12], [0x62, 1, 2, 3, 5, 0, 0, 0, 0x23, 0, 0, 0]);
        assert_eq!(payload[12..], [0; 48]);
        assert_eq!(TxCompletion::decode(&payload), completion);
    }

    #[test]
    fn the_bytes_of_an_rx_completion_are_those_of_the_header() {
        let flags = RxFlags {
            vlan_id: Some(0x123),
            outer_iphdr_csum: None,
            hash_type: hash_type::TCP_IPV4,
            iphdr_csum: Some(true),
            tcp_csum: Some(false),
            udp_csum: None,
        };
        let mut completion =
            RxCompletion { kind: CqeType::RxOkay as u8, flags, rx_wqe_offset: 0x60, ..Default::default() };
        completion.packets[0] = RxPacket { length: 0x5dc, hash: 0x0102_0304 };
        let payload = completion.encode();
        let bytes = [0x41, 0, 0, 0, 0x23, 0x11, 0x02, 0x12, 0xdc, 5, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1];
        assert_eq!(payload[..20], bytes);
        assert_eq!(payload[56..], [0x60, 0, 0, 0]);
    }

    #[test]
    fn eight_packets_take_two_places_in_each_entry() {
        let mut completion = RxCompletion { kind: CqeType::RxCoalesced8 as u8, ..Default::default() };
        completion.packets = std::array::from_fn(|at| RxPacket { length: at as u16 + 1, hash: at as u32 });
        let payload = completion.encode();
        assert_eq!(payload[8..20], [0, 0, 0, 0, 1, 0, 2, 0, 1, 0, 0, 0]);
        assert_eq!(RxCompletion::decode(&payload), completion);
    }

    proptest! {
        #[test]
        fn rx_completions_survive_the_ring(
            coalesced: bool, vlan_id in proptest::option::of(0..4096_u16), hash_type in 0..512_u16,
            verdicts: [Option<bool>; 4], packets: [(u16, u32); 4], rx_wqe_offset: u32,
        ) {
            let flags = RxFlags {
                vlan_id, hash_type, outer_iphdr_csum: verdicts[0], iphdr_csum: verdicts[1],
                tcp_csum: verdicts[2], udp_csum: verdicts[3],
            };
            let kind = if coalesced { CqeType::RxCoalesced4 } else { CqeType::RxTruncated } as u8;
            let mut completion = RxCompletion { kind, flags, rx_wqe_offset, ..Default::default() };
            for (packet, (length, hash)) in completion.packets.iter_mut().zip(packets) {
                *packet = RxPacket { length, hash };
            }
            prop_assert_eq!(RxCompletion::decode(&completion.encode()), completion);
        }
    }
}
