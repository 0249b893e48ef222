//! Flow steering and receive-side scaling (`gve_adminq.h`, `gve.h`).

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

wire! {
    /// `struct gve_flow_spec` (`gve.h`): what to match, or a mask of it.
    FlowSpec: 40 {
        /// Source address; IPv4 in the first four bytes.
        src_ip: [u8; 16],
        /// Destination address.
        dst_ip: [u8; 16],
        /// Source port, or the upper half of the SPI.
        src_port: U16,
        /// Destination port, or the lower half of the SPI.
        dst_port: U16,
        /// Type of service or traffic class.
        tos: u8,
        /// Zero.
        padding: [u8; 3],
    }
}

wire! {
    /// `struct gve_adminq_flow_rule`.
    FlowRule: 84 {
        /// `enum gve_adminq_flow_type`.
        flow_type: U16,
        /// RX queue that matching packets go to.
        action: U16,
        /// Values.
        key: FlowSpec,
        /// Which bits of them count.
        mask: FlowSpec,
    }
}

wire! {
    /// `struct gve_adminq_configure_flow_rule`, the inner command of [`CONFIGURE_FLOW_RULE`].
    ConfigureFlowRule: 92 {
        /// 0 add, 1 delete, 2 delete all.
        opcode: U16,
        /// Zero.
        padding: [u8; 2],
        /// The rule to add.
        rule: FlowRule,
        /// Its place.
        location: U32,
    }
}

wire! {
    /// `struct gve_adminq_query_flow_rules`.
    QueryFlowRules: 24 {
        /// 0 rules, 1 ids, 2 numbers only.
        opcode: U16,
        /// Zero.
        padding: [u8; 2],
        /// First location of interest.
        starting_rule_id: U32,
        /// Bytes that the driver has.
        available_length: U64,
        /// Where the device writes a [`QueryFlowRulesDescriptor`] and what was asked for.
        rule_descriptor_addr: U64,
    }
}

wire! {
    /// `struct gve_query_flow_rules_descriptor`.
    QueryFlowRulesDescriptor: 16 {
        /// Rules in the device.
        num_flow_rules: U32,
        /// Most it keeps.
        max_flow_rules: U32,
        /// Rules or ids that follow.
        num_queried_rules: U32,
        /// Bytes of this structure and what follows.
        total_length: U32,
    }
}

wire! {
    /// `struct gve_adminq_queried_flow_rule`.
    QueriedFlowRule: 88 {
        /// The rule's place.
        location: U32,
        /// The rule.
        rule: FlowRule,
    }
}

wire! {
    /// `struct gve_adminq_configure_rss`. Zero-valued fields leave things as they are.
    ConfigureRss: 24 {
        /// Bits by `enum gve_rss_hash_type`.
        hash_types: U16,
        /// 1 for Toeplitz (`ETH_RSS_HASH_TOP`).
        hash_alg: u8,
        /// Zero.
        reserved: u8,
        /// Bytes of the key.
        hash_key_size: U16,
        /// Entries of the indirection table, 32 bits each.
        hash_lut_size: U16,
        /// Where the key is.
        hash_key_addr: U64,
        /// Where the table is.
        hash_lut_addr: U64,
    }
}

wire! {
    /// `struct gve_adminq_query_rss`.
    QueryRss: 16 {
        /// Bytes that the driver has.
        available_length: U64,
        /// Where the device writes a [`QueryRssDescriptor`], the key and the table.
        rss_descriptor_addr: U64,
    }
}

wire! {
    /// `struct gve_query_rss_descriptor`.
    QueryRssDescriptor: 8 {
        /// Bytes of this structure, the key and the table.
        total_length: U32,
        /// Bits by `enum gve_rss_hash_type`.
        hash_types: U16,
        /// 1 for Toeplitz.
        hash_alg: u8,
        /// Zero.
        reserved: u8,
    }
}

/// Inner opcode of the one command too long for an entry (`GVE_ADMINQ_CONFIGURE_FLOW_RULE`).
pub const CONFIGURE_FLOW_RULE: u32 = 0x101;
