//! What QEMU's `pc-testdev` offers to CPU test programs: scratch ports, interrupt lines that software can
//! drive, and a scratch area in device memory.

use nicvisor_core::{Context, InterruptLine};
use serde::{Deserialize, Serialize};

use crate::access::{read_word, value};

/// The test device. Its ports are 0xe0 to 0xe3 and 0xe8 (scratch), 0xe4 to 0xe7 (flush a page; nothing to do
/// here) and 0x2000 to 0x2017 (one interrupt line each).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestDevice {
    scratch: u32,
    memory: Vec<u8>,
}

impl TestDevice {
    /// Power-on state.
    pub fn new() -> TestDevice {
        TestDevice { scratch: 0, memory: vec![0; TEST_MEMORY_SIZE as usize] }
    }

    /// Reads a port. Returns whether it is one of the device's.
    pub fn port_read(&mut self, port: u16, data: &mut [u8]) -> bool {
        match port {
            SCRATCH..=SCRATCH_LAST | SCRATCH_BYTE => read_word(u64::from(port), data, self.scratch),
            FLUSH..=FLUSH_LAST | LINES..=LINES_LAST => data.fill(0),
            _ => return false,
        }
        true
    }

    /// Writes a port. Returns whether it is one of the device's.
    pub fn port_write(&mut self, context: &mut Context<'_>, port: u16, data: &[u8]) -> bool {
        match port {
            SCRATCH..=SCRATCH_LAST | SCRATCH_BYTE => self.write_scratch(usize::from(port % 4), data),
            LINES..=LINES_LAST => {
                let irq = u32::from(port - LINES);
                // IRQ 0 is wired to GSI 2.
                let line = if irq == 0 { 2 } else { irq };
                context.effects.lines.push(InterruptLine { line, level: value(data) != 0 });
            }
            FLUSH..=FLUSH_LAST => {}
            _ => return false,
        }
        true
    }

    /// Reads device memory. Returns whether `address` is in it.
    pub fn memory_read(&mut self, address: u64, data: &mut [u8]) -> bool {
        let Some(area) = self.area(address, data.len()) else { return false };
        data.copy_from_slice(area);
        true
    }

    /// Writes device memory. Returns whether `address` is in it.
    pub fn memory_write(&mut self, address: u64, data: &[u8]) -> bool {
        let Some(area) = self.area(address, data.len()) else { return false };
        area.copy_from_slice(data);
        true
    }

    fn write_scratch(&mut self, start: usize, data: &[u8]) {
        let mut bytes = self.scratch.to_le_bytes();
        bytes[start..].iter_mut().zip(data).for_each(|(byte, new)| *byte = *new);
        self.scratch = u32::from_le_bytes(bytes);
    }

    fn area(&mut self, address: u64, length: usize) -> Option<&mut [u8]> {
        let start = usize::try_from(address.checked_sub(TEST_MEMORY_BASE)?).ok()?;
        self.memory.get_mut(start..start.checked_add(length)?)
    }
}

impl Default for TestDevice {
    fn default() -> Self {
        TestDevice::new()
    }
}

/// First address of the scratch area.
pub const TEST_MEMORY_BASE: u64 = 0xff00_0000;
/// Bytes of the scratch area.
pub const TEST_MEMORY_SIZE: u64 = 0x1_0000;
const SCRATCH: u16 = 0xe0;
const SCRATCH_LAST: u16 = 0xe3;
const FLUSH: u16 = 0xe4;
const FLUSH_LAST: u16 = 0xe7;
const SCRATCH_BYTE: u16 = 0xe8;
const LINES: u16 = 0x2000;
const LINES_LAST: u16 = 0x2017;

#[cfg(test)]
mod tests {
    use super::*;
    use nicvisor_core::testing::Bench;

    #[test]
    fn scratch_ports_keep_bytes_apart() {
        let mut bench = Bench::default();
        let mut device = TestDevice::new();
        bench.call(|context| assert!(device.port_write(context, 0xe0, &0x1122_3344_u32.to_le_bytes())));
        bench.call(|context| device.port_write(context, 0xe1, &[0xaa]));
        let mut data = [0; 4];
        device.port_read(0xe0, &mut data);
        assert_eq!(u32::from_le_bytes(data), 0x1122_aa44);
        device.port_read(0xe2, &mut data[..2]);
        assert_eq!(data[..2], [0x22, 0x11]);
    }

    #[test]
    fn lines_are_driven_by_value() {
        let mut bench = Bench::default();
        let mut device = TestDevice::new();
        bench.call(|context| device.port_write(context, 0x2000, &[1, 0, 0, 0]));
        bench.call(|context| device.port_write(context, 0x200e, &[0]));
        let expected = [InterruptLine { line: 2, level: true }, InterruptLine { line: 14, level: false }];
        assert_eq!(bench.take_effects().lines, expected);
    }

    #[test]
    fn memory_ends_where_it_ends() {
        let mut device = TestDevice::new();
        let last = TEST_MEMORY_BASE + TEST_MEMORY_SIZE - 4;
        assert!(device.memory_write(last, &[1, 2, 3, 4]));
        let mut data = [0; 4];
        assert!(device.memory_read(last, &mut data));
        assert_eq!(data, [1, 2, 3, 4]);
        assert!(!device.memory_read(last + 1, &mut data));
        assert!(!device.memory_read(u64::MAX, &mut data));
    }
}
