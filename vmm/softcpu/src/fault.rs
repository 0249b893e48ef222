//! Exceptions, and how a handler ends other than by falling through to the next instruction.

use serde::{Deserialize, Serialize};

use crate::Cpu;

/// Why a handler does not simply continue with the next instruction of the block. One byte, so that
/// `Result<(), Stop>` travels in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stop {
    /// The instruction completed; go on at [`Cpu::rip`], which may be anywhere, with the CPU's mode, pending
    /// events and block looked at afresh.
    Resume = 1,
    /// The instruction did not complete: an exception waits in [`Cpu::pending_fault`]. RIP is put back to the
    /// instruction. Nothing architectural may have been changed (except as the manual says).
    Fault,
    /// The instruction completed as a `HLT`.
    Halt,
    /// The instruction completed as a `PAUSE`: a spinning CPU gives way to others.
    Pause,
    /// A repeated string instruction has done a bounded part of its work: RIP is put back, registers have
    /// advanced, it counts as one instruction, pending events are looked at.
    Repeat,
}

/// An exception with its error code (Intel SDM vol. 3, 6.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exception {
    /// Vector, 0 to 31.
    pub vector: u8,
    /// Pushed on the handler's stack where the vector has one.
    pub error_code: Option<u32>,
    /// For page faults: the linear address for CR2.
    pub address: u64,
}

impl Exception {
    /// #DE
    pub const DIVIDE_ERROR: Exception = Exception::plain(0);
    /// #DB
    pub const DEBUG: Exception = Exception::plain(1);
    /// #BP
    pub const BREAKPOINT: Exception = Exception::plain(3);
    /// #OF
    pub const OVERFLOW: Exception = Exception::plain(4);
    /// #BR
    pub const BOUND: Exception = Exception::plain(5);
    /// #UD
    pub const INVALID_OPCODE: Exception = Exception::plain(6);
    /// #NM
    pub const DEVICE_NOT_AVAILABLE: Exception = Exception::plain(7);
    /// #MF
    pub const X87_FLOATING_POINT: Exception = Exception::plain(16);
    /// #XM
    pub const SIMD_FLOATING_POINT: Exception = Exception::plain(19);

    const fn plain(vector: u8) -> Exception {
        Exception { vector, error_code: None, address: 0 }
    }

    const fn with_code(vector: u8, error_code: u32) -> Exception {
        Exception { vector, error_code: Some(error_code), address: 0 }
    }

    /// #DF
    pub const fn double_fault() -> Exception {
        Exception::with_code(8, 0)
    }

    /// #TS
    pub const fn invalid_tss(selector: u16) -> Exception {
        Exception::with_code(10, selector as u32 & 0xfffc)
    }

    /// #NP
    pub const fn not_present(selector: u16) -> Exception {
        Exception::with_code(11, selector as u32 & 0xfffc)
    }

    /// #SS
    pub const fn stack(error_code: u32) -> Exception {
        Exception::with_code(12, error_code)
    }

    /// #GP
    pub const fn general_protection(error_code: u32) -> Exception {
        Exception::with_code(13, error_code)
    }

    /// #PF at linear `address`.
    pub const fn page_fault(address: u64, error_code: u32) -> Exception {
        Exception { vector: 14, error_code: Some(error_code), address }
    }

    /// #AC
    pub const fn alignment_check() -> Exception {
        Exception::with_code(17, 0)
    }
}

impl Cpu {
    /// Notes `exception` as the outcome of the current instruction. Use as `return Err(cpu.fault(...))`.
    #[cold]
    pub fn fault(&mut self, exception: Exception) -> Stop {
        self.pending_fault = Some(exception);
        Stop::Fault
    }
}
