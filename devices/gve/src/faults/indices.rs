//! Ring indices, by the names under which faults change them; where the driver's headers have one for the index, by
//! that.
//!
//! A doorbell says `tail` (DQO: the TX ring's), `bufq_tail` (DQO: the buffer queue's), `req` or `fill_cnt` (GQI), and
//! `adminq_prod_cnt` (the admin queue). The device writes its next completion at `complq_tail` (DQO), its next
//! descriptor at `cnt` (GQI), and what it is done with to the `event_counter` (GQI).

use nicvisor_core::Context;
use nicvisor_core::fault::{Field, OverridePoint, Overrides};

/// Doorbell of a TX queue (DQO).
pub(crate) const TX_TAIL: &str = "tx.tail";
/// Doorbell of a TX queue (GQI).
pub(crate) const TX_REQ: &str = "tx.req";
/// Where the next completion of a TX queue is written (DQO).
pub(crate) const TX_COMPLQ_TAIL: &str = "tx.complq_tail";
/// What the event counter of a TX queue shows (GQI).
pub(crate) const TX_EVENT_COUNTER: &str = "tx.event_counter";
/// Doorbell of an RX queue (DQO).
pub(crate) const RX_BUFQ_TAIL: &str = "rx.bufq_tail";
/// Doorbell of an RX queue (GQI).
pub(crate) const RX_FILL_CNT: &str = "rx.fill_cnt";
/// Where the next completion of an RX queue is written (DQO).
pub(crate) const RX_COMPLQ_TAIL: &str = "rx.complq_tail";
/// Where the next descriptor of an RX queue is written (GQI).
pub(crate) const RX_CNT: &str = "rx.cnt";
/// Doorbell of the admin queue. What the device has done is `register.adminq_event_counter`.
pub(crate) const ADMIN_PROD_CNT: &str = "adminq_prod_cnt";

/// All of a device with `queues` queues of each kind.
pub(super) fn points(is_gqi: bool, queues: u32) -> Vec<OverridePoint> {
    let of_rings = match is_gqi {
        true => [(TX_REQ, 32), (TX_EVENT_COUNTER, 32), (RX_FILL_CNT, 32), (RX_CNT, 32)],
        false => [(TX_TAIL, 32), (TX_COMPLQ_TAIL, 16), (RX_BUFQ_TAIL, 32), (RX_COMPLQ_TAIL, 16)],
    };
    let rings = of_rings.map(|(name, bits)| OverridePoint::of_queues(Field::new(name, bits), queues));
    let admin = OverridePoint::new(Field::new(ADMIN_PROD_CNT, 32));
    rings.into_iter().chain([admin]).collect()
}

/// Whether a ring index of a queue was another than it should have been, and what is used of the next.
#[derive(Debug)]
pub(crate) struct Indices<'a> {
    pub(crate) overrides: &'a mut Overrides,
    pub(crate) queue: u32,
    pub(crate) disturbed: &'a mut bool,
}

impl Indices<'_> {
    /// What is to be used of the index `name`, which is `value`.
    pub(crate) fn apply(&mut self, context: &Context<'_>, name: &str, value: u32) -> u32 {
        let used = self.overrides.apply_to_queue(context.now, name, self.queue, value.into()) as u32;
        *self.disturbed |= used != value;
        used
    }
}
