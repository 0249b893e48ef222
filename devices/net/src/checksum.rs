//! The internet checksum (RFC 1071) over packets of any length.
//!
//! Sums are kept in 64 bits, so that half-megabyte packets cannot overflow them, and the inner loop adds eight
//! 64-bit words at a time into independent lanes, which the compiler turns into vector instructions.

use serde::{Deserialize, Serialize};

/// A ones' complement sum of big-endian 16-bit words. Adding is commutative, so parts may be summed in any
/// order as long as each starts at an even offset of the whole.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Sum = Sum(0);

    /// The sum of `bytes`; an odd last byte counts as the upper half of a word.
    pub fn of(bytes: &[u8]) -> Sum {
        Sum(u64::from(fold(sum_words(bytes)).swap_bytes()))
    }

    /// The sum of one word.
    pub const fn word(word: u16) -> Sum {
        Sum(word as u64)
    }

    /// The sum of a 32-bit number.
    pub const fn long(long: u32) -> Sum {
        Sum((long >> 16) as u64 + (long & 0xffff) as u64)
    }

    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Sum) -> Sum {
        Sum(fold(self.0) as u64 + fold(other.0) as u64)
    }

    /// The sum without `other`.
    #[must_use]
    pub const fn minus(self, other: Sum) -> Sum {
        Sum(fold(self.0) as u64 + (!fold(other.0)) as u64)
    }

    /// The sum as a 16-bit word: what a driver leaves in the checksum field for the device to go on with.
    pub const fn fold(self) -> u16 {
        fold(self.0)
    }

    /// The checksum: what goes into a header whose checksum field was zero while it was summed.
    pub const fn checksum(self) -> u16 {
        !fold(self.0)
    }

    /// The checksum for UDP, where 0 means "none" and so all ones stands for zero (RFC 768).
    pub const fn udp_checksum(self) -> u16 {
        match self.checksum() {
            0 => 0xffff,
            checksum => checksum,
        }
    }

    /// Whether a header or packet summed with its checksum in place is intact.
    pub const fn is_valid(self) -> bool {
        fold(self.0) == 0xffff
    }
}

/// The sum of the IPv4 pseudo header (RFC 9293, 3.1). `length` counts the transport header and its payload and
/// may exceed 16 bits, as Linux does for BIG TCP.
pub fn pseudo_ipv4(source: [u8; 4], destination: [u8; 4], protocol: u8, length: u32) -> Sum {
    Sum::of(&source).plus(Sum::of(&destination)).plus(Sum::word(protocol.into())).plus(Sum::long(length))
}

/// The sum of the IPv6 pseudo header (RFC 8200, 8.1).
pub fn pseudo_ipv6(source: &[u8; 16], destination: &[u8; 16], protocol: u8, length: u32) -> Sum {
    Sum::of(source).plus(Sum::of(destination)).plus(Sum::word(protocol.into())).plus(Sum::long(length))
}

/// The checksum of a packet in which the word `old` became `new` (RFC 1624, equation 3).
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    Sum::word(!checksum).plus(Sum::word(!old)).plus(Sum::word(new)).checksum()
}

/// A checksum that the driver left for the device to finish: the field already holds the pseudo header's sum,
/// the device sums from `start` to the end of the packet and writes the result at `start + offset`. It is what
/// Linux calls CHECKSUM_PARTIAL, virtio NEEDS_CSUM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partial {
    /// Where summing starts, from the start of the frame.
    pub start: usize,
    /// Where the checksum field is, from `start`.
    pub offset: usize,
}

