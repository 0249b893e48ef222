//! What the device says about itself, and what the driver says about itself.

use nicvisor_core::Context;
use nicvisor_core::fault::{CommandAction, Fields, FieldsMut, WireField};
use serde::{Deserialize, Serialize};
use zerocopy::{Immutable, IntoBytes};

use super::Failure;
use crate::config::{PAGE_MTU, QueueFormat, TX_PAGES};
use crate::device::Gve;
use crate::faults::DESCRIPTOR_SECTIONS;
use crate::rules;
use crate::wire::admin::{
    DEVICE_DESCRIPTOR_VERSION, DescribeDevice, DeviceDescriptor, DeviceOption, DriverInfo,
    FEATURE_BUFFER_SIZES, FEATURE_FLOW_STEERING, FEATURE_JUMBO_FRAMES, FEATURE_MODIFY_RING,
    FEATURE_RSS_CONFIG, OptionBufferSizes, OptionDqoQpl, OptionDqoRda, OptionFlowSteering, OptionGqiQpl,
    OptionGqiRda, OptionId, OptionJumboFrames, OptionModifyRing, OptionRssConfig, Status,
    VerifyDriverCompatibility,
};

/// What the driver says it can do: bits by `enum gve_driver_capbility`. Drivers older than the command that
/// announces them (Linux 6.1) can do what was there before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Capabilities(u64);

impl Default for Capabilities {
    fn default() -> Capabilities {
        Capabilities(1 << GQI_QPL | 1 << GQI_RDA | 1 << DQO_RDA)
    }
}

impl Capabilities {
    fn has(self, bit: u32) -> bool {
        self.0 & 1 << bit != 0
    }

    /// Whether the driver knows miss completions that look like packet completions but for a bit of the tag.
    pub(crate) fn knows_alternative_miss(self) -> bool {
        self.has(ALTERNATIVE_MISS)
    }

    /// Whether the driver can use queues of this format. There is a bit for DQO-QPL, but drivers that can do it
    /// do not set it.
    fn can(self, format: QueueFormat) -> bool {
        match format {
            QueueFormat::GqiQpl => self.has(GQI_QPL),
            QueueFormat::GqiRda => self.has(GQI_RDA),
            QueueFormat::DqoRda => self.has(DQO_RDA),
            QueueFormat::DqoQpl => true,
        }
    }
}

impl Gve {
    /// `GVE_ADMINQ_VERIFY_DRIVER_COMPATIBILITY`.
    pub(super) fn verify_driver(
        &mut self,
        context: &mut Context<'_>,
        command: VerifyDriverCompatibility,
    ) -> Result<(), Failure> {
        let length = command.driver_info_len.get();
        if length < size_of::<DriverInfo>() as u64 {
            return Err(Failure::parameter(format!("driver information of {length} bytes")));
        }
        let info: DriverInfo = context.dma.read_object(command.driver_info_addr.get())?;
        self.state.capabilities = Capabilities(info.driver_capability_flags[0].get());
        if !self.state.capabilities.can(self.config.format) {
            let message =
                format!("the driver does not announce {:?}, the format of this device", self.config.format);
            return Err(Failure::breach(Status::FailedPrecondition, &rules::DRIVER_FORMAT, message));
        }
        Ok(())
    }

