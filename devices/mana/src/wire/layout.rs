//! Completions field by field, as faults name and change them: the names are those of `struct mana_rxcomp_oob`,
//! `struct mana_tx_comp_oob`, `struct hwc_rx_oob` and `struct gdma_cqe`.

use nicvisor_core::fault::WireField;

/// `bits` bits from `shift` up of the word at `offset`.
const fn bits(name: &'static str, offset: usize, shift: u8, bits: u8) -> WireField {
    WireField::little(name, offset, 4).at_bits(shift, bits)
}

/// A completion of a vPort's send queue.
pub const SEND: &[WireField] = &[
    bits("cqe_type", 0, 0, 6).named(TYPES),
    bits("client_type", 0, 6, 2),
    bits("vendor_err", 0, 8, 24),
    WireField::little("tx_data_offset", 4, 4),
    bits("tx_sgl_offset", 8, 0, 5),
    bits("tx_wqe_offset", 8, 5, 27),
    WQ_NUM,
    IS_SQ,
    OWNER_BITS,
];

/// A completion of a vPort's receive queue. Packets after the first are those of coalesced completions; where eight can
/// share one, `pkt_len0`, `pkt_len1` and their hashes are two packets of each entry.
pub const RECEIVE: &[WireField] = &[
    bits("cqe_type", 0, 0, 6).named(TYPES),
    bits("client_type", 0, 6, 2),
    bits("vendor_err", 0, 8, 24),
    bits("rx_vlan_id", 4, 0, 12),
    bits("rx_vlantag_present", 4, 12, 1),
    bits("rx_outer_iphdr_csum_succeed", 4, 13, 1),
    bits("rx_outer_iphdr_csum_fail", 4, 14, 1),
    bits("rx_hashtype", 4, 16, 9),
    bits("rx_iphdr_csum_succeed", 4, 25, 1),
    bits("rx_iphdr_csum_fail", 4, 26, 1),
    bits("rx_tcp_csum_succeed", 4, 27, 1),
    bits("rx_tcp_csum_fail", 4, 28, 1),
    bits("rx_udp_csum_succeed", 4, 29, 1),
    bits("rx_udp_csum_fail", 4, 30, 1),
    bits("pkt_len", 8, 0, 16),
    WireField::little("pkt_hash", 16, 4),
    bits("pkt_len_1", 20, 0, 16),
    WireField::little("pkt_hash_1", 28, 4),
    bits("pkt_len_2", 32, 0, 16),
    WireField::little("pkt_hash_2", 40, 4),
    bits("pkt_len_3", 44, 0, 16),
    WireField::little("pkt_hash_3", 52, 4),
    WireField::little("pkt_hash0", 8, 4),
    bits("pkt_len0", 12, 0, 16),
    bits("pkt_len1", 12, 16, 16),
    WireField::little("pkt_hash1", 16, 4),
    WireField::little("pkt_hash0_1", 20, 4),
    bits("pkt_len0_1", 24, 0, 16),
    bits("pkt_len1_1", 24, 16, 16),
    WireField::little("pkt_hash1_1", 28, 4),
    WireField::little("pkt_hash0_2", 32, 4),
    bits("pkt_len0_2", 36, 0, 16),
    bits("pkt_len1_2", 36, 16, 16),
    WireField::little("pkt_hash1_2", 40, 4),
    WireField::little("pkt_hash0_3", 44, 4),
    bits("pkt_len0_3", 48, 0, 16),
    bits("pkt_len1_3", 48, 16, 16),
    WireField::little("pkt_hash1_3", 52, 4),
    WireField::little("rx_wqe_offset", 56, 4),
    WQ_NUM,
    IS_SQ,
    OWNER_BITS,
];

/// A completion of the hardware channel. `is_sq` tells those of requests from those of responses.
pub const CHANNEL: &[WireField] = &[
    bits("type", 0, 0, 6),
    bits("eom", 0, 6, 1),
    bits("som", 0, 7, 1),
    bits("vendor_err", 0, 8, 8),
    bits("src_virt_wq", 4, 0, 24),
    bits("src_vfid", 4, 24, 8),
    WireField::little("wqe_offset", 12, 4),
    WireField::little("wqe_addr_high", 16, 4),
    bits("client_data_unit", 20, 0, 14),
    WireField::little("tx_oob_data_size", 24, 4),
    bits("chunk_offset", 28, 0, 21),
    WQ_NUM,
    IS_SQ,
    OWNER_BITS,
];

