//! Segment registers and descriptors (Intel SDM vol. 3, 3.4).

use serde::{Deserialize, Serialize};

/// A segment register with the part of its descriptor that the CPU caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// The visible part.
    pub selector: u16,
    /// Linear address of offset 0.
    pub base: u64,
    /// Last valid offset (of an expand-down segment: last invalid one), in bytes.
    pub limit: u32,
    /// Descriptor bits 40 to 55, see the `ATTRIBUTE_*` constants.
    pub attributes: u16,
}

/// GDTR or IDTR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescriptorTable {
    /// Linear address of entry 0.
    pub base: u64,
    /// Last valid byte offset.
    pub limit: u16,
}

impl Segment {
    /// What a null selector leaves in a data segment register.
    pub const fn null(selector: u16) -> Segment {
        Segment { selector, base: 0, limit: 0, attributes: 0 }
    }

    /// A flat 4 GiB segment of privilege `selector & 3`; `kind` is the descriptor type (1, 3, 9, 11, ...).
    pub const fn flat(selector: u16, kind: u16, width: u16) -> Segment {
        Segment {
            selector,
            base: 0,
            limit: u32::MAX,
            attributes: kind
                | ATTRIBUTE_SEGMENT
                | (selector & 3) << 5
                | ATTRIBUTE_PRESENT
                | ATTRIBUTE_GRANULARITY
                | width,
        }
    }

    /// What a segment register holds after loading `selector` in real mode.
    pub const fn real(selector: u16, code: bool) -> Segment {
        Segment {
            selector,
            base: (selector as u64) << 4,
            limit: 0xffff,
            attributes: ATTRIBUTE_SEGMENT
                | ATTRIBUTE_PRESENT
                | if code {
                    TYPE_CODE | TYPE_ACCESSED | TYPE_WRITABLE
                } else {
                    TYPE_ACCESSED | TYPE_WRITABLE
                },
        }
    }

    /// The cached form of an 8-byte descriptor.
    pub fn from_descriptor(selector: u16, descriptor: u64) -> Segment {
        let attributes = (descriptor >> 40) as u16 & 0xf0ff;
        let limit = (descriptor & 0xffff | descriptor >> 32 & 0xf_0000) as u32;
        Segment {
            selector,
            base: descriptor >> 16 & 0xff_ffff | descriptor >> 32 & 0xff00_0000,
            limit: if attributes & ATTRIBUTE_GRANULARITY != 0 { limit << 12 | 0xfff } else { limit },
            attributes,
        }
    }

    /// The four type bits.
    pub const fn kind(&self) -> u16 {
        self.attributes & 15
    }

    /// Descriptor privilege level.
    pub const fn dpl(&self) -> u8 {
        (self.attributes >> 5) as u8 & 3
    }

    /// Requested privilege level of the selector.
    pub const fn rpl(&self) -> u8 {
        self.selector as u8 & 3
    }

    /// Present (a null selector's segment is not).
    pub const fn present(&self) -> bool {
        self.attributes & ATTRIBUTE_PRESENT != 0
    }

    /// A code or data segment, as opposed to a system descriptor.
    pub const fn is_segment(&self) -> bool {
        self.attributes & ATTRIBUTE_SEGMENT != 0
    }

    /// A code segment.
    pub const fn is_code(&self) -> bool {
        self.attributes & (ATTRIBUTE_SEGMENT | TYPE_CODE) == ATTRIBUTE_SEGMENT | TYPE_CODE
    }

    /// A conforming code segment.
    pub const fn is_conforming(&self) -> bool {
        self.is_code() && self.attributes & TYPE_CONFORMING != 0
    }

    /// A data segment that may be written.
    pub const fn is_writable_data(&self) -> bool {
        self.attributes & (ATTRIBUTE_SEGMENT | TYPE_CODE | TYPE_WRITABLE) == ATTRIBUTE_SEGMENT | TYPE_WRITABLE
    }

    /// A segment that may be read: any data segment, or a readable code segment.
    pub const fn is_readable(&self) -> bool {
        self.is_segment() && (self.attributes & TYPE_CODE == 0 || self.attributes & TYPE_WRITABLE != 0)
    }

    /// The L bit: 64-bit code.
    pub const fn is_long(&self) -> bool {
        self.attributes & ATTRIBUTE_LONG != 0
    }

    /// The D/B bit: 32-bit code or stack.
    pub const fn is_32_bit(&self) -> bool {
        self.attributes & ATTRIBUTE_32_BIT != 0
    }

    /// Whether `bytes` bytes at `offset` lie within the limit.
    pub const fn contains(&self, offset: u64, bytes: u64) -> bool {
        let last = offset + (bytes - 1);
        if self.attributes & (TYPE_CODE | TYPE_EXPAND_DOWN) == TYPE_EXPAND_DOWN {
            let top = if self.is_32_bit() { 0xffff_ffff } else { 0xffff };
            offset > self.limit as u64 && last <= top
        } else {
            last <= self.limit as u64
        }
    }
}

/// Type bit: the segment was loaded.
pub const TYPE_ACCESSED: u16 = 1;
/// Type bit: data may be written, or code may be read.
pub const TYPE_WRITABLE: u16 = 2;
/// Type bit of data segments: valid offsets are those above the limit.
pub const TYPE_EXPAND_DOWN: u16 = 4;
/// Type bit of code segments: runs with the caller's privilege.
pub const TYPE_CONFORMING: u16 = 4;
/// Type bit: code.
pub const TYPE_CODE: u16 = 8;
/// S: code or data.
pub const ATTRIBUTE_SEGMENT: u16 = 1 << 4;
/// P.
pub const ATTRIBUTE_PRESENT: u16 = 1 << 7;
/// L.
pub const ATTRIBUTE_LONG: u16 = 1 << 13;
/// D/B.
pub const ATTRIBUTE_32_BIT: u16 = 1 << 14;
/// G.
pub const ATTRIBUTE_GRANULARITY: u16 = 1 << 15;

/// Index of ES in [`crate::Cpu::segments`].
pub const ES: usize = 0;
/// Index of CS.
pub const CS: usize = 1;
/// Index of SS.
pub const SS: usize = 2;
/// Index of DS.
pub const DS: usize = 3;
/// Index of FS.
pub const FS: usize = 4;
/// Index of GS.
pub const GS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_unpacked() {
        let segment = Segment::from_descriptor(0x10, 0x12cf_9a34_5678_9abc);
        assert_eq!(segment.base, 0x1234_5678);
        assert_eq!(segment.limit, 0xf9abc << 12 | 0xfff);
        assert!(segment.is_code() && segment.present() && segment.is_32_bit() && !segment.is_long());
    }

    #[test]
    fn expand_down_segments_hold_what_is_above_the_limit() {
        let mut segment = Segment::real(0, false);
        segment.attributes |= TYPE_EXPAND_DOWN;
        segment.limit = 0xfff;
        assert!(!segment.contains(0xfff, 1));
        assert!(segment.contains(0x1000, 1));
        assert!(segment.contains(0xffff, 1));
        assert!(!segment.contains(0xffff, 2));
    }
}
