//! x87 instructions.

mod control;

use iced_x86::Instruction;

use crate::op::Handler;

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    control::lookup(instruction)
}
