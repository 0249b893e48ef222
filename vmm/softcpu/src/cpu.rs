//! The architectural state of one CPU.

use serde::{Deserialize, Serialize};

use crate::Exception;
use crate::flags::LazyFlags;
use crate::fp::FpuState;
use crate::mode::Derived;
use crate::segment::{DescriptorTable, Segment};
use crate::tlb::Tlb;
use crate::width::Width;

/// One CPU. Plain data; what is derived from it (TLB, mode flags) is rebuilt when the engine runs it next, so
/// a change from outside needs no further ceremony.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cpu {
    /// General-purpose registers by their encoding, then [`RIP`] and [`ZERO`], so that a memory operand's
    /// address is always `registers[base] + (registers[index] << scale) + displacement`.
    pub registers: [u64; 18],
    /// Arithmetic flags, evaluated when looked at. See [`Cpu::rflags`].
    pub flags: LazyFlags,
    /// RFLAGS without the six arithmetic flags: IF, DF, TF, IOPL, NT, RF, VM, AC, VIF, VIP, ID; bit 1 set.
    pub system_flags: u64,
    /// x87, MMX and SSE registers.
    pub fpu: FpuState,
    /// ES, CS, SS, DS, FS, GS, by [`crate::segment::ES`] and so on.
    pub segments: [Segment; 6],
    /// Local descriptor table.
    pub ldtr: Segment,
    /// Task register.
    pub tr: Segment,
    /// Global descriptor table.
    pub gdtr: DescriptorTable,
    /// Interrupt descriptor table.
    pub idtr: DescriptorTable,
    /// See the `CR0_*` constants of [`crate::control`].
    pub cr0: u64,
    /// Linear address of the last page fault.
    pub cr2: u64,
    /// Physical address of the top paging structure.
    pub cr3: u64,
    /// See the `CR4_*` constants of [`crate::control`].
    pub cr4: u64,
    /// The four page-directory pointers that PAE paging loads with CR3.
    pub pae_pointers: [u64; 4],
    /// DR0 to DR3, (unused), (unused), DR6, DR7.
    pub debug: [u64; 8],
    /// Model-specific registers that belong to the CPU.
    pub msrs: Msrs,
    /// Whether it executes instructions.
    pub activity: Activity,
    /// Interrupts are held off for one instruction (after STI, MOV SS, POP SS).
    pub interrupt_shadow: bool,
    /// NMIs are held off until the next IRET.
    pub nmi_blocked: bool,
    /// An NMI arrived while they were held off.
    pub nmi_pending: bool,
    /// DR6 bits of a debug trap to take before the next instruction.
    pub debug_trap: u64,
    /// The exception of the instruction that returned [`crate::Stop::Fault`].
    #[serde(skip)]
    pub pending_fault: Option<Exception>,
    #[serde(skip)]
    pub(crate) derived: Derived,
    #[serde(skip)]
    pub(crate) tlb: Tlb,
}

/// Model-specific registers that the CPU keeps. Those of the local APIC and of the platform are the machine's
/// ([`crate::Bus::read_msr`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // Named as in the manuals.
pub struct Msrs {
    pub efer: u64,
    pub star: u64,
    pub lstar: u64,
    pub cstar: u64,
    pub sfmask: u64,
    pub kernel_gs_base: u64,
    pub sysenter_cs: u64,
    pub sysenter_esp: u64,
    pub sysenter_eip: u64,
    pub pat: u64,
    pub tsc_aux: u64,
    /// IA32_TSC_ADJUST; what the TSC reads as is [`crate::Bus::time_stamp`] plus [`Self::tsc_offset`].
    pub tsc_adjust: u64,
    pub tsc_offset: u64,
    pub misc_enable: u64,
    pub mtrr_default_type: u64,
    pub mtrr_fixed: [u64; 11],
    /// Base and mask of the eight variable ranges.
    pub mtrr_variable: [u64; 16],
}

/// Whether a CPU executes instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    /// It does.
    #[default]
    Running,
    /// Not until the next interrupt: after HLT.
    Halted,
    /// Not until a start-up IPI ([`Cpu::start_up`]): after INIT, on all but the boot CPU.
    WaitForStartUp,
    /// Not until it is reset: after a triple fault.
    Shutdown,
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
