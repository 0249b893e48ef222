//! What is sent: bytes of which the receiver knows each.
//!
//! A pseudo-random block repeats. Its length is a prime, so that data that arrive twice, not at all, or in
//! another order are not mistaken for what should be there, as they would be with a block of a size that
//! buffers and segments have.

/// The block, with enough of its repetition behind it that any piece of a given size can be taken in one.
pub(crate) struct Pattern {
    bytes: Vec<u8>,
}

impl Pattern {
    /// For pieces of up to `largest` bytes.
    pub(crate) fn new(largest: usize) -> Pattern {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut block = Vec::with_capacity(PERIOD + 7);
        while block.len() < PERIOD {
            // xorshift64 (Marsaglia: "Xorshift RNGs", 2003).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            block.extend_from_slice(&state.to_le_bytes());
        }
        block.truncate(PERIOD);
        let bytes = block.iter().copied().cycle().take(PERIOD + largest).collect();
        Pattern { bytes }
    }

    /// The bytes of flow number `flow` from `offset` on.
    pub(crate) fn piece(&self, flow: u64, offset: u64, length: usize) -> &[u8] {
        let start = start(flow, offset);
        &self.bytes[start..start + length]
    }

    /// Where `seen` first differs from what the flow has from `offset` on.
    pub(crate) fn mismatch(&self, flow: u64, offset: u64, seen: &[u8]) -> Option<u64> {
        let room = self.bytes.len() - PERIOD;
        let mut at = offset;
        for part in seen.chunks(room.max(1)) {
            let expected = self.piece(flow, at, part.len());
            if part != expected {
                let within = part.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0);
                return Some(at + within as u64);
            }
            at += part.len() as u64;
        }
        None
    }
}

/// Flows start at different places.
fn start(flow: u64, offset: u64) -> usize {
    (flow.wrapping_mul(7919).wrapping_add(offset) % PERIOD as u64) as usize
}

const PERIOD: usize = 65_537;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_of_any_size_are_recognised(flow in 0u64..100, offset: u32, sizes in prop::collection::vec(1usize..9000, 1..9)) {
            let (sender, receiver) = (Pattern::new(9000), Pattern::new(64));
            let mut at = u64::from(offset);
            for size in sizes {
                prop_assert_eq!(receiver.mismatch(flow, at, sender.piece(flow, at, size)), None);
                at += size as u64;
            }
        }

        #[test]
        fn a_changed_or_misplaced_byte_is_found(offset: u32, size in 8usize..9000, place: prop::sample::Index, shift in 1u64..9000) {
            let pattern = Pattern::new(9000);
            let offset = u64::from(offset);
            let mut piece = pattern.piece(3, offset, size).to_vec();
            prop_assert!(pattern.mismatch(3, offset + shift, &piece).is_some());
            let at = place.index(size);
            piece[at] ^= 1;
            prop_assert_eq!(pattern.mismatch(3, offset, &piece), Some(offset + at as u64));
        }
    }
}
