//! The data path of the device: to which vPort a work queue or a frame belongs.

use nicvisor_core::{Context, DropReason, Fate, Frame, Time};
use serde::{Deserialize, Serialize};

use crate::device::Mana;
use crate::objects::WorkQueueObject;
use crate::queue::WorkQueueKind;
use crate::rx::Receiver;
use crate::tx::Transmitter;

/// The data path of one vPort.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DataPath {
    pub(crate) transmitter: Transmitter,
    pub(crate) receiver: Receiver,
}

impl Mana {
    /// The driver posted entries to work queue `queue` of a vPort.
    pub(crate) fn run_work_queue(&mut self, context: &mut Context<'_>, queue: u32) {
        let state = &mut self.state;
        let Some(work) = state.queues.works.get(&queue) else { return };
        let (send, index) = (work.kind() == WorkQueueKind::Send, work.vport().map(usize::from));
        let Some(index) = index else { return };
        let (Some(vport), Some(path)) = (state.vports.get_mut(index), state.data.get_mut(index)) else {
            return;
        };
        if send {
            path.transmitter.process(context, &self.config, &mut state.queues, vport, queue);
        } else {
            path.receiver.deliver(context, &self.config, &mut state.queues, vport, queue);
        }
    }

    /// A frame for vPort number `port` arrives.
    pub(crate) fn receive_frame(&mut self, context: &mut Context<'_>, port: u16, frame: Frame) {
        let state = &mut self.state;
        let index = usize::from(port);
        match (state.vports.get_mut(index), state.data.get_mut(index)) {
            (Some(vport), Some(path)) => {
                path.receiver.receive(context, &self.config, &mut state.queues, vport, frame);
            }
            _ => context.settle(frame.id, Fate::Dropped(DropReason::NOT_READY)),
        }
    }

    /// Completes everything that was received in a receive queue, and says so.
    pub(crate) fn fence_receive_queue(&mut self, context: &mut Context<'_>, object: &WorkQueueObject) {
        let state = &mut self.state;
        let index = usize::from(object.vport);
        if let (Some(vport), Some(path)) = (state.vports.get_mut(index), state.data.get_mut(index)) {
            path.receiver.fence(context, &self.config, &mut state.queues, vport, object.work_queue);
        }
    }

    /// Drops the frames that wait for buffers of vPort number `vport`, which does not receive any more.
    pub(crate) fn stop_receiving(&mut self, context: &mut Context<'_>, vport: u16) {
        let state = &mut self.state;
        if let Some(path) = state.data.get_mut(usize::from(vport)) {
            path.receiver.stop(context, &mut state.queues);
        }
    }

    /// Whether frames came to a receive queue since its last fence was passed.
    pub(crate) fn is_unfenced(&self, object: &WorkQueueObject) -> bool {
        let path = self.state.data.get(usize::from(object.vport));
        !object.send && path.is_some_and(|path| path.receiver.is_unfenced(object.work_queue))
    }

    /// Drops the frames of a receive queue that is about to be destroyed.
    pub(crate) fn discard_received(&mut self, context: &mut Context<'_>, object: &WorkQueueObject) {
        if let Some(path) = self.state.data.get_mut(usize::from(object.vport)) {
            path.receiver.discard(context, object.work_queue);
        }
    }

    /// When the data path next has something to do.
    pub(crate) fn data_deadline(&self) -> Option<Time> {
        let deadlines = |path: &DataPath| {
            path.receiver.next_deadline().into_iter().chain(path.transmitter.clamp.next_deadline())
        };
        self.state.data.iter().flat_map(deadlines).min()
    }

    /// Announces received packets that have waited for others long enough, and sends those that had to wait for the
    /// limit of the bandwidth.
    pub(crate) fn run_data_deadline(&mut self, context: &mut Context<'_>) {
        let state = &mut self.state;
        for (path, vport) in state.data.iter_mut().zip(&mut state.vports) {
            path.receiver.deadline(context, &mut state.queues);
            while let Some(queue) = path.transmitter.clamp.turn(context.now) {
                path.transmitter.process(context, &self.config, &mut state.queues, vport, queue);
            }
        }
    }

    /// The counters of all vPorts together, by name.
    pub(crate) fn data_counters(&self) -> Vec<(String, u64)> {
        let mut counters: Vec<(String, u64)> = Vec::new();
        for DataPath { transmitter, receiver } in &self.state.data {
            let lists = [
                &transmitter.handed.list()[..],
                &transmitter.counters.list()[..],
                &receiver.counters.list()[..],
            ];
            for (index, (name, value)) in lists.concat().into_iter().enumerate() {
                match counters.get_mut(index) {
                    Some((_, total)) if name.ends_with("_max") => *total = (*total).max(value),
                    Some((_, total)) => *total += value,
                    None => counters.push((name.to_owned(), value)),
                }
            }
        }
        counters
    }
}
