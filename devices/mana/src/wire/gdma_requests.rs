//! Messages of the hardware channel: their headers, and the requests about the function's own objects
//! (Linux `include/net/mana/gdma.h`).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

wire! {
    /// `struct gdma_msg_hdr`.
    MessageHeader: 16 {
        /// 0: the only kind of header there is.
        hdr_type: U32,
        /// [`super::RequestType`].
        msg_type: U32,
        /// Version of what follows the headers, from 1.
        msg_version: U16,
        /// Names the request while it is in flight.
        hwc_msg_id: U16,
        /// Bytes of the message with its headers.
        msg_size: U32,
    }
}

wire! {
    /// `struct gdma_dev_id`.
    DeviceId: 4 {
        /// [`DEVICE_HWC`], [`DEVICE_MANA`] or [`DEVICE_MANA_IB`].
        kind: U16,
        /// Which of them.
        instance: U16,
    }
}

/// `GDMA_DEVICE_HWC`.
pub const DEVICE_HWC: u16 = 1;
/// `GDMA_DEVICE_MANA`.
pub const DEVICE_MANA: u16 = 2;
/// `GDMA_DEVICE_MANA_IB`.
pub const DEVICE_MANA_IB: u16 = 3;

wire! {
    /// What every request starts with: `struct gdma_req_hdr`.
    RequestHeader: 40 {
        /// The request.
        req: MessageHeader,
        /// The response that is expected.
        resp: MessageHeader,
        /// Which device it is for.
        dev_id: DeviceId,
        /// Comes back in the response.
        activity_id: U32,
    }
}

wire! {
    /// What every response starts with: `struct gdma_resp_hdr`.
    ResponseHeader: 32 {
        /// The response.
        response: MessageHeader,
        /// Of the request.
        dev_id: DeviceId,
        /// Of the request.
        activity_id: U32,
        /// [`super::Status`].
        status: U32,
        /// Reserved.
        reserved: U32,
    }
}

wire! {
    /// `struct gdma_verify_ver_req`.
    VerifyVersionRequest: 600 {
        /// Lowest protocol version that the driver has.
        protocol_ver_min: U64,
        /// Highest.
        protocol_ver_max: U64,
        /// `GDMA_DRV_CAP_FLAG_1_*` and three more words.
        gd_drv_cap_flags: [U64; 4],
        /// Unused by Linux.
        drv_ver: U64,
        /// 0x10 for Linux.
        os_type: U32,
        /// Reserved.
        reserved: U32,
        /// Kernel version.
        os_ver_major: U32,
        /// Kernel version.
        os_ver_minor: U32,
        /// Kernel version.
        os_ver_build: U32,
        /// Unused by Linux.
        os_ver_platform: U32,
        /// Reserved.
        reserved_2: U64,
        /// Names of system, release, version.
        os_ver_str: [[u8; 128]; 4],
    }
}

/// `GDMA_DRV_CAP_FLAG_1_*`: what a driver announces that the device acts on.
pub mod driver_flags {
    /// The driver asks for the channel's timeout where the device answers with this bit.
    pub const HWC_TIMEOUT_RECONFIG: u64 = 1 << 3;
    /// Pages of 4 MiB, 1 GiB and 2 GiB in DMA regions.
    pub const LARGE_PAGES: u64 = 1 << 4;
    /// Indirection tables need not have 64 entries.
    pub const VARIABLE_INDIRECTION_TABLE: u64 = 1 << 5;
    /// Link events are understood.
    pub const HW_VPORT_LINK_AWARE: u64 = 1 << 6;
    /// The list of devices may have holes.
    pub const DEV_LIST_HOLES: u64 = 1 << 11;
    /// The driver changes the moderation of its completion queues while they run.
    pub const DYN_INTERRUPT_MODERATION: u64 = 1 << 28;
}

