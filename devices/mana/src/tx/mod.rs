//! Transmitting: from the entries of a send queue to frames on the link and completions.

mod check;
mod clamp;
mod encap;
mod frames;
mod packet;

use nicvisor_core::{Context, FrameId, Rule};
use nicvisor_net::check::evidence;
use nicvisor_net::parse::parse;
use nicvisor_net::stats::HandedStats;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::queue::{Completion, Queues, Wqe};
use crate::vport::VPort;
use crate::wire::completion::{CqeType, TxCompletion};
use crate::wire::oob::TxOob;
use crate::wire::wqe::BASIC_UNIT;
use clamp::Clamp;
use packet::Packet;

/// The sending half of a vPort.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transmitter {
    /// Packets that the driver handed over.
    pub handed: HandedStats,
    /// What became of them.
    pub counters: Counters,
    /// Set aside for the limit of the vPort's bandwidth.
    pub(crate) clamp: Clamp,
}

/// What became of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Frames put on the link.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets whose checksum the device filled in.
    pub checksums: u64,
    /// Completions of packets that were sent.
    pub completions: u64,
    /// Packets that were sent and whose completion the driver did not want.
    pub suppressed: u64,
    /// Completions of packets that were dropped.
    pub errors: u64,
    /// Packets dropped as the link was down.
    pub link_down: u64,
    /// Times that a send queue had to wait for the limit of the bandwidth.
    pub clamped: u64,
}

/// Where a packet came from, for findings.
struct Origin<'a> {
    queue: String,
    wqe: &'a Wqe,
}

impl Origin<'_> {
    fn report(&self, context: &mut Context<'_>, rule: &Rule, message: String, packet: &[u8]) {
        context.report(rule, message, |finding| {
            finding.queue = self.queue.clone();
            finding.descriptor = self.wqe.raw.clone();
            finding.decoded = self.wqe.decoded(Some(TxOob::decode(&self.wqe.oob).to_string()));
            finding.packet = evidence(packet);
        });
    }
}

impl Transmitter {
    /// Sends what the driver posted to send queue `sq`, if there is one.
    pub fn process(
        &mut self,
        context: &mut Context<'_>,
        config: &Config,
        queues: &mut Queues,
        vport: &mut VPort,
        sq: u32,
    ) {
        // A queue holds a bounded number of entries, and the driver posts none while this runs.
        while let Some(queue) = queues.works.get_mut(&sq).filter(|queue| queue.has_work()) {
            if vport.bandwidth_clamp.is_some() && self.clamp.holds(context.now, sq) {
                self.counters.clamped += 1;
                return;
            }
            let Some(wqe) = queue.next(context) else { return };
            let (completion_queue, owner) = (queue.completion_queue(), queue.owner);
            let origin = Origin { queue: queue.name(), wqe: &wqe };
            let packet = Packet::new(&wqe);
            let named = queues.completions.get(&packet.oob.vcq_num);
            let named_domain = named.map(|queue| queue.owner.protection_domain);
            let numbers = check::Numbers { send_queue: sq, completion_queue, owner, named_domain };
            let earlier = context.findings();
            let outcome = match self.send(context, config, vport, &origin, &packet, &numbers) {
                Ok(first) => {
                    if let Some(first) = first {
                        context.concern(earlier, first);
                    }
                    CqeType::TxOkay
                }
                Err(error) => error,
            };
            if outcome == CqeType::TxOkay && packet.oob.suppress_txcqe_gen {
                self.counters.suppressed += 1;
                continue;
            }
            match outcome {
                CqeType::TxOkay => self.counters.completions += 1,
                _ => self.counters.errors += 1,
            }
            let payload = completion(&packet, outcome).encode();
            queues.complete(context, completion_queue, Completion { work_queue: sq, is_send: true, payload });
        }
    }

    /// Sends one packet, or says why not. The first of its frames, if any left.
    fn send(
        &mut self,
        context: &mut Context<'_>,
        config: &Config,
        vport: &mut VPort,
        origin: &Origin<'_>,
        packet: &Packet<'_>,
        numbers: &check::Numbers,
    ) -> Result<Option<FrameId>, CqeType> {
        if !vport.function_enabled {
            vport.statistics.tx_err_gf_disabled += 1;
            return Err(CqeType::TxVfDisabled);
        }
        let result = check::descriptor(context, config, vport, origin, packet, numbers)
            .and_then(|()| packet.gather(context, config, vport, origin));
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(error) => {
                self.handed.record(packet.length, None, packet.lso.is_some());
                return Err(error);
            }
        };
        let outer = parse(&bytes);
        let version = outer.ip.as_ref().map(|ip| ip.version);
        self.handed.record(packet.length, version, packet.lso.is_some());
        let layers = encap::layers(context, vport, origin, packet, &bytes, outer)?;
        let handed = check::Handed { packet, bytes: &bytes, layers: &layers };
        check::packet(context, config, vport, origin, &handed)?;
        check::enforce(config, vport, &handed)?;
        let checksums = packet.oob.comp_tcp_csum || packet.oob.comp_udp_csum;
        self.counters.checksums += u64::from(checksums && packet.lso.is_none());
        let frames = frames::of(packet, bytes, &layers).ok_or(CqeType::TxHdrProcessingError)?;
        if !vport.link_up {
            self.counters.link_down += 1;
            return Ok(None);
        }
        let (mut first, mut bytes) = (None, 0);
        for frame in frames {
            self.counters.frames += 1;
            vport.statistics.sent(&frame);
            bytes += frame.len() as u64;
            let id = context.transmit(vport.index, frame);
            first.get_or_insert(id);
        }
        if let Some(limit) = vport.bandwidth_clamp {
            self.clamp.spend(context.now, bytes, limit);
        }
        self.counters.bytes += bytes;
        Ok(first)
    }
}

fn completion(packet: &Packet<'_>, outcome: CqeType) -> TxCompletion {
    TxCompletion {
        kind: outcome as u8,
        vendor_err: 0,
        tx_data_offset: packet.length as u32,
        tx_sgl_offset: packet.wqe.sges.len().saturating_sub(1) as u8,
        tx_wqe_offset: packet.wqe.offset / BASIC_UNIT as u32,
    }
}

impl Counters {
    /// The counters by name.
    pub fn list(&self) -> [(&'static str, u64); 8] {
        [
            ("tx_frames", self.frames),
            ("tx_bytes", self.bytes),
            ("tx_checksums", self.checksums),
            ("tx_completions", self.completions),
            ("tx_suppressed", self.suppressed),
            ("tx_errors", self.errors),
            ("tx_link_down", self.link_down),
            ("tx_clamped", self.clamped),
        ]
    }
}
