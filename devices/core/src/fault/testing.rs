//! A device's points, for tests.

use super::points::Argument;
use super::{Channel, CommandPoint, EventPoint, FaultPoints, Field, OverridePoint, QueuePoint, WireField};

/// The answer to `CREATE`.
pub(super) const ANSWER: [WireField; 1] = [WireField::little("handle", 0, 4)];
/// A completion of a TX queue.
pub(super) const COMPLETION: [WireField; 2] = [
    WireField::little("tag", 0, 2),
    WireField::little("type", 2, 1).at_bits(0, 7).named(&[("packet", 2), ("miss", 1)]),
];

pub(crate) fn points() -> FaultPoints {
    let create = CommandPoint {
        name: "CREATE".into(),
        request: vec![Field::new("queue_id", 32)],
        answer: Field::of(&ANSWER),
    };
    FaultPoints {
        channels: vec![Channel {
            name: "admin".into(),
            status: Field::new("status", 32).named(&[("PASSED", 1), ("INTERNAL_ERROR", 7)]),
            commands: vec![create],
        }],
        queues: vec![QueuePoint { kind: "tx".into(), count: 4, fields: Field::of(&COMPLETION) }],
        overrides: vec![
            OverridePoint::new(Field::new("register.status", 8)),
            OverridePoint::of_queues(Field::new("tx.tail", 16), 4),
        ],
        events: vec![EventPoint {
            name: "link".into(),
            meaning: "The link goes up or down.".into(),
            arguments: vec![
                Argument { value: Field::new("port", 16), default: Some(0) },
                Argument { value: Field::new("up", 1), default: None },
            ],
        }],
    }
}
