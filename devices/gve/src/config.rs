//! What the device is and offers. Nothing about it is decided anywhere else.

use std::collections::BTreeSet;
use std::str::FromStr;

use nicvisor_core::Profile;
use nicvisor_net::wire::parse_mac;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::features::Feature;

/// Everything that can be chosen about a gVNIC. The defaults are those of a small Compute Engine machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// The port's MAC address.
    pub mac: [u8; 6],
    /// The network's MTU: 1,460 by default on Compute Engine, up to [`MAX_MTU`] where the network is set to it.
    pub mtu: u16,
    /// How queues are laid out.
    pub format: QueueFormat,
    /// PCI revision: 0 for the admin queue set up by page number, 1 for address, length and run bit.
    pub revision: u8,
    /// Queues of each kind that the driver uses unless told otherwise. The service derives it from the number
    /// of virtual CPUs.
    pub queues: u16,
    /// Queues of each kind that the driver can use.
    pub max_queues: u16,
    /// TX ring sizes, in descriptors.
    pub tx_ring: RingSizes,
    /// RX ring sizes, in descriptors.
    pub rx_ring: RingSizes,
    /// Largest receive buffer that a driver may choose.
    pub max_buffer_size: u16,
    /// Which device options are offered, as far as the device is young enough for them.
    pub options: Options,
    /// How old the device is.
    pub profile: Profile,
    /// Most bytes that a packet to be segmented may have (the driver advertises this to the stack).
    pub tso_limit: u32,
    /// Link speed in Mb/s.
    pub link_speed: u64,
    /// Bytes of memory on the NIC that hold received frames until the driver posts buffers.
    pub receive_memory: u32,
    /// Whether packet completions of one batch are written last packet first. The format allows any order.
    pub reverse_completions: bool,
    /// Every so many packets of a TX queue take the miss path: their completion comes in two parts, a miss
    /// completion at once and a re-injection completion later (DQO). 0 for none.
    pub miss_interval: u32,
    /// How much later, in microseconds.
    pub reinjection_delay: u32,
    /// Whether somebody else (firmware, an earlier kernel) has set the device up and left it running.
    pub previous_owner: bool,
    /// Rules that are not reported, by their ids.
    pub ignored_rules: BTreeSet<String>,
    /// A mistake that the *device* makes on purpose, to show that a scenario notices.
    pub defect: Option<Defect>,
}

/// How queues are laid out, by the numbers of the driver's `enum gve_queue_format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum QueueFormat {
    /// One descriptor queue, raw DMA addresses.
    GqiRda = 1,
    /// One descriptor queue, registered pages.
    GqiQpl = 2,
    /// Descriptor and completion queues, raw DMA addresses.
    #[default]
    DqoRda = 3,
    /// Descriptor and completion queues, registered pages.
    DqoQpl = 4,
}

impl QueueFormat {
    /// Whether there is one descriptor queue and no completion queue.
    pub fn is_gqi(self) -> bool {
        matches!(self, QueueFormat::GqiRda | QueueFormat::GqiQpl)
    }

    /// Whether buffers are in registered pages.
    pub fn has_page_lists(self) -> bool {
        matches!(self, QueueFormat::GqiQpl | QueueFormat::DqoQpl)
    }
}

impl FromStr for QueueFormat {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<QueueFormat, ConfigError> {
        match text {
            "gqi-rda" => Ok(QueueFormat::GqiRda),
            "gqi-qpl" => Ok(QueueFormat::GqiQpl),
            "dqo-rda" => Ok(QueueFormat::DqoRda),
            "dqo-qpl" => Ok(QueueFormat::DqoQpl),
            _ => Err(ConfigError::value("format", text, "dqo-rda, dqo-qpl, gqi-rda or gqi-qpl")),
        }
    }
}

/// Sizes of a kind of ring, in descriptors; all powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RingSizes {
    /// What the driver uses unless told otherwise.
    pub default: u16,
    /// Smallest.
    pub min: u16,
    /// Largest.
    pub max: u16,
}

/// Which device options are offered to a driver that announces the capability for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Options {
    /// MTUs above a page.
    pub jumbo_frames: bool,
    /// Receive buffers of other than 2,048 bytes.
    pub buffer_sizes: bool,
    /// Rings of other than the default sizes.
    pub modify_ring: bool,
    /// Reading and setting the RSS key and indirection table.
    pub rss_config: bool,
    /// How many flow steering rules the device keeps; 0 to offer no flow steering.
    pub flow_rules: u32,
}

