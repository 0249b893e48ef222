//! Event queues and completion queues that are created by themselves.

use nicvisor_core::Context;

use super::{Answer, Failure, Request};
use crate::device::Mana;
use crate::objects::{Region, Taker};
use crate::queue::{Client, CompletionQueue, EventQueue, Owner, QueueMemory};
use crate::rules::control as rules;
use crate::wire::gdma_requests::{CreateQueue, DisableQueue, Index, queue_type};
use crate::wire::mana_requests::NO_EVENT_QUEUE;
use crate::wire::{Status, eqe};

impl Mana {
    /// `GDMA_CREATE_QUEUE`.
    pub(super) fn create_queue(
        &mut self,
        context: &Context<'_>,
        request: &Request,
    ) -> Result<Answer, Failure> {
        let asked: CreateQueue = request.read()?;
        let owner = self.queue_owner(asked.pdid.get(), asked.doolbell_id.get())?;
        let (handle, size) = (asked.gdma_region.get(), asked.queue_size.get());
        let memory = self.queue_memory(context, handle, size)?;
        let index = match asked.r#type.get() {
            queue_type::EQ => self.create_event_queue(&asked, owner, memory)?,
            queue_type::CQ => self.create_completion_queue(&asked, owner, memory)?,
            // Those of vPorts are created with their completion queues, as work queue objects.
            kind => return Err(Failure::parameter(format!("a queue of type {kind}"))),
        };
        Ok(Answer::new(&Index { index: index.into() }))
    }

    fn create_event_queue(
        &mut self,
        asked: &CreateQueue,
        owner: Owner,
        memory: QueueMemory,
    ) -> Result<u32, Failure> {
        let vector = asked.eq_pci_msix_index.get();
        if vector >= self.config.vectors.into() {
            let message = format!("an event queue on vector {vector} of {}", self.config.vectors);
            return Err(Failure::parameter(message));
        }
        let (throttle, entries) =
            (asked.log2_throttle_limit.get(), asked.queue_size.get() / eqe::SIZE as u32);
        if throttle > entries.ilog2() {
            let message = format!("log2_throttle_limit {throttle} of an event queue of {entries} entries");
            return Err(Failure::parameter(message));
        }
        let (events, objects) = (&mut self.state.queues.events, &mut self.state.objects);
        let id = objects.event_queue_ids.take(events.len(), |id| events.contains_key(&id));
        let id = id.ok_or_else(|| Failure::refusal(Status::NoResources))?;
        objects.regions.take(asked.gdma_region.get(), Taker::EventQueue(id))?;
        events.insert(id, EventQueue::new(id, owner, memory, vector as u16));
        Ok(id)
    }

    fn create_completion_queue(
        &mut self,
        asked: &CreateQueue,
        owner: Owner,
        memory: QueueMemory,
    ) -> Result<u32, Failure> {
        let event_queue = self.parent_event_queue(asked.cq_parent_eq_id.get())?;
        let id = self.new_completion_queue_id()?;
        let region = asked.gdma_region.get();
        self.state.objects.regions.take(region, Taker::CompletionQueue(id))?;
        let queue = CompletionQueue::new(id, owner, memory, event_queue, Client::Nobody);
        self.state.queues.completions.insert(id, queue);
        Ok(id)
    }

    /// `GDMA_DISABLE_QUEUE`, which destroys.
    pub(super) fn disable_queue(&mut self, request: &Request) -> Result<Answer, Failure> {
        let asked: DisableQueue = request.read()?;
        let id = asked.queue_index.get();
        match asked.r#type.get() {
            queue_type::EQ => self.destroy_event_queue(id)?,
            queue_type::CQ => self.destroy_completion_queue(id)?,
            kind => return Err(Failure::parameter(format!("a queue of type {kind} disabled"))),
        }
        Ok(Answer::done())
    }

    fn destroy_event_queue(&mut self, id: u32) -> Result<(), Failure> {
        let queues = &mut self.state.queues;
        if id == self.state.channel.event_queue() || !queues.events.contains_key(&id) {
            return Err(Failure::unknown(format!("event queue {id} disabled, which does not exist")));
        }
        let children = queues.completions.iter().filter(|(_, queue)| queue.event_queue() == Some(id));
        let children: Vec<u32> = children.map(|(id, _)| *id).collect();
        if !children.is_empty() {
            return Err(Failure::in_use(format!(
                "event queue {id} disabled with completion queues {children:?}"
            )));
        }
        queues.events.remove(&id);
        self.state.objects.regions.release(Taker::EventQueue(id));
        Ok(())
    }

    fn destroy_completion_queue(&mut self, id: u32) -> Result<(), Failure> {
        let queues = &mut self.state.queues;
        if id == self.state.channel.completion_queue() || !queues.completions.contains_key(&id) {
            return Err(Failure::unknown(format!("completion queue {id} disabled, which does not exist")));
        }
        if self.state.objects.work_queues.values().any(|object| object.completion_queue == id) {
            return Err(Failure::in_use(format!(
                "completion queue {id} disabled, which belongs to a work queue"
            )));
        }
        queues.completions.remove(&id);
        self.state.objects.regions.release(Taker::CompletionQueue(id));
        Ok(())
    }

    /// Whose a new queue is.
    pub(super) fn queue_owner(&self, domain: u32, doorbell_page: u32) -> Result<Owner, Failure> {
        let objects = &self.state.objects;
        let Some(owner) = objects.domains.owner(domain, doorbell_page) else {
            return Err(Failure::unknown(format!("protection domain {domain}")));
        };
        let own = crate::objects::Domains::registration(domain.try_into().unwrap_or(0));
        let own = own.is_some_and(|own| own.doorbell_page == doorbell_page);
        match own || objects.doorbells.contains(doorbell_page) {
            true => Ok(owner),
            false => Err(Failure::unknown(format!("doorbell page {doorbell_page}"))),
        }
    }

    /// The memory of a new queue of `size` bytes. Its region is not taken over yet.
    pub(super) fn queue_memory(
        &self,
        context: &Context<'_>,
        handle: u64,
        size: u32,
    ) -> Result<QueueMemory, Failure> {
        let region = self.state.objects.regions.get(handle)?;
        if !size.is_power_of_two() || size < MIN_QUEUE {
            return Err(queue_size(format!("a queue of {size} bytes")));
        }
        if u64::from(size) > region.length || region.offset != 0 {
            let message =
                format!("a queue of {size} bytes in {} bytes from {} on", region.length, region.offset);
            return Err(queue_size(message));
        }
        check_memory(context, region, size)?;
        let page_size = u32::try_from(region.page_size).unwrap_or(u32::MAX);
        QueueMemory::new(region.pages.clone(), page_size, 0, size)
            .ok_or_else(|| queue_size(format!("a queue of {size} bytes in pages of {page_size}")))
    }

    /// The event queue of a new completion queue.
    pub(super) fn parent_event_queue(&self, id: u32) -> Result<Option<u32>, Failure> {
        match id {
            NO_EVENT_QUEUE => Ok(None),
            id if id != self.state.channel.event_queue() && self.state.queues.events.contains_key(&id) => {
                Ok(Some(id))
            }
            _ => {
                Err(Failure::unknown(format!("a completion queue on event queue {id}, which does not exist")))
            }
        }
    }

    /// A number for a new completion queue.
    pub(super) fn new_completion_queue_id(&mut self) -> Result<u32, Failure> {
        let completions = &self.state.queues.completions;
        let ids = &mut self.state.objects.completion_queue_ids;
        let id = ids.take(completions.len(), |id| completions.contains_key(&id));
        id.ok_or_else(|| Failure::refusal(Status::NoResources))
    }
}

/// Whether all of the pages that a queue of `size` bytes takes are memory.
fn check_memory(context: &Context<'_>, region: &Region, size: u32) -> Result<(), Failure> {
    let mut left = u64::from(size);
    for &page in &region.pages {
        let length = left.min(region.page_size);
        if !context.dma.is_memory(page, length as usize) {
            let message = format!("a queue's page at {page:#x}, which is not memory");
            return Err(Failure::breach(Status::InvalidParameter, &rules::DMA_REGION, message));
        }
        left -= length;
        if left == 0 {
            break;
        }
    }
    Ok(())
}

fn queue_size(message: String) -> Failure {
    Failure::breach(Status::InvalidParameter, &rules::QUEUE_SIZE, message)
}

/// `MANA_MIN_QSIZE`.
const MIN_QUEUE: u32 = 4096;
