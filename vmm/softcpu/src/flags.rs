//! The arithmetic flags, kept as the last result until somebody looks.
//!
//! Most flags that instructions compute are never read. An arithmetic handler therefore only notes its kind,
//! its operands and its result; CF, PF, AF, ZF, SF and OF are worked out on demand.

use serde::{Deserialize, Serialize};

use crate::Cpu;

/// What the arithmetic flags are to be computed from.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct LazyFlags {
    /// The six flags at their RFLAGS positions.
    pub value: u64,
}

impl Cpu {
    /// RFLAGS, all of it.
    pub fn rflags(&self) -> u64 {
        self.flags.value & ARITHMETIC | self.system_flags & !ARITHMETIC | 2
    }

    /// Replaces all of RFLAGS (the caller has applied the privilege rules).
    pub fn set_rflags(&mut self, value: u64) {
        self.flags.value = value & ARITHMETIC;
        self.system_flags = value & !ARITHMETIC | 2;
    }
}

/// Carry.
pub const CF: u64 = 1 << 0;
/// Parity of the result's low byte.
pub const PF: u64 = 1 << 2;
/// Carry out of bit 3.
pub const AF: u64 = 1 << 4;
/// Zero.
pub const ZF: u64 = 1 << 6;
/// Sign.
pub const SF: u64 = 1 << 7;
/// Trap after the instruction.
pub const TF: u64 = 1 << 8;
/// Maskable interrupts accepted.
pub const IF: u64 = 1 << 9;
/// String instructions count down.
pub const DF: u64 = 1 << 10;
/// Signed overflow.
pub const OF: u64 = 1 << 11;
/// I/O privilege level.
pub const IOPL: u64 = 3 << 12;
/// Nested task.
pub const NT: u64 = 1 << 14;
/// Resume: no instruction breakpoint on the next instruction.
pub const RF: u64 = 1 << 16;
/// Virtual 8086 mode.
pub const VM: u64 = 1 << 17;
/// Alignment check, and SMAP override.
pub const AC: u64 = 1 << 18;
/// CPUID can be used if this can be toggled.
pub const ID: u64 = 1 << 21;
/// The six flags that arithmetic sets.
pub const ARITHMETIC: u64 = CF | PF | AF | ZF | SF | OF;
