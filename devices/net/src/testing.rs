//! Packets to test with: for this crate's own tests and those of device models built on it. Checksums and
//! lengths are computed here word by word and not with the code under test.

use crate::parse::{IpVersion, parse};
use crate::verdict::pseudo_header;

/// A TCP or UDP packet in an Ethernet frame, correct in all its fields unless made otherwise afterwards.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Version of IP.
    pub version: IpVersion,
    /// UDP rather than TCP.
    pub udp: bool,
    /// Control field of a VLAN tag.
    pub vlan: Option<u16>,
    /// IPv4 options, a multiple of 4 bytes up to 40; ignored for IPv6.
    pub ip_options: Vec<u8>,
    /// Put a hop-by-hop header with a jumbo payload option in front of the transport header (IPv6), as Linux
    /// does inside the stack.
    pub jumbo_header: bool,
    /// IPv4 identification.
    pub ip_id: u16,
    /// TCP sequence number.
    pub sequence: u32,
    /// TCP flags.
    pub flags: u8,
    /// TCP options, a multiple of 4 bytes up to 40.
    pub tcp_options: Vec<u8>,
    /// Source and destination port.
    pub ports: (u16, u16),
    /// What follows the headers.
    pub payload: Vec<u8>,
}

impl Packet {
    /// A packet with `payload_len` bytes of payload that differ from each other.
    pub fn new(version: IpVersion, payload_len: usize) -> Packet {
        Packet {
            version,
            udp: false,
            vlan: None,
            ip_options: Vec::new(),
            jumbo_header: false,
            ip_id: 0x1234,
            sequence: 0x0102_0304,
            flags: 0x10,
            tcp_options: Vec::new(),
            ports: (40_000, 5201),
            payload: (0..payload_len).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect(),
        }
    }

    /// Where the IP header starts.
    pub fn ip_offset(&self) -> usize {
        if self.vlan.is_some() { 18 } else { 14 }
    }

    /// Where the transport header starts.
    pub fn transport_offset(&self) -> usize {
        self.ip_offset()
            + match self.version {
                IpVersion::V4 => 20 + self.ip_options.len(),
                IpVersion::V6 => 40 + if self.jumbo_header { 8 } else { 0 },
            }
    }

    /// Length of all headers.
    pub fn header_len(&self) -> usize {
        self.transport_offset() + if self.udp { 8 } else { 20 + self.tcp_options.len() }
    }

    /// The frame. Length fields that the packet is too long for hold zero.
    pub fn build(&self) -> Vec<u8> {
        let mut frame = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1];
        if let Some(control) = self.vlan {
            frame.extend([0x81, 0x00]);
            frame.extend(control.to_be_bytes());
        }
        let transport_len = self.header_len() - self.transport_offset() + self.payload.len();
        let pseudo = match self.version {
            IpVersion::V4 => self.push_ipv4(&mut frame, transport_len),
            IpVersion::V6 => self.push_ipv6(&mut frame, transport_len),
        };
        let offset = frame.len();
        frame.extend(self.ports.0.to_be_bytes());
        frame.extend(self.ports.1.to_be_bytes());
        let field = if self.udp {
            frame.extend(short(transport_len).to_be_bytes());
            frame.extend([0, 0]);
            offset + 6
        } else {
            frame.extend(self.sequence.to_be_bytes());
            frame.extend([0, 0, 0, 9, (5 + self.tcp_options.len() as u8 / 4) << 4, self.flags]);
            frame.extend([0x20, 0, 0, 0, 0, 0]);
            frame.extend(&self.tcp_options);
            offset + 16
        };
        frame.extend(&self.payload);
        let checksum = !sum([&pseudo, &frame[offset..]]);
        let checksum = if self.udp && checksum == 0 { 0xffff } else { checksum };
        frame[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
        frame
    }

    fn push_ipv4(&self, frame: &mut Vec<u8>, transport_len: usize) -> Vec<u8> {
        frame.extend([0x08, 0x00]);
        let offset = frame.len();
        let header_len = 20 + self.ip_options.len();
        frame.extend([0x40 | (header_len / 4) as u8, 0x02]);
        frame.extend(short(header_len + transport_len).to_be_bytes());
        frame.extend(self.ip_id.to_be_bytes());
        frame.extend([0x40, 0, 64, self.protocol(), 0, 0]);
        let addresses = [10, 0, 0, 1, 10, 0, 0, 2];
        frame.extend(addresses);
        frame.extend(&self.ip_options);
        let checksum = !sum([&frame[offset..]]);
        frame[offset + 10..offset + 12].copy_from_slice(&checksum.to_be_bytes());
        self.pseudo_header(&addresses, transport_len)
    }

