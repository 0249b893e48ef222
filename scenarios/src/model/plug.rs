//! Devices that come and go.

use std::borrow::Cow;
use std::fmt;

use nicvisor_core::pci::Slot;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

/// A device is taken away from its guest, without asking: its registers read as all ones from now on, and frames for
/// its ports are dropped. A driver that is to go in order is told before, by `run`:
/// `echo 1 > /sys/bus/pci/devices/0000:00:02.0/remove`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Unplug {
    /// The device, such as `gve0`.
    #[schemars(with = "String")]
    pub device: Spanned<String>,
}

/// A device that was taken away is given back, as after power-on. The guest finds it when it looks:
/// `echo 1 > /sys/bus/pci/rescan`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plug {
    /// The device, such as `gve0`.
    #[schemars(with = "String")]
    pub device: Spanned<String>,
    /// Where on PCI it goes, such as `00:09.0`; where it was if left out.
    pub slot: Option<PciSlot>,
}

/// A place on the PCI bus as `lspci` writes it: bus (there is only 00), device and function, in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciSlot(pub Slot);

impl PciSlot {
    fn parse(text: &str) -> Option<PciSlot> {
        let (device, function) = text.strip_prefix("00:")?.split_once('.')?;
        let number = |text: &str, digits, most| {
            let number = u8::from_str_radix(text, 16).ok().filter(|number| *number <= most);
            number.filter(|_| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
        };
        Some(PciSlot(Slot { device: number(device, 2, 31)?, function: number(function, 1, 7)? }))
    }
}

impl<'de> Deserialize<'de> for PciSlot {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PciSlot, D::Error> {
        deserializer.deserialize_str(SlotVisitor)
    }
}

struct SlotVisitor;

impl de::Visitor<'_> for SlotVisitor {
    type Value = PciSlot;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a slot on PCI, such as \"00:09.0\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<PciSlot, E> {
        PciSlot::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

impl JsonSchema for PciSlot {
    fn schema_name() -> Cow<'static, str> {
        "PciSlot".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A place on the PCI bus as lspci writes it, such as \"00:09.0\".",
            "type": "string", "pattern": "^00:[01][0-9A-Fa-f]\\.[0-7]$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_read_as_they_are_shown() {
        let slot = PciSlot::parse("00:1f.7").unwrap();
        assert_eq!((slot.0.device, slot.0.function), (31, 7));
        assert_eq!(PciSlot::parse(&slot.0.to_string()), Some(slot));
        for wrong in ["", "9", "00:9.0", "00:20.0", "00:09.8", "01:09.0", "00:09", "00:+9.0", "0000:00:09.0"]
        {
            assert_eq!(PciSlot::parse(wrong), None, "{wrong}");
        }
    }
}
