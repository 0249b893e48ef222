//! Device resources, page lists and queues (`gve_adminq.h`).

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

wire! {
    /// `struct gve_adminq_configure_device_resources`.
    ConfigureDeviceResources: 40 {
        /// Event counters that the device updates (GQI).
        counter_array: U64,
        /// Where the device writes the doorbell index of each notification block.
        irq_db_addr: U64,
        /// Entries of the counter array.
        num_counters: U32,
        /// Number of notification blocks.
        num_irq_dbs: U32,
        /// Bytes from one doorbell index to the next.
        irq_db_stride: U32,
        /// MSI-X vector of the first notification block: 0 (management is last) or 1 (management is first).
        ntfy_blk_msix_base_idx: U32,
        /// [`crate::config::QueueFormat`] by its number.
        queue_format: u8,
        /// Zero.
        padding: [u8; 7],
    }
}

wire! {
    /// `struct gve_adminq_register_page_list`.
    RegisterPageList: 24 {
        /// The list's id, chosen by the driver.
        page_list_id: U32,
        /// Number of pages.
        num_pages: U32,
        /// Array of 64-bit page addresses.
        page_address_list_addr: U64,
        /// Bytes of a page.
        page_size: U64,
    }
}

wire! {
    /// `struct gve_adminq_create_tx_queue`.
    CreateTxQueue: 48 {
        /// The queue's number.
        queue_id: U32,
        /// Zero.
        reserved: U32,
        /// Where the device writes [`QueueResources`].
        queue_resources_addr: U64,
        /// Descriptor ring.
        tx_ring_addr: U64,
        /// [`RAW_ADDRESSING`] or a registered page list.
        queue_page_list_id: U32,
        /// Notification block.
        ntfy_id: U32,
        /// Completion ring.
        tx_comp_ring_addr: U64,
        /// Descriptors in the ring.
        tx_ring_size: U16,
        /// Completions in the completion ring.
        tx_comp_ring_size: U16,
        /// Zero.
        padding: [u8; 4],
    }
}

wire! {
    /// `struct gve_adminq_create_rx_queue`.
    CreateRxQueue: 56 {
        /// The queue's number.
        queue_id: U32,
        /// The queue's number again (GQI).
        index: U32,
        /// Zero.
        reserved: U32,
        /// Notification block.
        ntfy_id: U32,
        /// Where the device writes [`QueueResources`].
        queue_resources_addr: U64,
        /// Completion ring.
        rx_desc_ring_addr: U64,
        /// Buffer ring.
        rx_data_ring_addr: U64,
        /// [`RAW_ADDRESSING`] or a registered page list.
        queue_page_list_id: U32,
        /// Completions in the completion ring.
        rx_ring_size: U16,
        /// Bytes of each buffer.
        packet_buffer_size: U16,
        /// Descriptors in the buffer ring.
        rx_buff_ring_size: U16,
        /// Whether the device may merge segments of a flow.
        enable_rsc: u8,
        /// Zero.
        padding1: u8,
        /// Bytes of each header buffer; 0 for no header split.
        header_buffer_size: U16,
        /// Zero.
        padding2: [u8; 2],
    }
}

wire! {
    /// `struct gve_queue_resources` without its reserve: written by the device when it creates a queue.
    QueueResources: 8 {
        /// The queue's doorbell: a 32-bit word of BAR2.
        db_index: U32,
        /// The queue's event counter (GQI).
        counter_index: U32,
    }
}

/// `GVE_RAW_ADDRESSING_QPL_ID`: a queue without a page list.
pub const RAW_ADDRESSING: u32 = 0xffff_ffff;
