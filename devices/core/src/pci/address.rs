//! Addresses of configuration registers: by memory (PCI Express base specification, chapter 7.2.2) and by the ports
//! 0xcf8 to 0xcff (PCI local bus specification 3.0, chapter 3.2.2.3.2).

use super::Slot;

/// A register of a configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// Number of the bus, as the guest counts them.
    pub(super) bus: u8,
    /// Device and function on that bus.
    pub(super) slot: Slot,
    /// Offset in bytes.
    pub(super) register: u16,
}

impl Address {
    /// Of an access to `length` bytes at `offset` of the ECAM region; `None` for those that cross a function's 4 KiB.
    pub(super) fn in_ecam(offset: u64, length: usize) -> Option<Address> {
        let register = offset & 0xfff;
        let bus = u8::try_from(offset >> 20).ok()?;
        if register + length as u64 > 0x1000 {
            return None;
        }
        let slot = Slot { device: (offset >> 15 & 31) as u8, function: (offset >> 12 & 7) as u8 };
        Some(Address { bus, slot, register: register as u16 })
    }

    /// Of an access to `length` bytes at the data port `port` while the address port has `selected`.
    pub(super) fn by_ports(selected: u32, port: u16, length: usize) -> Option<Address> {
        let position = port.checked_sub(CONFIG_DATA)?;
        if selected & CONFIG_ENABLE == 0 || usize::from(position) + length > 4 {
            return None;
        }
        let slot = Slot { device: (selected >> 11 & 31) as u8, function: (selected >> 8 & 7) as u8 };
        let bus = (selected >> 16) as u8;
        Some(Address { bus, slot, register: (selected & 0xfc) as u16 + position })
    }
}

pub(super) const CONFIG_ADDRESS: u16 = 0xcf8;
const CONFIG_DATA: u16 = 0xcfc;
const CONFIG_ENABLE: u32 = 1 << 31;
/// Enable, bus, device, function, register; the other bits are reserved.
pub(super) const CONFIG_ADDRESS_BITS: u32 = 0x80ff_fffc;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_ways_lead_to_the_same_register(
            bus: u8, device in 0_u8..32, function in 0_u8..8, word in 0_u16..64, position in 0_u16..4,
        ) {
            let [b, d, f] = [bus, device, function].map(u32::from);
            let selected = CONFIG_ENABLE | b << 16 | d << 11 | f << 8 | (u32::from(word) * 4);
            let by_ports = Address::by_ports(selected, CONFIG_DATA + position, 1);
            let offset = b << 20 | d << 15 | f << 12 | u32::from(word * 4 + position);
            let expected = Address { bus, slot: Slot { device, function }, register: word * 4 + position };
            prop_assert_eq!(by_ports, Some(expected));
            prop_assert_eq!(Address::in_ecam(offset.into(), 1), Some(expected));
            prop_assert_eq!(Address::by_ports(selected & !CONFIG_ENABLE, CONFIG_DATA, 1), None);
            prop_assert_eq!(Address::by_ports(selected, CONFIG_DATA + position, 5 - usize::from(position)), None);
        }
    }
}
