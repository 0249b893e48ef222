//! A packet as its work queue entry describes it.

use nicvisor_core::Context;
use nicvisor_net::tso::{LsoRequest, Seed};

use super::Origin;
use crate::config::Config;
use crate::queue::Wqe;
use crate::rules::data as rules;
use crate::vport::VPort;
use crate::wire::completion::CqeType;
use crate::wire::oob::{LONG, TxOob};

/// A packet to be sent.
pub(super) struct Packet<'a> {
    pub(super) wqe: &'a Wqe,
    pub(super) oob: TxOob,
    /// Bytes in all elements of its list.
    pub(super) length: usize,
    /// Set if it is to be segmented.
    pub(super) lso: Option<LsoRequest>,
}

impl<'a> Packet<'a> {
    pub(super) fn new(wqe: &'a Wqe) -> Packet<'a> {
        let length = wqe.sges.iter().map(|sge| sge.size as usize).sum();
        let mut packet = Packet { wqe, oob: TxOob::decode(&wqe.oob), length, lso: None };
        if wqe.header.client_oob_in_sgl {
            let header_len = wqe.sges.first().map_or(0, |sge| sge.size as usize);
            packet.lso = Some(packet.request(header_len, wqe.header.client_data_unit.into()));
        }
        packet
    }

    /// The driver leaves the pseudo header's sum without the length in the checksum field (`mana_en.c`:
    /// `mana_start_xmit`). Nothing is known about what it would leave inside a tunnel.
    fn request(&self, header_len: usize, mss: usize) -> LsoRequest {
        let inner = self.is_encap();
        let seed = if inner { Seed::Ignored } else { Seed::WithoutLength };
        LsoRequest { inner, seed, ..LsoRequest::tcp(header_len, mss) }
    }

    /// Whether the offloads concern the packet inside a tunnel.
    pub(super) fn is_encap(&self) -> bool {
        self.oob.pkt_fmt == LONG && self.oob.long.is_encap
    }

    /// The tag's control field, if one is to be inserted.
    pub(super) fn vlan(&self) -> Option<u16> {
        let insert = self.oob.pkt_fmt == LONG && self.oob.long.inject_vlan_pri_tag;
        insert.then(|| self.oob.long.vlan_control())
    }

    /// Whether the device has to look for headers.
    pub(super) fn has_offload(&self) -> bool {
        let TxOob { comp_iphdr_csum, comp_tcp_csum, comp_udp_csum, .. } = self.oob;
        self.lso.is_some() || comp_iphdr_csum || comp_tcp_csum || comp_udp_csum
    }

    /// Reads the packet from guest memory.
    pub(super) fn gather(
        &self,
        context: &mut Context<'_>,
        config: &Config,
        vport: &mut VPort,
        origin: &Origin<'_>,
    ) -> Result<Vec<u8>, CqeType> {
        let (most, rule) = match self.lso {
            Some(_) => (config.tso_limit as usize, &nicvisor_net::rules::LSO_TOO_LARGE),
            // With as many tags as the stack may have put into the packet; what is above the MTU is found later.
            None => (config.max_frame() + MORE_TAGS, &rules::TX_FRAME_SIZE),
        };
        if self.length > most {
            let message = format!("packet of {} bytes, the device takes {most}", self.length);
            origin.report(context, rule, message, &[]);
            vport.statistics.tx_err_mtu_violation += 1;
            return Err(CqeType::TxMtuDrop);
        }
        let mut bytes = vec![0; self.length];
        let mut rest = &mut bytes[..];
        for sge in &self.wqe.sges {
            let (part, behind) = rest.split_at_mut(sge.size as usize);
            rest = behind;
            if let Err(error) = context.dma.read(sge.address, part) {
                origin.report(context, &rules::TX_BUFFER_ADDRESS, error.to_string(), &[]);
                vport.statistics.tx_err_gdma += 1;
                return Err(CqeType::TxHdrProcessingError);
            }
        }
        Ok(bytes)
    }
}

/// Room for more VLAN tags than the one that belongs to an MTU.
const MORE_TAGS: usize = 3 * 4;