const WQ_NUM: WireField = bits("wq_num", 60, 0, 24);
const IS_SQ: WireField = bits("is_sq", 60, 24, 1);
const OWNER_BITS: WireField = bits("owner_bits", 60, 29, 3);

/// `enum mana_cqe_type` without its prefix.
const TYPES: &[(&str, u64)] = &[
    ("INVALID", 0),
    ("RX_OKAY", 1),
    ("RX_COALESCED_4", 2),
    ("RX_OBJECT_FENCE", 3),
    ("RX_TRUNCATED", 4),
    ("RX_COALESCED_8", 7),
    ("TX_OKAY", 32),
    ("TX_SA_DROP", 33),
    ("TX_MTU_DROP", 34),
    ("TX_INVALID_OOB", 35),
    ("TX_INVALID_ETH_TYPE", 36),
    ("TX_HDR_PROCESSING_ERROR", 37),
    ("TX_VF_DISABLED", 38),
    ("TX_VPORT_IDX_OUT_OF_RANGE", 39),
    ("TX_VPORT_DISABLED", 40),
    ("TX_VLAN_TAGGING_VIOLATION", 41),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::completion::{CqeType, RxCompletion, RxFlags, RxPacket, TxCompletion};
    use crate::wire::cqe::Cqe;
    use nicvisor_core::fault::{Fields, WireView};

    fn values(layout: &[WireField], payload: [u8; 60], names: &[&str]) -> Vec<u64> {
        let raw = Cqe { payload, work_queue: 0x1234, is_send: true, owner: 5 }.encode();
        let view = WireView::new(layout, raw);
        names.iter().map(|name| view.field(name).unwrap_or_else(|| panic!("{name}"))).collect()
    }

    #[test]
    fn fields_are_where_completions_have_them() {
        let completion = TxCompletion {
            kind: CqeType::TxSaDrop as u8,
            vendor_err: 7,
            tx_data_offset: 9,
            tx_sgl_offset: 3,
            tx_wqe_offset: 0x55,
        };
        let names = [
            "cqe_type",
            "client_type",
            "vendor_err",
            "tx_data_offset",
            "tx_sgl_offset",
            "tx_wqe_offset",
            "wq_num",
            "is_sq",
            "owner_bits",
        ];
        assert_eq!(values(SEND, completion.encode(), &names), [33, 1, 7, 9, 3, 0x55, 0x1234, 1, 5]);
        let flags = RxFlags { vlan_id: Some(77), tcp_csum: Some(false), hash_type: 2, ..RxFlags::default() };
        let mut completion = RxCompletion { kind: 2, flags, rx_wqe_offset: 96, ..RxCompletion::default() };
        for (index, packet) in completion.packets.iter_mut().take(4).enumerate() {
            *packet = RxPacket { length: 100 + index as u16, hash: 200 + index as u32 };
        }
        let names = [
            "cqe_type",
            "rx_vlan_id",
            "rx_vlantag_present",
            "rx_hashtype",
            "rx_tcp_csum_succeed",
            "rx_tcp_csum_fail",
            "pkt_len",
            "pkt_hash",
            "pkt_len_1",
            "pkt_hash_2",
            "pkt_len_3",
            "pkt_hash_3",
            "rx_wqe_offset",
        ];
        let expected = [2, 77, 1, 2, 0, 1, 100, 200, 101, 202, 103, 203, 96];
        assert_eq!(values(RECEIVE, completion.encode(), &names), expected);
        let mut completion = RxCompletion { kind: 7, ..RxCompletion::default() };
        for (index, packet) in completion.packets.iter_mut().enumerate() {
            *packet = RxPacket { length: 100 + index as u16, hash: 200 + index as u32 };
        }
        let names = ["pkt_hash0", "pkt_len0", "pkt_len1", "pkt_hash1", "pkt_len0_3", "pkt_hash1_3"];
        assert_eq!(values(RECEIVE, completion.encode(), &names), [200, 100, 101, 201, 106, 207]);
    }
}
