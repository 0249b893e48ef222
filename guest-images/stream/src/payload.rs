//! The pseudo-random sequence that a stream carries.

/// Produces the sequence piece by piece, whatever the pieces' sizes.
pub(crate) struct Payload {
    state: u64,
    word: [u8; 8],
    used: usize,
}

impl Payload {
    pub(crate) fn new(seed: u64) -> Payload {
        Payload { state: seed, word: [0; 8], used: 8 }
    }

    /// The next bytes of the sequence.
    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        let (head, rest) = out.split_at_mut((8 - self.used).min(out.len()));
        head.copy_from_slice(&self.word[self.used..self.used + head.len()]);
        self.used += head.len();
        let mut words = rest.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&self.next());
        }
        let tail = words.into_remainder();
        if !tail.is_empty() {
            self.word = self.next();
            tail.copy_from_slice(&self.word[..tail.len()]);
            self.used = tail.len();
        }
    }

    /// Where `piece` is first different from the next bytes of the sequence.
    pub(crate) fn mismatch(&mut self, piece: &[u8]) -> Option<usize> {
        let mut expected = [0; 4096];
        for (index, part) in piece.chunks(expected.len()).enumerate() {
            let expected = &mut expected[..part.len()];
            self.fill(expected);
            if part != expected {
                let within = part.iter().zip(expected.iter()).position(|(a, b)| a != b)?;
                return Some(index * 4096 + within);
            }
        }
        None
    }

    /// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
    fn next(&mut self) -> [u8; 8] {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_make_the_same_sequence_as_the_whole(seed: u64, sizes in prop::collection::vec(0usize..5000, 1..20)) {
            let mut whole = vec![0; sizes.iter().sum()];
            Payload::new(seed).fill(&mut whole);
            let (mut producer, mut checker) = (Payload::new(seed), Payload::new(seed));
            let mut start = 0;
            for size in sizes {
                let mut piece = vec![0; size];
                producer.fill(&mut piece);
                prop_assert_eq!(&piece, &whole[start..start + size]);
                prop_assert_eq!(checker.mismatch(&piece), None);
                start += size;
            }
        }

        #[test]
        fn a_changed_byte_is_found_where_it_is(seed: u64, length in 1usize..10_000, place: prop::sample::Index) {
            let mut piece = vec![0; length];
            Payload::new(seed).fill(&mut piece);
            let at = place.index(length);
            piece[at] ^= 0x10;
            prop_assert_eq!(Payload::new(seed).mismatch(&piece), Some(at));
        }
    }
}
