//! What goes with a packet to be sent (Linux `include/net/mana/mana.h`: `struct mana_tx_short_oob`,
//! `struct mana_tx_long_oob`): 8 bytes in the short format, 24 in the long one. All fields are little-endian.

use std::fmt;

/// `struct mana_tx_oob`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxOob {
    /// `pkt_fmt`: [`SHORT`] or [`LONG`], 2 bits.
    pub pkt_fmt: u8,
    /// The outermost IP header is IPv4.
    pub is_outer_ipv4: bool,
    /// The outermost IP header is IPv6.
    pub is_outer_ipv6: bool,
    /// Compute the IPv4 header checksum.
    pub comp_iphdr_csum: bool,
    /// Compute the TCP checksum.
    pub comp_tcp_csum: bool,
    /// Compute the UDP checksum.
    pub comp_udp_csum: bool,
    /// `supress_txcqe_gen`: no completion is wanted.
    pub suppress_txcqe_gen: bool,
    /// The send queue's completion queue, 24 bits.
    pub vcq_num: u32,
    /// Where the outermost transport header starts, 10 bits; 0 if the driver does not say.
    pub trans_off: u16,
    /// The send queue's number without its low ten bits, 14 bits.
    pub vsq_frame: u16,
    /// The vPort's number, for vPorts below 256.
    pub short_vp_offset: u8,
    /// The rest of the long format.
    pub long: TxLongOob,
}

/// `struct mana_tx_long_oob`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxLongOob {
    /// The packet is a tunnel; offloads concern the packet inside.
    pub is_encap: bool,
    /// The IP header inside is IPv6.
    pub inner_is_ipv6: bool,
    /// The TCP header inside has options.
    pub inner_tcp_opt: bool,
    /// Insert a VLAN tag made of `pcp`, `dei` and `vlan_id`.
    pub inject_vlan_pri_tag: bool,
    /// Priority, 3 bits.
    pub pcp: u8,
    /// Drop eligible.
    pub dei: bool,
    /// VLAN, 12 bits.
    pub vlan_id: u16,
    /// Where the Ethernet frame inside starts, 10 bits.
    pub inner_frame_offset: u16,
    /// Where the IP header inside starts, from the frame inside, 6 bits.
    pub inner_ip_rel_offset: u8,
    /// The vPort's number, 12 bits.
    pub long_vp_offset: u16,
    /// Whether any reserved bit is set.
    pub reserved: bool,
}

/// The fields as evidence, by their names in the driver; of the long format those that are not zero.
impl fmt::Display for TxOob {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = [
            ("is_outer_ipv4", self.is_outer_ipv4),
            ("is_outer_ipv6", self.is_outer_ipv6),
            ("comp_iphdr_csum", self.comp_iphdr_csum),
            ("comp_tcp_csum", self.comp_tcp_csum),
            ("comp_udp_csum", self.comp_udp_csum),
            ("supress_txcqe_gen", self.suppress_txcqe_gen),
            ("is_encap", self.long.is_encap),
            ("inner_is_ipv6", self.long.inner_is_ipv6),
            ("inner_tcp_opt", self.long.inner_tcp_opt),
            ("inject_vlan_pri_tag", self.long.inject_vlan_pri_tag),
        ];
        let numbers = [
            ("vcq_num", self.vcq_num),
            ("trans_off", self.trans_off.into()),
            ("vsq_frame", self.vsq_frame.into()),
            ("vp_offset", self.vp_offset().into()),
            ("vlan_id", self.long.vlan_id.into()),
            ("inner_frame_offset", self.long.inner_frame_offset.into()),
            ("inner_ip_rel_offset", self.long.inner_ip_rel_offset.into()),
        ];
        write!(out, "mana_tx_oob: pkt_fmt {}", self.pkt_fmt)?;
        let flags = flags.into_iter().map(|(name, set)| (name, u32::from(set)));
        for (name, value) in flags.chain(numbers).filter(|(_, value)| *value != 0) {
            write!(out, ", {name} {value}")?;
        }
        Ok(())
    }
}

impl TxOob {
    /// Reads out-of-band data of the short (8 bytes) or long (24 bytes) format; what is not there is zero.
    pub fn decode(raw: &[u8]) -> TxOob {
        let word = |index: usize| {
            let bytes = raw.get(index * 4..).and_then(|rest| rest.first_chunk());
            bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
        };
        let (first, second) = (word(0), word(1));
        let bit = |number: u32| first & 1 << number != 0;
        TxOob {
            pkt_fmt: first as u8 & 3,
            is_outer_ipv4: bit(2),
            is_outer_ipv6: bit(3),
            comp_iphdr_csum: bit(4),
            comp_tcp_csum: bit(5),
            comp_udp_csum: bit(6),
            suppress_txcqe_gen: bit(7),
            vcq_num: first >> 8,
            trans_off: second as u16 & 0x3ff,
            vsq_frame: (second >> 10) as u16 & 0x3fff,
            short_vp_offset: (second >> 24) as u8,
            long: TxLongOob::decode([word(2), word(3), word(4), word(5)]),
        }
    }