    /// `GVE_ADMINQ_DESCRIBE_DEVICE`.
    pub(super) fn describe_device(
        &mut self,
        context: &mut Context<'_>,
        command: DescribeDevice,
        action: &CommandAction,
    ) -> Result<(), Failure> {
        let version = command.device_descriptor_version.get();
        if version != DEVICE_DESCRIPTOR_VERSION {
            return Err(Failure::parameter(format!("device descriptor version {version}")));
        }
        let options = self.options();
        let config = &self.config;
        let total = size_of::<DeviceDescriptor>() + options.bytes.len();
        let descriptor = DeviceDescriptor {
            max_registered_pages: u64::from(config.max_registered_pages()).into(),
            reserved1: 0.into(),
            tx_queue_entries: config.tx_ring.default.into(),
            rx_queue_entries: config.rx_ring.default.into(),
            default_num_queues: config.queues.into(),
            mtu: config.mtu.min(PAGE_MTU).into(),
            counters: (2 * config.max_queues).into(),
            tx_pages_per_qpl: (if config.format.has_page_lists() { TX_PAGES } else { 0 }).into(),
            rx_pages_per_qpl: (if config.format.has_page_lists() { config.rx_ring.default } else { 0 })
                .into(),
            mac: config.mac,
            num_device_options: options.count.into(),
            total_length: (total as u16).into(),
            reserved2: [0; 6],
        };
        let available = command.available_length.get();
        if (available as usize) < total {
            return Err(Failure::parameter(format!("{available} bytes for a device descriptor of {total}")));
        }
        let mut answer = DescriptorView {
            sections: options.sections,
            bytes: [descriptor.as_bytes(), &options.bytes].concat(),
        };
        self.state.faults.overrides.apply_all(context.now, &mut answer);
        action.rewrite(&mut answer);
        Ok(context.dma.write(command.device_descriptor_addr.get(), &answer.bytes)?)
    }

    /// The device options. Those that need a capability are offered only to a driver
    /// that announced it.
    fn options(&self) -> OptionList {
        let (config, offered) = (&self.config, self.config.options);
        let capabilities = self.state.capabilities;
        let buffer_sizes =
            offered.buffer_sizes && capabilities.has(FLEXIBLE_BUFFER_SIZE) && !config.format.is_gqi();
        let features = [
            (offered.modify_ring, FEATURE_MODIFY_RING),
            (offered.jumbo_frames, FEATURE_JUMBO_FRAMES),
            (buffer_sizes, FEATURE_BUFFER_SIZES),
            (offered.flow_rules != 0, FEATURE_FLOW_STEERING),
            (offered.rss_config, FEATURE_RSS_CONFIG),
        ];
        let features = features.iter().filter(|(on, _)| *on).fold(0, |mask, (_, feature)| mask | feature);
        let mut options = OptionList::default();
        self.add_format(&mut options, features);
        options.add(
            offered.modify_ring,
            ("modify_ring", OptionId::ModifyRing),
            &OptionModifyRing {
                supported_features_mask: FEATURE_MODIFY_RING.into(),
                max_rx_ring_size: config.rx_ring.max.into(),
                max_tx_ring_size: config.tx_ring.max.into(),
                min_rx_ring_size: config.rx_ring.min.into(),
                min_tx_ring_size: config.tx_ring.min.into(),
            },
        );
        options.add(
            offered.jumbo_frames,
            ("jumbo_frames", OptionId::JumboFrames),
            &OptionJumboFrames {
                supported_features_mask: FEATURE_JUMBO_FRAMES.into(),
                max_mtu: config.mtu.into(),
                padding: [0; 2],
            },
        );
        options.add(
            buffer_sizes,
            ("buffer_sizes", OptionId::BufferSizes),
            &OptionBufferSizes {
                supported_features_mask: FEATURE_BUFFER_SIZES.into(),
                packet_buffer_size: config.max_buffer_size.into(),
                header_buffer_size: 0.into(),
            },
        );
        options.add(
            offered.flow_rules != 0,
            ("flow_steering", OptionId::FlowSteering),
            &OptionFlowSteering {
                supported_features_mask: FEATURE_FLOW_STEERING.into(),
                reserved: 0.into(),
                max_flow_rules: offered.flow_rules.into(),
            },
        );
        options.add(
            offered.rss_config,
            ("rss_config", OptionId::RssConfig),
            &OptionRssConfig {
                supported_features_mask: FEATURE_RSS_CONFIG.into(),
                hash_key_size: super::rss::KEY_SIZE.into(),
                hash_lut_size: super::rss::TABLE_SIZE.into(),
            },
        );
        options
    }
}