/// A mistake that the device makes on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Defect {
    /// Every segment of a segmented packet leaves with a wrong TCP checksum.
    BadTcpChecksum,
    /// Packets to be segmented leave in one piece.
    NoSegmentation,
    /// The last byte of every segment's payload is changed, and the checksum made to fit.
    BadPayload,
    /// One received frame in a hundred vanishes without account.
    LostFrame,
}

impl FromStr for Defect {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Defect, ConfigError> {
        match text {
            "bad-tcp-checksum" => Ok(Defect::BadTcpChecksum),
            "no-segmentation" => Ok(Defect::NoSegmentation),
            "bad-payload" => Ok(Defect::BadPayload),
            "lost-frame" => Ok(Defect::LostFrame),
            _ => {
                let expected = "bad-tcp-checksum, no-segmentation, bad-payload or lost-frame";
                Err(ConfigError::value("defect", text, expected))
            }
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mac: [0x42, 0x01, 0x0a, 0x80, 0x00, 0x02],
            mtu: 1460,
            format: QueueFormat::DqoRda,
            revision: 0,
            queues: 2,
            max_queues: 16,
            tx_ring: RingSizes { default: 1024, min: 256, max: 4096 },
            rx_ring: RingSizes { default: 1024, min: 512, max: 4096 },
            max_buffer_size: 4096,
            options: Options::default(),
            profile: Profile::default(),
            tso_limit: MAX_TSO,
            link_speed: 200_000,
            receive_memory: 4 << 20,
            reverse_completions: false,
            miss_interval: 0,
            reinjection_delay: 100,
            previous_owner: false,
            ignored_rules: BTreeSet::new(),
            defect: None,
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options { jumbo_frames: true, buffer_sizes: true, modify_ring: true, rss_config: true, flow_rules: 0 }
    }
}

impl Config {
    /// Sets one option by its name on the command line (`--nic gve,KEY=VALUE`).
    ///
    /// # Errors
    /// When there is no such option or the value does not parse. Whether values fit together is for
    /// [`Self::validate`] to say.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        match key {
            "mac" => {
                self.mac = parse_mac(value).ok_or_else(|| ConfigError::value(key, value, "a MAC address"))?
            }
            "mtu" => self.mtu = number(key, value)?,
            "format" => self.format = value.parse()?,
            "profile" => self.profile = profile(key, value)?,
            "revision" => self.revision = number(key, value)?,
            "queues" => self.queues = number(key, value)?,
            "max-queues" => self.max_queues = number(key, value)?,
            "tx-ring" => self.tx_ring.default = number(key, value)?,
            "rx-ring" => self.rx_ring.default = number(key, value)?,
            "max-buffer-size" => self.max_buffer_size = number(key, value)?,
            "jumbo-frames" => self.options.jumbo_frames = switch(key, value)?,
            "buffer-sizes" => self.options.buffer_sizes = switch(key, value)?,
            "modify-ring" => self.options.modify_ring = switch(key, value)?,
            "rss-config" => self.options.rss_config = switch(key, value)?,
            "flow-rules" => self.options.flow_rules = number(key, value)?,
            "tso-limit" => self.tso_limit = number(key, value)?,
            "link-speed" => self.link_speed = number(key, value)?,
            "receive-memory" => self.receive_memory = number(key, value)?,
            "reverse-completions" => self.reverse_completions = switch(key, value)?,
            "miss-interval" => self.miss_interval = number(key, value)?,
            "reinjection-delay" => self.reinjection_delay = number(key, value)?,
            "previous-owner" => self.previous_owner = switch(key, value)?,
            "ignore-rule" => _ = self.ignored_rules.insert(value.to_owned()),
            "defect" => self.defect = Some(value.parse()?),
            _ => return Err(ConfigError::Unknown { key: key.to_owned(), known: KEYS.join(", ") }),
        }
        Ok(())
    }

    /// Whether such a device can exist.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.mac[0] & 1 != 0 || self.mac == [0; 6] {
            return Err(ConfigError::Conflict(format!("{:02x?} is not a unicast MAC address", self.mac)));
        }
        if !(MIN_MTU..=MAX_MTU).contains(&self.mtu) {
            return Err(ConfigError::range("mtu", self.mtu, MIN_MTU, MAX_MTU));
        }
        if self.mtu > PAGE_MTU && !self.options.jumbo_frames {
            let message = format!("mtu={} needs jumbo-frames=on (without it at most {PAGE_MTU})", self.mtu);
            return Err(ConfigError::Conflict(message));
        }
        if self.revision > 1 {
            return Err(ConfigError::range("revision", self.revision, 0_u16, 1_u16));
        }
        if !(1..=MAX_QUEUES).contains(&self.max_queues) {
            return Err(ConfigError::range("max-queues", self.max_queues, 1_u16, MAX_QUEUES));
        }
        if !(1..=self.max_queues).contains(&self.queues) {
            return Err(ConfigError::range("queues", self.queues, 1_u16, self.max_queues));
        }
        self.check_age("format=dqo-qpl", self.format == QueueFormat::DqoQpl, Feature::DqoQpl)?;
        self.check_age("revision=1", self.revision == 1, Feature::Revision1)?;
        self.tx_ring.validate("tx-ring")?;
        self.rx_ring.validate("rx-ring")?;
        if !(2048..=16_256).contains(&self.max_buffer_size) || !self.max_buffer_size.is_multiple_of(128) {
            return Err(ConfigError::range("max-buffer-size", self.max_buffer_size, 2048_u16, 16_256_u16));
        }
        if !(1..=MAX_FLOW_RULES).contains(&self.options.flow_rules) && self.options.flow_rules != 0 {
            return Err(ConfigError::range("flow-rules", self.options.flow_rules, 0_u32, MAX_FLOW_RULES));
        }
        if !(MAX_FRAME..=MAX_TSO).contains(&self.tso_limit) {
            return Err(ConfigError::range("tso-limit", self.tso_limit, MAX_FRAME, MAX_TSO));
        }
        if self.receive_memory < MAX_FRAME || self.receive_memory > 1 << 30 {
            return Err(ConfigError::range("receive-memory", self.receive_memory, MAX_FRAME, 1_u32 << 30));
        }
        if let Some(id) =
            self.ignored_rules.iter().find(|id| !id.starts_with("gve-") && !id.starts_with("net-"))
        {
            return Err(ConfigError::value("ignore-rule", id, "the id of a gve- or net- rule"));
        }
        Ok(())
    }

    /// Whether the device is as young as an option that was chosen.
    fn check_age(&self, option: &str, chosen: bool, feature: Feature) -> Result<(), ConfigError> {
        match self.profile.always_before(feature.since()).filter(|_| chosen) {
            Some(_) => {
                let (profile, since) = (self.profile, feature.since().release());
                let message = format!("profile={profile} is too old for {option}, which needs linux-{since}");
                Err(ConfigError::Conflict(message))
            }
            None => Ok(()),
        }
    }

    /// MSI-X vectors: one for each notification block and one for management.
    pub fn vectors(&self) -> u16 {
        2 * self.max_queues + 1
    }

    /// Most pages that the driver may register in all page lists together; 0 without page lists.
    pub fn max_registered_pages(&self) -> u32 {
        let pages = u32::from(TX_PAGES) + 2 * u32::from(self.rx_ring.max);
        if self.format.has_page_lists() { u32::from(self.max_queues) * pages } else { 0 }
    }

    /// Most bytes of a packet that the driver may hand over to be segmented.
    pub fn most_handed(&self) -> u32 {
        // GQI packets have a length of 16 bits.
        if self.format.is_gqi() { self.tso_limit.min(u16::MAX.into()) } else { self.tso_limit }
    }

    /// Longest frame that the link carries: MTU, Ethernet header and one VLAN tag.
    pub fn max_frame(&self) -> usize {
        usize::from(self.mtu) + 18
    }
}

