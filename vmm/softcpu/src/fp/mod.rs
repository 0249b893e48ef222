//! x87, MMX and SSE instructions.

mod state;

use iced_x86::Instruction;

pub use state::{Extended, FpuState, MXCSR_MASK, MXCSR_RESET, X87_CONTROL_INIT};

use crate::op::Handler;

/// The handler for `instruction` if it belongs to this family.
pub(crate) fn lookup(_instruction: &Instruction) -> Option<Handler> {
    None
}
