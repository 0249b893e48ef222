//! Options by their names on the command line.

use std::ops::RangeInclusive;
use std::str::FromStr;

use nicvisor_core::Profile;
use nicvisor_net::wire::parse_mac;
use thiserror::Error;

use super::{Config, FunctionKind};

impl Config {
    /// Sets one option by its name on the command line (`--nic mana,KEY=VALUE`).
    ///
    /// # Errors
    /// When there is no such option or the value does not parse. Whether values fit together is for
    /// [`Self::validate`] to say.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        match key {
            "function" => self.function = value.parse()?,
            "profile" => self.profile = profile(key, value)?,
            "mac" => {
                self.mac = parse_mac(value).ok_or_else(|| ConfigError::value(key, value, "a MAC address"))?
            }
            "ports" => self.ports = number(key, value)?,
            "mtu" => self.mtu = number(key, value)?,
            "adapter-mtu" => self.adapter_mtu = Some(number(key, value)?),
            "queues" => self.queues = number(key, value)?,
            "indirection-entries" => self.indirection_entries = number(key, value)?,
            "vectors" => self.vectors = number(key, value)?,
            "tso-limit" => self.tso_limit = number(key, value)?,
            "vport-offset" => self.vport_offset = number(key, value)?,
            "link-speed" => self.link_speed = number(key, value)?,
            "receive-memory" => self.receive_memory = number(key, value)?,
            "coalescing-timeout-ns" => self.coalescing_timeout_ns = number(key, value)?,
            "ignore-rule" => _ = self.ignored_rules.insert(value.to_owned()),
            _ => self.set_part(key, value)?,
        }
        Ok(())
    }

    fn set_part(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        let (limits, channel, offered) = (&mut self.limits, &mut self.channel, &mut self.capabilities);
        match key {
            "send-queues" => limits.send_queues = number(key, value)?,
            "receive-queues" => limits.receive_queues = number(key, value)?,
            "completion-queues" => limits.completion_queues = number(key, value)?,
            "event-queues" => limits.event_queues = number(key, value)?,
            "doorbell-pages" => limits.doorbell_pages = number(key, value)?,
            "memory-regions" => limits.memory_regions = number(key, value)?,
            "region-length" => limits.region_length = number(key, value)?,
            "channel-depth" => channel.depth = number(key, value)?,
            "channel-max-request" => channel.max_request = number(key, value)?,
            "channel-max-response" => channel.max_response = number(key, value)?,
            "channel-timeout-ms" => channel.timeout_ms = number(key, value)?,
            "enforce-source-address" => self.enforcement.source_address = switch(key, value)?,
            "enforce-vlan" => self.enforcement.vlan = switch(key, value)?,
            "enforce-ether-type" => self.enforcement.ether_type = switch(key, value)?,
            "short-form" => offered.short_form = switch(key, value)?,
            "rdma" => offered.rdma = switch(key, value)?,
            "device-list-holes" => offered.device_list_holes = switch(key, value)?,
            "timeout-query" => offered.timeout_query = switch(key, value)?,
            "dynamic-moderation" => offered.dynamic_moderation = switch(key, value)?,
            "coalescing-8" => offered.coalescing_8 = switch(key, value)?,
            "link-config" => offered.link_config = switch(key, value)?,
            "phy-statistics" => offered.phy_statistics = switch(key, value)?,
            "host-mode" => offered.host_mode = switch(key, value)?,
            _ => return Err(ConfigError::Unknown { key: key.to_owned(), known: KEYS.join(", ") }),
        }
        Ok(())
    }
}

