//! The floating-point and SIMD part of a CPU's state.

use serde::{Deserialize, Serialize};

/// x87, MMX and SSE registers of one CPU. The default is the state after power-on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FpuState {
    /// XMM0 to XMM15.
    pub xmm: [u128; 16],
    /// SSE control and status: see [`MXCSR_RESET`] for its parts.
    pub mxcsr: u32,
    /// The x87 data registers by their *physical* number: `ST(i)` is `registers[(top + i) % 8]`, and MMi is
    /// the mantissa of `registers[i]`.
    pub registers: [Extended; 8],
    /// Physical number of `ST(0)`, 0 to 7.
    pub top: u8,
    /// Bit i is set when physical register i holds a value (its tag is not "empty").
    pub occupied: u8,
    /// x87 control word: exception masks, precision and rounding control.
    pub control: u16,
    /// x87 status word without TOP, which is [`Self::top`], and the summary bits: see [`Self::status_word`].
    pub status: u16,
    /// Opcode of the last x87 instruction: what `FXRSTOR` or `FLDENV` loaded. Like current CPUs, this one does
    /// not record opcodes.
    pub last_opcode: u16,
    /// Address (RIP) of the last x87 instruction that was not a control instruction.
    pub last_instruction: u64,
    /// Code segment of the last x87 instruction: what `FXRSTOR` or `FLDENV` loaded, 0 after others, as on CPUs
    /// that have deprecated it.
    pub last_code_segment: u16,
    /// Offset of the last x87 memory operand.
    pub last_data: u64,
    /// Segment of the last x87 memory operand, likewise.
    pub last_data_segment: u16,
}

impl Default for FpuState {
    fn default() -> Self {
        FpuState {
            xmm: [0; 16],
            mxcsr: MXCSR_RESET,
            registers: [Extended::default(); 8],
            top: 0,
            occupied: 0xff,
            control: 0x0040,
            status: 0,
            last_opcode: 0,
            last_instruction: 0,
            last_code_segment: 0,
            last_data: 0,
            last_data_segment: 0,
        }
    }
}

impl FpuState {
    /// `FNINIT`: the x87 part to its initial state. Register contents stay, marked empty.
    pub fn init_x87(&mut self) {
        self.control = X87_CONTROL_INIT;
        self.status = 0;
        self.top = 0;
        self.occupied = 0;
        self.last_opcode = 0;
        self.last_instruction = 0;
        self.last_code_segment = 0;
        self.last_data = 0;
        self.last_data_segment = 0;
    }

    /// What every MMX instruction but `EMMS` does besides its work: all registers count as occupied, with
    /// `ST(0)` in register 0.
    #[inline(always)]
    pub(super) fn use_as_mmx(&mut self) {
        self.top = 0;
        self.occupied = 0xff;
    }

    /// `ST(number)`, whether or not it is empty.
    #[inline(always)]
    pub fn st(&self, number: u8) -> Extended {
        self.registers[self.physical(number)]
    }

    /// `ST(number)`, to be changed.
    #[inline(always)]
    pub(super) fn st_mut(&mut self, number: u8) -> &mut Extended {
        let index = self.physical(number);
        &mut self.registers[index]
    }

    /// The physical number of `ST(number)`.
    #[inline(always)]
    pub(super) fn physical(&self, number: u8) -> usize {
        usize::from(self.top.wrapping_add(number) & 7)
    }

    /// The status word as software sees it: with TOP, error summary and busy.
    pub fn status_word(&self) -> u16 {
        let summary = if self.has_unmasked_error() { STATUS_SUMMARY } else { 0 };
        self.status | u16::from(self.top) << 11 | summary
    }

    /// Replaces the status word, TOP included. The summary bits follow from the others.
    pub fn set_status_word(&mut self, status: u16) {
        self.top = (status >> 11 & 7) as u8;
        self.status = status & !(STATUS_TOP | STATUS_SUMMARY);
    }

    /// Replaces the control word, without its reserved bits.
    pub fn set_control_word(&mut self, control: u16) {
        self.control = control & CONTROL_WRITABLE | CONTROL_ALWAYS;
    }

    /// Whether an exception is noted in the status word that the control word does not mask.
    #[inline(always)]
    pub fn has_unmasked_error(&self) -> bool {
        self.status & !self.control & 0x3f != 0
    }
}

/// An 80-bit floating-point number as it lies in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(C)]
pub struct Extended {
    /// The significand; its most significant bit is the explicit integer bit.
    pub mantissa: u64,
    /// Sign (bit 15) and biased exponent.
    pub sign_exponent: u16,
}

impl Extended {
    /// From its ten bytes in memory.
    pub fn from_bytes(bytes: [u8; 10]) -> Extended {
        let [m @ .., e0, e1] = bytes;
        Extended { mantissa: u64::from_le_bytes(m), sign_exponent: u16::from_le_bytes([e0, e1]) }
    }

    /// Whether it is not a number, in any of the ways it can be.
    pub fn is_nan(self) -> bool {
        self.sign_exponent & 0x7fff == 0x7fff && self.mantissa << 1 != 0
    }

    /// As ten bytes in memory.
    pub fn to_bytes(self) -> [u8; 10] {
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&self.mantissa.to_le_bytes());
        bytes[8..].copy_from_slice(&self.sign_exponent.to_le_bytes());
        bytes
    }
}

/// MXCSR after reset: all six exceptions masked (bits 12:7), no exception flag (bits 5:0), round to nearest
/// (bits 14:13), denormals neither flushed (bit 15) nor read as zero (bit 6).
pub const MXCSR_RESET: u32 = 0x1f80;

/// The bits of MXCSR that can be set; any other raises #GP. Reported as `MXCSR_MASK` by `FXSAVE`.
pub const MXCSR_MASK: u32 = 0xffff;

/// x87 control word after `FNINIT`: all exceptions masked, 64-bit precision, round to nearest.
pub const X87_CONTROL_INIT: u16 = 0x037f;

/// Bits of the x87 control word that software can change.
const CONTROL_WRITABLE: u16 = 0x1f3f;

/// A bit of the x87 control word that always reads as one.
const CONTROL_ALWAYS: u16 = 0x0040;

/// The status word's TOP field.
const STATUS_TOP: u16 = 7 << 11;

/// The status word's summary bits: error (7) and busy (15).
const STATUS_SUMMARY: u16 = 1 << 7 | 1 << 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extended_keeps_its_bytes() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        assert_eq!(Extended::from_bytes(bytes).to_bytes(), bytes);
        assert_eq!(Extended::from_bytes(bytes).sign_exponent, 0x0a09);
    }

    #[test]
    fn init_empties_the_stack_but_leaves_sse_alone() {
        let mut state = FpuState { mxcsr: 0x1fa0, top: 3, status: 0x41, ..FpuState::default() };
        state.xmm[5] = 7;
        state.init_x87();
        assert_eq!((state.control, state.status, state.top, state.occupied), (0x37f, 0, 0, 0));
        assert_eq!((state.mxcsr, state.xmm[5]), (0x1fa0, 7));
    }
}
