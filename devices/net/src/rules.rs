//! The rules about packets and frames that every NIC driver must keep.

use nicvisor_core::{Rule, Severity};

/// All rules of this crate.
pub const RULES: &[Rule] = &[
    IPV6_JUMBO_HEADER,
    LSO_TOO_LARGE,
    LSO_HEADER_LENGTH,
    LSO_MSS_TOO_SMALL,
    LSO_MSS_TOO_LARGE,
    LSO_PROTOCOL,
    LSO_LENGTH,
    LSO_SEED,
    LSO_FLAGS,
    CHECKSUM_OFFSET,
    MALFORMED,
    WIRE_MTU,
    WIRE_CHECKSUM,
    WIRE_LENGTH,
    WIRE_JUMBO_HEADER,
    WIRE_SOURCE,
];

/// A packet handed to the device still carries the stack's jumbo payload header.
pub const IPV6_JUMBO_HEADER: Rule = Rule {
    id: "net-ipv6-jumbo-header",
    title: "the IPv6 jumbo payload header is removed before the packet reaches the device",
    meaning: "The device takes the hop-by-hop header for part of the headers and repeats it in front of every \
              segment, or finds no TCP header at all: receivers drop the segments and the connection stalls.",
    source: "RFC 2675, 3; Linux include/net/ipv6.h, ipv6_hopopt_jumbo_remove()",
    severity: Severity::Error,
};

/// A packet to be segmented is larger than the device takes.
pub const LSO_TOO_LARGE: Rule = Rule {
    id: "net-lso-too-large",
    title: "a packet to be segmented is at most as long as the device allows",
    meaning: "The device's length counters overflow or it rejects the descriptor; some stop the queue.",
    source: "Linux netdev_features: netif_set_tso_max_size(); the device's own LSO limit",
    severity: Severity::Error,
};

/// The descriptor's header length is not that of the headers.
pub const LSO_HEADER_LENGTH: Rule = Rule {
    id: "net-lso-header-length",
    title: "the header length of a segmentation request ends where the payload starts",
    meaning: "The device repeats payload as headers or sends headers as payload in every segment.",
    source: "Linux include/linux/skbuff.h, skb_tcp_all_headers()",
    severity: Severity::Error,
};

/// The segment size is below what the device takes.
pub const LSO_MSS_TOO_SMALL: Rule = Rule {
    id: "net-lso-mss-too-small",
    title: "the segment size is at least the device's minimum",
    meaning: "The device rejects the descriptor, and some stop the queue.",
    source: "the device's own minimum; Linux skb_shared_info::gso_size",
    severity: Severity::Error,
};

/// Segments of the requested size do not fit the link.
pub const LSO_MSS_TOO_LARGE: Rule = Rule {
    id: "net-lso-mss-too-large",
    title: "headers and segment size together fit the MTU",
    meaning: "The segments are longer than the link carries and are lost.",
    source: "RFC 9293, 3.7.1; Linux skb_shared_info::gso_size",
    severity: Severity::Error,
};

/// Segmentation is asked for something that cannot be segmented.
pub const LSO_PROTOCOL: Rule = Rule {
    id: "net-lso-protocol",
    title: "segmentation is asked only for unfragmented packets of the protocol it is for",
    meaning: "The device rewrites bytes that are not the header it expects, or rejects the descriptor.",
    source: "Linux include/linux/skbuff.h, SKB_GSO_TCPV4, SKB_GSO_TCPV6, SKB_GSO_UDP_L4",
    severity: Severity::Error,
};

/// The IP length field of a packet to be segmented is neither right nor zero.
pub const LSO_LENGTH: Rule = Rule {
    id: "net-lso-length",
    title: "the IP length of a packet to be segmented is its length, or zero",
    meaning: "Devices that derive the payload from the length field cut the packet short.",
    source: "Linux include/net/ip.h, iph_set_totlen(); include/net/ipv6.h; RFC 791, 3.1; RFC 8200, 3",
    severity: Severity::Error,
};