    fn push_ipv6(&self, frame: &mut Vec<u8>, transport_len: usize) -> Vec<u8> {
        frame.extend([0x86, 0xdd, 0x60, 0x20, 0, 0]);
        let extra = if self.jumbo_header { 8 } else { 0 };
        frame.extend(if self.jumbo_header { [0, 0] } else { short(transport_len).to_be_bytes() });
        frame.extend([if self.jumbo_header { 0 } else { self.protocol() }, 64]);
        let mut addresses = [0u8; 32];
        addresses[0] = 0xfd;
        addresses[15] = 1;
        addresses[16] = 0xfd;
        addresses[31] = 2;
        frame.extend(addresses);
        if self.jumbo_header {
            frame.extend([self.protocol(), 0, 0xc2, 4]);
            frame.extend(((transport_len + extra) as u32).to_be_bytes());
        }
        self.pseudo_header(&addresses, transport_len)
    }

    fn pseudo_header(&self, addresses: &[u8], transport_len: usize) -> Vec<u8> {
        let mut pseudo = addresses.to_vec();
        pseudo.extend((transport_len as u32).to_be_bytes());
        pseudo.extend([0, 0, 0, self.protocol()]);
        pseudo
    }

    fn protocol(&self) -> u8 {
        if self.udp { 17 } else { 6 }
    }
}

/// Puts a frame into VXLAN over UDP over IP, without outer UDP checksum for IPv4 and with one for IPv6.
pub fn vxlan(version: IpVersion, inner: &[u8]) -> Vec<u8> {
    let mut payload = vec![0x08, 0, 0, 0, 0, 0, 42, 0];
    payload.extend_from_slice(inner);
    let outer = Packet { udp: true, ports: (55_555, 4789), payload, ..Packet::new(version, 0) };
    let mut frame = outer.build();
    if version == IpVersion::V4 {
        let field = outer.transport_offset() + 6;
        frame[field..field + 2].fill(0);
    }
    frame
}

/// Leaves in the checksum field of a TCP or UDP `frame` what a driver leaves there: the pseudo header's sum,
/// without the length for a packet to be segmented.
///
/// # Panics
/// When the frame has no such field.
pub fn seed(frame: &mut [u8], lso: bool) {
    let layers = parse(frame);
    let (ip, transport) = (layers.ip.expect("IP"), layers.transport.expect("TCP or UDP"));
    let length = if lso { 0 } else { frame.len() - transport.offset };
    let sum = pseudo_header(frame, &ip, length as u32).fold();
    let field = transport.checksum_offset().expect("checksum");
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Whether IPv4 header checksum, length fields and transport checksum of a frame made by [`Packet`] are right,
/// judged without the code under test.
///
/// # Panics
/// When one is not, saying which.
pub fn assert_intact(frame: &[u8]) {
    let ip = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    let length = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    let (transport, protocol, addresses) = match frame[ip] >> 4 {
        4 => {
            let header_len = usize::from(frame[ip] & 15) * 4;
            assert_eq!(length(ip + 2), frame.len() - ip, "IPv4 total length");
            assert_eq!(sum([&frame[ip..ip + header_len]]), 0xffff, "IPv4 header checksum");
            (ip + header_len, frame[ip + 9], &frame[ip + 12..ip + 20])
        }
        6 => {
            assert_eq!(length(ip + 4), frame.len() - ip - 40, "IPv6 payload length");
            let addresses = &frame[ip + 8..ip + 40];
            match frame[ip + 6] {
                0 => (ip + 40 + (usize::from(frame[ip + 41]) + 1) * 8, frame[ip + 40], addresses),
                protocol => (ip + 40, protocol, addresses),
            }
        }
        version => panic!("IP version {version}"),
    };
    if protocol == 17 {
        assert_eq!(length(transport + 4), frame.len() - transport, "UDP length");
    }
    let transport_len = ((frame.len() - transport) as u32).to_be_bytes();
    let rest = [0, 0, 0, protocol];
    assert_eq!(sum([addresses, &transport_len, &rest, &frame[transport..]]), 0xffff, "transport checksum");
}

/// Ones' complement sum of even-length parts and one last part of any length.
fn sum<const PARTS: usize>(parts: [&[u8]; PARTS]) -> u16 {
    let mut sum = 0u32;
    for pair in parts.iter().flat_map(|part| part.chunks(2)) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn short(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(0)
}