impl FromStr for FunctionKind {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<FunctionKind, ConfigError> {
        match text {
            "vf" => Ok(FunctionKind::Vf),
            "pf" => Ok(FunctionKind::Pf),
            "pf2" => Ok(FunctionKind::Pf2),
            _ => Err(ConfigError::value("function", text, "vf, pf or pf2")),
        }
    }
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T, ConfigError> {
    value.parse().map_err(|_| ConfigError::value(key, value, "a number in range"))
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

/// Why there can be no such device.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// No such option.
    #[error("mana has no option {key:?} (there are: {known})")]
    Unknown {
        /// What was given.
        key: String,
        /// All options.
        known: String,
    },
    /// A value that does not parse.
    #[error("mana: {key}={value:?} is not {expected}")]
    Value {
        /// The option.
        key: String,
        /// What was given.
        value: String,
        /// What is possible.
        expected: &'static str,
    },
    /// A value out of its range.
    #[error("mana: {key}={value} is not within {min}..={max}")]
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
    #[error("mana: {0}")]
    Conflict(String),
}

impl ConfigError {
    pub(super) fn value(key: &str, value: &str, expected: &'static str) -> ConfigError {
        ConfigError::Value { key: key.to_owned(), value: value.to_owned(), expected }
    }

    pub(super) fn check<T: Into<u64> + PartialOrd + Copy>(
        key: &'static str,
        value: T,
        range: RangeInclusive<T>,
    ) -> Result<(), ConfigError> {
        let (min, max) = (*range.start(), *range.end());
        match range.contains(&value) {
            true => Ok(()),
            false => Err(ConfigError::Range { key, value: value.into(), min: min.into(), max: max.into() }),
        }
    }
}

/// Names that [`Config::set`] takes.
pub const KEYS: [&str; 38] = [
    "function",
    "profile",
    "mac",
    "ports",
    "mtu",
    "adapter-mtu",
    "queues",
    "indirection-entries",
    "vectors",
    "tso-limit",
    "vport-offset",
    "link-speed",
    "receive-memory",
    "coalescing-timeout-ns",
    "ignore-rule",
    "send-queues",
    "receive-queues",
    "completion-queues",
    "event-queues",
    "doorbell-pages",
    "memory-regions",
    "region-length",
    "channel-depth",
    "channel-max-request",
    "channel-max-response",
    "channel-timeout-ms",
    "enforce-source-address",
    "enforce-vlan",
    "enforce-ether-type",
    "short-form",
    "rdma",
    "device-list-holes",
    "timeout-query",
    "dynamic-moderation",
    "coalescing-8",
    "link-config",
    "phy-statistics",
    "host-mode",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn with(options: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        for (key, value) in options {
            config.set(key, value)?;
        }
        config.validate().map(|()| config)
    }

    #[test]
    fn the_default_is_possible() {
        assert_eq!(with(&[]), Ok(Config::default()));
    }

    #[test]
    fn every_option_that_is_listed_exists() {
        for key in KEYS {
            let mut config = Config::default();
            let result = config.set(key, "no value of any option: \0");
            assert!(!matches!(result, Err(ConfigError::Unknown { .. })), "{key}");
        }
        assert!(matches!(with(&[("colour", "red")]), Err(ConfigError::Unknown { .. })));
    }

    #[test]
    fn impossible_devices_are_refused() {
        for (key, value) in [
            ("ports", "0"),
            ("ports", "17"),
            ("channel-max-request", "63"),
            ("channel-max-response", "16777216"),
            ("mtu", "67"),
            ("queues", "65"),
            ("vectors", "1"),
            ("doorbell-pages", "100"),
            ("mac", "01:00:00:00:00:00"),
            ("mac", "x"),
            ("function", "xf"),
            ("profile", "linux-5.15"),
            ("rdma", "yes"),
            ("tso-limit", "524281"),
            ("ignore-rule", "gve-x"),
        ] {
            assert!(with(&[(key, value)]).is_err(), "{key}={value}");
        }
    }

    #[test]
    fn ports_have_addresses_in_a_row() {
        let config = with(&[("mac", "00:0d:3a:00:00:ff"), ("ports", "2"), ("adapter-mtu", "0")]).unwrap();
        assert_eq!(config.port_mac(0), [0, 0x0d, 0x3a, 0, 0, 0xff]);
        assert_eq!(config.port_mac(1), [0, 0x0d, 0x3a, 0, 1, 0]);
        assert_eq!(config.reported_adapter_mtu(), 0);
        assert_eq!(Config::default().reported_adapter_mtu(), 9014);
    }

    #[test]
    fn the_age_of_a_device_can_be_chosen() {
        let config = with(&[("profile", "linux-6.12")]).unwrap();
        assert_eq!(config.profile.to_string(), "linux-6.12");
    }
}
