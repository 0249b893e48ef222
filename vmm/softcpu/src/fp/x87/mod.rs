//! x87 instructions.

mod arithmetic;
mod compare;
mod control;
mod environment;
mod moves;
mod stack;

use iced_x86::Instruction;

use crate::op::Handler;

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    [moves::lookup, arithmetic::lookup, compare::lookup, control::lookup, environment::lookup]
        .into_iter()
        .find_map(|lookup| lookup(instruction))
}
