//! The NICs that a user asks for: `KIND[,key=value]...`, the same on the command line and in scenarios.

use std::ops::RangeInclusive;
use std::str::FromStr;

use nicvisor_core::PciDevice;
use nicvisor_gve::{Config as GveConfig, ConfigError as GveConfigError, Gve};
use nicvisor_mana::{Config as ManaConfig, ConfigError as ManaConfigError, Mana};
use nicvisor_net::wire::parse_mac;
use nicvisor_virtio::{Net, NetConfig, VirtioPci};
use thiserror::Error;

use crate::outside;

/// One NIC of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicSpec {
    /// The device and its options.
    pub device: NicConfig,
    /// The link that its ports are on.
    pub link: String,
    /// Whether it is behind a root port of its own rather than on the root bus.
    pub root_port: bool,
    /// Whether the user chose the MAC address.
    has_mac: bool,
}

/// A device and its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NicConfig {
    /// Google's gVNIC.
    Gve(GveConfig),
    /// Microsoft's Azure Network Adapter.
    Mana(Box<ManaConfig>),
    /// A plain virtio port, for comparison.
    Virtio(NetConfig),
}

impl NicSpec {
    /// Reads `kind` with its options.
    ///
    /// # Errors
    /// Says what is wrong and what is possible.
    pub fn new<'a>(
        kind: &str,
        options: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<NicSpec, NicError> {
        let mut device = NicConfig::default_of(kind)?;
        let mut link = None;
        let mut root_port = None;
        let mut seen = Vec::new();
        for (key, value) in options {
            match key {
                "link" => {
                    check_link(kind, value)?;
                    if link.replace(value.to_owned()).is_some() {
                        let message = format!("all ports of a {kind} are on one link");
                        return Err(NicError::Option { kind: kind.into(), message });
                    }
                    continue;
                }
                _ if seen.contains(&key) => {
                    let message = format!("{key}= is given twice");
                    return Err(NicError::Option { kind: kind.into(), message });
                }
                "root-port" => root_port = Some(switch(kind, key, value)?),
                _ => device.set(key, value)?,
            }
            seen.push(key);
        }
        device.validate()?;
        let (link, root_port) = (link.unwrap_or_else(|| DEFAULT_LINK.into()), root_port.unwrap_or_default());
        Ok(NicSpec { device, link, root_port, has_mac: seen.contains(&"mac") })
    }

    /// The kind's name.
    pub fn kind(&self) -> &'static str {
        match self.device {
            NicConfig::Gve(_) => "gve",
            NicConfig::Mana(_) => "mana",
            NicConfig::Virtio(_) => "virtio",
        }
    }

    /// The guest's kernel module that drives it.
    pub fn module(&self) -> &'static str {
        match self.device {
            NicConfig::Gve(_) => "gve",
            NicConfig::Mana(_) => "mana",
            NicConfig::Virtio(_) => "virtio_net",
        }
    }

    /// The MTU of its network.
    pub fn mtu(&self) -> u16 {
        match &self.device {
            NicConfig::Gve(config) => config.mtu,
            NicConfig::Mana(config) => config.mtu,
            NicConfig::Virtio(config) => config.mtu,
        }
    }

    /// The MAC addresses of its ports.
    pub fn macs(&self) -> Vec<[u8; 6]> {
        match &self.device {
            NicConfig::Gve(config) => vec![config.mac],
            NicConfig::Mana(config) => (0..config.ports).map(|port| config.port_mac(port)).collect(),
            NicConfig::Virtio(config) => vec![config.mac],
        }
    }

    /// Gives the NIC an address of its own, unless the user chose one: `index` is the place of its first port
    /// among all ports of the machine.
    pub fn number(&mut self, index: usize) {
        if self.has_mac {
            return;
        }
        let mac = match &mut self.device {
            NicConfig::Gve(config) => &mut config.mac,
            NicConfig::Mana(config) => &mut config.mac,
            NicConfig::Virtio(config) => &mut config.mac,
        };
        mac[5] = mac[5].wrapping_add(index as u8);
    }

    /// The device model.
    ///
    /// # Errors
    /// When the options do not fit together.
    pub fn build(&self) -> Result<Box<dyn PciDevice>, NicError> {
        match &self.device {
            NicConfig::Gve(config) => Ok(Box::new(Gve::new(config.clone())?)),
            NicConfig::Mana(config) => Ok(Box::new(Mana::new(config.as_ref().clone())?)),
            NicConfig::Virtio(config) => Ok(Box::new(VirtioPci::new(Net::new(config.clone())))),
        }
    }
}

impl FromStr for NicSpec {
    type Err = NicError;

    fn from_str(text: &str) -> Result<NicSpec, NicError> {
        let mut words = text.split(',');
        let kind = words.next().unwrap_or_default();
        let mut options = Vec::new();
        for word in words {
            let option = word.split_once('=').ok_or_else(|| NicError::Option {
                kind: kind.into(),
                message: format!("{word:?} is not key=value"),
            })?;
            options.push(option);
        }
        NicSpec::new(kind, options)
    }
}

impl NicConfig {
    fn default_of(kind: &str) -> Result<NicConfig, NicError> {
        match kind {
            "gve" => Ok(NicConfig::Gve(GveConfig::default())),
            "mana" => Ok(NicConfig::Mana(Box::default())),
            // A locally administered address, and the MTU of Ethernet.
            "virtio" => {
                Ok(NicConfig::Virtio(NetConfig { mac: [2, 0, 0, 0, 1, 0], mtu: 1500, queue_pairs: 1 }))
            }
            _ => Err(NicError::Kind { kind: kind.into() }),
        }
    }