/// `GDMA_DRV_CAP_FLAG_1_HWC_TIMEOUT_RECONFIG`, which the device answers with to offer the timeout query.
pub const PF_HWC_TIMEOUT_RECONFIG: u64 = 1 << 3;
/// `GDMA_PF_CAP_FLAG_1_DYN_INTERRUPT_MODERATION`.
pub const PF_DYN_INTERRUPT_MODERATION: u64 = 1 << 15;
/// `GDMA_PROTOCOL_V1`, the only version there is.
pub const PROTOCOL_V1: u64 = 1;

wire! {
    /// `struct gdma_verify_ver_resp`.
    VerifyVersionResponse: 40 {
        /// The version that is spoken from now on.
        gdma_protocol_ver: U64,
        /// `GDMA_PF_CAP_FLAG_1_*` and three more words.
        pf_cap_flags: [U64; 4],
    }
}

wire! {
    /// `struct gdma_query_max_resources_resp`.
    MaxResourcesResponse: 40 {
        /// 0.
        status: U32,
        /// Send queues.
        max_sq: U32,
        /// Receive queues.
        max_rq: U32,
        /// Completion queues.
        max_cq: U32,
        /// Event queues.
        max_eq: U32,
        /// Doorbell pages.
        max_db: U32,
        /// Memory regions.
        max_mst: U32,
        /// Contexts of completion moderation.
        max_cq_mod_ctx: U32,
        /// Completion queues with moderation.
        max_mod_cq: U32,
        /// MSI-X vectors.
        max_msix: U32,
    }
}

/// Entries of the list of devices (`GDMA_DEV_LIST_SIZE`).
pub const DEVICE_LIST_SIZE: usize = 64;

wire! {
    /// `struct gdma_list_devices_resp`.
    ListDevicesResponse: 264 {
        /// Entries that are not holes.
        num_of_devs: U32,
        /// Reserved.
        reserved: U32,
        /// Zero where there is none.
        devs: [DeviceId; DEVICE_LIST_SIZE],
    }
}

wire! {
    /// `struct gdma_register_device_resp`.
    RegisterDeviceResponse: 12 {
        /// Protection domain of the device's objects.
        pdid: U32,
        /// Memory key for guest-physical addresses.
        gpa_mkey: U32,
        /// Doorbell page.
        db_id: U32,
    }
}

wire! {
    /// `struct gdma_generate_test_event_req`.
    GenerateTestEvent: 4 {
        /// The event queue.
        queue_index: U32,
    }
}

wire! {
    /// `struct gdma_allocate_resource_range_req`.
    AllocateResourceRange: 16 {
        /// [`RESOURCE_DOORBELL_PAGE`].
        resource_type: U32,
        /// How many in a row.
        num_resources: U32,
        /// What the first number must be a multiple of.
        alignment: U32,
        /// Unused.
        allocated_resources: U32,
    }
}

/// `GDMA_RESOURCE_DOORBELL_PAGE`.
pub const RESOURCE_DOORBELL_PAGE: u32 = 27;

wire! {
    /// `struct gdma_destroy_resource_range_req`.
    DestroyResourceRange: 12 {
        /// [`RESOURCE_DOORBELL_PAGE`].
        resource_type: U32,
        /// How many in a row.
        num_resources: U32,
        /// The first.
        allocated_resources: U32,
    }
}

/// `enum gdma_queue_type`.
pub mod queue_type {
    /// Send queue.
    pub const SQ: u32 = 1;
    /// Receive queue.
    pub const RQ: u32 = 2;
    /// Completion queue.
    pub const CQ: u32 = 3;
    /// Event queue.
    pub const EQ: u32 = 4;
}

