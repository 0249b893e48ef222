//! Packets from the driver: checked, segmented or summed, and put on the link.

use nicvisor_net::check::{Handed, Limits, check_handed, evidence};
use nicvisor_net::checksum::Partial;
use nicvisor_net::parse::{IpVersion, Layers, parse};
use nicvisor_net::tso::{self, LsoRequest, Seed};

use super::Net;
use super::wire::{GSO_ECN, GSO_NONE, GSO_TCP4, GSO_TCP6, Header, NEEDS_CHECKSUM};
use crate::queue::Queues;

impl Net {
    /// Sends all packets that the driver has made available in `queue`.
    pub(super) fn send(&mut self, queues: &mut Queues<'_, '_>, queue: u16) {
        let mut sent = false;
        while let Some(chain) = queues.pop(queue) {
            let Some(mut bytes) = chain.read(LONGEST_PACKET + Header::LENGTH) else { return queues.fail() };
            let header = Header::split(&bytes).map(|(header, _)| header);
            let done = header.is_some_and(|header| {
                bytes.drain(..Header::LENGTH);
                self.send_packet(queues, queue, &header, bytes)
            });
            self.state.counters.tx_dropped += u64::from(!done);
            queues.complete(queue, &chain, 0);
            sent = true;
        }
        if sent {
            queues.interrupt(queue);
        }
    }

    /// Sends one packet; false if that is impossible.
    fn send_packet(
        &mut self,
        queues: &mut Queues<'_, '_>,
        queue: u16,
        header: &Header,
        mut packet: Vec<u8>,
    ) -> bool {
        let layers = parse(&packet);
        let Some(handed) = translate(header, &layers) else { return false };
        self.count(&packet, &layers, &handed);
        self.check(queues, queue, &packet, &handed);
        if let Some(request) = &handed.lso {
            let Ok(segments) = tso::segment(&packet, request) else { return false };
            segments.for_each(|frame| self.transmit(queues, frame));
            return true;
        }
        if let Some(partial) = handed.checksum {
            if !partial.finish(&mut packet) {
                return false;
            }
            self.state.counters.tx_checksums += 1;
        }
        self.transmit(queues, packet);
        true
    }

    fn transmit(&mut self, queues: &mut Queues<'_, '_>, frame: Vec<u8>) {
        self.state.counters.tx_frames += 1;
        self.state.counters.tx_bytes += frame.len() as u64;
        queues.context.transmit(0, frame);
    }

    fn count(&mut self, packet: &[u8], layers: &Layers, handed: &Handed) {
        let version = layers.ip.as_ref().map(|ip| ip.version);
        self.state.handed.record(packet.len(), version, handed.lso.is_some());
        let ip_length = packet.len() - layers.network_offset.min(packet.len());
        if ip_length > usize::from(u16::MAX) {
            match version {
                Some(IpVersion::V4) => self.state.counters.tx_ipv4_above_64k += 1,
                Some(IpVersion::V6) => self.state.counters.tx_ipv6_above_64k += 1,
                None => {}
            }
        }
    }

    fn check(&self, queues: &mut Queues<'_, '_>, queue: u16, packet: &[u8], handed: &Handed) {
        let limits = Limits { max_lso: LONGEST_PACKET, min_mss: 1, mtu: self.config.mtu.into() };
        for breach in check_handed(packet, handed, &limits) {
            breach.report(queues.context, |finding| {
                finding.queue = format!("tx {}", queue / 2);
                finding.packet = evidence(packet);
            });
        }
    }
}

/// What the header asks for; `None` if that was not offered.
fn translate(header: &Header, layers: &Layers) -> Option<Handed> {
    let needs_checksum = header.flags & NEEDS_CHECKSUM != 0;
    let checksum = needs_checksum
        .then(|| Partial { start: header.checksum_start.into(), offset: header.checksum_offset.into() });
    let lso = match header.gso_type & !GSO_ECN {
        GSO_NONE => None,
        // The header's own length field is only a hint, so the headers are found by looking.
        GSO_TCP4 | GSO_TCP6 if needs_checksum => {
            let request = LsoRequest::tcp(layers.payload, header.gso_size.into());
            Some(LsoRequest { seed: Seed::WithLength, ..request })
        }
        _ => return None,
    };
    Some(Handed { lso, checksum })
}

/// With its Ethernet header: 512K of IP packet, the most that Linux can be made to send.
const LONGEST_PACKET: usize = 8 * 65_535 + 64;
