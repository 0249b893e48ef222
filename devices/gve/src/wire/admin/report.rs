//! Parameters, statistics, link speed and packet types (`gve_adminq.h`).

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

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

/// `GVE_SET_PARAM_MTU`.
pub const PARAMETER_MTU: u32 = 1;
/// `GVE_NUM_PTYPES` (`gve.h`): packet types have 10 bits.
pub const PTYPES: usize = 1024;
