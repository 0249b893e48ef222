//! What went through a vPort, by the names of `struct mana_query_gf_stat_resp`
//! (Linux `include/net/mana/mana.h`).

use nicvisor_core::fault::WireField;
use serde::{Deserialize, Serialize};

macro_rules! statistics {
    ($($(#[$attribute:meta])* $name:ident: $bit:literal,)*) => {
        /// Statistics of a vPort since power-on.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Statistics { $($(#[$attribute])* pub $name: u64,)* }

        /// The answer to `MANA_QUERY_GF_STAT`, field by field.
        pub(crate) const GF_STATISTICS: &[WireField] = {
            const NAMES: &[&str] = &["reported_stats", $(stringify!($name)),*];
            const FIELDS: [WireField; NAMES.len()] = {
                let mut fields = [WireField::little("", 0, 8); NAMES.len()];
                let mut at = 0;
                while at < NAMES.len() {
                    fields[at] = WireField::little(NAMES[at], 8 * at, 8);
                    at += 1;
                }
                fields
            };
            &FIELDS
        };

        impl Statistics {
            /// Adds those of another vPort.
            pub fn add(&mut self, other: &Statistics) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
            }

            /// By name, with the bit of `STATISTICS_FLAGS_*` that asks for each.
            pub fn list(&self) -> Vec<(&'static str, u32, u64)> {
                vec![$((stringify!($name), $bit, self.$name)),*]
            }
        }
    };
}

statistics! {
    /// Frames dropped as no receive WQE was posted.
    rx_discards_nowqe: 0,
    /// Frames dropped as the vPort does not receive.
    rx_err_vport_disabled: 1,
    /// Bytes received.
    hc_rx_bytes: 2,
    /// Unicast frames received.
    hc_rx_ucast_pkts: 3,
    /// Their bytes.
    hc_rx_ucast_bytes: 4,
    /// Broadcast frames received.
    hc_rx_bcast_pkts: 7,
    /// Their bytes.
    hc_rx_bcast_bytes: 8,
    /// Multicast frames received.
    hc_rx_mcast_pkts: 5,
    /// Their bytes.
    hc_rx_mcast_bytes: 6,
    /// Packets dropped as the function is disabled.
    tx_err_gf_disabled: 9,
    /// Packets dropped as the vPort is not configured to send.
    tx_err_vport_disabled: 10,
    /// Packets dropped for their `vp_offset`.
    tx_err_inval_vport_offset_pkt: 11,
    /// Packets dropped for their VLAN tag.
    tx_err_vlan_enforcement: 12,
    /// Packets dropped for their EtherType.
    tx_err_ethtype_enforcement: 13,
    /// Packets dropped for their source address.
    tx_err_sa_enforcement: 14,
    /// Packets dropped for the protection domain of their send queue.
    tx_err_sqpdid_enforcement: 15,
    /// Packets dropped for the protection domain of their completion queue.
    tx_err_cqpdid_enforcement: 16,
    /// Packets dropped as longer than the MTU.
    tx_err_mtu_violation: 17,
    /// Packets dropped for their OOB.
    tx_err_inval_oob: 18,
    /// Bytes sent.
    hc_tx_bytes: 19,
    /// Unicast frames sent.
    hc_tx_ucast_pkts: 20,
    /// Their bytes.
    hc_tx_ucast_bytes: 21,
    /// Broadcast frames sent.
    hc_tx_bcast_pkts: 24,
    /// Their bytes.
    hc_tx_bcast_bytes: 25,
    /// Multicast frames sent.
    hc_tx_mcast_pkts: 22,
    /// Their bytes.
    hc_tx_mcast_bytes: 23,
    /// Packets dropped as their WQE or memory was wrong.
    tx_err_gdma: 26,
}

impl Statistics {
    /// Counts a frame that was delivered to the driver.
    pub fn received(&mut self, frame: &[u8]) {
        let bytes = frame.len() as u64;
        self.hc_rx_bytes += bytes;
        let (packets, total) = match Audience::of(frame) {
            Audience::One => (&mut self.hc_rx_ucast_pkts, &mut self.hc_rx_ucast_bytes),
            Audience::Some => (&mut self.hc_rx_mcast_pkts, &mut self.hc_rx_mcast_bytes),
            Audience::All => (&mut self.hc_rx_bcast_pkts, &mut self.hc_rx_bcast_bytes),
        };
        *packets += 1;
        *total += bytes;
    }

    /// Counts a frame that left on the link.
    pub fn sent(&mut self, frame: &[u8]) {
        let bytes = frame.len() as u64;
        self.hc_tx_bytes += bytes;
        let (packets, total) = match Audience::of(frame) {
            Audience::One => (&mut self.hc_tx_ucast_pkts, &mut self.hc_tx_ucast_bytes),
            Audience::Some => (&mut self.hc_tx_mcast_pkts, &mut self.hc_tx_mcast_bytes),
            Audience::All => (&mut self.hc_tx_bcast_pkts, &mut self.hc_tx_bcast_bytes),
        };
        *packets += 1;
        *total += bytes;
    }
}

/// Who a frame is for.
enum Audience {
    One,
    Some,
    All,
}

impl Audience {
    fn of(frame: &[u8]) -> Audience {
        match frame.get(..6) {
            Some([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) => Audience::All,
            Some([first, ..]) if first & 1 != 0 => Audience::Some,
            _ => Audience::One,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_counted_by_audience_and_each_statistic_has_its_bit() {
        let mut statistics = Statistics::default();
        statistics.sent(&[0xff; 60]);
        statistics.sent(&[0x33; 70]);
        statistics.received(&[2; 80]);
        assert_eq!((statistics.hc_tx_bcast_bytes, statistics.hc_tx_mcast_bytes), (60, 70));
        assert_eq!((statistics.hc_rx_ucast_pkts, statistics.hc_rx_bytes), (1, 80));
        let mut bits: Vec<u32> = statistics.list().iter().map(|(_, bit, _)| *bit).collect();
        bits.sort_unstable();
        assert!(bits.into_iter().eq(0..27));
    }
}
