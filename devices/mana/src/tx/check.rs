//! The rules that a packet has to keep, and why the device drops it if it does not.

use nicvisor_core::Context;
use nicvisor_net::check::{Handed as Asked, Limits, check_handed_with};
use nicvisor_net::parse::{IpVersion, Layers, TransportKind};
use nicvisor_net::verdict::wrong_seed;
use nicvisor_net::wire::ethertype;

use super::Origin;
use super::packet::Packet;
use crate::config::Config;
use crate::queue::Owner;
use crate::rules::data as rules;
use crate::vport::VPort;
use crate::wire::completion::CqeType;
use crate::wire::oob::{LONG, LONG_SIZE, SHORT, SHORT_SIZE, VSQ_FRAME_SHIFT};

/// What the out-of-band data of a packet must name.
pub(super) struct Numbers {
    pub(super) send_queue: u32,
    pub(super) completion_queue: u32,
    pub(super) owner: Owner,
    /// Protection domain of the completion queue that it does name, if there is one.
    pub(super) named_domain: Option<u32>,
}

/// What the driver handed over: the packet as its entry says it, its bytes, and where its headers are.
pub(super) struct Handed<'a> {
    pub(super) packet: &'a Packet<'a>,
    pub(super) bytes: &'a [u8],
    pub(super) layers: &'a Layers,
}

/// Checks what the entry alone tells. Why the packet is dropped, if it is.
pub(super) fn descriptor(
    context: &mut Context<'_>,
    config: &Config,
    vport: &mut VPort,
    origin: &Origin<'_>,
    packet: &Packet<'_>,
    numbers: &Numbers,
) -> Result<(), CqeType> {
    let result = format(context, config, origin, packet)
        .and_then(|()| addressed(context, origin, packet, numbers))
        .and_then(|()| segmentation(context, origin, packet));
    if result.is_err() {
        let foreign = numbers.named_domain.is_some_and(|domain| domain != numbers.owner.protection_domain);
        match foreign {
            true => vport.statistics.tx_err_cqpdid_enforcement += 1,
            false => vport.statistics.tx_err_inval_oob += 1,
        }
        return result;
    }
    if packet.oob.vp_offset() != vport.offset {
        let message = format!("vp_offset {}, the vPort's is {}", packet.oob.vp_offset(), vport.offset);
        origin.report(context, &rules::TX_VP_OFFSET, message, &[]);
        vport.statistics.tx_err_inval_vport_offset_pkt += 1;
        return Err(CqeType::TxVportIdxOutOfRange);
    }
    let domain = vport.transmit.map(|transmit| transmit.protection_domain);
    if domain != Some(numbers.owner.protection_domain) {
        let message =
            format!("protection domain {}, the vPort's is {domain:?}", numbers.owner.protection_domain);
        origin.report(context, &rules::TX_VPORT, message, &[]);
        match domain {
            Some(_) => vport.statistics.tx_err_sqpdid_enforcement += 1,
            None => vport.statistics.tx_err_vport_disabled += 1,
        }
        return Err(CqeType::TxVportDisabled);
    }
    Ok(())
}

/// The format of the out-of-band data.
fn format(
    context: &mut Context<'_>,
    config: &Config,
    origin: &Origin<'_>,
    packet: &Packet<'_>,
) -> Result<(), CqeType> {
    let (size, format) = (packet.wqe.oob.len(), packet.oob.pkt_fmt);
    let expected = match format {
        SHORT => Some(SHORT_SIZE),
        LONG => Some(LONG_SIZE),
        _ => None,
    };
    if expected != Some(size) || format == SHORT && !config.capabilities.short_form {
        let message = format!("{size} bytes of out-of-band data in format {format}");
        origin.report(context, &rules::TX_OOB_SIZE, message, &[]);
        return Err(CqeType::TxInvalidOob);
    }
    if packet.oob.long.reserved {
        let message = "reserved bits of the long out-of-band data are set".to_owned();
        origin.report(context, &rules::TX_OOB_RESERVED, message, &[]);
    }
    Ok(())
}

