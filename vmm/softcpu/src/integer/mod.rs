//! General-purpose instructions.
//!
//! Each module has a `lookup` that picks, once per decoded instruction, a handler specialised for the
//! instruction's operand kinds and widths: what remains at run time is straight-line code.
//!
//! The CPU is an x86-64-v1 (with CMPXCHG16B and SSE3), so what later extensions encode in formerly ignored
//! prefixes does what it did before them: `TZCNT` is `BSF`, `LZCNT` is `BSR`, `ENDBR` and `RDSSP` do nothing.
//! A few later instructions are there for CPUs whose CPUID shows them (`extended`).
//! Where the manuals leave flags undefined, handlers do what AMD's Zen does if that costs nothing.

mod arithmetic;
mod bits;
mod branch;
mod decimal;
mod exchange;
mod extended;
pub(crate) mod memory;
mod moves;
mod multiply;
mod operand;
mod shift;
pub(crate) mod stack;
mod status;
mod string;

use iced_x86::Instruction;

use crate::op::Handler;

/// The handler for `instruction` if it belongs to this family.
pub(crate) fn lookup(instruction: &Instruction) -> Option<Handler> {
    moves::lookup(instruction)
        .or_else(|| arithmetic::lookup(instruction))
        .or_else(|| branch::lookup(instruction))
        .or_else(|| stack::lookup(instruction))
        .or_else(|| shift::lookup(instruction))
        .or_else(|| bits::lookup(instruction))
        .or_else(|| string::lookup(instruction))
        .or_else(|| exchange::lookup(instruction))
        .or_else(|| multiply::lookup(instruction))
        .or_else(|| status::lookup(instruction))
        .or_else(|| decimal::lookup(instruction))
        .or_else(|| extended::lookup(instruction))
}
