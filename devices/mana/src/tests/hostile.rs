//! Guests that do not play by the rules.

use proptest::prelude::*;

use crate::testing::{
    exercise_channel, exercise_doorbells, exercise_mixture, exercise_receive_ring, exercise_send_ring,
};
use crate::wire::RequestType;

/// Messages for the channel: often with the header of a request that exists.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let kind =
        prop_oneof![proptest::sample::select(RequestType::ALL).prop_map(|kind| kind as u32), any::<u32>(),];
    let number = prop_oneof![
        Just(0_u64),
        Just(1),
        Just(2),
        Just(0x1000),
        Just(u64::MAX),
        0x1_0000..0x1_0020_u64,
        0..0x1_0010_u64,
        any::<u64>()
    ];
    let message = (kind, 0..6_u16, 0..4_u16, proptest::collection::vec(number, 0..80)).prop_map(
        |(kind, version, device, numbers)| {
            let mut message = vec![0; 40];
            message[4..8].copy_from_slice(&kind.to_le_bytes());
            message[8..10].copy_from_slice(&version.to_le_bytes());
            message[28..30].copy_from_slice(&200_u16.to_le_bytes());
            message[32..34].copy_from_slice(&device.to_le_bytes());
            numbers.iter().for_each(|number| message.extend(number.to_le_bytes()));
            [&(message.len() as u16).to_le_bytes()[..], &message].concat()
        },
    );
    let noise = proptest::collection::vec(any::<u8>(), 0..100);
    proptest::collection::vec(prop_oneof![4 => message, 1 => noise], 1..12).prop_map(|all| all.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_message_breaks_the_device(input in messages()) {
        exercise_channel(&input);
    }

    #[test]
    fn no_mixture_breaks_the_device(
        pieces in proptest::collection::vec(
            prop_oneof![
                messages().prop_map(|messages| (0_u8, messages)),
                (1..5_u8, proptest::collection::vec(any::<u8>(), 0..120)),
            ],
            0..24,
        ),
    ) {
        exercise_mixture(pieces.iter().map(|(kind, piece)| (*kind, &piece[..])));
    }

    #[test]
    fn no_send_entry_breaks_the_device(input in proptest::collection::vec(any::<u8>(), 0..900)) {
        exercise_send_ring(&input);
    }

    #[test]
    fn no_receive_entry_breaks_the_device(input in proptest::collection::vec(any::<u8>(), 0..900)) {
        exercise_receive_ring(&input);
    }

    #[test]
    fn no_doorbell_breaks_the_device(input in proptest::collection::vec(any::<u8>(), 0..600)) {
        exercise_doorbells(&input);
    }
}