    /// The data in the long format. The short format is the first 8 bytes.
    pub fn encode(&self) -> [u8; LONG_SIZE] {
        let bit = |set: bool, number: u32| u32::from(set) << number;
        let first = u32::from(self.pkt_fmt & 3)
            | bit(self.is_outer_ipv4, 2)
            | bit(self.is_outer_ipv6, 3)
            | bit(self.comp_iphdr_csum, 4)
            | bit(self.comp_tcp_csum, 5)
            | bit(self.comp_udp_csum, 6)
            | bit(self.suppress_txcqe_gen, 7)
            | self.vcq_num << 8;
        let second = u32::from(self.trans_off & 0x3ff)
            | u32::from(self.vsq_frame & 0x3fff) << 10
            | u32::from(self.short_vp_offset) << 24;
        let [third, fourth] = self.long.encode();
        let mut raw = [0; LONG_SIZE];
        for (chunk, word) in raw.as_chunks_mut().0.iter_mut().zip([first, second, third, fourth]) {
            *chunk = word.to_le_bytes();
        }
        raw
    }

    /// The vPort's number in the format that is used.
    pub fn vp_offset(&self) -> u16 {
        if self.pkt_fmt == LONG && self.long.long_vp_offset != 0 {
            self.long.long_vp_offset
        } else {
            self.short_vp_offset.into()
        }
    }
}

impl TxLongOob {
    fn decode([first, second, third, fourth]: [u32; 4]) -> TxLongOob {
        let bit = |number: u32| first & 1 << number != 0;
        TxLongOob {
            is_encap: bit(0),
            inner_is_ipv6: bit(1),
            inner_tcp_opt: bit(2),
            inject_vlan_pri_tag: bit(3),
            pcp: (first >> 16) as u8 & 7,
            dei: bit(19),
            vlan_id: (first >> 20) as u16,
            inner_frame_offset: second as u16 & 0x3ff,
            inner_ip_rel_offset: (second >> 10) as u8 & 0x3f,
            long_vp_offset: (second >> 16) as u16 & 0xfff,
            reserved: first & 0xfff0 != 0 || second >> 28 != 0 || third != 0 || fourth != 0,
        }
    }

    fn encode(&self) -> [u32; 2] {
        let bit = |set: bool, number: u32| u32::from(set) << number;
        let first = bit(self.is_encap, 0)
            | bit(self.inner_is_ipv6, 1)
            | bit(self.inner_tcp_opt, 2)
            | bit(self.inject_vlan_pri_tag, 3)
            | u32::from(self.pcp & 7) << 16
            | bit(self.dei, 19)
            | u32::from(self.vlan_id) << 20;
        let second = u32::from(self.inner_frame_offset & 0x3ff)
            | u32::from(self.inner_ip_rel_offset & 0x3f) << 10
            | u32::from(self.long_vp_offset & 0xfff) << 16;
        [first, second]
    }

    /// The tag's control field.
    pub fn vlan_control(&self) -> u16 {
        u16::from(self.pcp) << 13 | u16::from(self.dei) << 12 | self.vlan_id
    }
}

/// `MANA_SHORT_PKT_FMT`.
pub const SHORT: u8 = 0;
/// `MANA_LONG_PKT_FMT`.
pub const LONG: u8 = 1;
/// Bytes of the short format.
pub const SHORT_SIZE: usize = 8;
/// Bytes of the long format.
pub const LONG_SIZE: usize = 24;
/// Low bits of a send queue's number that `vsq_frame` leaves out.
pub const VSQ_FRAME_SHIFT: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn evidence_has_the_names_of_the_driver() {
        let oob =
            TxOob { is_outer_ipv6: true, comp_tcp_csum: true, vcq_num: 9, trans_off: 62, ..TxOob::default() };
        assert_eq!(
            oob.to_string(),
            "mana_tx_oob: pkt_fmt 0, is_outer_ipv6 1, comp_tcp_csum 1, vcq_num 9, trans_off 62"
        );
    }

    #[test]
    fn the_bytes_are_those_of_the_header() {
        let long = TxLongOob {
            inject_vlan_pri_tag: true,
            pcp: 5,
            dei: true,
            vlan_id: 0x123,
            inner_frame_offset: 50,
            inner_ip_rel_offset: 14,
            long_vp_offset: 0x102,
            ..Default::default()
        };
        let oob = TxOob {
            pkt_fmt: LONG,
            is_outer_ipv4: true,
            comp_iphdr_csum: true,
            comp_tcp_csum: true,
            vcq_num: 0x030201,
            trans_off: 34,
            vsq_frame: 1,
            short_vp_offset: 2,
            long,
            ..Default::default()
        };
        let bytes = [0x35, 1, 2, 3, 0x22, 4, 0, 2, 8, 0, 0x3d, 0x12, 50, 0x38, 0x02, 0x01];
        assert_eq!(oob.encode()[..16], bytes);
        assert_eq!(oob.encode()[16..], [0; 8]);
        assert_eq!(TxOob::decode(&bytes), oob);
        assert_eq!(TxOob::decode(&bytes[..8]).long, TxLongOob::default());
        assert_eq!(long.vlan_control(), 0xb123);
    }

    proptest! {
        #[test]
        fn out_of_band_data_survives_the_queue(bytes: [u8; LONG_SIZE]) {
            let oob = TxOob::decode(&bytes);
            let clean = TxOob { long: TxLongOob { reserved: false, ..oob.long }, ..oob };
            prop_assert_eq!(TxOob::decode(&oob.encode()), clean);
            let changed = oob.encode() != bytes;
            prop_assert_eq!(oob.long.reserved, changed, "only reserved bits are lost");
        }
    }
}