/// The queues that the out-of-band data names.
fn addressed(
    context: &mut Context<'_>,
    origin: &Origin<'_>,
    packet: &Packet<'_>,
    numbers: &Numbers,
) -> Result<(), CqeType> {
    let vsq_frame = (numbers.send_queue >> VSQ_FRAME_SHIFT) as u16 & 0x3fff;
    if packet.oob.vsq_frame != vsq_frame {
        let message = format!("vsq_frame {}, the queue's is {vsq_frame}", packet.oob.vsq_frame);
        origin.report(context, &rules::TX_VSQ_FRAME, message, &[]);
        return Err(CqeType::TxInvalidOob);
    }
    if packet.oob.vcq_num != numbers.completion_queue {
        let message = format!("vcq_num {}, the queue's is {}", packet.oob.vcq_num, numbers.completion_queue);
        origin.report(context, &rules::TX_VCQ_NUM, message, &[]);
        return Err(CqeType::TxInvalidOob);
    }
    Ok(())
}

/// Whether what asks for segmentation fits together.
fn segmentation(context: &mut Context<'_>, origin: &Origin<'_>, packet: &Packet<'_>) -> Result<(), CqeType> {
    let header = &packet.wqe.header;
    if header.client_oob_in_sgl != (header.client_data_unit != 0) {
        let message = format!(
            "segment size {}, headers in the list: {}",
            header.client_data_unit, header.client_oob_in_sgl
        );
        origin.report(context, &rules::TX_LSO_REQUEST, message, &[]);
        return Err(CqeType::TxInvalidOob);
    }
    let Some(request) = &packet.lso else {
        if header.last_vbytes != 0 {
            let message =
                format!("last_vbytes {} of a packet that is not to be segmented", header.last_vbytes);
            origin.report(context, &rules::TX_LSO_REQUEST, message, &[]);
        }
        return Ok(());
    };
    // The field has the low eight bits of the length.
    if packet.wqe.sges.len() < 2 || header.last_vbytes != request.header_len as u8 {
        let message = format!(
            "last_vbytes {} with {} bytes in the first of {} elements",
            header.last_vbytes,
            request.header_len,
            packet.wqe.sges.len()
        );
        origin.report(context, &rules::TX_LSO_HEADERS, message, &[]);
        return Err(CqeType::TxInvalidOob);
    }
    Ok(())
}

/// Checks the packet's bytes. Why the packet is dropped, if it is.
pub(super) fn packet(
    context: &mut Context<'_>,
    config: &Config,
    vport: &mut VPort,
    origin: &Origin<'_>,
    handed: &Handed<'_>,
) -> Result<(), CqeType> {
    let Handed { packet, bytes, layers } = *handed;
    let limits = Limits { max_lso: config.tso_limit as usize, min_mss: MIN_MSS, mtu: config.mtu.into() };
    for breach in check_handed_with(bytes, layers, &Asked { lso: packet.lso, checksum: None }, &limits) {
        origin.report(context, breach.rule, breach.message, bytes);
    }
    if bytes.len() < MIN_FRAME {
        return Err(CqeType::TxHdrProcessingError);
    }
    size(context, config, vport, origin, handed)?;
    if !packet.has_offload() {
        return Ok(());
    }
    if !headers(context, origin, handed) {
        vport.statistics.tx_err_inval_oob += 1;
        return Err(CqeType::TxInvalidOob);
    }
    let problem = layers.any_problem().filter(|_| packet.lso.is_some());
    match checksums(context, origin, handed) && problem.is_none() {
        true => Ok(()),
        false => Err(CqeType::TxHdrProcessingError),
    }
}

/// Whether what leaves fits the MTU.
fn size(
    context: &mut Context<'_>,
    config: &Config,
    vport: &mut VPort,
    origin: &Origin<'_>,
    handed: &Handed<'_>,
) -> Result<(), CqeType> {
    let Handed { packet, bytes, layers } = *handed;
    let network = layers.network_offset.max(MIN_FRAME);
    let whole = bytes.len().saturating_sub(network);
    let (longest, enough) = match &packet.lso {
        Some(request) => {
            let longest = request.header_len.saturating_sub(network) + request.mss;
            (longest.min(whole), request.mss >= MIN_MSS)
        }
        None => (whole, true),
    };
    if enough && longest <= config.mtu.into() {
        return Ok(());
    }
    // What is wrong with a packet to be segmented has been reported by the rules for all NICs.
    if packet.lso.is_none() {
        let message = format!("packet of {longest} bytes on a link with an MTU of {}", config.mtu);
        origin.report(context, &rules::TX_FRAME_SIZE, message, bytes);
    }
    vport.statistics.tx_err_mtu_violation += 1;
    Err(CqeType::TxMtuDrop)
}

