//! Receive-side scaling: the Toeplitz hash over addresses and ports, and the table that maps it to queues.
//!
//! The hash is the one that Microsoft's "RSS hashing types" specifies and every NIC here computes.

use serde::{Deserialize, Serialize};

use crate::parse::{Ip, IpVersion, Layers, TransportKind};

/// How a device spreads received packets over queues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rss {
    /// The secret key.
    pub key: Key,
    /// What is hashed.
    pub fields: Fields,
    /// Queue numbers, indexed by the hash; empty while none is set.
    pub table: Vec<u32>,
}

impl Rss {
    /// The hash of a packet, and what went into it; `None` if nothing in the packet is to be hashed.
    pub fn hash(&self, frame: &[u8], layers: &Layers) -> Option<Hash> {
        let ip = layers.ip.as_ref()?;
        let addresses = addresses(frame, ip)?;
        let ports = ports(frame, layers).filter(|(kind, _)| self.fields.covers(*kind, ip.version));
        match ports {
            Some((kind, ports)) => {
                let value = self.key.hash(addresses.iter().chain(ports));
                Some(Hash { value, version: ip.version, transport: Some(kind) })
            }
            None if self.fields.addresses(ip.version) => {
                Some(Hash { value: self.key.hash(addresses), version: ip.version, transport: None })
            }
            None => None,
        }
    }

    /// The queue for `hash`: the table is indexed by the hash's low bits (its remainder where the table's
    /// length is no power of two); `None` while the table is empty.
    pub fn queue(&self, hash: u32) -> Option<u32> {
        let index = (hash as usize).checked_rem(self.table.len())?;
        self.table.get(index).copied()
    }
}

/// A packet's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hash {
    /// The Toeplitz hash.
    pub value: u32,
    /// Which addresses went into it.
    pub version: IpVersion,
    /// Which ports went into it: TCP, UDP or none.
    pub transport: Option<TransportKind>,
}

/// Which packets are hashed over ports too, and which over addresses alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fields {
    /// IPv4 addresses.
    pub ipv4: bool,
    /// IPv4 addresses and TCP ports.
    pub tcp_ipv4: bool,
    /// IPv4 addresses and UDP ports.
    pub udp_ipv4: bool,
    /// IPv6 addresses.
    pub ipv6: bool,
    /// IPv6 addresses and TCP ports.
    pub tcp_ipv6: bool,
    /// IPv6 addresses and UDP ports.
    pub udp_ipv6: bool,
}

impl Fields {
    /// Everything that can be hashed.
    pub const ALL: Fields =
        Fields { ipv4: true, tcp_ipv4: true, udp_ipv4: true, ipv6: true, tcp_ipv6: true, udp_ipv6: true };

    fn addresses(&self, version: IpVersion) -> bool {
        match version {
            IpVersion::V4 => self.ipv4,
            IpVersion::V6 => self.ipv6,
        }
    }

    fn covers(&self, kind: TransportKind, version: IpVersion) -> bool {
        match (kind, version) {
            (TransportKind::Tcp, IpVersion::V4) => self.tcp_ipv4,
            (TransportKind::Tcp, IpVersion::V6) => self.tcp_ipv6,
            (TransportKind::Udp, IpVersion::V4) => self.udp_ipv4,
            (TransportKind::Udp, IpVersion::V6) => self.udp_ipv6,
            _ => false,
        }
    }
}

/// A Toeplitz key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key(Vec<u8>);

impl Key {
    /// Length in bytes that all devices here use: enough for IPv6 with ports.
    pub const LEN: usize = 40;

    /// A key of the usual length.
    pub fn new(bytes: [u8; Key::LEN]) -> Key {
        Key(bytes.to_vec())
    }

    /// The key's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The hash of `input`: for each bit set in it, from the most significant of the first byte on, the 32 bits
    /// of the key that start at the same bit. Bits beyond the key's end are zero.
    pub fn hash<'a>(&self, input: impl IntoIterator<Item = &'a u8>) -> u32 {
        let mut key = self.0.iter().copied();
        let mut window = (0..8).fold(0u64, |window, _| window << 8 | u64::from(key.next().unwrap_or(0)));
        let mut hash = 0;
        for byte in input {
            for bit in 0..8 {
                if byte & 0x80 >> bit != 0 {
                    hash ^= (window << bit >> 32) as u32;
                }
            }
            window = window << 8 | u64::from(key.next().unwrap_or(0));
        }
        hash
    }
}

