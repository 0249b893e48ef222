//! What follows from the architectural state and is needed all the time: mode, widths, privilege.

use crate::Cpu;
use crate::control::*;
use crate::cpuid::Features;
use crate::flags::{AC, VM};
use crate::segment::{CS, SS};
use crate::tlb::Context;

/// State derived from [`Cpu`]'s other fields by [`Cpu::refresh`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Derived {
    /// Linear address of offset 0 of the code segment.
    pub(crate) code_base: u64,
    /// 16, 32 or 64.
    pub(crate) code_bits: u8,
    /// Bytes of RSP that address the stack: 2, 4 or 8.
    pub(crate) stack_bytes: u8,
    /// Current privilege level.
    pub(crate) cpl: u8,
    /// Long mode is active (64-bit or compatibility).
    pub(crate) long: bool,
    /// Debug registers or single-stepping need a look at every instruction.
    pub(crate) debugging: bool,
    /// The next block is to be cut to one instruction.
    pub(crate) one_instruction: bool,
    /// A debug trap follows that instruction.
    pub(crate) single_step: bool,
    /// What the CPU reports to be able to do.
    pub(crate) features: Features,
}

/// The operating mode of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Real-address mode.
    Real,
    /// Protected mode with a 16-bit code segment.
    Protected16,
    /// Protected mode with a 32-bit code segment.
    Protected32,
    /// Long mode with a 16-bit code segment.
    Compatibility16,
    /// Long mode with a 32-bit code segment.
    Compatibility32,
    /// 64-bit mode.
    Long64,
}

impl Cpu {
    /// The current mode.
    pub fn mode(&self) -> Mode {
        let code = &self.segments[CS];
        match (self.is_long_mode(), self.is_protected()) {
            (true, _) if code.is_long() => Mode::Long64,
            (true, _) if code.is_32_bit() => Mode::Compatibility32,
            (true, _) => Mode::Compatibility16,
            (false, true) if code.is_32_bit() => Mode::Protected32,
            (false, true) => Mode::Protected16,
            (false, false) => Mode::Real,
        }
    }

    /// The current privilege level.
    #[inline(always)]
    pub fn cpl(&self) -> u8 {
        self.derived.cpl
    }

    /// Whether the CPU is in 64-bit mode.
    #[inline(always)]
    pub fn is_64_bit(&self) -> bool {
        self.derived.code_bits == 64
    }

    /// Whether long mode is active: 64-bit or compatibility mode.
    #[inline(always)]
    pub fn is_long_mode(&self) -> bool {
        self.msrs.efer & EFER_LMA != 0
    }

    /// Whether protection is on.
    #[inline(always)]
    pub fn is_protected(&self) -> bool {
        self.cr0 & CR0_PE != 0
    }

    /// Brings everything derived up to date after a change of CS, SS, CR0, CR4, EFER or DR7.
    pub(crate) fn refresh(&mut self) {
        let mode = self.mode();
        let code = self.segments[CS];
        let derived = &mut self.derived;
        derived.long = self.msrs.efer & EFER_LMA != 0;
        (derived.code_bits, derived.code_base) = match mode {
            Mode::Long64 => (64, 0),
            Mode::Protected32 | Mode::Compatibility32 => (32, code.base),
            // Real mode keeps a 32-bit code segment that was loaded in protected mode ("unreal").
            Mode::Real if code.is_32_bit() => (32, code.base),
            _ => (16, code.base),
        };
        derived.stack_bytes = match mode {
            Mode::Long64 => 8,
            _ if self.segments[SS].is_32_bit() => 4,
            _ => 2,
        };
        derived.cpl = match mode {
            Mode::Real => 0,
            _ if self.system_flags & VM != 0 => 3,
            _ => code.rpl(),
        };
        derived.debugging = self.debug[7] & 0xff != 0;
        self.refresh_context();
    }

    /// Brings the TLB's context up to date after a change of privilege or RFLAGS.AC.
    #[inline]
    pub(crate) fn refresh_context(&mut self) {
        let alignment = self.system_flags & AC != 0;
        let context = match (self.derived.cpl == 3, alignment) {
            (false, false) => Context::Supervisor,
            (false, true) => Context::SupervisorOverride,
            (true, true) if self.cr0 & CR0_AM != 0 => Context::UserAligned,
            (true, _) => Context::User,
        };
        self.tlb.set_context(context);
    }
}
