//! Work queue objects: a send or receive queue with its completion queue.

use nicvisor_core::Context;

use super::{Answer, Failure, Request};
use crate::device::Mana;
use crate::features::Feature;
use crate::objects::{Taker, WorkQueueObject};
use crate::queue::{Client, CompletionQueue, Moderation, WorkQueue, WorkQueueKind};
use crate::rules::control as rules;
use crate::wire::Status;
use crate::wire::gdma_requests::{Handle, queue_type};
use crate::wire::mana_requests::{
    CREATE_WQ_OBJECT_V1, CreateWqObject, CreateWqObjectResponse, DestroyWqObject,
};

impl Mana {
    /// `MANA_CREATE_WQ_OBJ`.
    pub(super) fn create_work_queue_object(
        &mut self,
        context: &Context<'_>,
        request: &Request,
    ) -> Result<Answer, Failure> {
        let asked: CreateWqObject = request.read_at_least(CREATE_WQ_OBJECT_V1)?;
        let send = sends(asked.wq_type.get())?;
        let vport = self.vport_of(asked.vport.get())?;
        let Some(transmit) = self.vport_mut(vport)?.transmit else {
            let message = format!("a work queue object for vPort {vport}, which is not configured");
            return Err(Failure::breach(Status::InvalidState, &rules::REQUEST_ORDER, message));
        };
        self.check_limits(vport, send)?;
        let owner = self.queue_owner(transmit.protection_domain, transmit.doorbell_page)?;
        let (work_region, completion_region) = (asked.wq_gdma_region.get(), asked.cq_gdma_region.get());
        if work_region == completion_region {
            return Err(Failure::parameter(format!("DMA region {work_region:#x} for two queues")));
        }
        let work_memory = self.queue_memory(context, work_region, asked.wq_size.get())?;
        let completion_memory = self.queue_memory(context, completion_region, asked.cq_size.get())?;
        let event_queue = self.parent_event_queue(asked.cq_parent_qid.get())?;

        let completion_queue = self.new_completion_queue_id()?;
        let work_queue = self.new_work_queue_id()?;
        let regions = &mut self.state.objects.regions;
        regions.take(work_region, Taker::WorkQueue(work_queue))?;
        regions.take(completion_region, Taker::CompletionQueue(completion_queue))?;
        let kind = if send { WorkQueueKind::Send } else { WorkQueueKind::Receive };
        let work = WorkQueue::new(work_queue, owner, kind, work_memory, completion_queue).of_vport(vport);
        let number = self.queue_number(vport, send);
        let client = if send { Client::Send(number) } else { Client::Receive(number) };
        let completions =
            CompletionQueue::new(completion_queue, owner, completion_memory, event_queue, client);
        let moderation = self.moderation(request, &asked);
        let completions = match moderation {
            Some(moderation) => completions.with_moderation(moderation),
            None => completions,
        };
        self.state.queues.works.insert(work_queue, work);
        self.state.queues.completions.insert(completion_queue, completions);
        let handle = self.state.objects.new_handle();
        let object = WorkQueueObject { send, vport, number, work_queue, completion_queue };
        self.state.objects.work_queues.insert(handle, object);
        let version = if self.knows(Feature::Moderation) { 2 } else { 1 };
        Ok(created(handle, &object, moderation).version(version))
    }

    /// `MANA_DESTROY_WQ_OBJ`.
    pub(super) fn destroy_work_queue_object(
        &mut self,
        context: &mut Context<'_>,
        request: &Request,
    ) -> Result<Answer, Failure> {
        let asked: DestroyWqObject = request.read()?;
        let handle = asked.wq_obj_handle.get();
        let send = sends(asked.wq_type.get())?;
        let Some(object) = self.state.objects.work_queues.get(&handle).copied() else {
            let message = format!("work queue object {handle:#x} destroyed, which does not exist");
            return Err(Failure::unknown(message));
        };
        if object.send != send {
            let message = format!("work queue object {handle:#x} destroyed as of type {}", asked.wq_type);
            return Err(Failure::parameter(message));
        }
        if self.vport_mut(object.vport)?.steering.uses(object.work_queue) {
            let message =
                format!("receive queue {} destroyed while frames are steered to it", object.work_queue);
            context.report(&rules::OBJECT_IN_USE, message, |finding| finding.descriptor = request.bytes());
        }
        if self.is_unfenced(&object) {
            let message =
                format!("receive queue {} destroyed without a fence after its frames", object.work_queue);
            context.report(&rules::RX_FENCE, message, |finding| finding.descriptor = request.bytes());
        }
        self.remove_work_queue_object(context, handle);
        Ok(Answer::done())
    }