/// Source and destination address, which lie next to each other in both headers.
fn addresses<'a>(frame: &'a [u8], ip: &Ip) -> Option<&'a [u8]> {
    match ip.version {
        IpVersion::V4 => frame.get(ip.offset + 12..ip.offset + 20),
        IpVersion::V6 => frame.get(ip.offset + 8..ip.offset + 40),
    }
}

/// Source and destination port, unless the packet is a fragment: all fragments must get the same hash.
fn ports<'a>(frame: &'a [u8], layers: &Layers) -> Option<(TransportKind, &'a [u8])> {
    let transport = layers.transport?;
    if layers.ip.as_ref()?.fragment.is_some() {
        return None;
    }
    match transport.kind {
        TransportKind::Tcp | TransportKind::Udp => {
            Some((transport.kind, frame.get(transport.offset..transport.offset + 4)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The key of Microsoft's "Verifying the RSS Hash Calculation"
    /// (learn.microsoft.com/windows-hardware/drivers/network/verifying-the-rss-hash-calculation).
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
        0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
        0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    /// Source, destination, ports, hash with ports, hash without: the vectors of the same page.
    #[test]
    fn microsofts_ipv4_vectors() {
        let cases = [
            ("66.9.149.187", 2794, "161.142.100.80", 1766, 0x51cc_c178, 0x323e_8fc2),
            ("199.92.111.2", 14230, "65.69.140.83", 4739, 0xc626_b0ea, 0xd718_262a),
            ("24.19.198.95", 12898, "12.22.207.184", 38024, 0x5c2b_394a, 0xd2d0_a5de),
            ("38.27.205.30", 48228, "209.142.163.6", 2217, 0xafc7_327f, 0x8298_9176),
            ("153.39.163.191", 44251, "202.188.127.2", 1303, 0x10e8_28a2, 0x5d18_09c5),
        ];
        for (source, source_port, destination, destination_port, with_ports, without) in cases {
            let source: std::net::Ipv4Addr = source.parse().unwrap();
            let destination: std::net::Ipv4Addr = destination.parse().unwrap();
            let addresses = [source.octets(), destination.octets()].concat();
            check(&addresses, source_port, destination_port, with_ports, without);
        }
    }

    #[test]
    fn microsofts_ipv6_vectors() {
        let cases = [
            ("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766, 0x4020_7d3d, 0x2cc1_8cd5),
            ("3ffe:501:8::260:97ff:fe40:efab", 14230, "ff02::1", 4739, 0xdde5_1bbf, 0x0f0c_461c),
            (
                "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
                44251,
                "fe80::200:f8ff:fe21:67cf",
                38024,
                0x02d1_feef,
                0x4b61_e985,
            ),
        ];
        for (source, source_port, destination, destination_port, with_ports, without) in cases {
            let source: std::net::Ipv6Addr = source.parse().unwrap();
            let destination: std::net::Ipv6Addr = destination.parse().unwrap();
            let addresses = [source.octets(), destination.octets()].concat();
            check(&addresses, source_port, destination_port, with_ports, without);
        }
    }

    fn check(addresses: &[u8], source_port: u16, destination_port: u16, with_ports: u32, without: u32) {
        let key = Key::new(KEY);
        let ports = [source_port.to_be_bytes(), destination_port.to_be_bytes()].concat();
        assert_eq!(key.hash(addresses), without);
        assert_eq!(key.hash(addresses.iter().chain(&ports)), with_ports);
    }

    /// The definition, bit by bit.
    fn naive(key: &[u8], input: &[u8]) -> u32 {
        let bit =
            |bytes: &[u8], at: usize| bytes.get(at / 8).map_or(0, |byte| u32::from(byte >> (7 - at % 8) & 1));
        let mut hash = 0;
        for at in 0..input.len() * 8 {
            if bit(input, at) == 1 {
                hash ^= (0..32).fold(0, |word, offset| word << 1 | bit(key, at + offset));
            }
        }
        hash
    }

    proptest! {
        #[test]
        fn equals_the_definition(key in any::<[u8; 32]>(), input in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut long = [0x5a; 40];
            long[..32].copy_from_slice(&key);
            prop_assert_eq!(Key::new(long).hash(&input), naive(&long, &input));
        }

        #[test]
        fn every_hash_has_a_queue_from_the_table(hash in any::<u32>(), table in proptest::collection::vec(any::<u32>(), 0..130)) {
            let rss = Rss { key: Key::new(KEY), fields: Fields::ALL, table: table.clone() };
            match rss.queue(hash) {
                None => prop_assert!(table.is_empty()),
                Some(queue) => prop_assert_eq!(queue, table[hash as usize % table.len()]),
            }
        }
    }
}
