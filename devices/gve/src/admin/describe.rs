//! What the device says about itself, and what the driver says about itself.

use nicvisor_core::fault::{CommandAction, Fields, FieldsMut, WireField};
use nicvisor_core::{Context, DmaError, KernelVersion};
use serde::{Deserialize, Serialize};
use zerocopy::{Immutable, IntoBytes};

use super::Failure;
use crate::config::{PAGE_MTU, QueueFormat, TX_PAGES};
use crate::device::Gve;
use crate::faults::DESCRIPTOR_SECTIONS;
use crate::features::Feature;
use crate::rules;
use crate::wire::admin::{
    DEVICE_DESCRIPTOR_VERSION, DescribeDevice, DeviceDescriptor, DeviceOption, DriverInfo,
    FEATURE_BUFFER_SIZES, FEATURE_FLOW_STEERING, FEATURE_JUMBO_FRAMES, FEATURE_MODIFY_RING,
    FEATURE_RSS_CONFIG, OS_TYPE_LINUX, OptionBufferSizes, OptionDqoQpl, OptionDqoRda, OptionFlowSteering,
    OptionGqiQpl, OptionGqiRda, OptionId, OptionJumboFrames, OptionModifyRing, OptionRssConfig, Status,
    VERSION_STR_LEN, VerifyDriverCompatibility,
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
    pub(crate) fn has(self, bit: u32) -> bool {
        self.0 & 1 << bit != 0
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
        // A driver that asks is young enough where its age counts.
        if self.config.profile.always_before(Feature::DriverInformation.since()).is_some() {
            return Err(Failure::refusal(Status::Unimplemented));
        }
        let length = command.driver_info_len.get();
        if length < size_of::<DriverInfo>() as u64 {
            return Err(Failure::parameter(format!("driver information of {length} bytes")));
        }
        let info: DriverInfo = context.dma.read_object(command.driver_info_addr.get())?;
        self.state.capabilities = Capabilities(info.driver_capability_flags[0].get());
        self.state.kernel = kernel(context, &info, &command)?;
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
        let config = &self.config;
        let jumbo_frames = config.options.jumbo_frames;
        let [modify_ring, buffer_sizes, flow_steering, rss_config] =
            [Feature::ModifyRing, Feature::BufferSizes, Feature::FlowSteering, Feature::RssConfig]
                .map(|feature| self.offers(feature));
        let features = [
            (modify_ring, FEATURE_MODIFY_RING),
            (jumbo_frames, FEATURE_JUMBO_FRAMES),
            (buffer_sizes, FEATURE_BUFFER_SIZES),
            (flow_steering, FEATURE_FLOW_STEERING),
            (rss_config, FEATURE_RSS_CONFIG),
        ];
        let features = features.iter().filter(|(on, _)| *on).fold(0, |mask, (_, feature)| mask | feature);
        let mut options = OptionList::default();
        self.add_format(&mut options, features);
        options.add(
            modify_ring,
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
            jumbo_frames,
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
            flow_steering,
            ("flow_steering", OptionId::FlowSteering),
            &OptionFlowSteering {
                supported_features_mask: FEATURE_FLOW_STEERING.into(),
                reserved: 0.into(),
                max_flow_rules: config.options.flow_rules.into(),
            },
        );
        options.add(
            rss_config,
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
                options.add(offered && self.offers(Feature::DqoQpl), ("dqo_qpl", OptionId::DqoQpl), &option);
            }
        }
    }
}

/// The release of Linux that a driver says it is from, by the text that it gives. Of the numbers beside it, Linux
/// writes `SUBLEVEL` into `os_version_minor` and `PATCHLEVEL` into `os_version_sub`.
fn kernel(
    context: &Context<'_>,
    info: &DriverInfo,
    command: &VerifyDriverCompatibility,
) -> Result<Option<KernelVersion>, DmaError> {
    let fixed = size_of::<DriverInfo>() as u64;
    let has_text = command.driver_info_len.get() >= fixed + VERSION_STR_LEN as u64;
    if info.os_type != OS_TYPE_LINUX || !has_text {
        return Ok(None);
    }
    let text: [u8; VERSION_STR_LEN] =
        context.dma.read_object(command.driver_info_addr.get().wrapping_add(fixed))?;
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(std::str::from_utf8(text).ok().and_then(KernelVersion::of_release))
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