/// The partial checksum left for the device is not what it sums on from.
pub const LSO_SEED: Rule = Rule {
    id: "net-lso-checksum-seed",
    title: "the checksum field of a packet to be segmented holds the sum that the device expects",
    meaning: "The device sums on from it, so all segments have a wrong checksum and are lost.",
    source: "Linux include/net/tcp.h, __tcp_v4_send_check(); the device's descriptor description",
    severity: Severity::Error,
};

/// Segmentation of a packet whose TCP flags cannot be spread over segments.
pub const LSO_FLAGS: Rule = Rule {
    id: "net-lso-flags",
    title: "a TCP packet to be segmented has no SYN, RST or URG flag",
    meaning: "Every segment repeats the flag: what the receiver makes of it is undefined.",
    source: "RFC 9293, 3.1; Microsoft NDIS, Offloading the Segmentation of Large TCP Packets",
    severity: Severity::Note,
};

/// The place of a checksum to be finished is not a checksum's.
pub const CHECKSUM_OFFSET: Rule = Rule {
    id: "net-checksum-offset",
    title: "a checksum to be finished lies in the packet, at its transport header's checksum field",
    meaning: "The device writes over payload or headers and leaves the real checksum unfinished.",
    source: "Linux include/linux/skbuff.h, CHECKSUM_PARTIAL (csum_start, csum_offset)",
    severity: Severity::Error,
};

/// Headers that cannot be followed.
pub const MALFORMED: Rule = Rule {
    id: "net-malformed",
    title: "a frame's headers are whole and well-formed",
    meaning: "Receivers drop the frame; offloads act on the wrong bytes.",
    source: "IEEE 802.3, RFC 791, RFC 8200, RFC 9293, RFC 768",
    severity: Severity::Error,
};

/// A frame too long for its link.
pub const WIRE_MTU: Rule = Rule {
    id: "net-wire-mtu",
    title: "a frame on the wire is at most as long as the link's MTU allows",
    meaning: "The link drops the frame.",
    source: "IEEE 802.3, 3.2.7; the link's MTU",
    severity: Severity::Error,
};

/// A wrong checksum on the wire.
pub const WIRE_CHECKSUM: Rule = Rule {
    id: "net-wire-checksum",
    title: "IPv4 header, TCP, UDP and ICMP checksums are right on the wire",
    meaning: "The receiver drops the packet.",
    source: "RFC 791, RFC 9293, RFC 768, RFC 8200 (8.1), RFC 792, RFC 4443",
    severity: Severity::Error,
};

/// Length fields that contradict the frame.
pub const WIRE_LENGTH: Rule = Rule {
    id: "net-wire-length",
    title: "IP and UDP length fields agree with the frame's length",
    meaning: "The receiver drops the packet, or takes padding for payload.",
    source: "RFC 791, 3.1; RFC 8200, 3; RFC 768",
    severity: Severity::Error,
};

/// A jumbo payload header on a link that has no use for one.
pub const WIRE_JUMBO_HEADER: Rule = Rule {
    id: "net-wire-jumbo-header",
    title: "no frame on the wire has an IPv6 jumbo payload header",
    meaning: "A jumbo payload length of at most 65,535, or one beside a payload length, makes the receiver drop \
              the packet and answer with an ICMPv6 error.",
    source: "RFC 2675, 3",
    severity: Severity::Error,
};

/// A source address that no station can have.
pub const WIRE_SOURCE: Rule = Rule {
    id: "net-wire-source",
    title: "the source address of a frame is a station's, neither a group nor zero",
    meaning: "Switches drop the frame, or learn an address that is none.",
    source: "IEEE 802.3, 3.2.3; IEEE 802.1Q, 8.7",
    severity: Severity::Error,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_distinct_and_all_of_this_crate() {
        let mut ids: Vec<_> = RULES.iter().map(|rule| rule.id).collect();
        assert!(ids.iter().all(|id| id.starts_with("net-")));
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), RULES.len());
    }
}
