//! The PCI transport: registers, feature negotiation, queue set-up (virtio 1.2, section 4.1).

use nicvisor_core::pci::{Bar, BarKind, Doorbell, Identity};
use nicvisor_core::{Context, Device, Frame, FrameId, PciDevice, Port, RestoreError, Sizes, Time};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use virtio_queue::{Queue, QueueT};

use crate::VirtioDevice;
use crate::queue::{Line, Queues, SavedSlot, Slot};
use crate::wire::{self, common, status};

/// A virtio device as a PCI device.
#[derive(Debug)]
pub struct VirtioPci<D> {
    device: D,
    slots: Vec<Slot>,
    line: Line,
    negotiation: Negotiation,
}

/// What the driver has selected and agreed to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Negotiation {
    device_feature_select: u32,
    driver_feature_select: u32,
    driver_features: u64,
    queue_select: u16,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    queues: Vec<SavedSlot>,
    line: Line,
    negotiation: Negotiation,
    device: Value,
}

impl<D: VirtioDevice> VirtioPci<D> {
    /// Puts `device` behind a PCI transport.
    ///
    /// # Panics
    /// When the device's queue sizes are not powers of two.
    pub fn new(device: D) -> VirtioPci<D> {
        VirtioPci {
            slots: fresh_slots(&device),
            device,
            line: Line::default(),
            negotiation: Negotiation::default(),
        }
    }

    /// The device behind the transport.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Calls the device with its queues in reach.
    fn call<R>(
        &mut self,
        context: &mut Context<'_>,
        call: impl FnOnce(&mut D, &mut Queues<'_, '_>) -> R,
    ) -> R {
        // All that a driver can have made available at once.
        let budget = self.slots.iter().map(|slot| usize::from(slot.queue.size())).sum();
        let mut queues = Queues { context, slots: &mut self.slots, line: &mut self.line, budget };
        call(&mut self.device, &mut queues)
    }

    /// A reset by the driver: the device and the transport, but not the PCI function.
    fn restart(&mut self, context: &mut Context<'_>) {
        // The driver is gone: the device sees its queues as not running.
        self.line = Line::default();
        self.call(context, |device, queues| device.reset(queues));
        self.line = Line::default();
        self.negotiation = Negotiation::default();
        self.slots = fresh_slots(&self.device);
    }

    fn features(&self) -> u64 {
        self.device.features() | wire::FEATURE_INDIRECT | wire::FEATURE_VERSION_1
    }

    fn selected(&self) -> Option<&Slot> {
        self.slots.get(usize::from(self.negotiation.queue_select))
    }

    fn common_bytes(&self) -> [u8; common::LENGTH] {
        let mut bytes = [0; common::LENGTH];
        let mut put = |offset: u64, value: &[u8]| {
            bytes[offset as usize..offset as usize + value.len()].copy_from_slice(value);
        };
        let negotiation = &self.negotiation;
        put(common::DEVICE_FEATURE_SELECT, &negotiation.device_feature_select.to_le_bytes());
        put(common::DEVICE_FEATURE, &half(self.features(), negotiation.device_feature_select).to_le_bytes());
        put(common::DRIVER_FEATURE_SELECT, &negotiation.driver_feature_select.to_le_bytes());
        put(
            common::DRIVER_FEATURE,
            &half(negotiation.driver_features, negotiation.driver_feature_select).to_le_bytes(),
        );
        put(common::CONFIG_VECTOR, &self.line.config_vector.to_le_bytes());
        put(common::QUEUE_COUNT, &(self.slots.len() as u16).to_le_bytes());
        put(common::STATUS, &[self.line.status]);
        put(common::CONFIG_GENERATION, &[self.line.config_generation]);
        put(common::QUEUE_SELECT, &negotiation.queue_select.to_le_bytes());
        if let Some(Slot { queue, vector }) = self.selected() {
            put(common::QUEUE_SIZE, &queue.size().to_le_bytes());
            put(common::QUEUE_VECTOR, &vector.to_le_bytes());
            put(common::QUEUE_ENABLE, &u16::from(queue.ready()).to_le_bytes());
            put(common::QUEUE_NOTIFY_OFFSET, &negotiation.queue_select.to_le_bytes());
            put(common::QUEUE_DESCRIPTORS, &queue.desc_table().to_le_bytes());
            put(common::QUEUE_DRIVER, &queue.avail_ring().to_le_bytes());
            put(common::QUEUE_DEVICE, &queue.used_ring().to_le_bytes());
        }
        bytes
    }