impl RingSizes {
    fn validate(&self, key: &'static str) -> Result<(), ConfigError> {
        let sizes = [self.min, self.default, self.max];
        if sizes.iter().any(|size| !size.is_power_of_two() || !(MIN_RING..=MAX_RING).contains(size)) {
            let message = format!("{key}: ring sizes are powers of two from {MIN_RING} to {MAX_RING}");
            return Err(ConfigError::Conflict(message));
        }
        if !sizes.is_sorted() {
            let message = format!("{key}={} is outside {}..={}", self.default, self.min, self.max);
            return Err(ConfigError::Conflict(message));
        }
        Ok(())
    }
}

/// Why there can be no such device.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// No such option.
    #[error("gve has no option {key:?} (there are: {known})")]
    Unknown {
        /// What was given.
        key: String,
        /// All options.
        known: String,
    },
    /// A value that does not parse.
    #[error("gve: {key}={value:?} is not {expected}")]
    Value {
        /// The option.
        key: String,
        /// What was given.
        value: String,
        /// What is possible.
        expected: &'static str,
    },
    /// A value out of its range.
    #[error("gve: {key}={value} is not within {min}..={max}")]
    Range {
        /// The option.
        key: &'static str,
        /// What was given.
        value: u64,
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// Options that do not go together.
    #[error("gve: {0}")]
    Conflict(String),
}

impl ConfigError {
    fn value(key: &str, value: &str, expected: &'static str) -> ConfigError {
        ConfigError::Value { key: key.to_owned(), value: value.to_owned(), expected }
    }