impl Partial {
    /// Finishes the checksum in `frame` up to its end, or says that the field is not inside the frame (and
    /// changes nothing).
    #[must_use]
    pub fn finish(self, frame: &mut [u8]) -> bool {
        let Some(field) = self.start.checked_add(self.offset) else { return false };
        let Some(part) = frame.get(self.start..) else { return false };
        if part.len() < 2 || self.offset > part.len() - 2 {
            return false;
        }
        // A zero would say "no checksum" in UDP, and elsewhere all ones is an equally valid way to write it.
        let checksum = Sum::of(part).udp_checksum();
        frame[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
        true
    }
}

/// Sums native-endian words. The ones' complement sum does not care about byte order as long as the result is
/// swapped in the end (RFC 1071, 2.B).
fn sum_words(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    // The low halves are not extracted in the loop: the wrapping sum of whole words minus the exact sum of the
    // upper halves gives their exact sum, one operation a word cheaper. Exact up to 2^32 blocks.
    let mut whole = [0u64; LANES];
    let mut upper = [0u64; LANES];
    for block in blocks {
        for lane in 0..LANES {
            let (words, _) = block.as_chunks::<8>();
            let word = u64::from_ne_bytes(words[lane]);
            whole[lane] = whole[lane].wrapping_add(word);
            upper[lane] += word >> 32;
        }
    }
    let mut sum = 0;
    for lane in 0..LANES {
        let lower = whole[lane].wrapping_sub(upper[lane] << 32);
        sum += u64::from(fold(lower)) + u64::from(fold(upper[lane]));
    }
    let (words, odd) = rest.as_chunks::<2>();
    for word in words {
        sum += u64::from(u16::from_ne_bytes(*word));
    }
    if let [byte] = odd {
        sum += u64::from(u16::from_ne_bytes([*byte, 0]));
    }
    sum
}

/// Adds the carries back in until 16 bits are left. Only a sum of nothing but zeros folds to zero.
const fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    sum as u16
}

const LANES: usize = 8;
const BLOCK: usize = LANES * 8;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 word by word, with the carry added back at once.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn the_example_of_rfc_1071_sums_to_ddf2() {
        assert_eq!(Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]).fold(), 0xddf2);
    }

    #[test]
    fn the_largest_sums_of_big_tcp_do_not_overflow() {
        for length in [131_072, 262_143, 524_280, 524_288, 2_000_001] {
            let bytes = vec![0xff; length];
            assert_eq!(Sum::of(&bytes).fold(), naive(&bytes), "{length} bytes of ones");
        }
    }

    #[test]
    fn a_partial_checksum_outside_the_frame_is_refused() {
        let mut frame = [1u8; 20];
        for (start, offset) in [(20, 0), (21, 0), (10, 9), (usize::MAX, 2), (4, usize::MAX), (19, 0)] {
            assert!(!Partial { start, offset }.finish(&mut frame), "{start}+{offset}");
        }
        assert_eq!(frame, [1; 20]);
        assert!(Partial { start: 10, offset: 8 }.finish(&mut frame));
    }

    proptest! {
        #[test]
        fn equals_the_naive_sum(bytes in proptest::collection::vec(any::<u8>(), 0..3000), skip in 0usize..9) {
            let bytes = &bytes[skip.min(bytes.len())..];
            prop_assert_eq!(Sum::of(bytes).fold(), naive(bytes));
        }

        #[test]
        fn parts_at_even_offsets_add_up(
            bytes in proptest::collection::vec(any::<u8>(), 2..600), cut in 0usize..300
        ) {
            let cut = (cut * 2).min(bytes.len() & !1);
            let (first, second) = bytes.split_at(cut);
            let sum = Sum::of(first).plus(Sum::of(second));
            prop_assert_eq!(sum.fold(), naive(&bytes));
            // Zero has two representations, so a difference is compared through the sum it restores.
            prop_assert_eq!(sum.minus(Sum::of(second)).plus(Sum::of(second)).checksum() % 0xffff,
                            Sum::of(&bytes).checksum() % 0xffff);
        }

        #[test]
        fn an_incremental_update_equals_a_new_checksum(
            mut bytes in proptest::collection::vec(any::<u8>(), 4..200), at in 0usize..100, new in any::<u16>()
        ) {
            bytes[0] |= 1; // A packet of zeros has no valid checksum, and no header is one.
            let at = 2 + (at * 2) % ((bytes.len() - 2) & !1).max(2);
            prop_assume!(at + 2 <= bytes.len());
            let before = Sum::of(&bytes).checksum();
            let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(update(before, old, new), Sum::of(&bytes).checksum());
        }

        #[test]
        fn a_finished_partial_checksum_is_valid(
            payload in proptest::collection::vec(any::<u8>(), 0..200),
            source in any::<[u8; 4]>(), destination in any::<[u8; 4]>()
        ) {
            let mut frame = vec![0u8; 34 + 8];
            frame.extend_from_slice(&payload);
            let length = (frame.len() - 34) as u32;
            let pseudo = pseudo_ipv4(source, destination, 17, length);
            frame[40..42].copy_from_slice(&pseudo.fold().to_be_bytes());
            let finished = Partial { start: 34, offset: 6 }.finish(&mut frame);
            prop_assert!(finished);
            prop_assert!(Sum::of(&frame[34..]).plus(pseudo).is_valid());
        }
    }
}