    /// A write of one field of the common configuration. Other widths than the field's do nothing, but a
    /// 64-bit field can be written in halves.
    fn write_common(&mut self, context: &mut Context<'_>, offset: u64, data: &[u8]) {
        let value = data.iter().rev().fold(0_u64, |value, &byte| value << 8 | u64::from(byte));
        match (offset, data.len()) {
            (common::DEVICE_FEATURE_SELECT, 4) => self.negotiation.device_feature_select = value as u32,
            (common::DRIVER_FEATURE_SELECT, 4) => self.negotiation.driver_feature_select = value as u32,
            (common::DRIVER_FEATURE, 4) => self.set_driver_features(value as u32),
            (common::CONFIG_VECTOR, 2) => self.line.config_vector = self.checked_vector(value as u16),
            (common::STATUS, 1) => self.set_status(context, value as u8),
            (common::QUEUE_SELECT, 2) => self.negotiation.queue_select = value as u16,
            (common::QUEUE_DESCRIPTORS | common::QUEUE_DRIVER | common::QUEUE_DEVICE, 8) => {
                self.write_queue(offset, 4, value as u32);
                self.write_queue(offset + 4, 4, (value >> 32) as u32);
            }
            (_, length) => self.write_queue(offset, length, value as u32),
        }
    }

    /// A write to a field of the selected queue. Once enabled, a queue no longer changes.
    fn write_queue(&mut self, offset: u64, length: usize, value: u32) {
        let vector = self.checked_vector(value as u16);
        let index = usize::from(self.negotiation.queue_select);
        let Some(Slot { queue, vector: slot_vector }) = self.slots.get_mut(index) else { return };
        match (offset, length) {
            (common::QUEUE_VECTOR, 2) => *slot_vector = vector,
            (common::QUEUE_ENABLE, 2) if value == 1 => queue.set_ready(true),
            _ if queue.ready() => {}
            (common::QUEUE_SIZE, 2) => queue.set_size(value as u16),
            (common::QUEUE_DESCRIPTORS, 4) => queue.set_desc_table_address(Some(value), None),
            (common::QUEUE_DESCRIPTORS_HIGH, 4) => queue.set_desc_table_address(None, Some(value)),
            (common::QUEUE_DRIVER, 4) => queue.set_avail_ring_address(Some(value), None),
            (common::QUEUE_DRIVER_HIGH, 4) => queue.set_avail_ring_address(None, Some(value)),
            (common::QUEUE_DEVICE, 4) => queue.set_used_ring_address(Some(value), None),
            (common::QUEUE_DEVICE_HIGH, 4) => queue.set_used_ring_address(None, Some(value)),
            _ => {}
        }
    }

    fn set_driver_features(&mut self, value: u32) {
        if self.line.status & status::FEATURES_OK != 0 {
            return;
        }
        let features = &mut self.negotiation.driver_features;
        match self.negotiation.driver_feature_select {
            0 => *features = *features & !0xffff_ffff | u64::from(value),
            1 => *features = *features & 0xffff_ffff | u64::from(value) << 32,
            _ => {}
        }
    }

    fn set_status(&mut self, context: &mut Context<'_>, value: u8) {
        if value == 0 {
            return self.restart(context);
        }
        let old = self.line.status;
        let mut new = value & !status::NEEDS_RESET | old & status::NEEDS_RESET;
        let accepted = self.negotiation.driver_features;
        let features_fit = accepted & !self.features() == 0 && accepted & wire::FEATURE_VERSION_1 != 0;
        if !features_fit {
            new &= !(status::FEATURES_OK | status::DRIVER_OK);
        }
        self.line.status = new;
        if new & status::DRIVER_OK != 0 && old & status::DRIVER_OK == 0 {
            self.call(context, |device, queues| device.activate(queues, accepted));
        }
    }

    /// A vector that the MSI-X table does not have reads back as "none", which tells the driver.
    fn checked_vector(&self, vector: u16) -> u16 {
        if vector < self.vectors() { vector } else { wire::NO_VECTOR }
    }

    /// One for each queue and one for configuration changes.
    fn vectors(&self) -> u16 {
        self.slots.len() as u16 + 1
    }
}

impl<D: VirtioDevice> PciDevice for VirtioPci<D> {
    fn identity(&self) -> Identity {
        let kind = self.device.kind();
        let table = (u64::from(self.vectors()) * 17).next_power_of_two().max(0x1000);
        let bar = |index, size, wide, kind| Bar { index, size, wide, prefetchable: wide, kind };
        Identity {
            vendor: wire::VENDOR,
            device: wire::FIRST_DEVICE + kind.device_type,
            subsystem_vendor: wire::VENDOR,
            subsystem: wire::SUBSYSTEM,
            class: kind.class,
            revision: wire::REVISION,
            bars: vec![
                bar(wire::MSIX_BAR, table, false, BarKind::Msix),
                bar(wire::REGISTER_BAR, wire::REGISTER_BAR_SIZE, true, BarKind::Device),
            ],
            msix_vectors: self.vectors(),
            vendor_capabilities: wire::capabilities(),
        }
    }