impl Gve {
    /// The option that says which queue format to use, and which features go with it.
    fn add_format(&self, options: &mut OptionList, features: u32) {
        let config = &self.config;
        let supported_features_mask = features.into();
        let offered = self.state.capabilities.can(config.format);
        match config.format {
            QueueFormat::GqiRda => {
                let option = OptionGqiRda { supported_features_mask };
                options.add(offered, ("gqi_rda", OptionId::GqiRda), &option);
            }
            QueueFormat::GqiQpl => {
                let option = OptionGqiQpl { supported_features_mask };
                options.add(offered, ("gqi_qpl", OptionId::GqiQpl), &option);
            }
            QueueFormat::DqoRda => {
                let option = OptionDqoRda {
                    supported_features_mask,
                    tx_comp_ring_entries: config.tx_ring.default.into(),
                    rx_buff_ring_entries: config.rx_ring.default.into(),
                };
                options.add(offered, ("dqo_rda", OptionId::DqoRda), &option);
            }
            QueueFormat::DqoQpl => {
                let option = OptionDqoQpl {
                    supported_features_mask,
                    tx_pages_per_qpl: TX_PAGES.into(),
                    rx_pages_per_qpl: config.rx_ring.default.into(),
                };
                options.add(offered, ("dqo_qpl", OptionId::DqoQpl), &option);
            }
        }
    }
}

#[derive(Default)]
struct OptionList {
    count: u16,
    bytes: Vec<u8>,
    /// The name of each option's part of the answer, and where it starts.
    sections: Vec<(&'static str, usize)>,
}

impl OptionList {
    fn add(&mut self, offered: bool, option: (&'static str, OptionId), body: &(impl IntoBytes + Immutable)) {
        if !offered {
            return;
        }
        let (name, id) = option;
        let body = body.as_bytes();
        let head = DeviceOption {
            option_id: (id as u16).into(),
            option_length: (body.len() as u16).into(),
            required_features_mask: 0.into(),
        };
        self.count += 1;
        self.sections.push((name, size_of::<DeviceDescriptor>() + self.bytes.len()));
        self.bytes.extend(head.as_bytes());
        self.bytes.extend(body);
    }
}

/// The whole answer, whose fields are called by their section and name, such as `jumbo_frames.max_mtu`.
struct DescriptorView {
    sections: Vec<(&'static str, usize)>,
    bytes: Vec<u8>,
}

impl DescriptorView {
    fn find(&self, name: &str) -> Option<WireField> {
        let (section, name) = name.split_once('.')?;
        let (_, layout) = DESCRIPTOR_SECTIONS.iter().find(|(known, _)| *known == section)?;
        let start = match section {
            DESCRIPTOR => 0,
            _ => self.sections.iter().find(|(known, _)| *known == section)?.1,
        };
        layout.iter().find(|field| field.name() == name).map(|field| field.moved(start))
    }
}

impl Fields for DescriptorView {
    fn field(&self, name: &str) -> Option<u64> {
        self.find(name)?.read(&self.bytes)
    }
}

impl FieldsMut for DescriptorView {
    fn set_field(&mut self, name: &str, value: u64) -> bool {
        self.find(name).is_some_and(|field| field.write(&mut self.bytes, value))
    }

    fn field_bits(&self, name: &str) -> Option<u8> {
        self.find(name).map(|field| field.bits())
    }
}

/// The section of the descriptor's own fields.
const DESCRIPTOR: &str = "device_descriptor";
/// `gve_driver_capability_gqi_qpl`.
const GQI_QPL: u32 = 0;
/// `gve_driver_capability_gqi_rda`.
const GQI_RDA: u32 = 1;
/// `gve_driver_capability_dqo_rda`.
const DQO_RDA: u32 = 3;
/// `gve_driver_capability_alt_miss_compl`.
const ALTERNATIVE_MISS: u32 = 4;
/// `gve_driver_capability_flexible_buffer_size`.
const FLEXIBLE_BUFFER_SIZE: u32 = 5;
