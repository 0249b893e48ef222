//! What the device has, and since when drivers know it.
//!
//! A feature is offered if the configuration says so, the driver announces what it takes (a bit of its
//! `driver_capability_flags`), and the device is young enough for it ([`nicvisor_core::profile`]). Jumbo frames and
//! the formats GQI-QPL, GQI-RDA and DQO-RDA are older than any profile.

use nicvisor_core::Since;

use crate::config::{Config, QueueFormat};
use crate::device::Gve;

/// Something that not every device has, or not towards every driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    /// `GVE_ADMINQ_VERIFY_DRIVER_COMPATIBILITY`, by which the driver says who it is.
    DriverInformation,
    /// Miss completions that look like packet completions but for a bit of the tag.
    AlternativeMiss,
    /// The format DQO-QPL.
    DqoQpl,
    /// PCI revision 1, with registers for the admin queue's address and length.
    Revision1,
    /// Receive buffers of other than 2,048 bytes.
    BufferSizes,
    /// Rings of other than the default sizes.
    ModifyRing,
    /// Flow steering rules.
    FlowSteering,
    /// Reading and setting the RSS key and indirection table.
    RssConfig,
}

impl Feature {
    /// The release of Linux whose driver knows it first, by the commit that brought it.
    pub(crate) fn since(self) -> Since {
        match self {
            // "gve: Adding a new AdminQ command to verify driver".
            Feature::DriverInformation => Since::linux(6, 2),
            // "gve: Handle alternate miss completions".
            Feature::AlternativeMiss => Since::linux(6, 2),
            // "gve: Control path for DQO-QPL".
            Feature::DqoQpl => Since::linux(6, 6),
            // "gve: Deprecate adminq_pfn for pci revision 0x1.".
            Feature::Revision1 => Since::linux(6, 8),
            // "gve: Add header split device option".
            Feature::BufferSizes => Since::linux(6, 9),
            // "gve: add support to read ring size ranges from the device".
            Feature::ModifyRing => Since::linux(6, 10),
            // "gve: Add flow steering device option".
            Feature::FlowSteering => Since::linux(6, 11),
            // "gve: Add RSS device option".
            Feature::RssConfig => Since::linux(6, 12),
        }
    }

    /// The bit of `enum gve_driver_capbility` by which a driver announces that it takes it, if there is one.
    fn announced_by(self) -> Option<u32> {
        match self {
            Feature::AlternativeMiss => Some(ALTERNATIVE_MISS),
            Feature::BufferSizes => Some(FLEXIBLE_BUFFER_SIZE),
            _ => None,
        }
    }

    /// Whether the configuration has it.
    fn is_configured(self, config: &Config) -> bool {
        let offered = &config.options;
        match self {
            Feature::DqoQpl => config.format == QueueFormat::DqoQpl,
            Feature::Revision1 => config.revision == 1,
            Feature::BufferSizes => offered.buffer_sizes && !config.format.is_gqi(),
            Feature::ModifyRing => offered.modify_ring,
            Feature::FlowSteering => offered.flow_rules != 0,
            Feature::RssConfig => offered.rss_config,
            Feature::DriverInformation | Feature::AlternativeMiss => true,
        }
    }
}

impl Gve {
    /// Whether the device has `feature` towards the driver that it has now.
    pub(crate) fn offers(&self, feature: Feature) -> bool {
        let announced = feature.announced_by().is_none_or(|bit| self.state.capabilities.has(bit));
        announced
            && feature.is_configured(&self.config)
            && self.config.profile.offers(feature.since(), self.state.kernel)
    }
}

/// `gve_driver_capability_alt_miss_compl`.
const ALTERNATIVE_MISS: u32 = 4;
/// `gve_driver_capability_flexible_buffer_size`.
const FLEXIBLE_BUFFER_SIZE: u32 = 5;
