//! What the device and the driver say about themselves (`gve_adminq.h`).

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

wire! {
    /// `struct gve_adminq_describe_device`.
    DescribeDevice: 16 {
        /// Where the device writes a [`DeviceDescriptor`] and its options.
        device_descriptor_addr: U64,
        /// [`DEVICE_DESCRIPTOR_VERSION`].
        device_descriptor_version: U32,
        /// Bytes that the driver has there.
        available_length: U32,
    }
}

wire! {
    /// `struct gve_device_descriptor`.
    DeviceDescriptor: 40 {
        /// Most pages that page lists may hold together.
        max_registered_pages: U64,
        /// Zero.
        reserved1: U16,
        /// Default size of a TX ring in descriptors.
        tx_queue_entries: U16,
        /// Default size of an RX ring in descriptors.
        rx_queue_entries: U16,
        /// How many queues of each kind to use unless told otherwise; 0 for as many as there are.
        default_num_queues: U16,
        /// Largest MTU that fits one page-sized buffer.
        mtu: U16,
        /// Size of the counter array.
        counters: U16,
        /// Pages of a TX queue page list (GQI).
        tx_pages_per_qpl: U16,
        /// Pages of an RX queue page list (GQI).
        rx_pages_per_qpl: U16,
        /// The port's MAC address.
        mac: [u8; 6],
        /// How many options follow.
        num_device_options: U16,
        /// Bytes of this structure and the options.
        total_length: U16,
        /// Zero.
        reserved2: [u8; 6],
    }
}

wire! {
    /// `struct gve_device_option`: the head of an option.
    DeviceOption: 8 {
        /// [`OptionId`].
        option_id: U16,
        /// Bytes that follow this head.
        option_length: U16,
        /// Features that the driver must know to use the option; always zero so far.
        required_features_mask: U32,
    }
}

/// `enum gve_dev_opt_id`: the options that this device can offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[allow(missing_docs, reason = "the names are those of the driver's header")]
pub enum OptionId {
    GqiRda = 0x2,
    GqiQpl = 0x3,
    DqoRda = 0x4,
    ModifyRing = 0x6,
    DqoQpl = 0x7,
    JumboFrames = 0x8,
    BufferSizes = 0xa,
    FlowSteering = 0xb,
    RssConfig = 0xe,
}

option! {
    /// `struct gve_device_option_dqo_rda`. Later drivers call the ring sizes reserved; Linux 6.1 needs them.
    OptionDqoRda: 8 {
        /// Which of the feature options ([`FEATURE_JUMBO_FRAMES`] and so on) hold for this queue format.
        supported_features_mask: U32,
        /// Default size of a TX completion ring.
        tx_comp_ring_entries: U16,
        /// Default size of an RX buffer ring.
        rx_buff_ring_entries: U16,
    }
}

option! {
    /// `struct gve_device_option_gqi_rda`.
    OptionGqiRda: 4 {
        /// Which of the feature options hold for this queue format.
        supported_features_mask: U32,
    }
}

option! {
    /// `struct gve_device_option_gqi_qpl`.
    OptionGqiQpl: 4 {
        /// Which of the feature options hold for this queue format.
        supported_features_mask: U32,
    }
}

option! {
    /// `struct gve_device_option_dqo_qpl`.
    OptionDqoQpl: 8 {
        /// Which of the feature options hold for this queue format.
        supported_features_mask: U32,
        /// Pages of a TX queue page list.
        tx_pages_per_qpl: U16,
        /// Pages of an RX queue page list.
        rx_pages_per_qpl: U16,
    }
}

option! {
    /// `struct gve_device_option_jumbo_frames`.
    OptionJumboFrames: 8 {
        /// [`FEATURE_JUMBO_FRAMES`].
        supported_features_mask: U32,
        /// The true largest MTU.
        max_mtu: U16,
        /// Zero.
        padding: [u8; 2],
    }
}

option! {
    /// `struct gve_device_option_buffer_sizes`.
    OptionBufferSizes: 8 {
        /// [`FEATURE_BUFFER_SIZES`].
        supported_features_mask: U32,
        /// Largest receive buffer.
        packet_buffer_size: U16,
        /// Header buffer; 0 where header split is not offered.
        header_buffer_size: U16,
    }
}

option! {
    /// `struct gve_device_option_modify_ring`.
    OptionModifyRing: 12 {
        /// [`FEATURE_MODIFY_RING`].
        supported_features_mask: U32,
        /// Largest RX ring.
        max_rx_ring_size: U16,
        /// Largest TX ring.
        max_tx_ring_size: U16,
        /// Smallest RX ring.
        min_rx_ring_size: U16,
        /// Smallest TX ring.
        min_tx_ring_size: U16,
    }
}

option! {
    /// `struct gve_device_option_flow_steering`.
    OptionFlowSteering: 12 {
        /// [`FEATURE_FLOW_STEERING`].
        supported_features_mask: U32,
        /// Zero.
        reserved: U32,
        /// Most rules that the device keeps.
        max_flow_rules: U32,
    }
}

option! {
    /// `struct gve_device_option_rss_config`.
    OptionRssConfig: 8 {
        /// [`FEATURE_RSS_CONFIG`].
        supported_features_mask: U32,
        /// Bytes of the hash key.
        hash_key_size: U16,
        /// Entries of the indirection table.
        hash_lut_size: U16,
    }
}

wire! {
    /// The fixed part of `struct gve_driver_info`; two version strings of [`VERSION_STR_LEN`] bytes follow.
    /// The first is the release, as `uname -r` has it.
    DriverInfo: 48 {
        /// Such as [`OS_TYPE_LINUX`].
        os_type: u8,
        /// Driver version, unused by Linux.
        driver_major: u8,
        /// Driver version, unused by Linux.
        driver_minor: u8,
        /// Driver version, unused by Linux.
        driver_sub: u8,
        /// Kernel version.
        os_version_major: U32,
        /// Linux: `SUBLEVEL`.
        os_version_minor: U32,
        /// Linux: `PATCHLEVEL`.
        os_version_sub: U32,
        /// 256 capability bits, see `enum gve_driver_capbility`.
        driver_capability_flags: [U64; 4],
    }
}

wire! {
    /// `struct gve_adminq_verify_driver_compatibility`.
    VerifyDriverCompatibility: 16 {
        /// Bytes of the [`DriverInfo`] and its strings.
        driver_info_len: U64,
        /// Where it is.
        driver_info_addr: U64,
    }
}

/// `os_type` of Linux (`gve_main.c`).
pub const OS_TYPE_LINUX: u8 = 1;
/// `GVE_VERSION_STR_LEN`.
pub const VERSION_STR_LEN: usize = 128;
/// `GVE_ADMINQ_DEVICE_DESCRIPTOR_VERSION`.
pub const DEVICE_DESCRIPTOR_VERSION: u32 = 1;
/// `GVE_SUP_MODIFY_RING_MASK`.
pub const FEATURE_MODIFY_RING: u32 = 1 << 0;
/// `GVE_SUP_JUMBO_FRAMES_MASK`.
pub const FEATURE_JUMBO_FRAMES: u32 = 1 << 2;
/// `GVE_SUP_BUFFER_SIZES_MASK`.
pub const FEATURE_BUFFER_SIZES: u32 = 1 << 4;
/// `GVE_SUP_FLOW_STEERING_MASK`.
pub const FEATURE_FLOW_STEERING: u32 = 1 << 5;
/// `GVE_SUP_RSS_CONFIG_MASK`.
pub const FEATURE_RSS_CONFIG: u32 = 1 << 7;
