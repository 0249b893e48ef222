//! BAR2: an array of 32-bit doorbells, little-endian with DQO and big-endian with GQI. The device hands out their indices when notification
//! blocks and queues are created.

use nicvisor_core::{Context, DeviceEvent, EventKind};

use crate::config::MAX_QUEUES;
use crate::device::Gve;
use crate::rules;

impl Gve {
    /// The driver writes to BAR2.
    pub(crate) fn write_doorbell(&mut self, context: &mut Context<'_>, offset: u64, data: &[u8]) {
        let read = if self.config.format.is_gqi() { u32::from_be_bytes } else { u32::from_le_bytes };
        let word = <[u8; 4]>::try_from(data).map(read);
        let (Ok(value), true) = (word, offset.is_multiple_of(4)) else {
            let message = format!("write of {} bytes at {offset:#x} of the doorbells", data.len());
            rules::report(&self.config, context, &rules::DOORBELL, message, |_| ());
            return;
        };
        let index = (offset / 4) as u32;
        context.observe(EventKind::Doorbell, || {
            let name = match index {
                FIRST_RX.. => format!("rx {}", index - FIRST_RX),
                FIRST_TX.. => format!("tx {}", index - FIRST_TX),
                _ => format!("interrupt {index}"),
            };
            DeviceEvent::new(EventKind::Doorbell, name).with("value", value)
        });
        let known = match index {
            FIRST_RX.. => self.ring_rx(context, index - FIRST_RX, value),
            FIRST_TX.. => self.ring_tx(context, index - FIRST_TX, value),
            _ => self.ring_interrupt(context, index, value),
        };
        if !known {
            let message =
                format!("{value:#x} written to doorbell {index}, which the device did not hand out");
            rules::report(&self.config, context, &rules::DOORBELL, message, |_| ());
        }
    }

    fn ring_interrupt(&mut self, context: &mut Context<'_>, block: u32, value: u32) -> bool {
        let Some(resources) = &mut self.state.resources else { return false };
        let vector = resources.first_vector + block as u16;
        let Some(block) = resources.blocks.get_mut(block as usize) else { return false };
        let raise = match self.config.format.is_gqi() {
            true => block.gqi_doorbell(context.now, value),
            false => block.doorbell(context.now, value),
        };
        if raise {
            self.state.counters.interrupts += 1;
            context.raise(vector);
        }
        true
    }
}

/// Doorbell of a notification block.
pub(crate) fn interrupt_index(block: u32) -> u32 {
    block
}

/// Doorbell of a TX queue.
pub(crate) fn tx_index(queue: u32) -> u32 {
    FIRST_TX + queue
}

/// Doorbell of an RX queue.
pub(crate) fn rx_index(queue: u32) -> u32 {
    FIRST_RX + queue
}

const FIRST_TX: u32 = 2 * MAX_QUEUES as u32;
const FIRST_RX: u32 = 3 * MAX_QUEUES as u32;
/// Size of BAR2.
pub(crate) const BAR_SIZE: u64 = 4 * 4 * MAX_QUEUES as u64;