    /// `MANA_FENCE_RQ`: when the completion of this arrives, nothing that was received before is on its way.
    pub(super) fn fence(&mut self, context: &mut Context<'_>, request: &Request) -> Result<Answer, Failure> {
        let handle = request.read::<Handle>()?.handle.get();
        let Some(object) = self.state.objects.work_queues.get(&handle).filter(|object| !object.send) else {
            return Err(Failure::unknown(format!(
                "receive queue object {handle:#x} fenced, which does not exist"
            )));
        };
        let object = *object;
        self.fence_receive_queue(context, &object);
        Ok(Answer::done())
    }

    /// Takes a work queue object apart. Frames that waited for its buffers are lost.
    pub(crate) fn remove_work_queue_object(&mut self, context: &mut Context<'_>, handle: u64) {
        let Some(object) = self.state.objects.work_queues.remove(&handle) else { return };
        self.discard_received(context, &object);
        let index = usize::from(object.vport);
        if let Some(vport) = self.state.vports.get_mut(index) {
            vport.steering.forget(object.work_queue);
        }
        self.state.queues.works.remove(&object.work_queue);
        self.state.queues.completions.remove(&object.completion_queue);
        let regions = &mut self.state.objects.regions;
        regions.release(Taker::WorkQueue(object.work_queue));
        regions.release(Taker::CompletionQueue(object.completion_queue));
    }

    /// The first number that no send or receive queue of the vPort has.
    fn queue_number(&self, vport: u16, send: bool) -> u32 {
        let first = u32::from(vport) * u32::from(self.config.queues);
        let has = |number: u32| {
            let mut own = self.state.objects.of_vport(vport).filter(|object| object.send == send);
            own.any(|object| object.number == number)
        };
        (first..).find(|number| !has(*number)).unwrap_or(first)
    }

    fn check_limits(&self, vport: u16, send: bool) -> Result<(), Failure> {
        let limits = &self.config.limits;
        let all = self.state.objects.work_queues.values().filter(|object| object.send == send).count();
        let most = if send { limits.send_queues } else { limits.receive_queues };
        let own = self.state.objects.of_vport(vport).filter(|object| object.send == send).count();
        match all >= most as usize || own >= usize::from(self.config.queues) {
            true => Err(Failure::refusal(Status::NoResources)),
            false => Ok(()),
        }
    }

    /// The moderation that version 3 of the request asks for, where the device has any. Drivers ask without looking.
    fn moderation(&self, request: &Request, asked: &CreateWqObject) -> Option<Moderation> {
        let offered = self.offers(Feature::Moderation) && request.version() >= 3;
        (offered && asked.req_cq_moderation != 0).then(|| Moderation {
            microseconds: asked.cq_moderation_usec.get(),
            completions: asked.cq_moderation_comp.get().min(0xff) as u8,
        })
    }

    fn new_work_queue_id(&mut self) -> Result<u32, Failure> {
        let works = &self.state.queues.works;
        let id = self.state.objects.work_queue_ids.take(works.len(), |id| works.contains_key(&id));
        id.ok_or_else(|| Failure::refusal(Status::NoResources))
    }
}

/// Whether a queue of this type sends.
fn sends(kind: u32) -> Result<bool, Failure> {
    match kind {
        queue_type::SQ => Ok(true),
        queue_type::RQ => Ok(false),
        _ => Err(Failure::parameter(format!("a work queue object of type {kind}"))),
    }
}

fn created(handle: u64, object: &WorkQueueObject, moderation: Option<Moderation>) -> Answer {
    let given = moderation.unwrap_or_default();
    let answer = CreateWqObjectResponse {
        wq_id: object.work_queue.into(),
        cq_id: object.completion_queue.into(),
        wq_obj: handle.into(),
        cq_moderation_comp: u16::from(given.completions).into(),
        cq_moderation_usec: given.microseconds.into(),
        cq_moderation_enabled: moderation.is_some().into(),
        reserved1: [0; 3],
    };
    Answer::new(&answer)
}
