//! Frames from the link: spread over the queue pairs and written into the driver's buffers.

use nicvisor_core::{DropReason, Fate, Frame};
use nicvisor_net::parse::parse;
use nicvisor_net::rss::{Fields, Key, Rss};

use super::Net;
use super::wire::{Header, feature};
use crate::queue::{Chain, Queues};

impl Net {
    /// Takes a frame from the link.
    pub(super) fn accept(&mut self, queues: &mut Queues<'_, '_>, frame: Frame) {
        if !self.state.link_up || !queues.running() {
            return self.drop(queues, frame, DropReason::NOT_READY);
        }
        if frame.bytes.len() > usize::from(self.config.mtu) + LINK_HEADERS {
            return self.drop(queues, frame, DropReason::TOO_LONG);
        }
        let pair = self.pair_for(&frame.bytes);
        match self.state.waiting.get_mut(usize::from(pair)) {
            Some(waiting) if waiting.len() < MOST_WAITING => waiting.push_back(frame),
            _ => return self.drop(queues, frame, DropReason::NO_BUFFER),
        }
        self.deliver(queues, pair);
    }

    /// Writes the frames that wait for `pair` into its buffers, as far as these go.
    pub(super) fn deliver(&mut self, queues: &mut Queues<'_, '_>, pair: u16) {
        let queue = 2 * pair;
        let mut delivered = false;
        while let Some(frame) =
            self.state.waiting.get_mut(usize::from(pair)).and_then(|waiting| waiting.pop_front())
        {
            match self.write(queues, queue, &frame.bytes) {
                Written::Yes => {
                    delivered = true;
                    self.state.counters.rx_frames += 1;
                    self.state.counters.rx_bytes += frame.bytes.len() as u64;
                    queues.context.settle(frame.id, Fate::Delivered);
                }
                Written::NoBuffers => {
                    self.state.waiting[usize::from(pair)].push_front(frame);
                    break;
                }
                Written::Never(reason) => self.drop(queues, frame, reason),
            }
        }
        if delivered {
            queues.interrupt(queue);
        }
    }

    fn write(&self, queues: &mut Queues<'_, '_>, queue: u16, frame: &[u8]) -> Written {
        let needed = Header::LENGTH + frame.len();
        let chains = match self.gather(queues, queue, needed) {
            Ok(chains) => chains,
            Err(written) => return written,
        };
        let header = Header { buffers: chains.len() as u16, ..Header::default() };
        let bytes = [&header.to_bytes()[..], frame].concat();
        let mut rest = &bytes[..];
        for chain in &chains {
            let Some(written) = chain.write(rest) else {
                queues.fail();
                return Written::Never(DropReason::DMA_FAULT);
            };
            rest = &rest[written..];
            queues.complete(queue, chain, written as u32);
        }
        Written::Yes
    }

    /// Takes chains with room for `needed` bytes from `queue`, or none.
    fn gather<'c>(
        &self,
        queues: &mut Queues<'_, 'c>,
        queue: u16,
        needed: usize,
    ) -> Result<Vec<Chain<'c>>, Written> {
        let most = if self.agreed(feature::MERGEABLE_BUFFERS) { MOST_MERGED } else { 1 };
        let mut chains = Vec::new();
        let mut room = 0;
        while room < needed && chains.len() < most {
            let Some(chain) = queues.pop(queue) else {
                chains.iter().for_each(|_| queues.undo_pop(queue));
                return Err(Written::NoBuffers);
            };
            let Some(writable) = chain.writable() else {
                queues.fail();
                return Err(Written::Never(DropReason::DMA_FAULT));
            };
            room += writable;
            chains.push(chain);
        }
        if room < needed {
            // Buffers that are too small go back empty: they would never do.
            chains.iter().for_each(|chain| queues.complete(queue, chain, 0));
            return Err(Written::Never(DropReason::TOO_LONG));
        }
        Ok(chains)
    }

    /// The pair that a frame's flow belongs to.
    fn pair_for(&self, frame: &[u8]) -> u16 {
        if self.state.pairs <= 1 {
            return 0;
        }
        let rss = Rss { key: Key::new(FLOW_KEY), fields: Fields::ALL, table: Vec::new() };
        let hash = rss.hash(frame, &parse(frame)).map_or(0, |hash| hash.value);
        (hash % u32::from(self.state.pairs)) as u16
    }

    fn drop(&mut self, queues: &mut Queues<'_, '_>, frame: Frame, reason: DropReason) {
        self.state.counters.rx_dropped += 1;
        queues.context.settle(frame.id, Fate::Dropped(reason));
    }
}

/// What became of a frame.
enum Written {
    Yes,
    NoBuffers,
    Never(DropReason),
}

/// Ethernet header and two VLAN tags.
const LINK_HEADERS: usize = 14 + 8;
/// Frames that the NIC itself can hold for each pair.
const MOST_WAITING: usize = 1024;
/// More chains than any frame takes; small enough for the header's count.
const MOST_MERGED: usize = 256;
/// Any fixed key without a short period spreads flows: these are the squares of 1, 2, 3 and so on.
const FLOW_KEY: [u8; Key::LEN] = {
    let mut key = [0; Key::LEN];
    let mut index = 0;
    while index < Key::LEN {
        key[index] = ((index + 1) * (index + 1)) as u8;
        index += 1;
    }
    key
};
