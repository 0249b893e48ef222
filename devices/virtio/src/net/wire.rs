//! Layouts of the network device (virtio 1.2, section 5.1).

/// What stands in front of each packet (5.1.6), without the hash report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) flags: u8,
    pub(super) gso_type: u8,
    /// Only a hint: Linux puts the length of its linear data here.
    pub(super) header_length: u16,
    /// Segment size.
    pub(super) gso_size: u16,
    /// Where summing starts.
    pub(super) checksum_start: u16,
    /// Where the checksum is, from there.
    pub(super) checksum_offset: u16,
    /// How many chains a received packet takes.
    pub(super) buffers: u16,
}

impl Header {
    /// Bytes of the header.
    pub(super) const LENGTH: usize = 12;

    /// Splits a packet from the driver into header and frame.
    pub(super) fn split(bytes: &[u8]) -> Option<(Header, &[u8])> {
        let (header, frame) = bytes.split_first_chunk::<{ Header::LENGTH }>()?;
        let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let header = Header {
            flags: header[0],
            gso_type: header[1],
            header_length: word(2),
            gso_size: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
            buffers: word(10),
        };
        Some((header, frame))
    }

    pub(super) fn to_bytes(self) -> [u8; Header::LENGTH] {
        let mut bytes = [0; Header::LENGTH];
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        let words =
            [self.header_length, self.gso_size, self.checksum_start, self.checksum_offset, self.buffers];
        for (place, word) in bytes[2..].chunks_exact_mut(2).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// Header flag: the checksum is to be finished.
pub(super) const NEEDS_CHECKSUM: u8 = 1;
/// Segmentation types.
pub(super) const GSO_NONE: u8 = 0;
pub(super) const GSO_TCP4: u8 = 1;
pub(super) const GSO_TCP6: u8 = 4;
/// Or'ed to a type: the packet has CWR set.
pub(super) const GSO_ECN: u8 = 0x80;

/// Feature bits (5.1.3).
pub(super) mod feature {
    pub(in crate::net) const CHECKSUM: u64 = 1 << 0;
    pub(in crate::net) const MTU: u64 = 1 << 3;
    pub(in crate::net) const MAC: u64 = 1 << 5;
    pub(in crate::net) const HOST_TSO4: u64 = 1 << 11;
    pub(in crate::net) const HOST_TSO6: u64 = 1 << 12;
    pub(in crate::net) const HOST_ECN: u64 = 1 << 13;
    pub(in crate::net) const MERGEABLE_BUFFERS: u64 = 1 << 15;
    pub(in crate::net) const STATUS: u64 = 1 << 16;
    pub(in crate::net) const CONTROL_QUEUE: u64 = 1 << 17;
    pub(in crate::net) const MULTIQUEUE: u64 = 1 << 22;
}

/// Bytes of the device configuration: MAC address, status, queue pairs, MTU.
pub(super) const CONFIG_LENGTH: usize = 12;
/// Configuration status: the link is up.
pub(super) const LINK_UP: u16 = 1;

/// Control class and command that set the number of queue pairs in use (5.1.6.5.5).
pub(super) const CONTROL_PAIRS: [u8; 2] = [4, 0];
/// Answers to control commands.
pub(super) const CONTROL_OK: u8 = 0;
pub(super) const CONTROL_ERROR: u8 = 1;
