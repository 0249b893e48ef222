//! Ring indices, by the names under which faults change them.
//!
//! Work queues have `tail_ptr`, what a doorbell says (`union gdma_doorbell_entry`), and `tail`, from where the device
//! takes the next entry, both in bytes that were ever posted. Completion and event queues have `tail_ptr`, what a
//! doorbell says, and `head`, where the device writes the next entry; both count entries modulo eight rounds of the
//! ring, so that the owner bits are those of the round. Event queues are numbered as the driver knows them.

use nicvisor_core::fault::{Field, OverridePoint};

use super::{Client, WorkQueueKind};

/// Two indices of a ring: the driver's, by its doorbell, and the device's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    /// What the driver rang.
    pub(crate) rung: &'static str,
    /// Where the device goes on.
    pub(crate) own: &'static str,
}

/// Those of an event queue.
pub(crate) const EVENT: Names = Names { rung: "eq.tail_ptr", own: "eq.head" };

/// Those of a completion queue.
pub(crate) fn completion(client: Client) -> Option<Names> {
    match client {
        Client::Channel => Some(Names { rung: "hwc.cq_tail_ptr", own: "hwc.cq_head" }),
        Client::Send(_) => Some(Names { rung: "tx.cq_tail_ptr", own: "tx.cq_head" }),
        Client::Receive(_) => Some(Names { rung: "rx.cq_tail_ptr", own: "rx.cq_head" }),
        Client::Nobody => None,
    }
}

/// Those of a work queue whose completions are `client`'s.
pub(crate) fn work(client: Client, kind: WorkQueueKind) -> Option<Names> {
    match (client, kind) {
        (Client::Channel, WorkQueueKind::Send) => Some(Names { rung: "hwc.sq_tail_ptr", own: "hwc.sq_tail" }),
        (Client::Channel, WorkQueueKind::Receive) => {
            Some(Names { rung: "hwc.rq_tail_ptr", own: "hwc.rq_tail" })
        }
        (Client::Send(_), _) => Some(Names { rung: "tx.sq_tail_ptr", own: "tx.sq_tail" }),
        (Client::Receive(_), _) => Some(Names { rung: "rx.rq_tail_ptr", own: "rx.rq_tail" }),
        (Client::Nobody, _) => None,
    }
}

/// All of a device with `pairs` send and as many receive queues, and `events` event queues.
pub(crate) fn points(pairs: u32, events: u32) -> Vec<OverridePoint> {
    let (send, receive) = (WorkQueueKind::Send, WorkQueueKind::Receive);
    let queues = [
        (Some(EVENT), events),
        (completion(Client::Channel), 1),
        (work(Client::Channel, send), 1),
        (work(Client::Channel, receive), 1),
        (completion(Client::Send(0)), pairs),
        (work(Client::Send(0), send), pairs),
        (completion(Client::Receive(0)), pairs),
        (work(Client::Receive(0), receive), pairs),
    ];
    let names = queues.into_iter().filter_map(|(names, count)| Some((names?, count)));
    let both = names.flat_map(|(names, count)| [(names.rung, count), (names.own, count)]);
    both.map(|(name, count)| OverridePoint::of_queues(Field::new(name, u32::BITS as u8), count)).collect()
}