    /// The names that [`Self::set`] takes.
    fn options(&self) -> &'static [&'static str] {
        match self {
            NicConfig::Gve(_) => &nicvisor_gve::OPTIONS,
            NicConfig::Mana(_) => &nicvisor_mana::OPTIONS,
            NicConfig::Virtio(_) => &VIRTIO_OPTIONS,
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), NicError> {
        match self {
            NicConfig::Gve(config) => Ok(config.set(key, value)?),
            NicConfig::Mana(config) => Ok(config.set(key, value)?),
            NicConfig::Virtio(config) => set_virtio(config, key, value)
                .map_err(|message| NicError::Option { kind: "virtio".into(), message }),
        }
    }

    fn validate(&self) -> Result<(), NicError> {
        match self {
            NicConfig::Gve(config) => Ok(config.validate()?),
            NicConfig::Mana(config) => Ok(config.validate()?),
            NicConfig::Virtio(_) => Ok(()),
        }
    }
}

/// All kinds, each with the options of its device.
pub fn kinds() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    let options = |kind| NicConfig::default_of(kind).map_or(&[][..], |config| config.options());
    KINDS.into_iter().map(move |kind| (kind, options(kind)))
}

fn check_link(kind: &str, name: &str) -> Result<(), NicError> {
    let problem = match outside::check(name) {
        _ if name.is_empty() => "link= needs a name".to_owned(),
        Err(error) => error.to_string(),
        Ok(_) => return Ok(()),
    };
    Err(NicError::Option { kind: kind.into(), message: problem })
}

fn switch(kind: &str, key: &str, value: &str) -> Result<bool, NicError> {
    match value {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => {
            let message = format!("{key}={value} is neither on nor off");
            Err(NicError::Option { kind: kind.into(), message })
        }
    }
}

fn set_virtio(config: &mut NetConfig, key: &str, value: &str) -> Result<(), String> {
    let number = |range: RangeInclusive<u16>| {
        let given = value.parse().ok().filter(|number| range.contains(number));
        given.ok_or_else(|| format!("{key}={value} is not a number within {range:?}"))
    };
    match key {
        "mac" => {
            config.mac = parse_mac(value).ok_or_else(|| format!("mac={value} is not a MAC address"))?;
        }
        "mtu" => config.mtu = number(68..=65_535)?,
        "queues" => config.queue_pairs = number(1..=64)?,
        _ => {
            return Err(format!(
                "there is no option {key:?}; there are {} and link",
                VIRTIO_OPTIONS.join(", ")
            ));
        }
    }
    Ok(())
}

/// Why there can be no such NIC.
#[derive(Debug, Error)]
pub enum NicError {
    /// No such device.
    #[error("there is no NIC of kind {kind:?}; this version has: {}", KINDS.join(", "))]
    Kind {
        /// What was asked for.
        kind: String,
    },
    /// A gve cannot be like this.
    #[error(transparent)]
    Gve(#[from] GveConfigError),
    /// A MANA cannot be like this.
    #[error(transparent)]
    Mana(#[from] ManaConfigError),
    /// An option is not one.
    #[error("{kind}: {message}")]
    Option {
        /// The device.
        kind: String,
        /// What is wrong.
        message: String,
    },
}

/// All kinds.
pub const KINDS: [&str; 3] = ["gve", "mana", "virtio"];
/// The options of a virtio port, besides its link.
const VIRTIO_OPTIONS: [&str; 3] = ["mac", "mtu", "queues"];
/// The most NICs of a machine: its bus has 32 slots, with the host bridge and the agent's port in two of them.
pub const MOST_NICS: usize = 30;
/// The options of every NIC, besides those of its kind and its link.
pub const COMMON_OPTIONS: [&str; 1] = ["root-port"];
/// The link of ports that are not given one.
pub const DEFAULT_LINK: &str = "lan";

#[cfg(test)]
mod tests {
    use super::*;

    fn mistake(text: &str) -> String {
        text.parse::<NicSpec>().unwrap_err().to_string()
    }

    #[test]
    fn options_arrive_and_mistakes_say_what_is_possible() {
        let spec: NicSpec = "gve,mtu=8896,link=left".parse().unwrap();
        assert_eq!((spec.mtu(), spec.link.as_str()), (8896, "left"));
        assert!(mistake("e1000").contains("this version has: gve"));
        assert!(mistake("gve,colour=red").contains("no option \"colour\""));
        assert!(mistake("gve,mtu").contains("is not key=value"));
        assert!(mistake("gve,link=a,link=b").contains("one link"));
        assert!(mistake("gve,link=").contains("needs a name"));
        assert!(mistake("gve,root-port=maybe").contains("neither on nor off"));
        assert!(mistake("gve,root-port=on,root-port=on").contains("twice"));
        assert!("mana,root-port=on".parse::<NicSpec>().unwrap().root_port && !spec.root_port);
        assert!(mistake("gve,link=vde:a").contains("stream:PATH"));
        assert!(mistake("gve,mtu=99999").contains("mtu"));
        assert!(mistake("mana,ports=17").contains("within 1..=16"));
        assert!(mistake("").contains("no NIC of kind"));
        assert!(mistake("virtio,queues=65").contains("within 1..=64"));
        assert!(mistake("virtio,tso=on").contains("mac, mtu, queues"));
    }

    #[test]
    fn addresses_are_numbered_unless_chosen() {
        let mac = |text: &str, index| {
            let mut spec: NicSpec = text.parse().unwrap();
            spec.number(index);
            spec.macs()
        };
        assert_ne!(mac("gve", 0), mac("gve", 1));
        assert_eq!(mac("gve,mac=02:00:00:00:00:09", 1), [[2, 0, 0, 0, 0, 9]]);
        let two = mac("mana,ports=2", 0);
        assert_eq!(two.len(), 2);
        assert!(mac("mana", 2).iter().all(|mac| !two.contains(mac)));
    }
}
