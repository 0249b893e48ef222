//! What firmware tells a guest about hardware that it cannot find by itself.

use std::ops::Range;

/// A device in the namespace of the ACPI tables, with what its driver may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirmwareDevice {
    /// Its name: four characters out of `A` to `Z`, `0` to `9` and `_`, the first no digit.
    pub name: &'static str,
    /// Its hardware id (`_HID`), by which drivers find it.
    pub hardware_id: &'static str,
    /// Address space that it, or devices behind it, may be given.
    pub memory: Vec<Range<u64>>,
    /// Its wired interrupt, a global system interrupt number.
    pub interrupt: Option<u32>,
}
