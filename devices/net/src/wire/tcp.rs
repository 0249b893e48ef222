//! TCP.

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The fixed part of a TCP header; options follow up to [`Self::header_len`]. Layout: RFC 9293, 3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TcpHeader {
    /// Source port.
    pub source: U16,
    /// Destination port.
    pub destination: U16,
    /// Sequence number of the first payload byte.
    pub sequence: U32,
    /// Next sequence number expected.
    pub acknowledgement: U32,
    /// Header length in 32-bit words (4 bits), reserved (3), accurate ECN (1).
    pub offset_reserved: u8,
    /// The bits of [`flag`].
    pub flags: u8,
    /// Receive window.
    pub window: U16,
    /// Internet checksum over pseudo header, header and payload.
    pub checksum: U16,
    /// Urgent pointer.
    pub urgent: U16,
}

impl TcpHeader {
    /// Length in bytes without options.
    pub const LEN: usize = size_of::<TcpHeader>();
    /// Offset of [`Self::checksum`] in the header.
    pub const CHECKSUM: usize = 16;

    /// Length in bytes with options, as the header says (at least 20 in a valid header).
    pub fn header_len(&self) -> usize {
        usize::from(self.offset_reserved >> 4) * 4
    }
}

/// Bits of [`TcpHeader::flags`].
pub mod flag {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement field counts.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer counts.
    pub const URG: u8 = 0x20;
    /// ECN echo (RFC 3168).
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced (RFC 3168).
    pub const CWR: u8 = 0x80;
}

const _: () =
    assert!(TcpHeader::LEN == 20 && std::mem::offset_of!(TcpHeader, checksum) == TcpHeader::CHECKSUM);
