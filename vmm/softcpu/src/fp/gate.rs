//! Whether an instruction may run at all: what the control registers and pending x87 errors say.

use crate::control::{CR0_EM, CR0_MP, CR0_NE, CR0_TS, CR4_OSFXSR, CR4_OSXMMEXCPT};
use crate::{Cpu, Exception, Stop};

impl Cpu {
    /// Before an SSE instruction: #UD when the system does not support SSE, #NM when the registers belong to
    /// another task.
    #[inline(always)]
    pub(super) fn enter_sse(&mut self) -> Result<(), Stop> {
        if !self.sse_is_available() {
            return Err(self.sse_unavailable());
        }
        Ok(())
    }

    /// Whether [`Self::enter_sse`] succeeds.
    #[inline(always)]
    pub(super) fn sse_is_available(&self) -> bool {
        self.cr0 & (CR0_EM | CR0_TS) | (self.cr4 & CR4_OSFXSR ^ CR4_OSFXSR) == 0
    }

    /// Whether [`Self::enter_mmx`] succeeds.
    #[inline(always)]
    pub(super) fn mmx_is_available(&self) -> bool {
        self.cr0 & (CR0_EM | CR0_TS) == 0 && !self.x87_error_is_due()
    }

    #[cold]
    fn sse_unavailable(&mut self) -> Stop {
        self.fault(if self.cr0 & CR0_EM != 0 || self.cr4 & CR4_OSFXSR == 0 {
            Exception::INVALID_OPCODE
        } else {
            Exception::DEVICE_NOT_AVAILABLE
        })
    }

    /// Before an MMX instruction.
    #[inline(always)]
    pub(super) fn enter_mmx(&mut self) -> Result<(), Stop> {
        if self.cr0 & CR0_EM != 0 {
            return Err(self.fault(Exception::INVALID_OPCODE));
        }
        if self.cr0 & CR0_TS != 0 {
            return Err(self.fault(Exception::DEVICE_NOT_AVAILABLE));
        }
        self.check_x87_error()
    }

    /// Before an SSE instruction that also uses MMX registers.
    #[inline(always)]
    pub(super) fn enter_sse_with_mmx(&mut self) -> Result<(), Stop> {
        self.enter_sse()?;
        self.check_x87_error()
    }

    /// Before an x87 instruction that does not wait for earlier errors (`FNINIT`, `FNSTSW`, ...), and before
    /// `FXSAVE` and `FXRSTOR`.
    #[inline(always)]
    pub(super) fn enter_x87_without_wait(&mut self) -> Result<(), Stop> {
        if self.cr0 & (CR0_EM | CR0_TS) != 0 {
            return Err(self.fault(Exception::DEVICE_NOT_AVAILABLE));
        }
        Ok(())
    }

    /// Before any other x87 instruction.
    #[inline(always)]
    pub(super) fn enter_x87(&mut self) -> Result<(), Stop> {
        self.enter_x87_without_wait()?;
        self.check_x87_error()
    }

    /// Before `FWAIT`, which CR0.MP makes task-switch aware.
    pub(super) fn enter_wait(&mut self) -> Result<(), Stop> {
        if self.cr0 & (CR0_MP | CR0_TS) == CR0_MP | CR0_TS {
            return Err(self.fault(Exception::DEVICE_NOT_AVAILABLE));
        }
        self.check_x87_error()
    }

    /// #MF when an earlier x87 instruction left an unmasked error. Without CR0.NE the error goes out on a pin
    /// to the interrupt controller; nothing is connected there, so execution goes on, as with IGNNE# asserted.
    #[inline(always)]
    fn check_x87_error(&mut self) -> Result<(), Stop> {
        if self.x87_error_is_due() {
            return Err(self.fault(Exception::X87_FLOATING_POINT));
        }
        Ok(())
    }

    #[inline(always)]
    fn x87_error_is_due(&self) -> bool {
        self.fpu.has_unmasked_error() && self.cr0 & CR0_NE != 0
    }

    /// The fault for an unmasked SSE exception.
    #[cold]
    pub(super) fn simd_fault(&mut self) -> Stop {
        self.fault(if self.cr4 & CR4_OSXMMEXCPT != 0 {
            Exception::SIMD_FLOATING_POINT
        } else {
            Exception::INVALID_OPCODE
        })
    }
}
