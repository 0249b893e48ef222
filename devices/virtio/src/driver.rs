//! A driver for tests: sets a device up through its registers the way Linux does, and keeps rings.

use nicvisor_core::testing::Bench;
use nicvisor_core::{Device, Effects, PciDevice};

use crate::wire::{self, common, status};
use crate::{VirtioDevice, VirtioPci};

/// A bench with a device and its driver.
#[derive(Debug)]
pub(crate) struct Driver<D> {
    pub(crate) bench: Bench,
    pub(crate) device: VirtioPci<D>,
    queues: Vec<Ring>,
}

#[derive(Clone, Debug)]
struct Ring {
    base: u64,
    size: u16,
    next: u16,
    seen: u16,
    /// Where the buffer of each descriptor is.
    buffers: Vec<u64>,
}

impl<D: VirtioDevice> Driver<D> {
    /// A driver that has not touched the device.
    pub(crate) fn idle(device: D) -> Driver<D> {
        Driver { bench: Bench::default(), device: VirtioPci::new(device), queues: Vec::new() }
    }

    /// A driver that is ready, having accepted all features.
    pub(crate) fn ready(device: D) -> Driver<D> {
        let mut driver = Driver::idle(device);
        driver.start();
        driver
    }

    /// From reset to DRIVER_OK.
    pub(crate) fn start(&mut self) {
        self.write(common::STATUS, &[0]);
        self.write(common::STATUS, &[3]);
        for select in 0..2_u32 {
            self.write(common::DEVICE_FEATURE_SELECT, &select.to_le_bytes());
            let features = self.read32(common::DEVICE_FEATURE);
            self.write(common::DRIVER_FEATURE_SELECT, &select.to_le_bytes());
            self.write(common::DRIVER_FEATURE, &features.to_le_bytes());
        }
        self.write(common::STATUS, &[3 | status::FEATURES_OK]);
        assert_eq!(self.status(), 3 | status::FEATURES_OK);
        self.write(common::CONFIG_VECTOR, &0_u16.to_le_bytes());
        self.queues =
            (0..self.read32(common::CONFIG_VECTOR) >> 16).map(|index| self.set_up(index as u16)).collect();
        self.write(common::STATUS, &[3 | status::FEATURES_OK | status::DRIVER_OK]);
    }

    /// Queue `index` with vector `index + 1` and rings at `index` * 64 KiB + 1 MiB.
    fn set_up(&mut self, index: u16) -> Ring {
        self.write(common::QUEUE_SELECT, &index.to_le_bytes());
        let size = self.read32(common::QUEUE_SIZE) as u16;
        let base = 0x10_0000 + u64::from(index) * 0x1_0000;
        self.bench.dma().write(base, &[0; 0x4000]).unwrap();
        self.write(common::QUEUE_VECTOR, &(index + 1).to_le_bytes());
        for (register, offset) in
            [(common::QUEUE_DESCRIPTORS, 0), (common::QUEUE_DRIVER, AVAILABLE), (common::QUEUE_DEVICE, USED)]
        {
            let address = base + offset;
            self.write(register, &(address as u32).to_le_bytes());
            self.write(register + 4, &((address >> 32) as u32).to_le_bytes());
        }
        self.write(common::QUEUE_ENABLE, &1_u16.to_le_bytes());
        Ring { base, size, next: 0, seen: 0, buffers: vec![0; usize::from(size)] }
    }

    /// Makes one buffer available: `data` for the device to read, or room for it to write. No notification.
    pub(crate) fn add(&mut self, queue: u16, data: Result<&[u8], u32>) {
        let ring = &mut self.queues[usize::from(queue)];
        let dma = nicvisor_core::Dma::new(&self.bench.memory, true);
        let index = ring.next % ring.size;
        let buffer = 0x80_0000 + u64::from(queue) * 0x10_0000 + u64::from(index) * 0x2000;
        let (length, flags) = match data {
            Ok(bytes) => {
                dma.write(buffer, bytes).unwrap();
                (bytes.len() as u32, 0_u16)
            }
            Err(room) => (room, 2),
        };
        let descriptor = ring.base + u64::from(index) * 16;
        dma.write(descriptor, &buffer.to_le_bytes()).unwrap();
        dma.write(descriptor + 8, &length.to_le_bytes()).unwrap();
        dma.write(descriptor + 12, &flags.to_le_bytes()).unwrap();
        ring.buffers[usize::from(index)] = buffer;
        dma.write(ring.base + AVAILABLE + 4 + u64::from(index) * 2, &index.to_le_bytes()).unwrap();
        ring.next = ring.next.wrapping_add(1);
        dma.write(ring.base + AVAILABLE + 2, &ring.next.to_le_bytes()).unwrap();
    }

    /// Tells the device about buffers in `queue`.
    pub(crate) fn kick(&mut self, queue: u16) {
        let address = wire::NOTIFY + u64::from(queue) * u64::from(wire::NOTIFY_MULTIPLIER);
        self.write(address, &queue.to_le_bytes());
    }

    /// The buffers that the device has given back since the last call, with what it wrote.
    pub(crate) fn used(&mut self, queue: u16) -> Vec<Vec<u8>> {
        let ring = &mut self.queues[usize::from(queue)];
        let dma = nicvisor_core::Dma::new(&self.bench.memory, true);
        let read = |address, length| {
            let mut bytes = vec![0; length];
            dma.read(address, &mut bytes).unwrap();
            bytes
        };
        let word = |address| u32::from_le_bytes(read(address, 4).try_into().unwrap());
        let end = (word(ring.base + USED) >> 16) as u16;
        let mut used = Vec::new();
        while ring.seen != end {
            let element = ring.base + USED + 4 + u64::from(ring.seen % ring.size) * 8;
            let (id, length) = (word(element), word(element + 4));
            used.push(read(ring.buffers[id as usize], length as usize));
            ring.seen = ring.seen.wrapping_add(1);
        }
        used
    }

    /// Writes raw bytes at `offset` from the start of a queue's rings.
    pub(crate) fn corrupt(&mut self, queue: u16, offset: u64, bytes: &[u8]) {
        self.bench.dma().write(0x10_0000 + u64::from(queue) * 0x1_0000 + offset, bytes).unwrap();
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        let device = &mut self.device;
        self.bench.call(|context| device.write_bar(context, wire::REGISTER_BAR, offset, data));
    }

    pub(crate) fn read32(&mut self, offset: u64) -> u32 {
        let mut data = [0xff; 4];
        let device = &mut self.device;
        self.bench.call(|context| device.read_bar(context, wire::REGISTER_BAR, offset, &mut data));
        u32::from_le_bytes(data)
    }

    pub(crate) fn status(&mut self) -> u8 {
        self.read32(common::STATUS) as u8
    }

    pub(crate) fn host_input(&mut self, channel: u16, bytes: &[u8]) {
        let device = &mut self.device;
        self.bench.call(|context| device.host_input(context, channel, bytes));
    }

    pub(crate) fn effects(&mut self) -> Effects {
        self.bench.take_effects()
    }
}

/// Offset of the available ring from the descriptors.
pub(crate) const AVAILABLE: u64 = 0x2000;
/// Offset of the used ring.
pub(crate) const USED: u64 = 0x3000;
