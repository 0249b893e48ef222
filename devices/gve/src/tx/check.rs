//! The rules that a packet has to keep, before anything of it leaves.

use nicvisor_core::{Context, Rule};
use nicvisor_net::check::{Handed as Asked, Limits, check_handed, evidence};
use nicvisor_net::verdict::wrong_seed;

use super::fetch::{Packet, Piece};
use super::send::{Handed, checksum_field, request};
use super::{ALTERNATIVE_MISS, TxQueue};
use crate::config::MAX_FRAME;
use crate::device::Gve;
use crate::rules;
use crate::wire::tx::{MAX_DATA_DESCRIPTORS, MAX_HEADER_SIZE, MIN_TSO_MSS, RawDescriptor, TsoContext};

impl Gve {
    /// Checks what the descriptors alone tell. Whether the packet can be sent.
    pub(super) fn check_descriptors(
        &self,
        context: &mut Context<'_>,
        queue: &TxQueue,
        packet: &Packet,
        raw: &[RawDescriptor],
    ) -> bool {
        let mut fine = true;
        let mut report = |fatal: bool, rule: &Rule, message: String| {
            self.report_tx(context, queue, rule, message, raw);
            fine &= !fatal;
        };
        if packet.mixed_tags || packet.tag & ALTERNATIVE_MISS != 0 {
            report(false, &rules::TX_TAG, format!("tag {:#x}, mixed: {}", packet.tag, packet.mixed_tags));
        }
        if packet.mixed_checksum {
            report(false, &rules::TX_CHECKSUM_FLAG, "checksum_offload_enable differs in a packet".to_owned());
        }
        if let Some(gqi) = packet.gqi
            && gqi.declared != packet.length
        {
            report(true, &rules::TX_LENGTH, format!("len {} for {} bytes", gqi.declared, packet.length));
        }
        match &packet.tso {
            None => {
                if packet.length < MIN_FRAME || packet.length > MAX_FRAME as usize {
                    report(true, &rules::TX_FRAME_SIZE, format!("packet of {} bytes", packet.length));
                }
                if packet.gqi.is_none() && packet.pieces.len() > MAX_DATA_DESCRIPTORS {
                    report(
                        true,
                        &rules::TX_PACKET_BUFFERS,
                        format!("packet in {} buffers", packet.pieces.len()),
                    );
                }
            }
            Some(tso) => {
                let header_len = usize::from(tso.header_len);
                if header_len == 0 || header_len >= packet.length {
                    let message = format!("headers of {header_len} bytes in a packet of {}", packet.length);
                    report(true, &rules::TX_HEADER_SIZE, message);
                }
                if tso.mss > MAX_MSS || tso.mss == 0 {
                    report(true, &rules::TX_MSS, format!("segment size {}", tso.mss));
                }
                let payload = packet.length.saturating_sub(header_len);
                if tso.tso_total_len as usize != payload {
                    let message =
                        format!("tso_total_len {} for {payload} bytes of payload", tso.tso_total_len);
                    report(true, &rules::TX_TSO_LENGTH, message);
                }
                let buffers = most_buffers(&packet.pieces, tso);
                if packet.gqi.is_none() && buffers > MAX_DATA_DESCRIPTORS {
                    report(true, &rules::TX_SEGMENT_BUFFERS, format!("a segment in {buffers} buffers"));
                }
            }
        }
        fine
    }

    /// Checks the packet's bytes.
    pub(super) fn check_packet(&self, context: &mut Context<'_>, queue: &TxQueue, handed: &Handed<'_>) {
        let limits = Limits {
            max_lso: self.config.most_handed() as usize,
            min_mss: if handed.packet.gqi.is_some() { 1 } else { MIN_TSO_MSS.into() },
            mtu: self.config.mtu.into(),
        };
        let packet = handed.packet;
        let asked = Asked {
            lso: packet.tso.as_ref().map(|tso| request(packet, tso)),
            checksum: packet.gqi.map(|gqi| gqi.partial).filter(|_| packet.checksum && packet.tso.is_none()),
        };
        for breach in check_handed(handed.bytes, &asked, &limits) {
            self.report_packet(context, queue, handed, breach.rule, breach.message);
        }
        if packet.tso.is_none() && packet.checksum && packet.gqi.is_none() {
            self.check_checksum_request(context, queue, handed);
        }
    }

