//! Doorbells (Linux `include/net/mana/gdma.h`: `union gdma_doorbell_entry`; `gdma_main.c`:
//! `DOORBELL_OFFSET_*`). A doorbell page has one place for each kind of queue; what is written there names the
//! queue. 64-bit little-endian writes.

/// A write to a doorbell page, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doorbell {
    /// A work queue has new entries.
    Work {
        /// Whether it was rung where send queues are, not where receive queues are.
        send: bool,
        /// The queue, 24 bits.
        id: u32,
        /// `wqe_cnt`: of no use to software, which must write 0.
        wqe_count: u8,
        /// `tail_ptr`: bytes ever posted, modulo 2^32.
        tail: u32,
    },
    /// Entries of a completion or event queue were consumed.
    Consumed {
        /// Whether it was rung where event queues are, not where completion queues are.
        event: bool,
        /// The queue: 16 bits for event queues, 24 bits for completion queues.
        id: u32,
        /// `tail_ptr`: entries ever consumed, modulo eight rounds through the ring; 31 bits.
        tail: u32,
        /// Whether the next entry is to be announced.
        arm: bool,
    },
    /// A completion queue's announcements are to be moderated.
    Moderation {
        /// The completion queue, 24 bits.
        id: u32,
        /// Microseconds (10 bits) by which an announcement may be delayed, if that is to change.
        microseconds: Option<u16>,
        /// Completions after which there is an announcement in any case, if that is to change.
        completions: Option<u8>,
    },
}

impl Doorbell {
    /// Decodes `value`, written at `offset` of a doorbell page; `None` where no doorbell is.
    pub fn decode(offset: u64, value: u64) -> Option<Doorbell> {
        let (low, high) = (value as u32, (value >> 32) as u32);
        let id = low & ID_MASK;
        let (tail, arm) = (high & !ARM, high & ARM != 0);
        match offset {
            OFFSET_SQ | OFFSET_RQ => Some(Doorbell::Work {
                send: offset == OFFSET_SQ,
                id,
                wqe_count: (low >> 24) as u8,
                tail: high,
            }),
            OFFSET_CQ => Some(Doorbell::Consumed { event: false, id, tail, arm }),
            OFFSET_EQ => Some(Doorbell::Consumed { event: true, id: low & 0xffff, tail, arm }),
            OFFSET_DIM => Some(Doorbell::Moderation {
                id,
                microseconds: (high & 1 << 15 != 0).then_some((high & MODERATION_MICROSECONDS) as u16),
                completions: (high & 1 << 31 != 0).then_some((high >> 16) as u8),
            }),
            _ => None,
        }
    }

    /// Whether `value`, written at `offset`, has a reserved bit set. `wqe_cnt` of send queues is not among them.
    pub fn has_reserved(offset: u64, value: u64) -> bool {
        let reserved = match offset {
            OFFSET_CQ => RESERVED_CQ,
            OFFSET_EQ => RESERVED_EQ,
            OFFSET_DIM => RESERVED_DIM,
            _ => 0,
        };
        value & reserved != 0
    }

    /// Where to write what.
    pub fn encode(&self) -> (u64, u64) {
        let words = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        match *self {
            Doorbell::Work { send, id, wqe_count, tail } => {
                let low = id & ID_MASK | u32::from(wqe_count) << 24;
                (if send { OFFSET_SQ } else { OFFSET_RQ }, words(low, tail))
            }
            Doorbell::Consumed { event, id, tail, arm } => {
                let mask = if event { 0xffff } else { ID_MASK };
                let high = tail & !ARM | u32::from(arm) << 31;
                (if event { OFFSET_EQ } else { OFFSET_CQ }, words(id & mask, high))
            }
            Doorbell::Moderation { id, microseconds, completions } => {
                let time =
                    microseconds.map_or(0, |value| u32::from(value) & MODERATION_MICROSECONDS | 1 << 15);
                let count = completions.map_or(0, |value| u32::from(value) << 16 | 1 << 31);
                (OFFSET_DIM, words(id & ID_MASK, time | count))
            }
        }
    }
}

/// `DOORBELL_OFFSET_SQ`.
pub const OFFSET_SQ: u64 = 0;
/// `DOORBELL_OFFSET_RQ`.
pub const OFFSET_RQ: u64 = 0x400;
/// `DOORBELL_OFFSET_CQ`.
pub const OFFSET_CQ: u64 = 0x800;
/// `DOORBELL_OFFSET_DIM`.
pub const OFFSET_DIM: u64 = 0x820;
/// `DOORBELL_OFFSET_EQ`.
pub const OFFSET_EQ: u64 = 0xff8;

const ID_MASK: u32 = (1 << 24) - 1;
const ARM: u32 = 1 << 31;
/// Reserved bits of each kind.
const RESERVED_CQ: u64 = 0xff00_0000;
const RESERVED_EQ: u64 = 0xffff_0000;
const RESERVED_DIM: u64 = 0x7f00_7c00_ff00_0000;
const MODERATION_MICROSECONDS: u32 = (1 << 10) - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_values_are_those_of_the_header() {
        let doorbell = Doorbell::Consumed { event: true, id: 3, tail: 0x2001, arm: true };
        assert_eq!(doorbell.encode(), (0xff8, 0x8000_2001_0000_0003));
        let doorbell = Doorbell::Work { send: false, id: 0x0a_0b0c, wqe_count: 1, tail: 64 };
        assert_eq!(doorbell.encode(), (0x400, 0x0000_0040_010a_0b0c));
        let doorbell = Doorbell::Moderation { id: 5, microseconds: Some(256), completions: Some(64) };
        assert_eq!(doorbell.encode(), (0x820, 0x8040_8100_0000_0005));
        assert_eq!(Doorbell::decode(8, 0), None);
    }

    #[test]
    fn reserved_bits_are_those_that_nothing_else_takes() {
        for (offset, reserved) in [(OFFSET_CQ, 24..32), (OFFSET_EQ, 16..32)] {
            for bit in 0..64 {
                assert_eq!(Doorbell::has_reserved(offset, 1 << bit), reserved.contains(&bit), "bit {bit}");
            }
        }
        let moderation: Vec<u32> =
            (0..64).filter(|bit| Doorbell::has_reserved(OFFSET_DIM, 1 << bit)).collect();
        assert!(moderation.into_iter().eq((24..32).chain(42..47).chain(56..63)));
    }

    fn doorbell() -> impl Strategy<Value = Doorbell> {
        prop_oneof![
            (any::<bool>(), 0..1_u32 << 24, any::<u8>(), any::<u32>())
                .prop_map(|(send, id, wqe_count, tail)| Doorbell::Work { send, id, wqe_count, tail }),
            (any::<bool>(), 0..1_u32 << 16, 0..1_u32 << 31, any::<bool>())
                .prop_map(|(event, id, tail, arm)| Doorbell::Consumed { event, id, tail, arm }),
            (0..1_u32 << 24, proptest::option::of(0..1_u16 << 10), any::<Option<u8>>()).prop_map(
                |(id, microseconds, completions)| Doorbell::Moderation { id, microseconds, completions }
            ),
        ]
    }

    proptest! {
        #[test]
        fn doorbells_survive_the_bus(doorbell in doorbell()) {
            let (offset, value) = doorbell.encode();
            prop_assert_eq!(Doorbell::decode(offset, value), Some(doorbell));
        }
    }
}
