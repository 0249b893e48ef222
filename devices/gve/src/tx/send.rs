//! From packets to frames on the link.

use nicvisor_core::Context;
use nicvisor_net::checksum::{Partial, update};
use nicvisor_net::parse::{Layers, Transport, TransportKind, parse};
use nicvisor_net::tso::{LsoRequest, MAX_PACKET, Seed, segment};

use super::TxQueue;
use super::fetch::Packet;
use crate::config::{Defect, MAX_FRAME};
use crate::device::Gve;
use crate::rules;
use crate::wire::tx::{RawDescriptor, TsoContext};

/// What the driver handed over: the packet as its descriptors say it, its bytes, and where its headers are.
pub(super) struct Handed<'a> {
    pub(super) packet: &'a Packet,
    pub(super) bytes: &'a [u8],
    pub(super) layers: &'a Layers,
    pub(super) raw: &'a [RawDescriptor],
}

impl Gve {
    /// Sends one packet, or drops it if that is not possible.
    pub(super) fn send(
        &mut self,
        context: &mut Context<'_>,
        queue: &TxQueue,
        packet: &Packet,
        raw: &[RawDescriptor],
    ) {
        let earlier = context.findings();
        let frames = self.frames(context, queue, packet, raw);
        let link_is_up = self.state.link_is_up();
        let Some(frames) = frames.filter(|_| link_is_up) else {
            self.state.counters.tx_dropped += 1;
            return;
        };
        let mut first = None;
        for frame in frames {
            self.state.counters.tx_frames += 1;
            self.state.counters.tx_bytes += frame.len() as u64;
            let id = context.transmit(0, frame);
            first.get_or_insert(id);
        }
        if let Some(first) = first {
            context.concern(earlier, first);
        }
    }

    /// The frames of a packet; `None` if it is dropped.
    fn frames(
        &mut self,
        context: &mut Context<'_>,
        queue: &TxQueue,
        packet: &Packet,
        raw: &[RawDescriptor],
    ) -> Option<Vec<Vec<u8>>> {
        let sound = self.check_descriptors(context, queue, packet, raw);
        let bytes = sound.then(|| self.gather(context, queue, packet, raw)).flatten();
        let layers = bytes.as_deref().map(parse);
        let version = layers.as_ref().and_then(|layers| Some(layers.ip.as_ref()?.version));
        self.state.handed.record(packet.length, version, packet.tso.is_some());
        let (bytes, layers) = (bytes?, layers?);
        let handed = Handed { packet, bytes: &bytes, layers: &layers, raw };
        self.check_packet(context, queue, &handed);
        match &packet.tso {
            Some(tso) => self.segment(&handed, tso),
            None => Some(vec![self.whole(bytes, packet, &layers)]),
        }
    }

    fn gather(
        &self,
        context: &mut Context<'_>,
        queue: &TxQueue,
        packet: &Packet,
        raw: &[RawDescriptor],
    ) -> Option<Vec<u8>> {
        let most = if packet.tso.is_some() { MAX_PACKET } else { MAX_FRAME as usize };
        if packet.length > most {
            let rule = if packet.tso.is_some() { &rules::TX_TSO_LENGTH } else { &rules::TX_FRAME_SIZE };
            let message = format!("packet of {} bytes", packet.length);
            self.report_tx(context, queue, rule, message, raw);
            return None;
        }
        let mut bytes = vec![0; packet.length];
        let mut rest = &mut bytes[..];
        for piece in &packet.pieces {
            let (part, behind) = rest.split_at_mut(piece.length.into());
            rest = behind;
            if let Err(error) = queue.buffers.read(&context.dma, piece.address, part) {
                self.report_tx(context, queue, &rules::TX_BUFFER_ADDRESS, error.to_string(), raw);
                return None;
            }
        }
        Some(bytes)
    }

    fn segment(&self, handed: &Handed<'_>, tso: &TsoContext) -> Option<Vec<Vec<u8>>> {
        if self.config.defect == Some(Defect::NoSegmentation) {
            return Some(vec![handed.bytes.to_vec()]);
        }
        // Whatever makes segmentation impossible has been reported as a breach of its rule.
        let segments = segment(handed.bytes, &request(handed.packet, tso)).ok()?;
        Some(segments.map(|frame| self.spoil(frame)).collect())
    }

    /// A packet that is not segmented, with its checksum filled in if that is asked for and possible.
    fn whole(&mut self, mut bytes: Vec<u8>, packet: &Packet, layers: &Layers) -> Vec<u8> {
        let partial = match packet.gqi {
            Some(gqi) => Some(gqi.partial),
            None => layers.transport.and_then(|transport| {
                let offset = checksum_field(transport)? - transport.offset;
                Some(Partial { start: transport.offset, offset })
            }),
        };
        if let Some(partial) = partial.filter(|_| packet.checksum) {
            self.state.counters.tx_checksums += u64::from(partial.finish(&mut bytes));
        }
        bytes
    }

    /// Makes the mistake that the configuration asks for.
    fn spoil(&self, mut frame: Vec<u8>) -> Vec<u8> {
        let Some(defect) = self.config.defect else { return frame };
        let layers = parse(&frame);
        let Some(field) = layers.tcp().and_then(Transport::checksum_offset) else { return frame };
        let checksum = u16::from_be_bytes([frame[field], frame[field + 1]]);
        let spoilt = match defect {
            Defect::BadTcpChecksum => checksum ^ 0x0101,
            Defect::BadPayload if frame.len() > layers.payload + 1 => {
                // The word that the checksum sees: payload bytes count from the start of the TCP header.
                let start = layers.tcp().map_or(0, |transport| transport.offset);
                let at = start + ((frame.len() - start) & !1) - 2;
                let old = u16::from_be_bytes([frame[at], frame[at + 1]]);
                frame[at + 1] ^= 0xff;
                update(checksum, old, old ^ 0x00ff)
            }
            _ => checksum,
        };
        frame[field..field + 2].copy_from_slice(&spoilt.to_be_bytes());
        frame
    }
}

/// What a segmentation context asks for. The driver leaves the pseudo header's sum in the checksum field: with DQO
/// without the length (`gve_tx_dqo.c`: `gve_prep_tso`), with GQI as the stack made it.
pub(super) fn request(packet: &Packet, tso: &TsoContext) -> LsoRequest {
    let seed = if packet.gqi.is_some() { Seed::WithLength } else { Seed::WithoutLength };
    LsoRequest { seed, ..LsoRequest::tcp(tso.header_len.into(), tso.mss.into()) }
}

/// Where the checksum is that the device can fill in: TCP and UDP only.
pub(super) fn checksum_field(transport: Transport) -> Option<usize> {
    match transport.kind {
        TransportKind::Tcp | TransportKind::Udp => transport.checksum_offset(),
        _ => None,
    }
}