    fn range(
        key: &'static str,
        value: impl Into<u64>,
        min: impl Into<u64>,
        max: impl Into<u64>,
    ) -> ConfigError {
        ConfigError::Range { key, value: value.into(), min: min.into(), max: max.into() }
    }
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T, ConfigError> {
    value.parse().map_err(|_| ConfigError::value(key, value, "a number that fits"))
}

fn profile(key: &str, value: &str) -> Result<Profile, ConfigError> {
    value.parse().map_err(|_| ConfigError::value(key, value, Profile::EXPECTED))
}

fn switch(key: &str, value: &str) -> Result<bool, ConfigError> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(ConfigError::value(key, value, "on or off")),
    }
}

/// Names that [`Config::set`] takes.
pub const KEYS: [&str; 24] = [
    "mac",
    "mtu",
    "format",
    "revision",
    "queues",
    "max-queues",
    "tx-ring",
    "rx-ring",
    "max-buffer-size",
    "jumbo-frames",
    "buffer-sizes",
    "modify-ring",
    "rss-config",
    "flow-rules",
    "tso-limit",
    "link-speed",
    "receive-memory",
    "reverse-completions",
    "miss-interval",
    "reinjection-delay",
    "previous-owner",
    "ignore-rule",
    "defect",
    "profile",
];
/// `ETH_MIN_MTU`: the driver refuses less.
const MIN_MTU: u16 = 68;
/// The hypervisor allows no more (a comment in the driver's `gve_tx_dqo.c`); Compute Engine networks stop at 8,896.
pub const MAX_MTU: u16 = 9216;
/// Largest MTU whose frame fits a page, for drivers that know no jumbo frames.
pub const PAGE_MTU: u16 = 4096 - 14;
/// Largest frame that is not to be segmented (a comment in the driver's `gve_tx_dqo.c`).
pub const MAX_FRAME: u32 = 9728;
/// `GVE_DQO_TX_MAX`: most bytes of a packet to be segmented.
pub const MAX_TSO: u32 = 0x3_ffff;
/// Pages of a TX queue page list: 2 MiB for packets under way.
pub const TX_PAGES: u16 = 512;
/// Doorbells are laid out for this many queues of each kind.
pub const MAX_QUEUES: u16 = 256;
/// Bound on the table of flow rules.
const MAX_FLOW_RULES: u32 = 4096;
const MIN_RING: u16 = 128;
const MAX_RING: u16 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn with(settings: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        for (key, value) in settings {
            config.set(key, value)?;
        }
        config.validate().map(|()| config)
    }

    #[test]
    fn the_default_is_a_valid_device() {
        assert_eq!(Config::default().validate(), Ok(()));
    }

    #[test]
    fn every_key_is_known_and_no_other() {
        for key in KEYS {
            let error = Config::default().set(key, "\u{0}");
            assert!(!matches!(error, Err(ConfigError::Unknown { .. })), "{key}");
        }
        assert!(matches!(Config::default().set("colour", "red"), Err(ConfigError::Unknown { .. })));
    }

    #[test]
    fn all_formats_can_be_chosen() {
        for format in ["gqi-rda", "gqi-qpl", "dqo-rda", "dqo-qpl"] {
            assert!(with(&[("format", format)]).is_ok());
        }
        assert!(with(&[("format", "dqo")]).is_err());
    }

    #[test]
    fn values_that_do_not_fit_together_are_refused() {
        for settings in [
            &[("mtu", "67")][..],
            &[("mtu", "9217")],
            &[("mtu", "8896"), ("jumbo-frames", "off")],
            &[("queues", "17")],
            &[("queues", "0")],
            &[("max-queues", "257")],
            &[("tx-ring", "1000")],
            &[("tx-ring", "8192")],
            &[("rx-ring", "256")],
            &[("mac", "01:00:00:00:00:00")],
            &[("mac", "00:00:00:00:00:00")],
            &[("tso-limit", "262144")],
            &[("revision", "2")],
            &[("profile", "6.12")],
            &[("profile", "linux-6.1"), ("format", "dqo-qpl")],
            &[("profile", "linux-6.7"), ("revision", "1")],
            &[("ignore-rule", "everything")],
        ] {
            assert!(with(settings).is_err(), "{settings:?}");
        }
    }

    #[test]
    fn values_from_the_command_line_arrive() {
        let config =
            with(&[("mac", "42:01:0a:80:00:7f"), ("mtu", "8896"), ("defect", "bad-payload")]).unwrap();
        assert_eq!(config.mac, [0x42, 1, 0x0a, 0x80, 0, 0x7f]);
        assert_eq!(config.mtu, 8896);
        assert_eq!(config.defect, Some(Defect::BadPayload));
    }
}
