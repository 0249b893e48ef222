//! x87, MMX and SSE instructions.
//!
//! SSE up to SSE3 is there; later extensions are not advertised and raise #UD. Arithmetic is done by the host's
//! own units ([`host`]), everything else in plain Rust.

mod approximate;
mod convert;
mod float;
mod gate;
mod host;
mod image;
mod moves;
mod operand;
mod packed;
mod shuffle;
mod state;
mod x87;

use iced_x86::Instruction;

pub use state::{Extended, FpuState, MXCSR_MASK, MXCSR_RESET, X87_CONTROL_INIT};

use crate::op::Handler;

/// The handler for `instruction` if it belongs to this family.
pub(crate) fn lookup(instruction: &Instruction) -> Option<Handler> {
    [
        moves::lookup,
        packed::lookup,
        shuffle::lookup,
        float::lookup,
        convert::lookup,
        approximate::lookup,
        image::lookup,
        x87::lookup,
    ]
    .into_iter()
    .find_map(|lookup| lookup(instruction))
}
