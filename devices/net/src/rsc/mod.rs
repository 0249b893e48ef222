//! Receive segment coalescing: TCP segments of a flow that follow each other become one packet before the driver
//! sees them.
//!
//! What is merged is what segmentation could have made of one packet: cutting the result into segments of
//! [`Coalesced::segment_len`] bytes gives back the segments that arrived, up to acknowledgement number, window
//! and time stamps, of which the last is kept. So a packet is only added to while:
//! * it is TCP over IP without options or extension headers, not a fragment, with right checksums, with payload,
//!   and without any flag but ACK and PSH;
//! * its headers are those of the first, apart from lengths, checksums, IPv4 identification and what is named
//!   above; its sequence number is the next one;
//! * it is not longer than the first, which a shorter one or PSH ends;
//! * [`Limits`] allow it.
//!
//! Whatever cannot be merged passes, behind what is held of its flow: packets of a flow keep their order.

mod segment;

use nicvisor_core::{Duration, Frame, FrameId, Time};
use serde::{Deserialize, Serialize};

use segment::{Flow, Segment};

/// How much is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Most bytes of an IP packet; at most 65,535, as its length field has 16 bits.
    pub max_packet: usize,
    /// Most flows at once; the one that waits longest makes room.
    pub max_flows: usize,
    /// How long a packet waits for more.
    pub hold: Duration,
}

/// The segments of one queue that wait for more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rsc {
    limits: Limits,
    /// In the order in which they are due.
    held: Vec<Held>,
}

/// A packet for the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coalesced {
    /// From the Ethernet header to the end of the payload.
    pub bytes: Vec<u8>,
    /// The frames that it was made of, in order.
    pub frames: Vec<FrameId>,
    /// Payload bytes of each segment but perhaps the last, if it was made of several.
    pub segment_len: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    flow: Flow,
    due: Time,
    segment: Segment,
    next_sequence: u32,
    packet: Coalesced,
}

impl Rsc {
    /// A queue that holds nothing.
    pub fn new(limits: Limits) -> Rsc {
        Rsc { limits, held: Vec::new() }
    }

    /// A frame arrives: the packets that are now ready, in order.
    pub fn offer(&mut self, now: Time, frame: Frame) -> Vec<Coalesced> {
        let mut ready = self.due(now);
        let Some((flow, segment)) = segment::find(&frame.bytes) else {
            // It may belong to a flow all the same: nothing must overtake anything.
            ready.extend(self.flush());
            ready.push(Coalesced::single(frame));
            return ready;
        };
        let place = self.held.iter().position(|held| held.flow == flow);
        if let Some(place) = place {
            if self.held[place].takes(&segment, &frame.bytes, &self.limits) {
                let held = &mut self.held[place];
                held.add(&segment, &frame);
                if segment.pushes || segment.payload_len() < held.segment.payload_len() {
                    ready.push(self.held.remove(place).finish());
                }
                return ready;
            }
            ready.push(self.held.remove(place).finish());
        }
        if segment.pushes || !segment.mergeable || self.limits.max_flows == 0 {
            ready.push(Coalesced::single(frame));
            return ready;
        }
        if self.held.len() >= self.limits.max_flows {
            ready.push(self.held.remove(0).finish());
        }
        self.held.push(Held::new(flow, now + self.limits.hold, segment, frame));
        ready
    }

    /// The packets that have waited long enough.
    pub fn due(&mut self, now: Time) -> Vec<Coalesced> {
        let count = self.held.iter().take_while(|held| held.due <= now).count();
        self.held.drain(..count).map(Held::finish).collect()
    }

    /// All packets that are held.
    pub fn flush(&mut self) -> Vec<Coalesced> {
        self.held.drain(..).map(Held::finish).collect()
    }

    /// When [`Self::due`] will have something.
    pub fn next_deadline(&self) -> Option<Time> {
        self.held.first().map(|held| held.due)
    }
}

impl Coalesced {
    fn single(frame: Frame) -> Coalesced {
        Coalesced { bytes: frame.bytes, frames: vec![frame.id], segment_len: None }
    }
}

impl Held {
    fn new(flow: Flow, due: Time, segment: Segment, mut frame: Frame) -> Held {
        // Ethernet pads short frames.
        frame.bytes.truncate(segment.end);
        let next_sequence = segment.sequence.wrapping_add(segment.payload_len() as u32);
        Held { flow, due, segment, next_sequence, packet: Coalesced::single(frame) }
    }

    fn takes(&self, segment: &Segment, bytes: &[u8], limits: &Limits) -> bool {
        let length = self.packet.bytes.len() - self.segment.network_offset + segment.payload_len();
        segment.mergeable
            && segment.sequence == self.next_sequence
            && segment.payload_len() <= self.segment.payload_len()
            && length <= limits.max_packet.min(u16::MAX.into())
            && self.segment.has_headers_of(&self.packet.bytes, segment, bytes)
    }

    fn add(&mut self, segment: &Segment, frame: &Frame) {
        self.packet.bytes.extend_from_slice(&frame.bytes[segment.payload..segment.end]);
        self.packet.frames.push(frame.id);
        self.packet.segment_len = Some(self.segment.payload_len() as u16);
        self.next_sequence = self.next_sequence.wrapping_add(segment.payload_len() as u32);
        self.segment.keep_latest(&mut self.packet.bytes, segment, &frame.bytes);
    }

    fn finish(mut self) -> Coalesced {
        if self.packet.segment_len.is_some() {
            self.segment.complete(&mut self.packet.bytes);
        }
        self.packet
    }
}

#[cfg(test)]
mod tests;
