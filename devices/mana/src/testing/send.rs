//! Entries of send queues, as Linux makes them.

use nicvisor_net::parse::{IpVersion, Layers, TransportKind, parse};
use nicvisor_net::wire::TcpHeader;
use zerocopy::IntoBytes;

use crate::wire::oob::{LONG, SHORT, SHORT_SIZE, TxLongOob, TxOob, VSQ_FRAME_SHIFT};
use crate::wire::wqe::{MAX_TX_SGL_ENTRIES, RawSge, WqeHeader};

/// A packet to be sent, and how.
#[derive(Clone, Copy, Debug)]
pub struct Send<'a> {
    /// The packet.
    pub packet: &'a [u8],
    /// What the device shall do to it.
    pub offload: Offload,
    /// Control field of a VLAN tag to be inserted.
    pub vlan: Option<u16>,
    /// No completion is wanted.
    pub suppress: bool,
    /// The offload is for the packet inside a tunnel.
    pub encap: bool,
    /// Most bytes in an element of the list, behind the headers.
    pub piece: usize,
}

/// What the device shall do to a packet on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Nothing.
    None,
    /// Fill in the checksums.
    Checksum,
    /// Segment it.
    Lso {
        /// Bytes of its headers.
        header_len: usize,
        /// Payload bytes of each segment.
        mss: u16,
    },
}

/// A completion of a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// A number of [`crate::wire::completion::CqeType`].
    pub kind: u8,
}

/// What an entry has to name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    pub(super) send_queue: u32,
    pub(super) completion_queue: u32,
    pub(super) vp_offset: u16,
    pub(super) memory_key: u32,
    /// Where the packet is.
    pub(super) address: u64,
}

impl<'a> Send<'a> {
    /// A packet in one piece without any offload.
    pub fn plain(packet: &'a [u8]) -> Send<'a> {
        Send { packet, offload: Offload::None, vlan: None, suppress: false, encap: false, piece: usize::MAX }
    }

    /// A packet to be segmented.
    pub fn lso(packet: &'a [u8], header_len: usize, mss: u16) -> Send<'a> {
        Send { offload: Offload::Lso { header_len, mss }, piece: 17_000, ..Send::plain(packet) }
    }

    /// The out-of-band data.
    pub(super) fn oob(&self, names: &Names) -> TxOob {
        let layers = parse(self.packet);
        let long_offset = names.vp_offset > u8::MAX.into();
        let long = self.vlan.is_some() || long_offset || self.encap;
        let mut oob = TxOob {
            pkt_fmt: if long { LONG } else { SHORT },
            vcq_num: names.completion_queue,
            vsq_frame: (names.send_queue >> VSQ_FRAME_SHIFT) as u16,
            short_vp_offset: if long_offset { 0 } else { names.vp_offset as u8 },
            suppress_txcqe_gen: self.suppress,
            ..TxOob::default()
        };
        oob.long.long_vp_offset = if long_offset { names.vp_offset } else { 0 };
        if let Some(control) = self.vlan {
            oob.long.inject_vlan_pri_tag = true;
            oob.long.pcp = (control >> 13) as u8;
            oob.long.dei = control & 1 << 12 != 0;
            oob.long.vlan_id = control & 0xfff;
        }
        if self.offload != Offload::None {
            self.ask(&mut oob, &layers);
        }
        oob
    }

    fn ask(&self, oob: &mut TxOob, layers: &Layers) {
        let target = if self.encap { layers.innermost() } else { layers };
        let version = |layers: &Layers| layers.ip.as_ref().map(|ip| ip.version);
        oob.is_outer_ipv4 = version(layers) == Some(IpVersion::V4);
        oob.is_outer_ipv6 = version(layers) == Some(IpVersion::V6);
        let lso = matches!(self.offload, Offload::Lso { .. });
        let tcp = lso || target.transport.is_some_and(|transport| transport.kind == TransportKind::Tcp);
        oob.comp_iphdr_csum = lso;
        oob.comp_tcp_csum = tcp;
        oob.comp_udp_csum = !tcp;
        if tcp {
            oob.trans_off = layers.transport.map_or(0, |transport| transport.offset as u16);
        }
        if self.encap
            && let (Some(frame), Some(ip)) = (target.ethernet, &target.ip)
        {
            oob.long = TxLongOob {
                is_encap: true,
                inner_is_ipv6: ip.version == IpVersion::V6,
                inner_tcp_opt: target.tcp().is_some_and(|tcp| tcp.header_len > TcpHeader::LEN),
                inner_frame_offset: frame as u16,
                inner_ip_rel_offset: (ip.offset - frame) as u8,
                ..oob.long
            };
        }
    }

    /// The entry, padding included.
    pub(super) fn entry(&self, names: &Names) -> Vec<u8> {
        let oob = self.oob(names);
        let oob_bytes = oob.encode();
        let oob_bytes = if oob.pkt_fmt == LONG { &oob_bytes[..] } else { &oob_bytes[..SHORT_SIZE] };
        let cuts = self.cuts();
        let mut header = WqeHeader {
            num_sge: cuts.len() as u8,
            inline_oob_size: oob_bytes.len() as u8,
            ..WqeHeader::default()
        };
        if let Offload::Lso { header_len, mss } = self.offload {
            header.last_vbytes = header_len as u8;
            header.client_oob_in_sgl = true;
            header.client_data_unit = mss;
        }
        let mut entry = header.encode().to_vec();
        entry.extend_from_slice(oob_bytes);
        for (start, length) in cuts {
            let sge = RawSge {
                address: (names.address + start as u64).into(),
                mem_key: names.memory_key.into(),
                size: (length as u32).into(),
            };
            entry.extend_from_slice(sge.as_bytes());
        }
        entry.resize(header.size(), 0);
        entry
    }

    /// Start and length of each element of the list.
    fn cuts(&self) -> Vec<(usize, usize)> {
        let length = self.packet.len();
        let first = match self.offload {
            Offload::Lso { header_len, .. } => header_len.min(length),
            _ => length.min(self.piece),
        };
        let most = MAX_TX_SGL_ENTRIES - 2;
        let piece = self.piece.min(length).max((length - first).div_ceil(most)).max(1);
        let rest = (first..length).step_by(piece).map(|start| (start, piece.min(length - start)));
        [(0, first)].into_iter().chain(rest).collect()
    }
}