wire! {
    /// `struct gdma_create_queue_req`.
    CreateQueue: 56 {
        /// [`queue_type`].
        r#type: U32,
        /// Reserved.
        reserved1: U32,
        /// Protection domain.
        pdid: U32,
        /// Doorbell page (spelled so in the driver).
        doolbell_id: U32,
        /// DMA region, which the queue takes over.
        gdma_region: U64,
        /// Reserved.
        reserved2: U32,
        /// Bytes.
        queue_size: U32,
        /// Of an event queue: how many events of one CQ may be waiting, as a power of two.
        log2_throttle_limit: U32,
        /// Of an event queue: MSI-X vector.
        eq_pci_msix_index: U32,
        /// Of a completion queue.
        cq_mod_ctx_id: U32,
        /// Of a completion queue: its event queue.
        cq_parent_eq_id: U32,
        /// `rq_drop_on_overrun`, `rq_err_on_wqe_overflow`, `rq_chain_rec_wqes`, `sq_hw_db`.
        flags: [u8; 4],
        /// Reserved.
        reserved3: U32,
    }
}

wire! {
    /// `struct gdma_disable_queue_req`.
    DisableQueue: 12 {
        /// [`queue_type`].
        r#type: U32,
        /// The queue.
        queue_index: U32,
        /// 1 where the device chose the number.
        alloc_res_id_on_creation: U32,
    }
}

wire! {
    /// `struct gdma_query_hwc_timeout_req` and its response.
    HwcTimeout: 8 {
        /// Milliseconds.
        timeout_ms: U32,
        /// Reserved.
        reserved: U32,
    }
}

wire! {
    /// `struct gdma_create_dma_region_req` without the addresses that follow it.
    CreateDmaRegion: 24 {
        /// Bytes.
        length: U64,
        /// Where in the first page it starts.
        offset_in_page: U32,
        /// Page size: 4096 shifted left by this.
        gdma_page_type: U32,
        /// Pages in all.
        page_count: U32,
        /// Addresses in this message.
        page_addr_list_len: U32,
    }
}

wire! {
    /// `struct gdma_dma_region_add_pages_req` without the addresses that follow it.
    AddPages: 16 {
        /// The region.
        dma_region_handle: U64,
        /// Addresses in this message.
        page_addr_list_len: U32,
        /// Reserved.
        reserved3: U32,
    }
}

wire! {
    /// Any request or response that is a handle and nothing else.
    Handle: 8 {
        /// The handle.
        handle: U64,
    }
}

wire! {
    /// Any response that is a number and nothing else.
    Index: 4 {
        /// The number.
        index: U32,
    }
}

wire! {
    /// `struct gdma_create_pd_req`.
    CreatePd: 8 {
        /// `GDMA_PD_FLAG_*`.
        flags: U32,
        /// Reserved.
        reserved: U32,
    }
}

wire! {
    /// `struct gdma_create_pd_resp`.
    CreatePdResponse: 16 {
        /// For requests.
        pd_handle: U64,
        /// For queues.
        pd_id: U32,
        /// Reserved.
        reserved: U32,
    }
}

/// `enum gdma_mr_type`.
pub mod mr_type {
    /// All of guest memory.
    pub const GPA: u32 = 1;
    /// A DMA region at a virtual address.
    pub const GVA: u32 = 2;
    /// A DMA region at address zero.
    pub const ZBVA: u32 = 4;
    /// Device memory.
    pub const DM: u32 = 5;
    /// Memory windows.
    pub const MW1: u32 = 6;
    /// Memory windows.
    pub const MW2: u32 = 7;
}

wire! {
    /// `struct gdma_create_mr_request` up to the union's first member, which is a handle for all types that have
    /// any.
    CreateMr: 24 {
        /// Protection domain.
        pd_handle: U64,
        /// [`mr_type`].
        mr_type: U32,
        /// Reserved.
        reserved_1: U32,
        /// DMA region or device memory.
        object_handle: U64,
    }
}

wire! {
    /// `struct gdma_create_mr_response`.
    CreateMrResponse: 16 {
        /// For requests.
        mr_handle: U64,
        /// Key for work requests.
        lkey: U32,
        /// Key for the other side.
        rkey: U32,
    }
}

wire! {
    /// `struct gdma_alloc_dm_req`.
    AllocDm: 16 {
        /// Bytes.
        length: U64,
        /// Power of two.
        alignment: U32,
        /// None defined.
        flags: U32,
    }
}
