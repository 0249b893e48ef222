//! Tunnels: offloads for the packet inside.

use nicvisor_core::Context;
use nicvisor_net::parse::{Inner, IpVersion};

use super::Origin;
use super::check::Handed;
use super::packet::Packet;
use crate::rules::data as rules;

/// Whether the frame and the IP header inside are what the out-of-band data says, if it says that there are any.
pub(super) fn check(context: &mut Context<'_>, origin: &Origin<'_>, handed: &Handed<'_>) -> bool {
    let Handed { packet, bytes, layers } = *handed;
    if !packet.is_encap() {
        return true;
    }
    let said = Inside::said(packet);
    let found = layers.inner.as_deref().and_then(Inside::found);
    if found == Some(said) {
        return true;
    }
    let message = format!("the out-of-band data says {said:?}, the packet has {found:?}");
    origin.report(context, &rules::TX_ENCAP, message, bytes);
    false
}

/// Where the headers inside a tunnel are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Inside {
    /// Start of the Ethernet frame inside, or of the IP packet where there is no Ethernet header.
    frame: usize,
    /// Start of the IP header.
    ip: usize,
    /// Whether that is IPv6.
    ipv6: bool,
}

impl Inside {
    fn said(packet: &Packet<'_>) -> Inside {
        let long = &packet.oob.long;
        let frame = usize::from(long.inner_frame_offset);
        Inside { frame, ip: frame + usize::from(long.inner_ip_rel_offset), ipv6: long.inner_is_ipv6 }
    }

    fn found(inner: &Inner) -> Option<Inside> {
        let ip = inner.layers.ip.as_ref()?;
        let frame = inner.layers.ethernet.unwrap_or(ip.offset);
        Some(Inside { frame, ip: ip.offset, ipv6: ip.version == IpVersion::V6 })
    }
}
