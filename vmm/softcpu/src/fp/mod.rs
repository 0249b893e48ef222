//! x87, MMX and SSE instructions.

use iced_x86::Instruction;

use crate::op::Handler;

/// The handler for `instruction` if it belongs to this family.
pub(crate) fn lookup(_instruction: &Instruction) -> Option<Handler> {
    None
}
