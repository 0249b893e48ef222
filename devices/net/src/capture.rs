//! Captures the frames of a network as pcapng, for Wireshark and its like.
//!
//! Each frame is captured once, where it enters the network, on the interface named after the sending port;
//! deliveries can be captured too. Time stamps are the machine's time in nanoseconds, and
//! what is to be said about a frame (its id, broken rules, why it was dropped) is in its comments. Nothing of
//! the host gets into the file: the same run gives the same bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use nicvisor_core::{Duration, Fate, Finding, Frame, FrameId, Time};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};
use serde::{Deserialize, Serialize};

use crate::network::{Injected, Medium, Network, PortId, Station};

/// What is captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureConfig {
    /// Capture frames a second time where they are delivered.
    pub deliveries: bool,
}

/// A layer around a medium that captures the frames going through.
pub struct Capture<M, W: Write> {
    medium: M,
    config: CaptureConfig,
    file: PcapNgWriter<W>,
    interfaces: BTreeMap<Interface, u32>,
    failure: Option<io::Error>,
    paused: bool,
}

/// What a captured packet is filed under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Interface {
    Port(PortId),
    Handed,
}

impl<M: Medium, W: Write> Capture<M, W> {
    /// Starts a capture of what goes through `medium`.
    ///
    /// # Errors
    /// When `output` cannot be written to.
    pub fn new(medium: M, output: W, config: CaptureConfig) -> io::Result<Capture<M, W>> {
        let section = SectionHeaderBlock {
            endianness: Endianness::Little,
            options: vec![SectionHeaderOption::UserApplication(Cow::Borrowed("nicvisor"))],
            ..SectionHeaderBlock::default()
        };
        let file = PcapNgWriter::with_section_header(output, section).map_err(into_io_error)?;
        Ok(Capture { medium, config, file, interfaces: BTreeMap::new(), failure: None, paused: false })
    }

    /// What has been written to.
    pub fn output(&self) -> &W {
        self.file.get_ref()
    }

    /// Writes one packet. After an error nothing more is written: [`Medium::finish`] returns it.
    fn record(
        &mut self,
        interface: Interface,
        direction: u32,
        time: Time,
        bytes: &[u8],
        comments: Vec<String>,
    ) {
        if self.failure.is_some() || self.paused {
            return;
        }
        if let Err(error) = self.write(interface, direction, time, bytes, comments) {
            self.failure = Some(into_io_error(error));
        }
    }

    fn write(
        &mut self,
        interface: Interface,
        direction: u32,
        time: Time,
        bytes: &[u8],
        comments: Vec<String>,
    ) -> Result<(), PcapError> {
        let interface_id = self.interface(interface)?;
        let mut options = vec![EnhancedPacketOption::Flags(direction)];
        options.extend(comments.into_iter().map(shorten).map(Cow::Owned).map(EnhancedPacketOption::Comment));
        let mut block = EnhancedPacketBlock::default();
        block.interface_id = interface_id;
        block.timestamp = Duration::from_nanos(time.as_nanos());
        block.original_len = bytes.len() as u32;
        block.data = Cow::Borrowed(bytes);
        block.options = options;
        self.file.write_pcapng_block(block).map(|_| ())
    }

    /// The number of an interface in the file, described there when it is first used.
    fn interface(&mut self, interface: Interface) -> Result<u32, PcapError> {
        if let Some(id) = self.interfaces.get(&interface) {
            return Ok(*id);
        }
        let name = match interface {
            Interface::Port(port) => self.medium.network().port_name(port).to_owned(),
            Interface::Handed => HANDED.to_owned(),
        };
        let block = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: 0,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Owned(name)),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        };
        self.file.write_pcapng_block(block)?;
        let id = self.interfaces.len() as u32;
        self.interfaces.insert(interface, id);
        Ok(id)
    }
}

impl<M: Medium, W: Write + Send> Medium for Capture<M, W> {
    fn inject(&mut self, port: PortId, bytes: Vec<u8>, now: Time) -> Injected {
        let captured = bytes.clone();
        let injected = self.medium.inject(port, bytes, now);
        let mut comments = vec![format!("frame {}", injected.id.0)];
        comments.extend(injected.findings.iter().map(describe));
        comments.extend(injected.dropped.as_ref().map(|reason| format!("dropped: {reason}")));
        self.record(Interface::Port(port), OUTBOUND, now, &captured, comments);
        injected
    }

    fn poll(&mut self, station: Station, now: Time) -> Vec<(PortId, Frame)> {
        let due = self.medium.poll(station, now);
        if self.config.deliveries {
            for (port, frame) in &due {
                self.record(
                    Interface::Port(*port),
                    INBOUND,
                    now,
                    &frame.bytes,
                    vec![format!("frame {}", frame.id.0)],
                );
            }
        }
        due
    }

    fn next_deadline(&self, station: Station) -> Option<Time> {
        self.medium.next_deadline(station)
    }

    fn settle(&mut self, frame: FrameId, fate: &Fate) {
        self.medium.settle(frame, fate);
    }

    /// Adds the evidence of a device's finding: the packet as the driver handed it over, on an interface of its
    /// own. Findings about frames are in the frames' comments already.
    fn record_finding(&mut self, finding: &Finding) {
        self.medium.record_finding(finding);
        if finding.packet.is_empty() || finding.frame.is_some() {
            return;
        }
        let place = [&finding.device[..], &finding.queue].join(" ");
        let comment = format!("{} ({})", describe(finding), place.trim());
        self.record(Interface::Handed, OUTBOUND, finding.time, &finding.packet, vec![comment]);
    }

