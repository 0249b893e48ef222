//! What travels beside the messages of the hardware channel: events at its start, and the out-of-band data of
//! its work requests and completions (Linux `include/net/mana/hw_channel.h`).

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `GDMA_EQE_HWC_INIT_EQ_ID_DB`: EQ number (low half) and doorbell page (high half).
pub const EVENT_INIT_EQ: u8 = 129;
/// `GDMA_EQE_HWC_INIT_DATA`: one of [`InitData`].
pub const EVENT_INIT_DATA: u8 = 130;
/// `GDMA_EQE_HWC_INIT_DONE`.
pub const EVENT_INIT_DONE: u8 = 131;
/// `GDMA_EQE_HWC_FPGA_RECONFIG`: the device goes away for some time.
pub const EVENT_FPGA_RECONFIG: u8 = 132;
/// `GDMA_EQE_HWC_SOC_RECONFIG_DATA`: one of [`Reconfiguration`].
pub const EVENT_SOC_RECONFIG_DATA: u8 = 133;
/// `GDMA_EQE_HWC_SOC_SERVICE`: a service type in the four high bits.
pub const EVENT_SOC_SERVICE: u8 = 134;
/// `GDMA_EQE_HWC_RESET_REQUEST`: the driver is to reset the device.
pub const EVENT_RESET_REQUEST: u8 = 135;
/// `GDMA_EQE_TEST_EVENT`.
pub const EVENT_TEST: u8 = 64;
/// `GDMA_EQE_RNIC_QP_FATAL`: a queue pair of the RDMA device is lost.
pub const EVENT_RNIC_QP_FATAL: u8 = 176;

/// What an [`EVENT_INIT_DATA`] tells (`HWC_INIT_DATA_*`): the number stands in the high 8 bits of the word, the
/// value in the 24 others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the driver's names say it")]
pub enum InitData {
    CqId = 1,
    RqId = 2,
    SqId = 3,
    QueueDepth = 4,
    MaxRequest = 5,
    MaxResponse = 6,
    MaxNumCqs = 7,
    PdId = 8,
    GpaMkey = 9,
    PfDestRqId = 10,
    PfDestCqId = 11,
}

impl InitData {
    /// All of them.
    pub const ALL: [InitData; 11] = [
        InitData::CqId,
        InitData::RqId,
        InitData::SqId,
        InitData::QueueDepth,
        InitData::MaxRequest,
        InitData::MaxResponse,
        InitData::MaxNumCqs,
        InitData::PdId,
        InitData::GpaMkey,
        InitData::PfDestRqId,
        InitData::PfDestCqId,
    ];

    /// By what name faults change its value, which has 24 bits.
    pub const fn override_name(self) -> &'static str {
        match self {
            InitData::CqId => "init.cq_id",
            InitData::RqId => "init.rq_id",
            InitData::SqId => "init.sq_id",
            InitData::QueueDepth => "init.queue_depth",
            InitData::MaxRequest => "init.max_request",
            InitData::MaxResponse => "init.max_response",
            InitData::MaxNumCqs => "init.max_num_cqs",
            InitData::PdId => "init.pd_id",
            InitData::GpaMkey => "init.gpa_mkey",
            InitData::PfDestRqId => "init.pf_dest_rq_id",
            InitData::PfDestCqId => "init.pf_dest_cq_id",
        }
    }
}

/// What an [`EVENT_SOC_RECONFIG_DATA`] tells (`HWC_DATA_*`), laid out as [`InitData`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reconfiguration {
    /// The channel's timeout in milliseconds.
    HwcTimeout = 1,
    /// The link of all vPorts is up.
    LinkConnect = 2,
    /// The link of all vPorts is down.
    LinkDisconnect = 3,
}

/// A word of a typed value: 8 bits of type above 24 bits of value (`union hwc_init_type_data`).
pub fn type_data(kind: u8, value: u32) -> u32 {
    u32::from(kind) << 24 | value & 0xff_ffff
}

wire! {
    /// Inline OOB of a request's WQE: `struct hwc_tx_oob`.
    TxOob: 24 {
        /// Reserved.
        reserved: [U32; 2],
        /// `vrq_id` (24 bits): receive queue of the other side, on a physical function; `dest_vfid` (8 bits).
        vrq: U32,
        /// `vrcq_id` (24 bits): completion queue of the other side.
        vrcq: U32,
        /// `vscq_id` (24 bits): the channel's completion queue; above it `loopback`, `lso_override`, `dest_pf`.
        vscq: U32,
        /// `vsq_id` (24 bits): the channel's send queue.
        vsq: U32,
    }
}

wire! {
    /// First bytes of both kinds of completions: `struct hwc_rx_oob`.
    RxOob: 32 {
        /// `type` (6 bits), end of message, start of message, `vendor_err` (8 bits).
        flags: U32,
        /// `src_virt_wq` (24 bits), `src_vfid` (8 bits).
        source: U32,
        /// Reserved.
        reserved: U32,
        /// `wqe_offset`: where the WQE starts in its queue, in bytes.
        wqe_offset: U32,
        /// Upper half of the above.
        wqe_addr_high: U32,
        /// `client_data_unit` of the WQE (14 bits).
        client_data_unit: U32,
        /// Bytes of the message.
        tx_oob_data_size: U32,
        /// `chunk_offset` (21 bits).
        chunk_offset: U32,
    }
}

/// Start and end of a message in [`RxOob::flags`].
pub const WHOLE_MESSAGE: u32 = 0b11 << 6;