/// Whether the headers are where the out-of-band data says.
fn headers(context: &mut Context<'_>, origin: &Origin<'_>, handed: &Handed<'_>) -> bool {
    let Handed { packet, bytes, layers } = *handed;
    let oob = &packet.oob;
    let version = layers.ip.as_ref().map(|ip| ip.version);
    let expected = match version {
        Some(IpVersion::V4) => (true, false),
        Some(IpVersion::V6) => (false, true),
        None => (false, false),
    };
    let said = (oob.is_outer_ipv4, oob.is_outer_ipv6);
    if version.is_none() || said != expected {
        let message =
            format!("is_outer_ipv4 {}, is_outer_ipv6 {}, the packet is {version:?}", said.0, said.1);
        origin.report(context, &rules::TX_OUTER_IP, message, bytes);
        return false;
    }
    let found = layers.transport.map(|transport| transport.offset);
    let needed = oob.comp_tcp_csum || oob.trans_off != 0;
    if needed && found != Some(oob.trans_off.into()) {
        let message = format!("trans_off {}, the transport header is at {found:?}", oob.trans_off);
        origin.report(context, &rules::TX_TRANS_OFF, message, bytes);
        return false;
    }
    true
}

/// Whether the checksums that are asked for can be computed. What is in the field now is no reason to drop.
fn checksums(context: &mut Context<'_>, origin: &Origin<'_>, handed: &Handed<'_>) -> bool {
    let Handed { packet, bytes, layers } = *handed;
    let target = if packet.is_encap() { layers.innermost() } else { layers };
    let kind = match (packet.oob.comp_tcp_csum, packet.oob.comp_udp_csum) {
        (true, false) => TransportKind::Tcp,
        (false, true) if packet.lso.is_none() => TransportKind::Udp,
        (false, false) if packet.lso.is_none() => return true,
        (tcp, udp) => {
            let message = format!("TCP: {tcp}, UDP: {udp}, segmentation: {}", packet.lso.is_some());
            origin.report(context, &rules::TX_CHECKSUM_REQUEST, message, bytes);
            return false;
        }
    };
    let transport = target.transport.filter(|transport| transport.kind == kind && !target.is_fragment());
    let (Some(ip), Some(transport)) = (&target.ip, transport) else {
        let found = target.transport.map(|transport| transport.kind);
        let message = format!("of {kind:?}, the packet has {found:?}");
        origin.report(context, &rules::TX_CHECKSUM_REQUEST, message, bytes);
        return false;
    };
    if packet.lso.is_some() && ip.version == IpVersion::V4 && !packet.oob.comp_iphdr_csum {
        let message = "segmentation without the checksum of the IPv4 header".to_owned();
        origin.report(context, &rules::TX_CHECKSUM_REQUEST, message, bytes);
        return false;
    }
    if packet.lso.is_none()
        && let Some((found, expected)) = wrong_seed(bytes, ip, &transport)
    {
        let message = format!("checksum field holds {found:#06x}, expected {expected:#06x}");
        origin.report(context, &rules::TX_CHECKSUM_SEED, message, bytes);
    }
    true
}

/// Checks what the host does not let a vPort send. That is no breach of a rule.
pub(super) fn enforce(config: &Config, vport: &mut VPort, handed: &Handed<'_>) -> Result<(), CqeType> {
    let Handed { packet, bytes, layers } = *handed;
    let enforcement = &config.enforcement;
    if enforcement.source_address && bytes.get(6..12) != Some(&vport.mac) {
        vport.statistics.tx_err_sa_enforcement += 1;
        return Err(CqeType::TxSaDrop);
    }
    if enforcement.vlan && (packet.vlan().is_some() || layers.vlan.is_some()) {
        vport.statistics.tx_err_vlan_enforcement += 1;
        return Err(CqeType::TxVlanTaggingViolation);
    }
    if (enforcement.ether_type || vport.known_types_only) && !ALLOWED_TYPES.contains(&layers.ethertype) {
        vport.statistics.tx_err_ethtype_enforcement += 1;
        return Err(CqeType::TxInvalidEthType);
    }
    Ok(())
}

/// An Ethernet header.
const MIN_FRAME: usize = 14;
/// Least segment size; it bounds how many frames one packet makes. Linux never goes below 48 less TCP's options
/// (`TCP_MIN_SND_MSS`).
const MIN_MSS: usize = 8;
/// What a vPort may send where types are enforced.
const ALLOWED_TYPES: [u16; 3] = [ethertype::IPV4, ethertype::IPV6, ethertype::ARP];