    fn set_recording(&mut self, on: bool) {
        self.paused = !on;
        self.medium.set_recording(on);
    }

    fn finish(&mut self) -> io::Result<()> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        self.file.get_mut().flush()?;
        self.medium.finish()
    }

    fn network(&self) -> &Network {
        self.medium.network()
    }

    fn network_mut(&mut self) -> &mut Network {
        self.medium.network_mut()
    }
}

impl<M: std::fmt::Debug, W: Write> std::fmt::Debug for Capture<M, W> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Capture").field("medium", &self.medium).finish_non_exhaustive()
    }
}

fn describe(finding: &Finding) -> String {
    format!("{}: {}", finding.rule, finding.message)
}

/// An option's length has 16 bits, so a comment has its limit.
fn shorten(mut comment: String) -> String {
    let mut end = comment.len().min(MAX_COMMENT);
    while !comment.is_char_boundary(end) {
        end -= 1;
    }
    comment.truncate(end);
    comment
}

fn into_io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

/// Name of the interface of packets as drivers handed them over.
const HANDED: &str = "handed";
/// Packet flags, bits 0 and 1: direction (pcapng, 4.3.1).
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
/// Interface time stamp resolution: negative power of ten (pcapng, 4.2).
const NANOSECONDS: u8 = 9;
const MAX_COMMENT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::LinkConfig;
    use crate::parse::IpVersion;
    use crate::testing::Packet;
    use pcap_file::pcapng::{Block, PcapNgReader};

    fn run() -> Vec<u8> {
        let mut network = Network::new();
        let link = network.add_link(LinkConfig::default());
        let (first, second) = (
            network.add_port(Station::default(), link, "gve0"),
            network.add_port(Station::default(), link, "gve1"),
        );
        let mut capture = Capture::new(network, Vec::new(), CaptureConfig { deliveries: true }).unwrap();
        let good = Packet::new(IpVersion::V6, 100).build();
        let mut bad = good.clone();
        bad[80] ^= 1;
        capture.inject(first, good, Time::from_nanos(1_000_000_007));
        capture.inject(second, bad, Time::from_nanos(1_000_000_008));
        for (_, frame) in capture.poll(Station::default(), Time::from_nanos(2_000_000_000)) {
            capture.settle(frame.id, &Fate::Delivered);
        }
        let rule = &crate::rules::IPV6_JUMBO_HEADER;
        let mut finding = Finding::new(rule, Time::from_nanos(3_000_000_000), "at 54");
        finding.device = "gve0".into();
        finding.packet = vec![7; 60];
        capture.record_finding(&finding);
        capture.set_recording(false);
        capture.record_finding(&finding);
        capture.finish().unwrap();
        assert!(capture.network().ledger().balance().is_balanced());
        capture.output().clone()
    }

    #[test]
    fn a_reader_finds_frames_times_and_comments() {
        let bytes = run();
        let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
        let (mut names, mut packets) = (Vec::new(), Vec::new());
        while let Some(block) = reader.next_block() {
            match block.unwrap() {
                Block::InterfaceDescription(interface) => {
                    names.push(interface.options[0].clone().into_owned())
                }
                Block::EnhancedPacket(packet) => packets.push(packet.into_owned()),
                other => panic!("{other:?}"),
            }
        }
        let expected = ["gve0", "gve1", "handed"].map(|name| InterfaceDescriptionOption::IfName(name.into()));
        assert_eq!(names, expected);
        let seen: Vec<_> = packets
            .iter()
            .map(|packet| (packet.interface_id, packet.timestamp.as_nanos() as u64, packet.data.len()))
            .collect();
        let length = Packet::new(IpVersion::V6, 100).build().len();
        assert_eq!(seen[0], (0, 1_000_000_007, length));
        assert_eq!(seen[1], (1, 1_000_000_008, length));
        assert_eq!(seen.len(), 5);
        let comments = |packet: usize| {
            let comment = |option: &EnhancedPacketOption<'_>| match option {
                EnhancedPacketOption::Comment(comment) => Some(comment.to_string()),
                _ => None,
            };
            packets[packet].options.iter().filter_map(comment).collect::<Vec<_>>()
        };
        assert_eq!(packets[0].options[0], EnhancedPacketOption::Flags(OUTBOUND));
        assert_eq!(comments(0), ["frame 1"]);
        assert_eq!(comments(1), ["frame 2", "net-wire-checksum: the Tcp checksum is wrong"]);
        assert_eq!(packets[2].options[0], EnhancedPacketOption::Flags(INBOUND));
        assert_eq!(comments(2), ["frame 1"]);
        assert_eq!(comments(4), ["net-ipv6-jumbo-header: at 54 (gve0)"]);
    }

    #[test]
    fn the_same_run_gives_the_same_bytes() {
        assert_eq!(run(), run());
    }

    #[test]
    fn a_full_disk_is_reported_at_the_end_and_frames_still_flow() {
        #[derive(Debug)]
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let taken = bytes.len().min(self.0);
                self.0 -= taken;
                if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut network = Network::new();
        let link = network.add_link(LinkConfig::default());
        let port = network.add_port(Station::default(), link, "a");
        network.add_port(Station::default(), link, "b");
        let mut capture = Capture::new(network, Full(100), CaptureConfig::default()).unwrap();
        capture.inject(port, Packet::new(IpVersion::V4, 500).build(), Time::ZERO);
        assert_eq!(capture.poll(Station::default(), Time::from_nanos(1_000_000)).len(), 1);
        assert_eq!(capture.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
