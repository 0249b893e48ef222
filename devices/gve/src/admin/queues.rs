//! Creating and destroying queues.

use nicvisor_core::fault::CommandAction;
use nicvisor_core::{Context, DeviceEvent, DropReason, EventKind, Rule};

use super::{Failure, write_answer};
use crate::buffers::Buffers;
use crate::config::RingSizes;
use crate::device::Gve;
use crate::doorbells;
use crate::features::Feature;
use crate::ring::CompletionRing;
use crate::rules;
use crate::rx::{GqiRings, RxQueue, RxRings};
use crate::tx::{EventCounter, Progress, TxQueue};
use crate::wire::admin::{CreateRxQueue, CreateTxQueue, Id, QueueResources, RAW_ADDRESSING, Status};
use crate::wire::{gqi, rx, tx};

impl Gve {
    /// `GVE_ADMINQ_CREATE_TX_QUEUE`.
    pub(super) fn create_tx_queue(
        &mut self,
        context: &mut Context<'_>,
        command: CreateTxQueue,
        action: &CommandAction,
    ) -> Result<(), Failure> {
        let id = command.queue_id.get();
        let exists = self.state.tx.get(id as usize).map(Option::is_some);
        self.check_new_queue("TX", id, exists, command.ntfy_id.get())?;
        let page_list = self.page_list("TX", id, command.queue_page_list_id.get())?;
        let size = command.tx_ring_size.get();
        self.check_ring(&self.config.tx_ring, "TX ring", size)?;
        let ring = command.tx_ring_addr.get();
        check_memory(context, "TX ring", ring, size, tx::DESCRIPTOR_SIZE)?;
        let progress = match self.config.format.is_gqi() {
            true => self.event_counter(context, id)?,
            false => completion_ring(context, &command)?,
        };
        let resources = QueueResources { db_index: doorbells::tx_index(id).into(), counter_index: id.into() };
        write_answer(
            context,
            command.queue_resources_addr.get(),
            QueueResources::LAYOUT,
            action,
            &resources,
        )?;
        self.state.tx[id as usize] =
            Some(TxQueue::new(id as u16, (ring, size), progress, page_list, command.ntfy_id.get()));
        observe(context, EventKind::QueueCreated, "tx", id);
        Ok(())
    }

    /// `GVE_ADMINQ_CREATE_RX_QUEUE`.
    pub(super) fn create_rx_queue(
        &mut self,
        context: &mut Context<'_>,
        command: CreateRxQueue,
        action: &CommandAction,
    ) -> Result<(), Failure> {
        let id = command.queue_id.get();
        let exists = self.state.rx.get(id as usize).map(Option::is_some);
        self.check_new_queue("RX", id, exists, command.ntfy_id.get())?;
        let page_list = self.page_list("RX", id, command.queue_page_list_id.get())?;
        let is_gqi = self.config.format.is_gqi();
        let size = command.rx_ring_size.get();
        // The two rings of GQI go side by side.
        let buffers = if is_gqi { size } else { command.rx_buff_ring_size.get() };
        self.check_ring(&self.config.rx_ring, "RX ring", size)?;
        self.check_ring(&self.config.rx_ring, "RX buffer ring", buffers)?;
        if buffers > size {
            return Err(ring_size(format!("completion ring of {size} for {buffers} buffers")));
        }
        self.check_buffers(&command)?;
        let completion_ring = command.rx_desc_ring_addr.get();
        let ring = command.rx_data_ring_addr.get();
        let (entry, buffer) = match is_gqi {
            true => (gqi::RX_DESCRIPTOR_SIZE, gqi::DATA_SLOT_SIZE),
            false => (rx::COMPLETION_SIZE, rx::BUFFER_DESCRIPTOR_SIZE),
        };
        check_memory(context, "RX completion ring", completion_ring, size, entry)?;
        check_memory(context, "RX buffer ring", ring, buffers, buffer)?;
        let resources = QueueResources {
            db_index: doorbells::rx_index(id).into(),
            counter_index: (u32::from(self.config.max_queues) + id).into(),
        };
        write_answer(
            context,
            command.queue_resources_addr.get(),
            QueueResources::LAYOUT,
            action,
            &resources,
        )?;
        let rings = match is_gqi {
            true => RxRings::Gqi(GqiRings::new(completion_ring, size)),
            false => RxRings::Dqo(CompletionRing::new(completion_ring, size)),
        };
        let mut queue = RxQueue::new(
            id as u16,
            (ring, buffers),
            command.packet_buffer_size.get(),
            rings,
            page_list,
            command.ntfy_id.get(),
        );
        if command.enable_rsc != 0 && !is_gqi {
            queue.coalesce();
        }
        self.state.rx[id as usize] = Some(queue);
        observe(context, EventKind::QueueCreated, "rx", id);
        Ok(())
    }

    /// `GVE_ADMINQ_DESTROY_TX_QUEUE`.
    pub(super) fn destroy_tx_queue(&mut self, context: &mut Context<'_>, command: Id) -> Result<(), Failure> {
        let id = command.id.get();
        match self.state.tx.get_mut(id as usize).and_then(Option::take) {
            Some(_) => {
                observe(context, EventKind::QueueDestroyed, "tx", id);
                Ok(())
            }
            None => Err(no_queue("TX", id)),
        }
    }

    /// `GVE_ADMINQ_DESTROY_RX_QUEUE`. Frames that waited for buffers of the queue are lost.
    pub(super) fn destroy_rx_queue(&mut self, context: &mut Context<'_>, command: Id) -> Result<(), Failure> {
        let id = command.id.get();
        match self.state.rx.get_mut(id as usize).and_then(Option::take) {
            Some(queue) => {
                self.discard(context, queue, &DropReason::RESET);
                observe(context, EventKind::QueueDestroyed, "rx", id);
                Ok(())
            }
            None => Err(no_queue("RX", id)),
        }
    }

