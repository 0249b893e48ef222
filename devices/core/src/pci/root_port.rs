//! A PCI Express root port: the bridge between the root bus and the one function behind it (PCI-to-PCI bridge
//! architecture specification 1.2, chapter 3.2; PCI Express base specification, chapter 7.5).

use std::ops::Range;

use super::layout;
use super::registers::{Registers, SavedRegisters};
use crate::RestoreError;

/// The registers of a root port. They come without numbers of buses and with closed windows: whoever enumerates the
/// buses sets them.
#[derive(Clone, Debug)]
pub(super) struct RootPort {
    registers: Registers,
}

impl RootPort {
    pub(super) fn new() -> RootPort {
        let mut registers = layout::any_header(VENDOR, DEVICE, CLASS, 0);
        registers.define(layout::HEADER_TYPE, [HEADER_BRIDGE]);
        registers.allow(PRIMARY_BUS, [0xff; 3]);
        for window in [MEMORY, PREFETCHABLE] {
            registers.define(window, (CLOSED_BASE | window_width(window)).to_le_bytes());
            registers.define(window + 2, window_width(window).to_le_bytes());
            registers.allow(window, WINDOW_BITS.to_le_bytes());
            registers.allow(window + 2, WINDOW_BITS.to_le_bytes());
        }
        registers.allow(PREFETCHABLE_UPPER, [0xff; 8]);
        registers.allow(BRIDGE_CONTROL, BRIDGE_CONTROL_WRITABLE.to_le_bytes());
        registers.define(layout::STATUS, layout::STATUS_CAPABILITIES.to_le_bytes());
        registers.define(layout::CAPABILITIES_POINTER, [POWER_MANAGEMENT as u8]);
        registers.define(POWER_MANAGEMENT, [layout::POWER_MANAGEMENT, EXPRESS as u8]);
        registers.define(EXPRESS, [layout::EXPRESS, 0]);
        layout::fill_power_management(&mut registers, POWER_MANAGEMENT);
        registers.define(EXPRESS + 0x02, EXPRESS_VERSION_ROOT_PORT.to_le_bytes());
        registers.define(EXPRESS + 0x04, DEVICE_CAPABILITIES.to_le_bytes());
        registers.allow(EXPRESS + layout::EXPRESS_DEVICE_CONTROL, DEVICE_CONTROL_WRITABLE.to_le_bytes());
        layout::fill_link(&mut registers, EXPRESS);
        RootPort { registers }
    }

    /// The number of the bus behind the port, once it has one.
    pub(super) fn bus(&self) -> Option<u8> {
        let [bus, _] = self.registers.u16(SECONDARY_BUS).to_le_bytes();
        (bus != 0).then_some(bus)
    }

    pub(super) fn read(&self, offset: usize, data: &mut [u8]) {
        self.registers.read(offset, data);
    }

    /// Software writes `data` at `offset`. Returns whether that resets what is behind the port.
    pub(super) fn write(&mut self, offset: usize, data: &[u8]) -> bool {
        let before = self.holds_reset();
        self.registers.write(offset, data);
        self.holds_reset() && !before
    }

    /// Whether requests of the function behind reach memory.
    pub(super) fn masters_bus(&self) -> bool {
        self.awake() && self.command() & layout::COMMAND_BUS_MASTER != 0
    }

    /// Whether accesses to all of `range` reach the function behind.
    pub(super) fn forwards(&self, range: &Range<u64>) -> bool {
        let open = self.awake() && self.command() & layout::COMMAND_MEMORY != 0;
        let inside = |window: Range<u64>| window.start <= range.start && range.end <= window.end;
        open && !self.holds_reset() && [self.memory(), self.prefetchable()].into_iter().any(inside)
    }

    pub(super) fn reset(&mut self) {
        self.registers.reset();
    }

    pub(super) fn save(&self) -> SavedRegisters {
        self.registers.save()
    }

    pub(super) fn restore(&mut self, saved: &SavedRegisters) -> Result<(), RestoreError> {
        self.registers.restore(saved)
    }

    fn memory(&self) -> Range<u64> {
        self.window(MEMORY, 0, 0)
    }

    fn prefetchable(&self) -> Range<u64> {
        let [base, limit] = [0, 4].map(|offset| self.registers.u32(PREFETCHABLE_UPPER + offset));
        self.window(PREFETCHABLE, base, limit)
    }

    /// The window whose base and limit are at `register`, with their upper halves. Empty where the limit is below.
    fn window(&self, register: usize, base_above: u32, limit_above: u32) -> Range<u64> {
        let address = |offset: usize, above: u32| {
            u64::from(above) << 32 | u64::from(self.registers.u16(register + offset) & WINDOW_BITS) << 16
        };
        address(0, base_above)..(address(2, limit_above) | WINDOW_LOW).saturating_add(1)
    }

    fn holds_reset(&self) -> bool {
        self.registers.u16(BRIDGE_CONTROL) & SECONDARY_BUS_RESET != 0
    }

