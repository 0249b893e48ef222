//! GQI: slots with buffers, and descriptors with sequence numbers, in two rings that go side by side.

use nicvisor_core::{Context, DmaError};
use nicvisor_net::checksum::Sum;
use serde::{Deserialize, Serialize};

use super::classify::Arrival;
use super::queue::{Posted, RxQueue};
use crate::config::Config;
use crate::rules;
use crate::wire::gqi::{
    DATA_SLOT_SIZE, RX_DESCRIPTOR_PADDING, RX_DESCRIPTOR_SIZE, RX_PAD, RXF_ERR, RXF_PKT_CONT,
};
use crate::wire::rx::RawCompletion;

/// How far a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GqiRings {
    descriptors: u64,
    size: u16,
    /// Buffers that the driver has posted since the queue was created.
    pub(super) filled: u32,
    /// Descriptors written since then.
    used: u32,
    /// The next descriptor's, from 1 to 7.
    seqno: u8,
}

impl GqiRings {
    pub(crate) fn new(descriptors: u64, size: u16) -> GqiRings {
        GqiRings { descriptors, size, filled: 0, used: 0, seqno: 1 }
    }

    /// Where the next descriptor belongs: how many were written before.
    pub(super) fn place(&self) -> u32 {
        self.used
    }

    /// The sequence number of the descriptor at `place`.
    pub(super) fn seqno(&self, place: u32) -> u8 {
        let ahead = i64::from(place.wrapping_sub(self.used) as i32);
        (i64::from(self.seqno - 1) + ahead).rem_euclid(LAST_SEQNO.into()) as u8 + 1
    }

    /// Writes the next descriptor. It belongs at [`Self::place`]; a fault may have it written elsewhere. The sequence
    /// number is in its last bytes.
    pub(super) fn push(
        &mut self,
        context: &Context<'_>,
        place: u32,
        raw: &RawCompletion,
    ) -> Result<(), DmaError> {
        let index = u64::from(place) & u64::from(self.size - 1);
        let address = self.descriptors + index * RX_DESCRIPTOR_SIZE as u64 + RX_DESCRIPTOR_PADDING as u64;
        let [first, second, ..] = raw.as_chunks::<8>().0 else { return Ok(()) };
        context.dma.write(address, first)?;
        context.dma.store_release(address + 8, u64::from_ne_bytes(*second))?;
        self.used = self.used.wrapping_add(1);
        self.seqno = if self.seqno == LAST_SEQNO { 1 } else { self.seqno + 1 };
        Ok(())
    }

    /// Whether a state from outside is one that the code can go on from.
    pub(super) fn is_sound(&self) -> bool {
        self.size.is_power_of_two() && (1..=LAST_SEQNO).contains(&self.seqno)
    }
}

impl RxQueue {
    /// Fetches the slots up to the `filled`th.
    pub(super) fn fetch_slots(&mut self, config: &Config, context: &mut Context<'_>, old: u32, filled: u32) {
        let queue = format!("rx {}", self.id);
        let count = filled.wrapping_sub(old);
        if count as usize + self.posted.len() > self.size.into() {
            let message = format!("{count} buffers posted behind {} unused ones", self.posted.len());
            rules::report(config, context, &rules::RX_DOORBELL, message, |finding| finding.queue = queue);
            return;
        }
        for number in 0..count {
            let index = old.wrapping_add(number) & u32::from(self.size - 1);
            let slot = self.ring + u64::from(index) * DATA_SLOT_SIZE as u64;
            let (rule, message) = match context.dma.read_object::<[u8; DATA_SLOT_SIZE]>(slot) {
                Ok(address) => {
                    let address = u64::from_be_bytes(address);
                    self.posted.push_back(Posted { id: index as u16, address });
                    if self.buffers.hold(&context.dma, address, self.buffer_size.into()) {
                        continue;
                    }
                    (&rules::RX_BUFFER_ADDRESS, format!("buffer {index} at {address:#x}"))
                }
                Err(error) => (&rules::RING_ADDRESS, error.to_string()),
            };
            rules::report(config, context, rule, message, |finding| finding.queue.clone_from(&queue));
        }
    }
}

/// The descriptor for a piece of a frame, still without its sequence number.
pub(super) fn descriptor(
    arrival: &Arrival,
    length: usize,
    first: bool,
    last: bool,
    error: bool,
) -> RawCompletion {
    let mut raw = RawCompletion::default();
    let mut flags = arrival.gqi_flags;
    flags |= if last { 0 } else { RXF_PKT_CONT };
    flags |= if error { RXF_ERR } else { 0 };
    let pad = if first { RX_PAD } else { 0 };
    raw[..4].copy_from_slice(&arrival.hash.unwrap_or(0).to_be_bytes());
    raw[10..12].copy_from_slice(&checksum(&arrival.frame.bytes).to_be_bytes());
    raw[12..14].copy_from_slice(&((length + pad) as u16).to_be_bytes());
    raw[14..16].copy_from_slice(&flags.to_be_bytes());
    raw
}

/// The sum of everything behind the Ethernet header; zero says that there is none.
fn checksum(frame: &[u8]) -> u16 {
    let sum = Sum::of(frame.get(ETHERNET..).unwrap_or_default()).fold();
    if sum == 0 { 0xffff } else { sum }
}

const LAST_SEQNO: u8 = 7;
const ETHERNET: usize = 14;
