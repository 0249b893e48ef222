//! What the device has, and since when drivers know it.
//!
//! A feature is offered if the configuration says so, the driver announces what it takes (a bit of its
//! `gd_drv_cap_flags`), and the device is young enough for it ([`nicvisor_core::profile`]). An older device takes newer
//! versions of requests and passes over the fields that it does not know, as the driver's comments say of it; what it
//! answers is of the version that it knows.

use nicvisor_core::{KernelVersion, Since};

use crate::config::Config;
use crate::device::Mana;
use crate::wire::gdma_requests::driver_flags;

/// Something that not every device has, or not towards every driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    /// `GDMA_DEVICE_MANA_IB` in the list of devices.
    Rdma,
    /// `adapter_mtu`: version 2 of the answer to `MANA_QUERY_DEV_CONFIG`.
    AdapterMtu,
    /// `GDMA_QUERY_HWC_TIMEOUT`.
    ChannelTimeout,
    /// Indirection tables need not have 64 entries.
    VariableTable,
    /// The list of devices may have holes.
    ListHoles,
    /// `bm_hostmode`: version 3 of the answer to `MANA_QUERY_DEV_CONFIG`.
    HostMode,
    /// `MANA_QUERY_LINK_CONFIG` and `MANA_SET_BW_CLAMP`.
    LinkConfig,
    /// `MANA_QUERY_PHY_STAT`.
    PhyStatistics,
    /// The driver is told when the link changes.
    LinkEvents,
    /// Pages of more than 2 MiB in DMA regions.
    LargePages,
    /// Moderation of completion queues by doorbells: version 3 of `MANA_CREATE_WQ_OBJ`, version 2 of its answer.
    Moderation,
    /// Version 5 of `MANA_CONFIG_VPORT_RX`: which types of packets are hashed.
    HashTypes,
    /// Four received packets can share a completion; the answer to `MANA_CONFIG_VPORT_RX` in version 2 says for how
    /// long they wait.
    Coalescing,
    /// Eight can.
    Coalescing8,
}

impl Feature {
    /// The release of Linux whose driver knows it first. Commits are named where it is theirs that is meant; 7.3
    /// stands for the first sources that have what those of 6.18 lack.
    fn since(self) -> Since {
        match self {
            // "RDMA/mana_ib: Add a driver for Microsoft Azure Network Adapter".
            Feature::Rdma => Since::linux(6, 2),
            // "net: mana: Add support for jumbo frame".
            Feature::AdapterMtu => Since::linux(6, 4),
            // "net: mana: Configure hwc timeout from hardware".
            Feature::ChannelTimeout => Since::linux(6, 6),
            // "net: mana: Allow variable size indirection table".
            Feature::VariableTable => Since::linux(6, 11),
            // "net: mana: Support holes in device list reply msg".
            Feature::ListHoles => Since::linux(6, 14),
            // `struct mana_query_device_cfg_resp` of 6.16, not of 6.12.
            Feature::HostMode => Since::linux(6, 16),
            // "net: mana: Add support for net_shaper_ops".
            Feature::LinkConfig => Since::linux(6, 17),
            // "net: mana: Expose additional hardware counters for drop and TC via ethtool.".
            Feature::PhyStatistics => Since::linux(6, 17),
            // `GDMA_DRV_CAP_FLAG_1_HW_VPORT_LINK_AWARE`.
            Feature::LinkEvents => Since::linux(7, 3),
            // `GDMA_DRV_CAP_FLAG_1_GDMA_PAGES_4MB_1GB_2GB`.
            Feature::LargePages => Since::linux(7, 3),
            // `GDMA_PF_CAP_FLAG_1_DYN_INTERRUPT_MODERATION`.
            Feature::Moderation => Since::linux(7, 3),
            // `mana_cfg_rx_steer_req_v2.rss_hash_types`.
            Feature::HashTypes => Since::linux(7, 3),
            // `mana_cfg_rx_steer_resp.cqe_coalescing_timeout_ns`.
            Feature::Coalescing => Since::linux(7, 3),
            // `MANA_PF_FLAG_1_CQE_8_COALESCING_SUPPORTED`.
            Feature::Coalescing8 => Since::linux(7, 3),
        }
    }

    /// The bit of [`driver_flags`] by which a driver announces that it takes it, if there is one.
    fn announced_by(self) -> Option<u64> {
        match self {
            Feature::ChannelTimeout => Some(driver_flags::HWC_TIMEOUT_RECONFIG),
            Feature::LargePages => Some(driver_flags::LARGE_PAGES),
            Feature::VariableTable => Some(driver_flags::VARIABLE_INDIRECTION_TABLE),
            Feature::LinkEvents => Some(driver_flags::HW_VPORT_LINK_AWARE),
            Feature::ListHoles => Some(driver_flags::DEV_LIST_HOLES),
            Feature::Moderation => Some(driver_flags::DYN_INTERRUPT_MODERATION),
            _ => None,
        }
    }

    /// Whether the configuration has it.
    fn is_configured(self, config: &Config) -> bool {
        let offered = &config.capabilities;
        match self {
            Feature::Rdma => offered.rdma,
            Feature::ChannelTimeout => offered.timeout_query,
            Feature::ListHoles => offered.device_list_holes,
            Feature::HostMode => offered.host_mode,
            Feature::LinkConfig => offered.link_config,
            Feature::PhyStatistics => offered.phy_statistics,
            Feature::Moderation => offered.dynamic_moderation,
            Feature::Coalescing8 => offered.coalescing_8,
            _ => true,
        }
    }
}

impl Mana {
    /// Whether the device has `feature` towards the driver that it has now.
    pub(crate) fn offers(&self, feature: Feature) -> bool {
        let announced = feature.announced_by().is_none_or(|flag| self.announced(flag));
        announced && feature.is_configured(&self.config) && self.knows(feature)
    }

    /// Whether a device of this age knows `feature`, whatever its configuration says.
    pub(crate) fn knows(&self, feature: Feature) -> bool {
        self.config.profile.offers(feature.since(), self.kernel())
    }

    /// The release that the driver says it is from.
    fn kernel(&self) -> Option<KernelVersion> {
        self.state.driver.and_then(|driver| driver.kernel())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    impl Feature {
        /// All of them.
        pub(crate) const ALL: [Feature; 14] = [
            Feature::Rdma,
            Feature::AdapterMtu,
            Feature::ChannelTimeout,
            Feature::VariableTable,
            Feature::ListHoles,
            Feature::HostMode,
            Feature::LinkConfig,
            Feature::PhyStatistics,
            Feature::LinkEvents,
            Feature::LargePages,
            Feature::Moderation,
            Feature::HashTypes,
            Feature::Coalescing,
            Feature::Coalescing8,
        ];
    }

    /// The release that a feature came with, and the one before it.
    pub(crate) fn releases(feature: Feature) -> [KernelVersion; 2] {
        let since = feature.since().release();
        let before = match since.minor {
            0 => KernelVersion::new(since.major - 1, u32::MAX),
            minor => KernelVersion::new(since.major, minor - 1),
        };
        [before, since]
    }
}