    fn command(&self) -> u16 {
        self.registers.u16(layout::COMMAND)
    }

    fn awake(&self) -> bool {
        self.registers.u16(POWER_MANAGEMENT + layout::PM_CONTROL) & layout::PM_STATE == 0
    }
}

/// The prefetchable window has addresses of 64 bits.
fn window_width(window: usize) -> u16 {
    u16::from(window == PREFETCHABLE)
}

/// The generic root port of Red Hat's virtual devices.
const VENDOR: u16 = 0x1b36;
const DEVICE: u16 = 0x000c;
/// PCI-to-PCI bridge, normal decode.
const CLASS: u32 = 0x06_04_00;
const HEADER_BRIDGE: u8 = 1;
/// Primary, secondary and subordinate bus, a byte each.
const PRIMARY_BUS: usize = 0x18;
const SECONDARY_BUS: usize = 0x19;
/// Base and limit of the window for memory, and of that for prefetchable memory; there is none for I/O.
const MEMORY: usize = 0x20;
const PREFETCHABLE: usize = 0x24;
/// The upper halves of base and limit.
const PREFETCHABLE_UPPER: usize = 0x28;
/// Bits 31..20 of an address.
const WINDOW_BITS: u16 = 0xfff0;
const WINDOW_LOW: u64 = 0xf_ffff;
/// A base above any limit of zero.
const CLOSED_BASE: u16 = 0xfff0;
const BRIDGE_CONTROL: usize = 0x3e;
/// Parity response, SERR#, master abort, secondary bus reset.
const BRIDGE_CONTROL_WRITABLE: u16 = 1 | 1 << 1 | 1 << 5 | SECONDARY_BUS_RESET;
const SECONDARY_BUS_RESET: u16 = 1 << 6;
/// Where the capabilities are.
const POWER_MANAGEMENT: usize = 0x40;
const EXPRESS: usize = 0x48;
/// 256-byte payloads, as the functions have; role-based error reporting.
const DEVICE_CAPABILITIES: u32 = 1 | 1 << 15;
/// All but the bit that resets a function.
const DEVICE_CONTROL_WRITABLE: u16 = 0x7fff;
/// Capability version 2, device type 4 (root port of a root complex), no slot that devices are plugged into.
const EXPRESS_VERSION_ROOT_PORT: u16 = 2 | 4 << 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn port() -> RootPort {
        let mut port = RootPort::new();
        port.write(layout::COMMAND, &[6, 0]);
        port
    }

    #[test]
    fn windows_are_closed_until_they_are_set() {
        let mut port = port();
        assert!(!port.forwards(&(0..0x1000)) && !port.forwards(&(0xfff0_0000..0xfff0_1000)));
        port.write(MEMORY, &[0x00, 0xc0, 0x10, 0xc0]);
        assert!(port.forwards(&(0xc000_0000..0xc020_0000)));
        assert!(!port.forwards(&(0xc000_0000..0xc020_1000)), "the end is outside");
        port.write(PREFETCHABLE, &[0x01, 0x80, 0x01, 0x80]);
        port.write(PREFETCHABLE_UPPER, &[0x40, 0, 0, 0, 0x40, 0, 0, 0]);
        assert!(port.forwards(&(0x40_8000_0000..0x40_8010_0000)));
        assert!(!port.forwards(&(0x8000_0000..0x8010_0000)), "the upper half counts");
        port.write(layout::COMMAND, &[4, 0]);
        assert!(!port.forwards(&(0xc000_0000..0xc020_0000)), "memory decoding is off");
    }

    #[test]
    fn the_bus_behind_is_reset_once_for_each_time_that_the_bit_is_set() {
        let mut port = port();
        let writes = [0x40, 0x40, 0x00, 0x40].map(|control| port.write(BRIDGE_CONTROL, &[control, 0]));
        assert_eq!(writes, [true, false, false, true]);
    }

    #[test]
    fn a_sleeping_port_forwards_nothing() {
        let mut port = port();
        port.write(MEMORY, &[0x00, 0xc0, 0x10, 0xc0]);
        assert!(port.masters_bus());
        port.write(POWER_MANAGEMENT + layout::PM_CONTROL, &[3]);
        assert!(!port.masters_bus() && !port.forwards(&(0xc000_0000..0xc000_1000)));
    }

    #[test]
    fn software_sees_a_bridge_with_a_window_of_64_bits_and_none_for_ports() {
        let mut port = port();
        port.write(0x1c, &[0xf0, 0xe0]);
        let mut header = [0; 0x40];
        port.read(0, &mut header);
        assert_eq!((header[layout::HEADER_TYPE], &header[0x1c..0x1e]), (1, &[0, 0][..]));
        assert_eq!((header[PREFETCHABLE] & 0xf, header[PREFETCHABLE + 2] & 0xf), (1, 1));
        assert_eq!(port.bus(), None);
        port.write(PRIMARY_BUS, &[0, 7, 7]);
        assert_eq!(port.bus(), Some(7));
    }
}
