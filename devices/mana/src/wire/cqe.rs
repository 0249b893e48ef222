//! Completion queue entries (Linux `include/net/mana/gdma.h`: `struct gdma_cqe`): 60 bytes that belong to the
//! queue's client and a word that says whose they are. All fields are little-endian.

/// What a completion says, but for the owner bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cqe {
    /// `cqe_data`: for a queue of a vPort see [`super::completion`].
    pub payload: [u8; PAYLOAD_SIZE],
    /// `wq_num`: the work queue whose entry is complete, 24 bits.
    pub work_queue: u32,
    /// `is_sq`: whether that is a send queue.
    pub is_send: bool,
    /// `owner_bits`: count the rounds through the ring, 3 bits.
    pub owner: u8,
}

impl Cqe {
    /// Reads an entry.
    pub fn decode(raw: &[u8; SIZE]) -> Cqe {
        let mut payload = [0; PAYLOAD_SIZE];
        payload.copy_from_slice(&raw[..PAYLOAD_SIZE]);
        let info = u32::from_le_bytes([raw[60], raw[61], raw[62], raw[63]]);
        Cqe {
            payload,
            work_queue: info & QUEUE_MASK,
            is_send: info & 1 << 24 != 0,
            owner: (info >> OWNER_SHIFT) as u8,
        }
    }

    /// The entry as it stands in the ring.
    pub fn encode(&self) -> [u8; SIZE] {
        let info = self.work_queue & QUEUE_MASK
            | u32::from(self.is_send) << 24
            | u32::from(self.owner & super::OWNER_MASK) << OWNER_SHIFT;
        let mut raw = [0; SIZE];
        raw[..PAYLOAD_SIZE].copy_from_slice(&self.payload);
        raw[PAYLOAD_SIZE..].copy_from_slice(&info.to_le_bytes());
        raw
    }
}

/// `GDMA_CQE_SIZE`: bytes of an entry.
pub const SIZE: usize = 64;
/// `GDMA_COMP_DATA_SIZE`: bytes of an entry that belong to the client.
pub const PAYLOAD_SIZE: usize = 60;
const QUEUE_MASK: u32 = (1 << 24) - 1;
const OWNER_SHIFT: u32 = 29;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_are_those_of_the_header() {
        let cqe = Cqe { payload: [9; PAYLOAD_SIZE], work_queue: 0x01_0203, is_send: true, owner: 5 };
        assert_eq!(cqe.encode()[59..], [9, 0x03, 0x02, 0x01, 0xa1]);
    }

    proptest! {
        #[test]
        fn entries_survive_the_ring(byte: u8, work_queue in 0..=QUEUE_MASK, is_send: bool, owner in 0..8_u8) {
            let cqe = Cqe { payload: [byte; PAYLOAD_SIZE], work_queue, is_send, owner };
            prop_assert_eq!(Cqe::decode(&cqe.encode()), cqe);
        }
    }
}
