//! Requests about vPorts and what belongs to them (Linux `include/net/mana/mana.h`). All follow the request or
//! response header.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

wire! {
    /// `struct mana_query_device_cfg_req`.
    QueryDeviceConfig: 48 {
        /// Capabilities of the driver; none defined.
        mn_drv_cap_flags: [U64; 4],
        /// Protocol version 0.1.1.
        proto_major_ver: U32,
        /// Minor version.
        proto_minor_ver: U32,
        /// Micro version.
        proto_micro_ver: U32,
        /// Reserved.
        reserved: U32,
    }
}

/// `MANA_PF_FLAG_1_CQE_8_COALESCING_SUPPORTED`.
pub const PF_CQE_8_COALESCING: u64 = 1 << 5;

wire! {
    /// `struct mana_query_device_cfg_resp`. The last 8 bytes belong to version 2.
    QueryDeviceConfigResponse: 48 {
        /// Capabilities of the device.
        pf_cap_flags: [U64; 4],
        /// vPorts.
        max_num_vports: U16,
        /// Version 3: the physical function needs no vPort of its own.
        bm_hostmode: u8,
        /// Reserved.
        reserved: u8,
        /// Event queues.
        max_num_eqs: U32,
        /// Version 2: longest frame in bytes.
        adapter_mtu: U16,
        /// Reserved.
        reserved2: U16,
        /// Reserved.
        reserved3: U32,
    }
}

wire! {
    /// `struct mana_query_vport_cfg_resp`.
    QueryVportConfigResponse: 32 {
        /// Send queues.
        max_num_sq: U32,
        /// Receive queues.
        max_num_rq: U32,
        /// Entries of the indirection table.
        num_indirection_ent: U32,
        /// Reserved.
        reserved1: U32,
        /// MAC address.
        mac_addr: [u8; 6],
        /// Reserved.
        reserved2: [u8; 2],
        /// Handle for requests.
        vport: U64,
    }
}

wire! {
    /// `struct mana_config_vport_req`.
    ConfigVport: 16 {
        /// The vPort.
        vport: U64,
        /// Protection domain of its queues.
        pdid: U32,
        /// Doorbell page of its queues.
        doorbell_pageid: U32,
    }
}

wire! {
    /// `struct mana_config_vport_resp`.
    ConfigVportResponse: 4 {
        /// What OOBs must say as `vp_offset`.
        tx_vport_offset: U16,
        /// Whether short OOBs are allowed.
        short_form_allowed: u8,
        /// Reserved.
        reserved: u8,
    }
}

wire! {
    /// `struct mana_create_wqobj_req`. The last 8 bytes belong to versions 2 and 3.
    CreateWqObject: 56 {
        /// The vPort.
        vport: U64,
        /// [`super::gdma_requests::queue_type`]: SQ or RQ.
        wq_type: U32,
        /// Reserved.
        reserved: U32,
        /// DMA region of the work queue, which takes it over.
        wq_gdma_region: U64,
        /// DMA region of the completion queue, which takes it over.
        cq_gdma_region: U64,
        /// Bytes.
        wq_size: U32,
        /// Bytes.
        cq_size: U32,
        /// Moderation context.
        cq_moderation_ctx_id: U32,
        /// Event queue, or [`NO_EVENT_QUEUE`].
        cq_parent_qid: U32,
        /// Version 2: receive WQEs may be chained.
        allow_rqwqe_chain: u8,
        /// Version 3: moderate the completion queue.
        req_cq_moderation: u8,
        /// Version 3: completions until an event.
        cq_moderation_comp: U16,
        /// Version 3: microseconds until an event.
        cq_moderation_usec: U16,
        /// Reserved.
        reserved2: [u8; 2],
    }
}

/// Bytes of [`CreateWqObject`] in version 1.
pub const CREATE_WQ_OBJECT_V1: usize = 48;
/// `GDMA_CQ_NO_EQ`.
pub const NO_EVENT_QUEUE: u32 = 0xffff;

wire! {
    /// `struct mana_create_wqobj_resp`. The last 8 bytes belong to version 2.
    CreateWqObjectResponse: 24 {
        /// Number of the work queue.
        wq_id: U32,
        /// Number of the completion queue.
        cq_id: U32,
        /// Handle of both for requests.
        wq_obj: U64,
        /// Version 2: what moderation became of what was asked for.
        cq_moderation_comp: U16,
        /// Microseconds.
        cq_moderation_usec: U16,
        /// Whether there is any.
        cq_moderation_enabled: u8,
        /// Reserved.
        reserved1: [u8; 3],
    }
}

wire! {
    /// `struct mana_destroy_wqobj_req`.
    DestroyWqObject: 16 {
        /// SQ or RQ.
        wq_type: U32,
        /// Reserved.
        reserved: U32,
        /// The object.
        wq_obj_handle: U64,
    }
}

/// Bytes of a hash key (`MANA_HASH_KEY_SIZE`).
pub const HASH_KEY_SIZE: usize = 40;
/// Most entries of an indirection table (`MANA_INDIRECT_TABLE_MAX_SIZE`).
pub const INDIRECTION_MAX: usize = 512;

