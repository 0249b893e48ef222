//! Event queue entries (Linux `include/net/mana/gdma.h`: `struct gdma_eqe`): 12 bytes of details and a word with
//! the kind of event. All fields are little-endian.

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eqe {
    /// `details`: depend on the kind.
    pub details: [u8; DETAILS_SIZE],
    /// `type`: [`COMPLETION`] or one of [`super::hwc`].
    pub kind: u8,
    /// `owner_bits`: count the rounds through the ring, 3 bits.
    pub owner: u8,
}

impl Eqe {
    /// Reads an entry.
    pub fn decode(raw: &[u8; SIZE]) -> Eqe {
        let mut details = [0; DETAILS_SIZE];
        details.copy_from_slice(&raw[..DETAILS_SIZE]);
        Eqe { details, kind: raw[12], owner: raw[15] >> 5 }
    }

    /// The entry as it stands in the ring. Client id and reserved bits are zero.
    pub fn encode(&self) -> [u8; SIZE] {
        let mut raw = [0; SIZE];
        raw[..DETAILS_SIZE].copy_from_slice(&self.details);
        raw[12] = self.kind;
        raw[15] = (self.owner & super::OWNER_MASK) << 5;
        raw
    }
}

/// `GDMA_EQE_COMPLETION`: there are new entries in the completion queue whose number is in the details. The
/// kinds that the hardware channel uses are in [`super::hwc`].
pub const COMPLETION: u8 = 3;

/// `GDMA_EQE_SIZE`: bytes of an entry.
pub const SIZE: usize = 16;
/// `GDMA_EVENT_DATA_SIZE`: bytes of details.
pub const DETAILS_SIZE: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_are_those_of_the_header() {
        let eqe = Eqe { details: [1; DETAILS_SIZE], kind: 131, owner: 3 };
        assert_eq!(eqe.encode(), [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 131, 0, 0, 0x60]);
    }

    proptest! {
        #[test]
        fn entries_survive_the_ring(details: [u8; DETAILS_SIZE], kind: u8, owner in 0..8_u8) {
            let eqe = Eqe { details, kind, owner };
            prop_assert_eq!(Eqe::decode(&eqe.encode()), eqe);
        }
    }
}
