//! The architectural state of one CPU.

use serde::{Deserialize, Serialize};

use crate::Exception;
use crate::flags::LazyFlags;
use crate::fp::FpuState;
use crate::width::Width;

/// One CPU. Plain data; what is derived from it (TLB, mode flags) is rebuilt after a restore.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Cpu {
    /// General-purpose registers by their encoding, then [`RIP`] and [`ZERO`], so that a memory operand's
    /// address is always `registers[base] + (registers[index] << scale) + displacement`.
    pub registers: [u64; 18],
    /// Arithmetic flags, evaluated when looked at. See [`Cpu::rflags`].
    pub flags: LazyFlags,
    /// RFLAGS without the six arithmetic flags: IF, DF, TF, IOPL, NT, RF, VM, AC, VIF, VIP, ID; bit 1 set.
    pub system_flags: u64,
    /// Control register 0.
    pub cr0: u64,
    /// Control register 4.
    pub cr4: u64,
    /// x87, MMX and SSE registers.
    pub fpu: FpuState,
    /// The exception of the instruction that returned [`crate::Stop::Fault`].
    #[serde(skip)]
    pub pending_fault: Option<Exception>,
}

impl Cpu {
    /// The instruction pointer. During a handler: the address behind its instruction.
    #[inline(always)]
    pub fn rip(&self) -> u64 {
        self.registers[RIP as usize]
    }

    /// Sets the instruction pointer (a handler that does so returns [`crate::Stop::Resume`]).
    #[inline(always)]
    pub fn set_rip(&mut self, rip: u64) {
        self.registers[RIP as usize] = rip;
    }

    /// A general-purpose register as an operand of width `T`. `register` is an operand register number as
    /// [`crate::op::Op`] has it: 0 to 15, and 16 + n for the high byte of register n (AH, CH, DH, BH).
    #[inline(always)]
    pub fn get<T: Width>(&self, register: u8) -> T {
        if T::BITS == 8 {
            let value = self.registers[(register & 15) as usize];
            T::truncate(value >> ((register & HIGH_BYTE) >> 1))
        } else {
            T::truncate(self.registers[(register & 15) as usize])
        }
    }

    /// Writes a general-purpose register operand: 32-bit writes clear the upper half, 8- and 16-bit writes
    /// leave the rest alone.
    #[inline(always)]
    pub fn set<T: Width>(&mut self, register: u8, value: T) {
        let slot = &mut self.registers[(register & 15) as usize];
        match T::BITS {
            8 => {
                let shift = (register & HIGH_BYTE) >> 1;
                *slot = *slot & !(0xff << shift) | value.zero_extend() << shift;
            }
            16 => *slot = *slot & !0xffff | value.zero_extend(),
            _ => *slot = value.zero_extend(),
        }
    }
}

/// Index of RAX and so on in [`Cpu::registers`].
pub const RAX: u8 = 0;
/// Index of RCX.
pub const RCX: u8 = 1;
/// Index of RDX.
pub const RDX: u8 = 2;
/// Index of RBX.
pub const RBX: u8 = 3;
/// Index of RSP.
pub const RSP: u8 = 4;
/// Index of RBP.
pub const RBP: u8 = 5;
/// Index of RSI.
pub const RSI: u8 = 6;
/// Index of RDI.
pub const RDI: u8 = 7;
/// Index of the instruction pointer.
pub const RIP: u8 = 16;
/// Index of a register that is always zero: the base or index of an address that has none.
pub const ZERO: u8 = 17;
/// Flag in an 8-bit operand's register number: bits 8 to 15 of the register.
pub const HIGH_BYTE: u8 = 16;
