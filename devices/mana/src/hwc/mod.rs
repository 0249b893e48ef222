//! The hardware channel: four queues of a page each by which the driver sends requests and gets responses.
//!
//! A request is an entry of the send queue whose scatter-gather list holds the message. The response is written
//! to the buffer of the next entry of the receive queue. Both queues share a completion queue, whose event queue
//! also carries what the device tells by itself: first how the channel came out, later that the link changed or
//! that the driver is to reset the device.

mod delay;
mod exchange;

use nicvisor_core::Context;
use serde::{Deserialize, Serialize};

use crate::config::FunctionKind;
use crate::device::Mana;
use crate::objects::Domains;
use crate::queue::{Client, CompletionQueue, EventQueue, QueueMemory, WorkQueue, WorkQueueKind};
use crate::rules::control as rules;
use crate::wire::hwc::{
    EVENT_INIT_DATA, EVENT_INIT_DONE, EVENT_INIT_EQ, EVENT_SOC_RECONFIG_DATA, InitData, Reconfiguration,
    type_data,
};
use crate::wire::shared_memory::Establish;

/// The hardware channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Channel {
    /// Whether its queues exist.
    pub(crate) established: bool,
    /// Requests carried out since power-on, and how many of them failed.
    pub(crate) requests: u64,
    pub(crate) failures: u64,
    /// Requests that faults put off.
    delayed: Vec<delay::Delayed>,
}

impl Channel {
    /// Number of its event queue.
    pub(crate) fn event_queue(&self) -> u32 {
        EVENT_QUEUE
    }

    /// Number of its completion queue.
    pub(crate) fn completion_queue(&self) -> u32 {
        COMPLETION_QUEUE
    }

    /// Number of its send queue.
    pub(crate) fn send_queue(&self) -> u32 {
        SEND_QUEUE
    }
}

impl Mana {
    /// The driver asks for the channel. Whether it has one now.
    pub(crate) fn establish_channel(&mut self, context: &mut Context<'_>, message: &Establish) -> bool {
        if let Err(reason) = self.check_channel(context, message) {
            context.report(&rules::HWC_SETUP, reason, |finding| finding.queue = "hwc".to_owned());
            return false;
        }
        let memory = |address: u64| QueueMemory::new(vec![address], PAGE, 0, PAGE);
        let memories =
            [message.event_queue, message.completion_queue, message.receive_queue, message.send_queue];
        let [Some(events), Some(completions), Some(receive), Some(send)] = memories.map(memory) else {
            return false;
        };
        let owner = Domains::channel();
        let queues = &mut self.state.queues;
        queues.events.insert(EVENT_QUEUE, EventQueue::new(EVENT_QUEUE, owner, events, message.vector));
        let completions =
            CompletionQueue::new(COMPLETION_QUEUE, owner, completions, Some(EVENT_QUEUE), Client::Channel);
        queues.completions.insert(COMPLETION_QUEUE, completions);
        for (id, kind, memory) in
            [(RECEIVE_QUEUE, WorkQueueKind::Receive, receive), (SEND_QUEUE, WorkQueueKind::Send, send)]
        {
            queues.works.insert(id, WorkQueue::new(id, owner, kind, memory, COMPLETION_QUEUE));
        }
        self.state.channel.established = true;
        self.state.forgotten = false;
        self.tell_channel(context);
        true
    }

    /// The driver gives the channel back. Everything that was created through it goes with it.
    pub(crate) fn destroy_channel(&mut self, context: &mut Context<'_>) -> bool {
        if std::mem::take(&mut self.state.forgotten) {
            return true;
        }
        if !self.state.channel.established {
            let message = "the hardware channel is destroyed, which does not exist";
            context.report(&rules::HWC_SETUP, message, |finding| finding.queue = "hwc".to_owned());
            return false;
        }
        let leftovers = self.leftovers();
        if !leftovers.is_empty() {
            let message = format!("the hardware channel is destroyed with {leftovers} in place");
            context.report(&rules::HWC_LEFTOVER, message, |finding| finding.queue = "hwc".to_owned());
        }
        self.stop(context);
        true
    }

    /// An event for the driver as a whole, if there is a channel to tell it by.
    pub(crate) fn post_channel_event(&mut self, context: &mut Context<'_>, kind: u8, word: u32) {
        if self.state.channel.established {
            let mut details = [0; 12];
            details[..4].copy_from_slice(&word.to_le_bytes());
            self.state.queues.post_event(context, EVENT_QUEUE, kind, details);
        }
    }

    /// Tells the driver that a setting changed.
    pub(crate) fn post_reconfiguration(
        &mut self,
        context: &mut Context<'_>,
        setting: Reconfiguration,
        value: u32,
    ) {
        self.post_channel_event(context, EVENT_SOC_RECONFIG_DATA, type_data(setting as u8, value));
    }

    fn check_channel(&self, context: &Context<'_>, message: &Establish) -> Result<(), String> {
        if self.state.channel.established {
            return Err("the hardware channel is established, which exists already".to_owned());
        }
        let addresses =
            [message.event_queue, message.completion_queue, message.receive_queue, message.send_queue];
        if let Some(address) =
            addresses.into_iter().find(|&address| !context.dma.is_memory(address, PAGE as usize))
        {
            return Err(format!("a queue of the hardware channel at {address:#x}, which is not memory"));
        }
        if message.vector >= self.config.vectors {
            return Err(format!(
                "the hardware channel on vector {} of {}",
                message.vector, self.config.vectors
            ));
        }
        Ok(())
    }

    /// The events by which the driver learns what the channel is like.
    fn tell_channel(&mut self, context: &mut Context<'_>) {
        let owner = Domains::channel();
        let limits = self.config.channel;
        let mut data = vec![
            (InitData::CqId, COMPLETION_QUEUE),
            (InitData::RqId, RECEIVE_QUEUE),
            (InitData::SqId, SEND_QUEUE),
            (InitData::QueueDepth, limits.depth.into()),
            (InitData::MaxRequest, limits.max_request),
            (InitData::MaxResponse, limits.max_response),
            (InitData::MaxNumCqs, self.config.limits.completion_queues),
            (InitData::PdId, owner.protection_domain),
            (InitData::GpaMkey, owner.memory_key),
        ];
        if self.config.function != FunctionKind::Vf {
            data.push((InitData::PfDestRqId, PF_RECEIVE_QUEUE));
            data.push((InitData::PfDestCqId, PF_COMPLETION_QUEUE));
        }
        self.post_channel_event(context, EVENT_INIT_EQ, EVENT_QUEUE | owner.doorbell_page << 16);
        for (kind, value) in data {
            let name = kind.override_name();
            let value = self.state.queues.faults.overrides.apply(context.now, name, value.into()) as u32;
            self.post_channel_event(context, EVENT_INIT_DATA, type_data(kind as u8, value));
        }
        self.post_channel_event(context, EVENT_INIT_DONE, 0);
    }
}

const EVENT_QUEUE: u32 = 0;
const COMPLETION_QUEUE: u32 = 0;
const RECEIVE_QUEUE: u32 = 1;
const SEND_QUEUE: u32 = 2;
/// Queues of the other side, which requests of a physical function must name.
const PF_RECEIVE_QUEUE: u32 = 0x11;
const PF_COMPLETION_QUEUE: u32 = 0x12;
/// The driver's bootstrap queues are a page each.
const PAGE: u32 = 4096;