    fn read_bar(&mut self, _context: &mut Context<'_>, _bar: u8, offset: u64, data: &mut [u8]) {
        let within = offset % wire::STRUCTURE_LENGTH;
        match offset - within {
            wire::COMMON => {
                let bytes = self.common_bytes();
                for (position, byte) in (within as usize..).zip(data) {
                    *byte = bytes.get(position).copied().unwrap_or(0);
                }
            }
            wire::INTERRUPT_STATUS => {
                data.fill(0);
                if within == 0 {
                    data[0] = std::mem::take(&mut self.line.interrupt_status);
                }
            }
            wire::DEVICE_CONFIG => {
                data.fill(0);
                self.device.config_read(within, data);
            }
            _ => data.fill(0),
        }
    }

    fn write_bar(&mut self, context: &mut Context<'_>, _bar: u8, offset: u64, data: &[u8]) {
        let within = offset % wire::STRUCTURE_LENGTH;
        match offset - within {
            wire::COMMON => self.write_common(context, within, data),
            wire::NOTIFY => {
                let queue = (within / u64::from(wire::NOTIFY_MULTIPLIER)) as u16;
                let enabled = self.slots.get(usize::from(queue)).is_some_and(|slot| slot.queue.ready());
                if enabled && self.line.status & status::DRIVER_OK != 0 {
                    self.call(context, |device, queues| device.notify(queues, queue));
                }
            }
            _ => {}
        }
    }

    /// The queue is told by the address.
    fn doorbells(&self) -> Vec<Doorbell> {
        let offset = |queue: usize| wire::NOTIFY + u64::from(wire::NOTIFY_MULTIPLIER) * queue as u64;
        (0..self.slots.len())
            .map(|queue| Doorbell { bar: wire::REGISTER_BAR, offset: offset(queue) })
            .collect()
    }
}

impl<D: VirtioDevice> Device for VirtioPci<D> {
    fn receive(&mut self, context: &mut Context<'_>, port: u16, frame: Frame) {
        self.call(context, |device, queues| device.receive(queues, port, frame));
    }

    fn host_input(&mut self, context: &mut Context<'_>, channel: u16, bytes: &[u8]) {
        self.call(context, |device, queues| device.host_input(queues, channel, bytes));
    }

    fn host_input_queued(&self, channel: u16) -> usize {
        self.device.host_input_queued(channel)
    }

    fn set_link(&mut self, context: &mut Context<'_>, port: u16, up: bool) {
        self.call(context, |device, queues| device.set_link(queues, port, up));
    }

    fn next_deadline(&self) -> Option<Time> {
        self.device.next_deadline()
    }

    fn deadline(&mut self, context: &mut Context<'_>) {
        self.call(context, |device, queues| device.deadline(queues));
    }

    fn reset(&mut self, context: &mut Context<'_>) {
        self.restart(context);
    }

    fn ports(&self) -> Vec<Port> {
        self.device.ports()
    }

    fn counters(&self) -> Vec<(String, u64)> {
        self.device.counters()
    }

    fn handed_sizes(&self, port: u16) -> Option<&Sizes> {
        self.device.handed_sizes(port)
    }

    fn frames_held(&self) -> Vec<FrameId> {
        self.device.frames_held()
    }

    fn save(&self) -> Value {
        let saved = Saved {
            queues: self.slots.iter().map(Slot::save).collect(),
            line: self.line.clone(),
            negotiation: self.negotiation.clone(),
            device: self.device.save(),
        };
        serde_json::to_value(saved).unwrap_or(Value::Null)
    }

    fn restore(&mut self, state: &Value) -> Result<(), RestoreError> {
        let saved = Saved::deserialize(state).map_err(|error| RestoreError(error.to_string()))?;
        let slots: Result<Vec<Slot>, _> = saved.queues.iter().map(Slot::try_from).collect();
        let slots = slots.map_err(|error| RestoreError(error.to_string()))?;
        let sizes = |slots: &[Slot]| slots.iter().map(|slot| slot.queue.max_size()).collect::<Vec<_>>();
        if sizes(&slots) != sizes(&self.slots) {
            return Err(RestoreError("the devices have different queues".into()));
        }
        self.device.restore(&saved.device)?;
        self.slots = slots;
        self.line = saved.line;
        self.negotiation = saved.negotiation;
        Ok(())
    }
}

impl Default for Line {
    fn default() -> Self {
        Line { status: 0, interrupt_status: 0, config_vector: wire::NO_VECTOR, config_generation: 0 }
    }
}

fn fresh_slots(device: &impl VirtioDevice) -> Vec<Slot> {
    let slot = |size| Slot {
        queue: Queue::new(size).expect("queue sizes are powers of two"),
        vector: wire::NO_VECTOR,
    };
    device.queue_sizes().into_iter().map(slot).collect()
}

/// 32 bits of a 64-bit feature set.
fn half(features: u64, select: u32) -> u32 {
    match select {
        0 => features as u32,
        1 => (features >> 32) as u32,
        _ => 0,
    }
}

#[cfg(test)]
#[path = "transport_tests.rs"]
mod tests;
