//! Admin queue commands and the structures they point to (`gve_adminq.h`). All fields are big-endian.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Derives what every wire structure here needs and checks its size at compile time.
macro_rules! wire {
    ($(#[$attribute:meta])* $name:ident: $size:literal { $($(#[$field_attribute:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name { $($(#[$field_attribute])* pub $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $size);
    };
}

wire! {
    /// One entry of the admin queue: `union gve_adminq_command`.
    Command: 64 {
        /// What to do: [`Opcode`].
        opcode: U32,
        /// Written by the device: [`Status`], never zero after execution.
        status: U32,
        /// The opcode's parameters; see [`Command::parameters`].
        parameters: [u8; 56],
    }
}

impl Command {
    /// The first bytes of the parameter area as one of the structures of this module.
    pub fn parameters<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self) -> T {
        const { assert!(size_of::<T>() <= 56) };
        match T::read_from_prefix(&self.parameters) {
            Ok((parameters, _)) => parameters,
            Err(_) => unreachable!("the parameter area holds every parameter structure"),
        }
    }
}

/// `enum gve_adminq_opcodes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "the names are those of the driver's header")]
pub enum Opcode {
    DescribeDevice = 0x1,
    ConfigureDeviceResources = 0x2,
    RegisterPageList = 0x3,
    UnregisterPageList = 0x4,
    CreateTxQueue = 0x5,
    CreateRxQueue = 0x6,
    DestroyTxQueue = 0x7,
    DestroyRxQueue = 0x8,
    DeconfigureDeviceResources = 0x9,
    ConfigureRss = 0xa,
    SetDriverParameter = 0xb,
    ReportStats = 0xc,
    ReportLinkSpeed = 0xd,
    GetPtypeMap = 0xe,
    VerifyDriverCompatibility = 0xf,
    QueryFlowRules = 0x10,
    ReportNicTimestamp = 0x11,
    QueryRss = 0x12,
    Extended = 0xff,
}

impl Opcode {
    /// The opcode with this number, if there is one.
    pub fn from_number(number: u32) -> Option<Opcode> {
        use Opcode::*;
        const ALL: [Opcode; 19] = [
            DescribeDevice,
            ConfigureDeviceResources,
            RegisterPageList,
            UnregisterPageList,
            CreateTxQueue,
            CreateRxQueue,
            DestroyTxQueue,
            DestroyRxQueue,
            DeconfigureDeviceResources,
            ConfigureRss,
            SetDriverParameter,
            ReportStats,
            ReportLinkSpeed,
            GetPtypeMap,
            VerifyDriverCompatibility,
            QueryFlowRules,
            ReportNicTimestamp,
            QueryRss,
            Extended,
        ];
        ALL.into_iter().find(|opcode| *opcode as u32 == number)
    }
}

/// Inner opcode of the one command too long for an entry (`GVE_ADMINQ_CONFIGURE_FLOW_RULE`).
pub const CONFIGURE_FLOW_RULE: u32 = 0x101;

/// `enum gve_adminq_statuses`: how a command ended. Linux maps each to an errno (`gve_adminq_parse_err`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "the names are those of the driver's header")]
pub enum Status {
    Passed = 0x1,
    AlreadyExists = 0xffff_fff1,
    FailedPrecondition = 0xffff_fff5,
    InternalError = 0xffff_fff6,
    InvalidArgument = 0xffff_fff7,
    NotFound = 0xffff_fff8,
    OutOfRange = 0xffff_fff9,
    ResourceExhausted = 0xffff_fffc,
    Unimplemented = 0xffff_fffe,
}

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
    DqoRda = 0x4,
    ModifyRing = 0x6,
    JumboFrames = 0x8,
    BufferSizes = 0xa,
    FlowSteering = 0xb,
    RssConfig = 0xe,
}

wire! {
    /// `struct gve_device_option_dqo_rda`.
    OptionDqoRda: 8 {
        /// Which of the feature options ([`FEATURE_JUMBO_FRAMES`] and so on) hold for this queue format.
        supported_features_mask: U32,
        /// Zero.
        reserved: U32,
    }
}

wire! {
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

wire! {
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

wire! {
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

wire! {
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

wire! {
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
    /// `struct gve_adminq_extended_command`.
    ExtendedCommand: 16 {
        /// [`CONFIGURE_FLOW_RULE`].
        inner_opcode: U32,
        /// Bytes of the inner command.
        inner_length: U32,
        /// Where it is.
        inner_command_addr: U64,
    }
}

wire! {
    /// The fixed part of `struct gve_driver_info`; two version strings of 128 bytes follow.
    DriverInfo: 48 {
        /// 1 for Linux.
        os_type: u8,
        /// Driver version, unused by Linux.
        driver_major: u8,
        /// Driver version, unused by Linux.
        driver_minor: u8,
        /// Driver version, unused by Linux.
        driver_sub: u8,
        /// Kernel version.
        os_version_major: U32,
        /// Kernel version.
        os_version_minor: U32,
        /// Kernel version.
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
    /// `struct gve_adminq_unregister_page_list` and the destroy commands: one id.
    Id: 4 {
        /// Queue or page list.
        id: U32,
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

wire! {
    /// `struct gve_adminq_set_driver_parameter`.
    SetDriverParameter: 16 {
        /// [`PARAMETER_MTU`].
        parameter_type: U32,
        /// Zero.
        reserved: [u8; 4],
        /// The value.
        parameter_value: U64,
    }
}

wire! {
    /// `struct gve_adminq_report_stats`.
    ReportStats: 24 {
        /// Bytes of the report; 0 takes it away.
        stats_report_len: U64,
        /// Where it is.
        stats_report_addr: U64,
        /// Milliseconds between updates.
        interval: U64,
    }
}

wire! {
    /// `struct stats`: one value of a statistics report.
    Stat: 16 {
        /// Which statistic, see `enum gve_stat_names`.
        stat_name: U32,
        /// Of which queue.
        queue_id: U32,
        /// Its value.
        value: U64,
    }
}

wire! {
    /// `struct gve_adminq_report_link_speed`.
    ReportLinkSpeed: 8 {
        /// Where the device writes the speed in Mb/s, 64 bits.
        link_speed_address: U64,
    }
}

wire! {
    /// `struct gve_adminq_get_ptype_map`.
    GetPtypeMap: 16 {
        /// Bytes of the map: [`PTYPES`] entries of two.
        ptype_map_len: U64,
        /// Where the device writes it.
        ptype_map_addr: U64,
    }
}

wire! {
    /// `struct gve_ptype_entry`.
    PtypeEntry: 2 {
        /// `enum gve_l3_type`.
        l3_type: u8,
        /// `enum gve_l4_type`.
        l4_type: u8,
    }
}

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

/// `GVE_ADMINQ_DEVICE_DESCRIPTOR_VERSION`.
pub const DEVICE_DESCRIPTOR_VERSION: u32 = 1;
/// `GVE_RAW_ADDRESSING_QPL_ID`: a queue without a page list.
pub const RAW_ADDRESSING: u32 = 0xffff_ffff;
/// `GVE_SET_PARAM_MTU`.
pub const PARAMETER_MTU: u32 = 1;
/// `GVE_NUM_PTYPES` (`gve.h`): packet types have 10 bits.
pub const PTYPES: usize = 1024;
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
