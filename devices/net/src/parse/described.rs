//! Tunnels whose inside is not searched for, because a descriptor says where it is.

use serde::{Deserialize, Serialize};

use super::{Inner, IpVersion, Layers, Tunnel, parse, parse_network};
use crate::wire::{EthernetHeader, ethertype};

/// Where the packet inside a tunnel is, as a descriptor says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InnerPlace {
    /// Start of the Ethernet frame inside, or of the IP packet where there is no Ethernet header.
    pub frame: usize,
    /// Start of its IP header.
    pub ip: usize,
    /// Which version of IP.
    pub version: IpVersion,
}

/// The packet has no such inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misplaced {
    /// What the packet itself tells of, if it does; the outermost tunnel's inside.
    pub found: Option<InnerPlace>,
}

impl InnerPlace {
    /// Where the IP packet with these headers is.
    fn of(layers: &Layers) -> Option<InnerPlace> {
        let ip = layers.ip.as_ref()?;
        Some(InnerPlace { frame: layers.ethernet.unwrap_or(ip.offset), ip: ip.offset, version: ip.version })
    }
}

/// Finds the headers of an Ethernet frame with a tunnel whose inside is at `place`, which becomes the innermost
/// packet. Ports that tunnels usually have play no role, so that a tunnel on any other is found too.
///
/// # Errors
/// When there is no IP header of that version, when it lies inside the outer headers, or when the frame itself tells
/// of a tunnel and of another place.
pub fn parse_described(frame: &[u8], place: InnerPlace) -> Result<Layers, Misplaced> {
    let mut layers = parse(frame);
    let found = layers.inner.as_ref().and_then(|inner| InnerPlace::of(&inner.layers));
    let misplaced = || Misplaced { found };
    if layers.inner.is_some() {
        return if end_at(&mut layers, place) { Ok(layers) } else { Err(misplaced()) };
    }
    let inside = inside(frame, &layers, place).ok_or_else(misplaced)?;
    layers.inner = Some(Box::new(Inner { tunnel: Tunnel::Described, layers: inside }));
    Ok(layers)
}

/// Makes the packet at `place` the innermost one of those that were found. Whether it is among them.
fn end_at(layers: &mut Layers, place: InnerPlace) -> bool {
    let Some(inner) = &mut layers.inner else { return false };
    if InnerPlace::of(&inner.layers) == Some(place) {
        inner.layers.inner = None;
        return true;
    }
    end_at(&mut inner.layers, place)
}

/// The headers of the packet at `place`, if it is one.
fn inside(frame: &[u8], outer: &Layers, place: InnerPlace) -> Option<Layers> {
    let kind = match place.version {
        IpVersion::V4 => ethertype::IPV4,
        IpVersion::V6 => ethertype::IPV6,
    };
    outer.ip.as_ref()?;
    if place.frame < outer.payload || place.ip < place.frame {
        return None;
    }
    let mut layers = Layers { ethertype: kind, ..Layers::empty(place.ip) };
    if place.ip != place.frame {
        let stated = frame.get(place.ip.checked_sub(2)?..place.ip)?;
        if place.ip - place.frame < EthernetHeader::LEN || stated != kind.to_be_bytes() {
            return None;
        }
        layers.ethernet = Some(place.frame);
    }
    let mut layers = parse_network(frame, layers, 0);
    layers.inner = None;
    (InnerPlace::of(&layers) == Some(place)).then_some(layers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Packet, vxlan};
    use crate::wire::UdpHeader;
    use proptest::prelude::*;

    /// A vxlan packet on UDP port `port`, and where its inside is.
    fn tunnel(outer: IpVersion, inner: IpVersion, port: u16) -> (Vec<u8>, InnerPlace) {
        let mut frame = vxlan(outer, &Packet::new(inner, 300).build());
        let layers = parse(&frame);
        let place = InnerPlace::of(&layers.inner.unwrap().layers).unwrap();
        let field = layers.transport.unwrap().offset + std::mem::offset_of!(UdpHeader, destination);
        frame[field..field + 2].copy_from_slice(&port.to_be_bytes());
        (frame, place)
    }

    #[test]
    fn the_inside_is_found_on_any_port() {
        for (outer, inner) in [(IpVersion::V4, IpVersion::V6), (IpVersion::V6, IpVersion::V4)] {
            let (known, place) = tunnel(outer, inner, UdpHeader::VXLAN_PORT);
            let (unknown, same) = tunnel(outer, inner, 12_345);
            assert_eq!(place, same);
            assert_eq!(parse_described(&known, place).unwrap(), parse(&known));
            let layers = parse_described(&unknown, place).unwrap();
            assert_eq!(layers.innermost(), parse(&known).innermost());
            assert_eq!(layers.inner.unwrap().tunnel, Tunnel::Described);
        }
    }

    #[test]
    fn a_wrong_place_is_found_on_any_port() {
        for port in [UdpHeader::VXLAN_PORT, 12_345] {
            let (frame, place) = tunnel(IpVersion::V4, IpVersion::V6, port);
            for wrong in [
                InnerPlace { version: IpVersion::V4, ..place },
                InnerPlace { frame: place.frame + 1, ..place },
                InnerPlace { ip: place.ip + 1, ..place },
                InnerPlace { ip: place.frame, ..place },
                InnerPlace { frame: 14, ip: 14, version: IpVersion::V4 },
                InnerPlace { frame: 60_000, ip: 60_014, version: IpVersion::V6 },
            ] {
                let found = (port == UdpHeader::VXLAN_PORT).then_some(place);
                assert_eq!(parse_described(&frame, wrong), Err(Misplaced { found }), "{wrong:?}");
            }
        }
    }

    #[test]
    fn the_middle_of_nested_tunnels_can_be_meant() {
        let (inside, _) = tunnel(IpVersion::V4, IpVersion::V6, UdpHeader::VXLAN_PORT);
        let frame = vxlan(IpVersion::V4, &inside);
        let layers = parse(&frame);
        let middle = &layers.inner.as_ref().unwrap().layers;
        let place = InnerPlace::of(middle).unwrap();
        let described = parse_described(&frame, place).unwrap();
        assert_eq!(described.innermost().transport, middle.transport);
        let innermost = InnerPlace::of(layers.innermost()).unwrap();
        assert_eq!(parse_described(&frame, innermost).unwrap(), layers);
    }

    proptest! {
        #[test]
        fn any_place_in_any_frame_is_judged(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), valid: bool, frame in 0..1100_usize,
            distance in 0..70_usize, sixth: bool,
        ) {
            let version = if sixth { IpVersion::V6 } else { IpVersion::V4 };
            let frame_bytes = if valid { tunnel(version, version, 9).0 } else { bytes };
            let place = InnerPlace { frame, ip: frame + distance, version };
            if let Ok(layers) = parse_described(&frame_bytes, place) {
                let ip = layers.innermost().ip.as_ref().map(|ip| (ip.offset, ip.version));
                prop_assert_eq!(ip, Some((place.ip, version)));
            }
        }
    }
}
