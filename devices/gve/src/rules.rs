//! What a driver of this device must keep.
//!
//! Rules about the *packets* that a driver hands over, which hold for every NIC, are in `nicvisor_net` and have
//! ids that start with `net-`; they are applied here too.

use nicvisor_core::{Context, Finding, Rule, Severity};

use crate::config::Config;

/// Records a breach of `rule`, unless the configuration says that it is not to be reported.
pub(crate) fn report(
    config: &Config,
    context: &mut Context<'_>,
    rule: &Rule,
    message: impl Into<String>,
    complete: impl FnOnce(&mut Finding),
) {
    if !config.ignored_rules.contains(rule.id) {
        context.report(rule, message, complete);
    }
}

macro_rules! rules {
    ($($name:ident $severity:ident $id:literal $title:literal $meaning:literal $source:literal;)*) => {
        $(
            #[doc = $title]
            pub const $name: Rule = Rule {
                id: $id,
                title: $title,
                meaning: $meaning,
                source: $source,
                severity: Severity::$severity,
            };
        )*
        /// All rules of this device, in the order of a driver's life.
        pub const RULES: &[Rule] = &[$($name),*];
    };
}

rules! {
    REGISTER_ACCESS Error "gve-register-access"
        "Registers are written whole, and only those that are writable"
        "The write has no effect, or one that was not intended."
        "gve_register.h: struct gve_registers";
    ADMIN_SETUP Error "gve-admin-setup"
        "The admin queue is set up once, aligned, in memory, with a power of two of 64-byte entries"
        "The device cannot use the queue; commands time out."
        "gve_adminq.c: gve_adminq_alloc; GVE_ADMINQ_BUFFER_SIZE";
    ADMIN_DOORBELL Error "gve-admin-doorbell"
        "The admin doorbell counts commands and never runs ahead of the queue's size"
        "Commands are overwritten before they are executed."
        "gve_adminq.c: gve_adminq_issue_cmd";
    ADMIN_OPCODE Error "gve-admin-opcode"
        "Admin commands have an opcode that the device has"
        "The command fails with UNIMPLEMENTED."
        "gve_adminq.h: enum gve_adminq_opcodes";
    ADMIN_PARAMETER Error "gve-admin-parameter"
        "The parameters of an admin command are within what the device described"
        "The command fails with INVALID_ARGUMENT."
        "gve_adminq.h: the command structures";
    ADMIN_MEMORY Error "gve-admin-memory"
        "Addresses in admin commands are in memory that the device can reach"
        "The device writes over foreign memory or stops with a bus error."
        "gve_adminq.h: the command structures";
    ADMIN_ORDER Error "gve-admin-order"
        "Resources are configured before queues are created, once, and deconfigured after they are destroyed"
        "The command fails with FAILED_PRECONDITION."
        "gve_main.c: gve_setup_device_resources, gve_queues_start";
    ADMIN_OBJECT Error "gve-admin-object"
        "A queue or page list is created once, and destroyed only while it exists"
        "The command fails with ALREADY_EXISTS or NOT_FOUND."
        "gve_adminq.h: queue_id, page_list_id";
    ADMIN_LEFTOVER Error "gve-admin-leftover"
        "No queue or page list exists when device resources are deconfigured"
        "The device goes on reading and writing memory that the driver is about to free."
        "gve_main.c: gve_queues_stop before gve_teardown_device_resources";
    RESET_LEFTOVER Note "gve-reset-leftover"
        "The driver takes the device apart before it resets it, unless it recovers from an error"
        "Frames inside the device are lost."
        "gve_main.c: gve_reset, gve_reset_and_teardown";
    DRIVER_FORMAT Error "gve-driver-format"
        "The driver announces and uses a queue format that the device offers"
        "The device cannot be used."
        "gve_adminq.h: enum gve_driver_capbility; gve.h: enum gve_queue_format";
    RING_SIZE Error "gve-ring-size"
        "Ring sizes are powers of two within the bounds that the device described"
        "The queue is not created."
        "gve_adminq.h: struct gve_device_option_modify_ring; gve_tx_dqo.c: gve_tx_alloc_ring_dqo";
    DOORBELL Error "gve-doorbell"
        "Only doorbells that the device handed out are written, as 32-bit words"
        "The write has no effect, or wakes a queue that no longer exists."
        "gve_adminq.h: struct gve_queue_resources; gve_dqo.h: gve_tx_put_doorbell_dqo";
    TX_DOORBELL Error "gve-tx-doorbell"
        "A TX doorbell value is an index into the ring"
        "The device fetches descriptors that were never written."
        "gve_dqo.h: gve_tx_put_doorbell_dqo";
    TX_DESCRIPTOR_TYPE Error "gve-tx-descriptor-type"
        "A TX descriptor is a packet (0xc), TSO context (0x5) or general context (0x4) descriptor"
        "The device stops the queue."
        "gve_desc_dqo.h: GVE_TX_PKT_DESC_DTYPE_DQO and its siblings";
    TX_DESCRIPTOR_ORDER Error "gve-tx-descriptor-order"
        "Context descriptors come before a packet's first packet descriptor, at most one of each kind"
        "The device stops the queue."
        "gve_tx_dqo.c: gve_tx_add_skb_dqo";
    TX_UNFINISHED Error "gve-tx-unfinished"
        "A doorbell covers whole packets: the last one has its end_of_packet descriptor"
        "The packet waits in the device; a ring full of it never moves again."
        "gve_desc_dqo.h: end_of_packet";
    TX_BUFFER_SIZE Error "gve-tx-buffer-size"
        "No packet descriptor is empty"
        "The device stops the queue."
        "gve_desc_dqo.h: GVE_TX_MAX_BUF_SIZE_DQO";
    TX_BUFFER_ADDRESS Error "gve-tx-buffer-address"
        "TX buffers are in memory that the device can reach"
        "The packet is lost; the device may stop with a bus error."
        "gve_desc_dqo.h: struct gve_tx_pkt_desc_dqo";
    TX_FRAME_SIZE Error "gve-tx-frame-size"
        "A packet that is not to be segmented has 17 to 9,728 bytes"
        "The device drops the packet."
        "gve_tx_dqo.c: comment in gve_tx_add_skb_no_copy_dqo";
    TX_PACKET_BUFFERS Error "gve-tx-packet-buffers"
        "A packet that is not to be segmented is in at most 10 buffers"
        "The device drops the packet or stops the queue."
        "gve_desc_dqo.h: GVE_TX_MAX_DATA_DESCS";
    TX_SEGMENT_BUFFERS Error "gve-tx-segment-buffers"
        "Headers and payload of one segment are in at most 10 buffers, the headers counting as one"
        "The device drops the packet or stops the queue."
        "gve_desc_dqo.h: GVE_TX_MAX_DATA_DESCS; gve_tx_dqo.c: gve_can_send_tso";
    TX_HEADER_SIZE Error "gve-tx-header-size"
        "The headers of a packet to be segmented have 1 to 255 bytes and are inside the packet"
        "The segments leave with broken headers."
        "gve_desc_dqo.h: GVE_TX_MAX_HDR_SIZE_DQO";
    TX_LENGTH Error "gve-tx-length"
        "The len of a GQI packet is the sum of the seg_len of its descriptors"
        "The device sends too much or too little, or stops the queue."
        "gve_tx.c: gve_tx_fill_pkt_desc";
    TX_TSO_LENGTH Error "gve-tx-tso-length"
        "tso_total_len is the packet's length without the headers"
        "The device sends too little, or what lies behind the packet."
        "gve_desc_dqo.h: tso_total_len";
    TX_MSS Error "gve-tx-mss"
        "The segment size of a packet to be segmented is at most 9,728 bytes"
        "The device drops the packet."
        "gve_tx_dqo.c: comment in gve_prep_tso";
    TX_TAG Error "gve-tx-tag"
        "All descriptors of a packet carry the same completion tag, with the top bit clear"
        "The driver frees the wrong packet, or takes the completion for a miss completion."
        "gve_desc_dqo.h: compl_tag, GVE_ALT_MISS_COMPL_BIT";
    TX_CHECKSUM_FLAG Error "gve-tx-checksum-flag"
        "All descriptors of a packet agree on checksum_offload_enable"
        "The checksum is or is not filled in by chance."
        "gve_tx_dqo.c: gve_tx_fill_pkt_desc_dqo";
    TX_CHECKSUM_PROTOCOL Error "gve-tx-checksum-protocol"
        "Checksum offload is asked for TCP or UDP in IPv4 or IPv6 only, as the device finds the field itself"
        "The packet leaves without a checksum."
        "gve_desc_dqo.h: checksum_offload_enable (the descriptor has no offsets)";
    TX_CHECKSUM_SEED Error "gve-tx-checksum-seed"
        "The checksum field of a packet that is not to be segmented holds the pseudo header's sum"
        "The packet leaves with a wrong checksum."
        "linux/skbuff.h: CHECKSUM_PARTIAL; for packets to be segmented see net-lso-checksum-seed";
    TX_REPORT_EVENT Error "gve-tx-report-event"
        "report_event is set on the last descriptor of a packet only, at least 32 descriptors apart"
        "The completion ring overflows or the device stops the queue."
        "gve_desc_dqo.h: GVE_TX_MIN_RE_INTERVAL";
    RING_ADDRESS Error "gve-ring-address"
        "Rings stay in memory that the device can reach while their queue exists"
        "The device stops with a bus error."
        "gve_adminq.h: struct gve_adminq_create_tx_queue, struct gve_adminq_create_rx_queue";
    RX_DOORBELL Error "gve-rx-doorbell"
        "An RX doorbell value is an index into the buffer ring"
        "The device fetches descriptors that were never written."
        "gve_rx_dqo.c: gve_rx_write_doorbell_dqo";
    RX_DOORBELL_STEP Note "gve-rx-doorbell-step"
        "The RX doorbell moves by at least 8 buffers"
        "Hardware may not see the buffers until more are posted."
        "gve_desc_dqo.h: comment on GVE_RX_BUF_THRESH_DQO";
    RX_BUFFER_ID Error "gve-rx-buffer-id"
        "A buffer id is not posted again while the device has it"
        "Two packets are written over each other."
        "gve_desc_dqo.h: buf_id";
    RX_BUFFER_ADDRESS Error "gve-rx-buffer-address"
        "RX buffers are in memory that the device can reach"
        "The packet is lost; the device may stop with a bus error."
        "gve_desc_dqo.h: struct gve_rx_desc_dqo";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_of_this_device() {
        let ids: BTreeSet<_> = RULES.iter().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), RULES.len());
        assert!(ids.iter().all(|id| id.starts_with("gve-")));
    }
}
