//! Tunnels: offloads for the packet inside, which is where the out-of-band data says. The tunnel's own headers are not
//! searched for it: UDP ports are the driver's choice.

use nicvisor_core::Context;
use nicvisor_net::parse::{InnerPlace, IpVersion, Layers, TransportKind, parse_described};
use nicvisor_net::wire::TcpHeader;

use super::Origin;
use super::packet::Packet;
use crate::rules::data as rules;
use crate::vport::VPort;
use crate::wire::completion::CqeType;

/// The headers of a packet, of which `outer` are those that it tells of itself. Where the offloads concern a packet
/// inside, that is the innermost one.
///
/// # Errors
/// When there is no packet where the out-of-band data says.
pub(super) fn layers(
    context: &mut Context<'_>,
    vport: &mut VPort,
    origin: &Origin<'_>,
    packet: &Packet<'_>,
    bytes: &[u8],
    outer: Layers,
) -> Result<Layers, CqeType> {
    if !packet.is_encap() || !packet.has_offload() {
        return Ok(outer);
    }
    let problem = match parse_described(bytes, said(packet)) {
        Ok(layers) => match wrong_options(packet, &layers) {
            None => return Ok(layers),
            Some(problem) => problem,
        },
        Err(misplaced) => format!("{:?}, the packet has {:?}", said(packet), misplaced.found),
    };
    let message = format!("the out-of-band data says {problem}");
    origin.report(context, &rules::TX_ENCAP, message, bytes);
    vport.statistics.tx_err_inval_oob += 1;
    Err(CqeType::TxInvalidOob)
}

/// Where the packet inside is.
fn said(packet: &Packet<'_>) -> InnerPlace {
    let long = &packet.oob.long;
    let frame = usize::from(long.inner_frame_offset);
    let version = if long.inner_is_ipv6 { IpVersion::V6 } else { IpVersion::V4 };
    InnerPlace { frame, ip: frame + usize::from(long.inner_ip_rel_offset), version }
}

/// How `inner_tcp_opt` disagrees with the TCP header inside, if it does.
fn wrong_options(packet: &Packet<'_>, layers: &Layers) -> Option<String> {
    let transport = layers.innermost().transport.filter(|transport| transport.kind == TransportKind::Tcp)?;
    let (said, found) = (packet.oob.long.inner_tcp_opt, transport.header_len > TcpHeader::LEN);
    (said != found)
        .then(|| format!("inner_tcp_opt {said}, the TCP header has {} bytes", transport.header_len))
}