wire! {
    /// `struct mana_cfg_rx_steer_req_v2` without the indirection table, an array of 64-bit handles that follows.
    /// Version 1 ends with the hash key.
    ConfigRxSteering: 80 {
        /// The vPort.
        vport: U64,
        /// Entries of the table.
        num_indir_entries: U16,
        /// Where it starts, from the start of the message.
        indir_tab_offset: U16,
        /// 1 receive, 0 do not, all ones as before.
        rx_enable: U32,
        /// 1 hash, 0 do not, all ones as before.
        rss_enable: U32,
        /// Whether the default object below is to be taken over.
        update_default_rxobj: u8,
        /// Whether the key below is to be taken over.
        update_hashkey: u8,
        /// Whether the table is to be taken over.
        update_indir_tab: u8,
        /// Reserved.
        reserved: u8,
        /// Receive queue object of what has no hash.
        default_rxobj: U64,
        /// Toeplitz key.
        hashkey: [u8; HASH_KEY_SIZE],
        /// Version 2: up to four packets may share a completion.
        cqe_coalescing_enable: u8,
        /// Reserved.
        reserved2: [u8; 3],
        /// Version 5: [`hash_types`].
        rss_hash_types: U16,
        /// Version 5: up to eight packets may.
        cqe8_coalescing_enable: u8,
        /// Reserved.
        reserved3: u8,
    }
}

/// Bytes of [`ConfigRxSteering`] in version 1.
pub const CONFIG_RX_STEERING_V1: usize = 72;

/// `NDIS_HASH_*`.
pub mod hash_types {
    /// IPv4 addresses.
    pub const IPV4: u16 = 1 << 0;
    /// With TCP ports.
    pub const TCP_IPV4: u16 = 1 << 1;
    /// With UDP ports.
    pub const UDP_IPV4: u16 = 1 << 2;
    /// IPv6 addresses.
    pub const IPV6: u16 = 1 << 3;
    /// With TCP ports.
    pub const TCP_IPV6: u16 = 1 << 4;
    /// With UDP ports.
    pub const UDP_IPV6: u16 = 1 << 5;
    /// All that there are.
    pub const ALL: u16 = 0x1ff;
}

wire! {
    /// `struct mana_cfg_rx_steer_resp` of version 2; version 1 is empty.
    ConfigRxSteeringResponse: 8 {
        /// How long a shared completion waits for more packets.
        cqe_coalescing_timeout_ns: U32,
        /// Reserved.
        reserved1: U32,
    }
}

wire! {
    /// `struct mana_query_link_config_resp`.
    QueryLinkConfigResponse: 16 {
        /// Most that the service allows, in Mb/s.
        qos_speed_mbps: U32,
        /// Whether it allows anything.
        qos_unconfigured: u8,
        /// Reserved.
        reserved1: [u8; 3],
        /// What is set now, in Mb/s.
        link_speed_mbps: U32,
        /// Reserved.
        reserved2: [u8; 4],
    }
}

wire! {
    /// `struct mana_set_bw_clamp_req`.
    SetBandwidthClamp: 16 {
        /// The vPort.
        vport: U64,
        /// 1 to limit, 0 to stop limiting.
        enable_clamping: U32,
        /// Mb/s.
        link_speed_mbps: U32,
    }
}

wire! {
    /// `struct mana_set_bw_clamp_resp`.
    SetBandwidthClampResponse: 8 {
        /// Whether the service allows nothing to be set.
        qos_unconfigured: u8,
        /// Reserved.
        reserved: [u8; 7],
    }
}

wire! {
    /// `struct mana_register_hw_vport_req`.
    RegisterHwPort: 8 {
        /// Function that it is for.
        attached_gfid: U16,
        /// Whether it is the physical function's own.
        is_pf_default_vport: u8,
        /// Reserved.
        reserved1: u8,
        /// Whether frames of any EtherType may pass.
        allow_all_ether_types: u8,
        /// Reserved.
        reserved: [u8; 3],
    }
}

wire! {
    /// `struct mana_register_filter_req`.
    RegisterFilter: 32 {
        /// The vPort.
        vport: U64,
        /// Which frames go there.
        mac_addr: [u8; 6],
        /// Reserved.
        reserved: [u8; 18],
    }
}

/// Number of per-traffic-class groups of [`PhyStatistics`]: packets, bytes and pause frames.
pub const PHY_CLASSES: usize = 8;

wire! {
    /// `struct mana_query_phy_stat_resp`. Within a group, receive and transmit counters of each class alternate.
    PhyStatistics: 408 {
        /// What is reported.
        reported_stats: U64,
        /// Frames received and dropped.
        rx_pkt_drop_phy: U64,
        /// Frames to be sent and dropped.
        tx_pkt_drop_phy: U64,
        /// Frames.
        packets: [[U64; 2]; PHY_CLASSES],
        /// Bytes.
        bytes: [[U64; 2]; PHY_CLASSES],
        /// Pause frames.
        pauses: [[U64; 2]; PHY_CLASSES],
    }
}