    /// What holds for every new queue. `exists` is `None` for an id beyond the last queue.
    fn check_new_queue(&self, kind: &str, id: u32, exists: Option<bool>, block: u32) -> Result<(), Failure> {
        let Some(resources) = &self.state.resources else {
            let message = format!("{kind} queue {id} created before device resources are configured");
            return Err(Failure::breach(Status::FailedPrecondition, &rules::ADMIN_ORDER, message));
        };
        match exists {
            None => return Err(Failure::parameter(format!("{kind} queue {id}"))),
            Some(true) => {
                let message = format!("{kind} queue {id} exists already");
                return Err(Failure::breach(Status::AlreadyExists, &rules::ADMIN_OBJECT, message));
            }
            Some(false) => (),
        }
        if block as usize >= resources.blocks.len() {
            let message =
                format!("{kind} queue {id}: notification block {block} of {}", resources.blocks.len());
            return Err(Failure::parameter(message));
        }
        Ok(())
    }

    /// What the addresses in the descriptors of a new queue are, and the id of its page list.
    fn page_list(&self, kind: &str, queue: u32, id: u32) -> Result<(Buffers, Option<u32>), Failure> {
        if !self.config.format.has_page_lists() {
            // Drivers from before DQO-QPL (Linux 6.6) leave the field empty.
            return match id {
                RAW_ADDRESSING | 0 => Ok((Buffers::Raw, None)),
                _ => Err(Failure::parameter(format!("{kind} queue {queue} with page list {id:#x}"))),
            };
        }
        let Some(list) = self.state.page_lists.get(&id) else {
            let message = format!("{kind} queue {queue} with page list {id:#x}, which is not registered");
            return Err(Failure::breach(Status::NotFound, &rules::ADMIN_OBJECT, message));
        };
        let buffers = if self.config.format.is_gqi() { Buffers::Offsets } else { Buffers::Registered };
        Ok((buffers(list.clone()), Some(id)))
    }

    /// The event counter of a new TX queue, which starts at zero.
    fn event_counter(&self, context: &Context<'_>, id: u32) -> Result<Progress, Failure> {
        let counter = self.state.resources.as_ref().and_then(|resources| resources.counter(id));
        let Some(address) = counter else {
            return Err(Failure::parameter(format!("TX queue {id}, for which there is no event counter")));
        };
        context.dma.store_release(address, 0_u32)?;
        Ok(Progress::Counter(EventCounter::new(address)))
    }

    fn check_ring(&self, sizes: &RingSizes, what: &str, size: u16) -> Result<(), Failure> {
        let (min, max) = match self.offers(Feature::ModifyRing) {
            true => (sizes.min, sizes.max),
            false => (sizes.default, sizes.default),
        };
        if !size.is_power_of_two() || !(min..=max).contains(&size) {
            return Err(ring_size(format!("{what} of {size}, not a power of two from {min} to {max}")));
        }
        Ok(())
    }

    fn check_buffers(&self, command: &CreateRxQueue) -> Result<(), Failure> {
        let size = command.packet_buffer_size.get();
        let max = match self.offers(Feature::BufferSizes) {
            true => self.config.max_buffer_size,
            false => DEFAULT_BUFFER_SIZE,
        };
        if !(DEFAULT_BUFFER_SIZE..=max).contains(&size) {
            let message = format!("RX buffers of {size} bytes, not {DEFAULT_BUFFER_SIZE} to {max}");
            return Err(Failure::parameter(message));
        }
        if command.header_buffer_size.get() != 0 {
            return Err(Failure::parameter("header split, which this device does not offer"));
        }
        Ok(())
    }
}

fn observe(context: &mut Context<'_>, kind: EventKind, queue: &str, id: u32) {
    context.observe(kind, || DeviceEvent::new(kind, format!("{queue} {id}")).with("id", id));
}

fn completion_ring(context: &Context<'_>, command: &CreateTxQueue) -> Result<Progress, Failure> {
    let (size, completions) = (command.tx_ring_size.get(), command.tx_comp_ring_size.get());
    // The completion ring may be larger: every packet can complete twice.
    if !completions.is_power_of_two() || completions < size {
        return Err(ring_size(format!("completion ring of {completions} for a TX ring of {size}")));
    }
    let address = command.tx_comp_ring_addr.get();
    check_memory(context, "TX completion ring", address, completions, tx::COMPLETION_SIZE)?;
    Ok(Progress::Ring(CompletionRing::new(address, completions)))
}

fn check_memory(
    context: &Context<'_>,
    what: &str,
    address: u64,
    entries: u16,
    entry_size: usize,
) -> Result<(), Failure> {
    if context.dma.is_memory(address, usize::from(entries) * entry_size) {
        return Ok(());
    }
    let message = format!("{what} of {entries} entries at {address:#x}");
    Err(Failure::breach(Status::InternalError, &rules::ADMIN_MEMORY, message))
}

fn ring_size(message: String) -> Failure {
    const RULE: &Rule = &rules::RING_SIZE;
    Failure::breach(Status::InvalidArgument, RULE, message)
}

fn no_queue(kind: &str, id: u32) -> Failure {
    let message = format!("{kind} queue {id} destroyed, which does not exist");
    Failure::breach(Status::NotFound, &rules::ADMIN_OBJECT, message)
}

/// `GVE_DEFAULT_RX_BUFFER_SIZE` (`gve.h`).
const DEFAULT_BUFFER_SIZE: u16 = 2048;
