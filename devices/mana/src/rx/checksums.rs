//! What a completion says of a frame's checksums.
//!
//! A plain packet has one IP header and one transport header, and the verdicts about them go where their names say. A
//! packet in a vxlan or geneve tunnel has two of each: the outer IP header's verdict has a place of its own
//! (`rx_outer_iphdr_csum_succeed` and `_fail`), the others are about the packet inside. There is no place for a
//! verdict about the outer UDP header. What real hardware makes of that is not documented; what is safe follows from
//! the driver as it is: Linux makes `CHECKSUM_UNNECESSARY` of a transport checksum that is right and leaves
//! `csum_level` 0 (`mana_en.c`: `mana_rx_skb`), by which the stack takes the *outermost* checksum on trust, here that
//! of the tunnel, and sums the one inside itself. So a transport checksum inside is not said to be right while the
//! one outside is wrong. Where there is none outside, the trust is used up by a zero that is allowed.

use nicvisor_net::parse::{IpVersion, Layers, TransportKind, Tunnel};
use nicvisor_net::verdict::Verdicts;

use crate::wire::completion::RxFlags;

/// The verdicts about a frame.
pub(super) struct Checksums {
    /// Those that the completion has room for; nothing else of the flags is set.
    pub(super) flags: RxFlags,
    /// Whether any is wrong, outside or inside.
    pub(super) any_wrong: bool,
}

impl Checksums {
    pub(super) fn of(frame: &[u8], layers: &Layers) -> Checksums {
        let outer = Verdicts::of(frame, layers);
        let Some(inside) = inside(layers) else {
            return Checksums { flags: flags(outer, layers), any_wrong: outer.any_wrong() };
        };
        let inner = Verdicts::of(frame, inside);
        let said = match outer.transport {
            Some(false) => Verdicts { transport: inner.transport.filter(|right| !right), ..inner },
            _ => inner,
        };
        Checksums {
            flags: RxFlags { outer_iphdr_csum: header(outer, layers), ..flags(said, inside) },
            any_wrong: outer.any_wrong() || inner.any_wrong(),
        }
    }
}

/// The packet that is judged instead of the one around it. GRE has a checksum of its own, which is not looked at, and
/// what is no IP packet has none: such tunnels are judged from outside.
fn inside(layers: &Layers) -> Option<&Layers> {
    let inner = layers.inner.as_ref().filter(|_| layers.any_problem().is_none())?;
    let known = matches!(inner.tunnel, Tunnel::Vxlan | Tunnel::Geneve);
    (known && inner.layers.ip.is_some()).then_some(&inner.layers)
}

fn flags(verdicts: Verdicts, layers: &Layers) -> RxFlags {
    let kind = layers.transport.map(|transport| transport.kind);
    RxFlags {
        iphdr_csum: header(verdicts, layers),
        tcp_csum: verdicts.transport.filter(|_| kind == Some(TransportKind::Tcp)),
        udp_csum: verdicts.transport.filter(|_| kind == Some(TransportKind::Udp)),
        ..RxFlags::default()
    }
}

/// An IPv6 header has no checksum that could be wrong: Linux takes a transport checksum for right only if the
/// header's is said to be right too (`mana_en.c`: `mana_rx_skb`).
fn header(verdicts: Verdicts, layers: &Layers) -> Option<bool> {
    let version = layers.ip.as_ref().filter(|_| layers.problem.is_none()).map(|ip| ip.version);
    if version == Some(IpVersion::V6) { Some(true) } else { verdicts.ip }
}
