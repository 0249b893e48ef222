//! Counters and histograms: what was on the wire, and what drivers handed to their devices.

pub use nicvisor_core::Sizes;
use serde::{Deserialize, Serialize};

use crate::parse::IpVersion;

/// Frames and bytes of one port, in both directions as the device sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCounters {
    /// Frames that the device put on the link.
    pub sent_frames: u64,
    /// Bytes of these.
    pub sent_bytes: u64,
    /// Frames that the link handed to the device.
    pub received_frames: u64,
    /// Bytes of these.
    pub received_bytes: u64,
    /// Sizes of the frames that the device put on the link.
    pub sent_sizes: Sizes,
}

impl PortCounters {
    /// Counts a frame from the device.
    pub fn sent(&mut self, length: usize) {
        self.sent_frames += 1;
        self.sent_bytes += length as u64;
        self.sent_sizes.record(length);
    }

    /// Counts a frame to the device.
    pub fn received(&mut self, length: usize) {
        self.received_frames += 1;
        self.received_bytes += length as u64;
    }
}

/// What a driver handed to its device, before any segmentation. Device models record each packet here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedStats {
    /// Packets.
    pub packets: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Packets to be segmented.
    pub segmented: u64,
    /// Length of the longest packet, with its Ethernet header.
    pub longest: u64,
    /// IPv4 packets longer than [`BIG`].
    pub big_ipv4: u64,
    /// IPv6 packets longer than [`BIG`].
    pub big_ipv6: u64,
    /// Length of the longest IPv4 packet.
    pub longest_ipv4: u64,
    /// Length of the longest IPv6 packet.
    pub longest_ipv6: u64,
    /// Sizes of all packets.
    pub sizes: Sizes,
}

impl HandedStats {
    /// Counts a packet of `length` bytes with its Ethernet header, of IP version `version` if it is IP at all;
    /// `segmented` says whether the device is to segment it.
    pub fn record(&mut self, length: usize, version: Option<IpVersion>, segmented: bool) {
        let length_u64 = length as u64;
        self.packets += 1;
        self.bytes += length_u64;
        self.segmented += u64::from(segmented);
        self.longest = self.longest.max(length_u64);
        let (big, longest) = match version {
            Some(IpVersion::V4) => (&mut self.big_ipv4, &mut self.longest_ipv4),
            Some(IpVersion::V6) => (&mut self.big_ipv6, &mut self.longest_ipv6),
            None => return self.sizes.record(length),
        };
        *big += u64::from(length > BIG);
        *longest = (*longest).max(length_u64);
        self.sizes.record(length);
    }

    /// The counters that reports and scenarios show of every device, by name.
    pub fn list(&self) -> [(&'static str, u64); 7] {
        [
            ("tx_packets", self.packets),
            ("tx_packet_bytes", self.bytes),
            ("tx_tso_packets", self.segmented),
            ("tx_ipv4_max", self.longest_ipv4),
            ("tx_ipv6_max", self.longest_ipv6),
            ("tx_ipv4_above_64k", self.big_ipv4),
            ("tx_ipv6_above_64k", self.big_ipv6),
        ]
    }
}

/// Packets longer than this are BIG TCP: Linux's GSO_LEGACY_MAX_SIZE.
pub const BIG: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn big_packets_are_counted_by_version() {
        let mut stats = HandedStats::default();
        stats.record(65_536, Some(IpVersion::V6), true);
        stats.record(65_537, Some(IpVersion::V6), true);
        stats.record(185_000, Some(IpVersion::V4), true);
        stats.record(60, None, false);
        assert_eq!((stats.big_ipv6, stats.big_ipv4), (1, 1));
        assert_eq!(
            (stats.longest, stats.longest_ipv6, stats.packets, stats.segmented),
            (185_000, 65_537, 4, 3)
        );
    }
}