    /// Checks that the device can find the checksum field by itself, and what the driver left in it.
    fn check_checksum_request(&self, context: &mut Context<'_>, queue: &TxQueue, handed: &Handed<'_>) {
        let Handed { bytes, layers, .. } = handed;
        let whole = layers.ip.as_ref().filter(|ip| ip.fragment.is_none());
        let transport = layers.transport.filter(|transport| checksum_field(*transport).is_some());
        let (Some(ip), Some(transport)) = (whole, transport) else {
            let message = format!("ethertype {:#06x}, {:?}", layers.ethertype, layers.problem);
            self.report_packet(context, queue, handed, &rules::TX_CHECKSUM_PROTOCOL, message);
            return;
        };
        if let Some((found, expected)) = wrong_seed(bytes, ip, &transport) {
            let message = format!("checksum field holds {found:#06x}, expected {expected:#06x}");
            self.report_packet(context, queue, handed, &rules::TX_CHECKSUM_SEED, message);
        }
    }

    /// Reports a breach that the packet's bytes show.
    pub(super) fn report_packet(
        &self,
        context: &mut Context<'_>,
        queue: &TxQueue,
        handed: &Handed<'_>,
        rule: &Rule,
        message: String,
    ) {
        rules::report(&self.config, context, rule, message, |finding| {
            finding.queue = queue.name();
            self.show_descriptors(finding, handed.raw);
            finding.packet = evidence(handed.bytes);
        });
    }
}

/// The most buffers that headers and payload of any one segment are in. The headers count as one buffer; a
/// buffer that two segments share counts for both.
fn most_buffers(pieces: &[Piece], tso: &TsoContext) -> usize {
    let (header_len, mss) = (usize::from(tso.header_len), usize::from(tso.mss.max(1)));
    let mut most = 0;
    // Payload bytes before the current piece, the segment that its last byte is in, and that one's buffers.
    let mut offset = 0;
    let mut skip = header_len;
    let (mut segment, mut buffers) = (0, 0);
    for piece in pieces {
        let length = usize::from(piece.length);
        let payload = length.saturating_sub(skip);
        skip = skip.saturating_sub(length);
        if payload == 0 {
            continue;
        }
        let (first, last) = (offset / mss, (offset + payload - 1) / mss);
        offset += payload;
        buffers = if first == segment { buffers + 1 } else { 1 };
        most = most.max(buffers);
        if last != first {
            buffers = 1;
        }
        segment = last;
    }
    most + 1
}

/// Least and most that hardware takes, by comments in the driver's `gve_tx_dqo.c`.
const MIN_FRAME: usize = 17;
const MAX_MSS: u16 = 9728;
const _: () =
    assert!(MAX_HEADER_SIZE == u8::MAX as usize, "a header length that fits its field is not too long");

#[cfg(test)]
mod tests {
    use super::*;

    fn most(lengths: &[u16], header_len: u8, mss: u16) -> usize {
        let pieces: Vec<_> = lengths.iter().map(|length| Piece { address: 0, length: *length }).collect();
        most_buffers(&pieces, &TsoContext { header_len, mss, ..TsoContext::default() })
    }

    #[test]
    fn buffers_count_for_each_segment_they_touch() {
        assert_eq!(most(&[66, 1000], 66, 1000), 2, "headers and one buffer");
        assert_eq!(most(&[1066], 66, 1000), 2, "a buffer with headers and payload counts as two");
        assert_eq!(most(&[66, 500, 500, 1000], 66, 1000), 3);
        assert_eq!(most(&[66, 500, 1000, 500], 66, 1000), 3, "the middle one is shared");
        assert_eq!(most(&[66, 16383, 16383], 66, 1448), 3, "one segment across both");
        assert_eq!(most(&[30, 36, 100], 66, 1000), 2, "headers in two buffers count as one");
    }

    /// The definition, byte by byte.
    fn by_definition(lengths: &[u16], header_len: u8, mss: u16) -> usize {
        let owners: Vec<usize> =
            lengths.iter().enumerate().flat_map(|(owner, length)| vec![owner; (*length).into()]).collect();
        let payload = &owners[usize::from(header_len).min(owners.len())..];
        let segments = payload.chunks(mss.into());
        let buffers = |segment: &[usize]| segment.iter().collect::<std::collections::BTreeSet<_>>().len();
        segments.map(buffers).max().unwrap_or(0) + 1
    }

    proptest::proptest! {
        #[test]
        fn buffers_are_counted_by_the_definition(
            lengths in proptest::collection::vec(1..300_u16, 1..40), header_len in 0..=255_u8, mss in 1..500_u16,
        ) {
            proptest::prop_assert_eq!(most(&lengths, header_len, mss), by_definition(&lengths, header_len, mss));
        }
    }
}
