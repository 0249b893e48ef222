//! From packets to frames.

use nicvisor_net::checksum::{Partial, Sum};
use nicvisor_net::parse::{Ip, IpVersion, Layers};
use nicvisor_net::tso::{Plan, segment_with};
use nicvisor_net::wire::{Ipv4Header, ethertype};

use super::packet::Packet;

/// The frames of a packet; `None` if its headers do not allow what is asked for.
pub(super) fn of(packet: &Packet<'_>, mut bytes: Vec<u8>, layers: &Layers) -> Option<Vec<Vec<u8>>> {
    let mut frames = match &packet.lso {
        Some(request) => segment_with(&bytes, request, Plan::of(layers, request).ok()?).ok()?.collect(),
        None => {
            finish_checksums(packet, &mut bytes, layers);
            vec![bytes]
        }
    };
    if let Some(control) = packet.vlan() {
        frames.iter_mut().for_each(|frame| insert_tag(frame, control));
    }
    Some(frames)
}

/// Fills in the checksums that are asked for. Their places were checked against the packet's headers.
fn finish_checksums(packet: &Packet<'_>, bytes: &mut [u8], layers: &Layers) {
    let target = if packet.is_encap() { layers.innermost() } else { layers };
    if (packet.oob.comp_tcp_csum || packet.oob.comp_udp_csum)
        && let Some(transport) = target.transport
        && let Some(field) = transport.checksum_offset()
    {
        let _ = Partial { start: transport.offset, offset: field - transport.offset }.finish(bytes);
    }
    let ipv4 = target.ip.as_ref().filter(|ip| ip.version == IpVersion::V4);
    if let Some(ip) = ipv4.filter(|_| packet.oob.comp_iphdr_csum) {
        finish_ip(bytes, ip);
    }
}

fn finish_ip(bytes: &mut [u8], ip: &Ip) {
    let Some(header) = bytes.get_mut(ip.offset..ip.transport_offset()) else { return };
    let field = Ipv4Header::CHECKSUM..Ipv4Header::CHECKSUM + 2;
    header[field.clone()].fill(0);
    let checksum = Sum::of(header).checksum();
    header[field].copy_from_slice(&checksum.to_be_bytes());
}

/// Puts a VLAN tag behind the addresses.
fn insert_tag(frame: &mut Vec<u8>, control: u16) {
    let [a, b] = ethertype::VLAN.to_be_bytes();
    let [c, d] = control.to_be_bytes();
    let at = ADDRESSES.min(frame.len());
    frame.splice(at..at, [a, b, c, d]);
}

/// Bytes of both addresses at a frame's start.
const ADDRESSES: usize = 12;
