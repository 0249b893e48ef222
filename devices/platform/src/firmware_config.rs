//! The part of QEMU's firmware configuration interface that CPU test programs ask: how many CPUs and how much
//! memory there are. Port 0x510 selects an item, port 0x511 reads it byte by byte.

use nicvisor_core::Context;
use nicvisor_core::io::IoDevice;
use serde::{Deserialize, Serialize};

use crate::PlatformConfig;
use crate::access::{read_bytes, value};

/// Offset 0 is the selector port, offset 1 the data port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirmwareConfig {
    cpus: u16,
    memory: u64,
    item: u16,
    position: usize,
}

impl FirmwareConfig {
    /// The interface of a machine like this.
    pub fn new(config: &PlatformConfig) -> FirmwareConfig {
        FirmwareConfig {
            cpus: u16::try_from(config.cpus).unwrap_or(u16::MAX),
            memory: config.low_memory.saturating_add(config.high_memory),
            item: 0,
            position: 0,
        }
    }

    /// The next byte of the selected item; zero behind its end.
    fn next_byte(&mut self) -> u8 {
        let item: &[u8] = match self.item {
            SIGNATURE => b"QEMU",
            // Only these ports, no DMA.
            INTERFACES => &[1, 0, 0, 0],
            MEMORY => &self.memory.to_le_bytes(),
            CPUS | MOST_CPUS => &self.cpus.to_le_bytes(),
            _ => &[],
        };
        let byte = item.get(self.position).copied().unwrap_or(0);
        self.position = self.position.saturating_add(1);
        byte
    }
}

impl IoDevice for FirmwareConfig {
    fn read(&mut self, _context: &mut Context<'_>, offset: u64, data: &mut [u8]) {
        if offset == DATA {
            read_bytes(offset, data, |_| self.next_byte());
        }
    }

    fn write(&mut self, _context: &mut Context<'_>, offset: u64, data: &[u8]) {
        if offset == SELECTOR && data.len() == 2 {
            self.item = value(data) as u16;
            self.position = 0;
        }
    }

    fn reset(&mut self, _context: &mut Context<'_>) {
        self.item = 0;
        self.position = 0;
    }
}

const SELECTOR: u64 = 0;
const DATA: u64 = 1;
const SIGNATURE: u16 = 0x00;
const INTERFACES: u16 = 0x01;
const MEMORY: u16 = 0x03;
const CPUS: u16 = 0x05;
const MOST_CPUS: u16 = 0x0f;

#[cfg(test)]
mod tests {
    use nicvisor_core::testing::Bench;

    use super::*;

    #[test]
    fn items_are_read_byte_by_byte_and_end_in_zeros() {
        let config =
            PlatformConfig { cpus: 3, low_memory: 3 << 30, high_memory: 1 << 30, ..Default::default() };
        let mut device = FirmwareConfig::new(&config);
        let mut bench = Bench::default();
        let mut item = |selector: u16, length: usize| -> Vec<u8> {
            bench.call(|context| device.write(context, SELECTOR, &selector.to_le_bytes()));
            (0..length)
                .map(|_| {
                    let mut byte = [0xff];
                    bench.call(|context| device.read(context, DATA, &mut byte));
                    byte[0]
                })
                .collect()
        };
        assert_eq!(item(SIGNATURE, 5), b"QEMU\0");
        assert_eq!(item(CPUS, 2), [3, 0]);
        assert_eq!(item(MOST_CPUS, 2), [3, 0]);
        assert_eq!(item(MEMORY, 8), (4_u64 << 30).to_le_bytes());
        assert_eq!(item(0x19, 2), [0, 0]);
    }
}
