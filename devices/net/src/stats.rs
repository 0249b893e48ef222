//! Counters and histograms: what was on the wire, and what drivers handed to their devices.

pub use nicvisor_core::Sizes;
use serde::{Deserialize, Serialize};

use crate::parse::IpVersion;
use crate::wire::{EthernetHeader, VlanTag, ethertype, view};

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
    /// Frames with a VLAN tag that the device put on the link, by the priority in the outermost one.
    pub sent_priorities: [u64; 8],
    /// Sizes of the frames that the device put on the link.
    pub sent_sizes: Sizes,
}

impl PortCounters {
    /// Counts a frame from the device.
    pub fn sent(&mut self, frame: &[u8]) {
        self.sent_frames += 1;
        self.sent_bytes += frame.len() as u64;
        if let Some(count) = priority(frame).and_then(|priority| self.sent_priorities.get_mut(priority)) {
            *count += 1;
        }
        self.sent_sizes.record(frame.len());
    }

    /// Counts a frame to the device.
    pub fn received(&mut self, length: usize) {
        self.received_frames += 1;
        self.received_bytes += length as u64;
    }

    /// The counters that reports and scenarios show of every port, named as in [`PORT_COUNTERS`].
    pub fn list(&self) -> [(&'static str, u64); 12] {
        let frames = [self.sent_frames, self.sent_bytes, self.received_frames, self.received_bytes];
        let mut values = frames.into_iter().chain(self.sent_priorities);
        PORT_COUNTERS.map(|name| (name, values.next().unwrap_or(0)))
    }
}

/// The priority in a frame's outermost VLAN tag.
fn priority(frame: &[u8]) -> Option<usize> {
    let kind = view::<EthernetHeader>(frame, 0)?.ethertype.get();
    let tagged = matches!(kind, ethertype::VLAN | ethertype::SERVICE_VLAN);
    let tag = view::<VlanTag>(frame, EthernetHeader::LEN).filter(|_| tagged)?;
    Some(usize::from(tag.control.get() >> 13))
}

/// Names of the counters of a port.
pub const PORT_COUNTERS: [&str; 12] = [
    "sent_frames",
    "sent_bytes",
    "received_frames",
    "received_bytes",
    "sent_priority_0",
    "sent_priority_1",
    "sent_priority_2",
    "sent_priority_3",
    "sent_priority_4",
    "sent_priority_5",
    "sent_priority_6",
    "sent_priority_7",
];

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
    use crate::testing::Packet;

    #[test]
    fn frames_with_a_tag_are_counted_by_its_priority() {
        let mut counters = PortCounters::default();
        for (vlan, count) in [(Some(0x6005), 3), (Some(0xf005), 2), (Some(5), 1), (None, 4)] {
            let frame = Packet { vlan, ..Packet::new(IpVersion::V4, 100) }.build();
            (0..count).for_each(|_| counters.sent(&frame));
        }
        let service = [&[2; 12][..], &[0x88, 0xa8, 0x40, 7, 0x81, 0, 0xe0, 7, 8, 0]].concat();
        counters.sent(&service);
        counters.sent(&service[..15]);
        assert_eq!(counters.sent_priorities, [1, 0, 1, 3, 0, 0, 0, 2]);
        assert_eq!(counters.list()[0], ("sent_frames", 12));
        assert_eq!(counters.list()[7], ("sent_priority_3", 3));
    }

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
