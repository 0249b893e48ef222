//! Queues as a device uses them: take a chain of buffers, read or write it, give it back.

use std::io::{Read, Write};

use nicvisor_core::Context;
use nicvisor_core::memory::GuestRam;
use serde::{Deserialize, Serialize};
use virtio_queue::{DescriptorChain, Queue, QueueOwnedT, QueueState, QueueT};
use vm_memory::{Bytes, GuestAddress};

use crate::wire::{INTERRUPT_CONFIG, INTERRUPT_QUEUE, NO_VECTOR, status};

/// A queue and its interrupt vector.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) queue: Queue,
    pub(crate) vector: u16,
}

/// The part of the transport's state that a device can change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) status: u8,
    pub(crate) interrupt_status: u8,
    pub(crate) config_vector: u16,
    pub(crate) config_generation: u8,
}

/// The queues of a device, for the time of one call.
#[derive(Debug)]
pub struct Queues<'a, 'c> {
    /// The call's context.
    pub context: &'a mut Context<'c>,
    pub(crate) slots: &'a mut [Slot],
    pub(crate) line: &'a mut Line,
    /// How many chains may still be taken in this call. A guest CPU that runs at the same time could otherwise
    /// keep the device in one call for ever; whatever it adds meanwhile it also notifies.
    pub(crate) budget: usize,
}

/// A chain of buffers that the driver made available. The readable part comes first.
#[derive(Clone, Debug)]
pub struct Chain<'c> {
    memory: &'c GuestRam,
    descriptors: DescriptorChain<&'c GuestRam>,
}

impl<'c> Queues<'_, 'c> {
    /// Takes the next chain from `queue`. `None` when there is none, the driver is not ready, or the ring is
    /// broken; a broken ring stops the device.
    pub fn pop(&mut self, queue: u16) -> Option<Chain<'c>> {
        if !self.running() || self.budget == 0 {
            return None;
        }
        let memory = self.context.dma.memory().ok()?;
        let slot = self.slots.get_mut(usize::from(queue)).filter(|slot| slot.queue.ready())?;
        match slot.queue.iter(memory).map(|mut chains| chains.next()) {
            Ok(next) => {
                self.budget -= 1;
                next.map(|descriptors| Chain { memory, descriptors })
            }
            Err(_) => {
                self.fail();
                None
            }
        }
    }

    /// Puts the chain taken last back, to be taken again.
    pub fn undo_pop(&mut self, queue: u16) {
        if let Some(slot) = self.slots.get_mut(usize::from(queue)) {
            slot.queue.go_to_previous_position();
        }
    }

    /// Gives a chain back, `written` bytes of it filled.
    pub fn complete(&mut self, queue: u16, chain: &Chain<'c>, written: u32) {
        let Some(slot) = self.slots.get_mut(usize::from(queue)) else { return };
        if slot.queue.add_used(chain.memory, chain.descriptors.head_index(), written).is_err() {
            self.fail();
        }
    }

    /// Tells the driver that chains of `queue` were given back, unless it asked not to be told.
    pub fn interrupt(&mut self, queue: u16) {
        let Some(slot) = self.slots.get(usize::from(queue)) else { return };
        if !slot.queue.ready() || self.suppressed(&slot.queue) {
            return;
        }
        let vector = slot.vector;
        self.line.interrupt_status |= INTERRUPT_QUEUE;
        self.raise(vector);
    }

    /// Tells the driver that the device's configuration has changed.
    pub fn config_changed(&mut self) {
        self.line.config_generation = self.line.config_generation.wrapping_add(1);
        self.interrupt_config();
    }

    /// Stops the device: the driver broke a ring or a request beyond repair and has to reset it.
    pub fn fail(&mut self) {
        if self.line.status & status::NEEDS_RESET == 0 {
            self.line.status |= status::NEEDS_RESET;
            self.interrupt_config();
        }
    }

    /// Whether the driver is ready and nothing has broken.
    pub fn running(&self) -> bool {
        self.line.status & (status::DRIVER_OK | status::NEEDS_RESET) == status::DRIVER_OK
    }

    fn interrupt_config(&mut self) {
        if self.line.status & status::DRIVER_OK != 0 {
            self.line.interrupt_status |= INTERRUPT_CONFIG;
            self.raise(self.line.config_vector);
        }
    }

    fn raise(&mut self, vector: u16) {
        if vector != NO_VECTOR {
            self.context.raise(vector);
        }
    }

    /// Whether the driver has set "no interrupt" in the available ring.
    fn suppressed(&self, queue: &Queue) -> bool {
        let Ok(memory) = self.context.dma.memory() else { return false };
        let flags = memory.read_obj::<u16>(GuestAddress(queue.avail_ring()));
        flags.is_ok_and(|flags| u16::from_le(flags) & AVAILABLE_NO_INTERRUPT != 0)
    }
}

impl Chain<'_> {
    /// All readable bytes; `None` if there are more than `limit`, or they are not in memory.
    pub fn read(&self, limit: usize) -> Option<Vec<u8>> {
        let mut reader = self.descriptors.clone().reader(self.memory).ok()?;
        let length = reader.available_bytes();
        if length > limit {
            return None;
        }
        let mut bytes = vec![0; length];
        reader.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Fills the writable bytes from `data`; returns how many of its bytes fitted. `None` if the buffers are
    /// not in memory.
    pub fn write(&self, data: &[u8]) -> Option<usize> {
        let mut writer = self.descriptors.clone().writer(self.memory).ok()?;
        let length = writer.available_bytes().min(data.len());
        writer.write_all(&data[..length]).ok()?;
        Some(length)
    }

    /// How many bytes can be written; `None` if the buffers are not in memory.
    pub fn writable(&self) -> Option<usize> {
        Some(self.descriptors.clone().writer(self.memory).ok()?.available_bytes())
    }
}

/// [`QueueState`] with serde.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedSlot {
    vector: u16,
    max_size: u16,
    size: u16,
    ready: bool,
    next_available: u16,
    next_used: u16,
    descriptors: u64,
    available: u64,
    used: u64,
}

impl Slot {
    pub(crate) fn save(&self) -> SavedSlot {
        let state = self.queue.state();
        SavedSlot {
            vector: self.vector,
            max_size: state.max_size,
            size: state.size,
            ready: state.ready,
            next_available: state.next_avail,
            next_used: state.next_used,
            descriptors: state.desc_table,
            available: state.avail_ring,
            used: state.used_ring,
        }
    }
}

impl TryFrom<&SavedSlot> for Slot {
    type Error = virtio_queue::Error;

    fn try_from(saved: &SavedSlot) -> Result<Slot, virtio_queue::Error> {
        let queue = Queue::try_from(QueueState {
            max_size: saved.max_size,
            next_avail: saved.next_available,
            next_used: saved.next_used,
            event_idx_enabled: false,
            size: saved.size,
            ready: saved.ready,
            desc_table: saved.descriptors,
            avail_ring: saved.available,
            used_ring: saved.used,
        })?;
        Ok(Slot { queue, vector: saved.vector })
    }
}

/// VIRTQ_AVAIL_F_NO_INTERRUPT.
const AVAILABLE_NO_INTERRUPT: u16 = 1;
