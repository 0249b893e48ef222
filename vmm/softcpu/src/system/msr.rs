//! Model-specific registers, as far as they are the CPU's own.

use iced_x86::{Instruction, Mnemonic};

use crate::access::is_canonical;
use crate::control::*;
use crate::cpu::{RAX, RCX, RDX};
use crate::op::{Handler, Op};
use crate::segment::{FS, GS};
use crate::{Cpu, Env, Exception, GeneralProtection, Stop};

pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    let handler: Handler = match instruction.mnemonic() {
        Mnemonic::Rdmsr => read,
        Mnemonic::Wrmsr => write,
        _ => return None,
    };
    Some(handler)
}

fn read(cpu: &mut Cpu, env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.require_privilege()?;
    let index = cpu.get(RCX);
    let value = match cpu.read_own_msr(env, index) {
        Some(value) => value,
        None => {
            let at = env.position(cpu);
            env.end_block();
            match env.bus.read_msr(at, index) {
                Ok(value) => value,
                Err(GeneralProtection) => return Err(cpu.fault(Exception::general_protection(0))),
            }
        }
    };
    cpu.set_pair(value);
    Ok(())
}

fn write(cpu: &mut Cpu, env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.require_privilege()?;
    let index = cpu.get(RCX);
    let value = u64::from(cpu.get::<u32>(RDX)) << 32 | u64::from(cpu.get::<u32>(RAX));
    let written = match cpu.write_own_msr(env, index, value) {
        Some(written) => written,
        None => {
            let at = env.position(cpu);
            env.end_block();
            env.bus.write_msr(at, index, value)
        }
    };
    match written {
        Ok(()) => Err(Stop::Resume),
        Err(GeneralProtection) => Err(cpu.fault(Exception::general_protection(0))),
    }
}

impl Cpu {
    /// The value of MSR `index`; `None` when it is not the CPU's.
    fn read_own_msr(&mut self, env: &mut Env<'_>, index: u32) -> Option<u64> {
        Some(match index {
            IA32_TIME_STAMP_COUNTER => self.time_stamp(env),
            IA32_FS_BASE => self.segments[FS].base,
            IA32_GS_BASE => self.segments[GS].base,
            IA32_MTRRCAP => MTRR_CAPABILITIES,
            // No machine-check banks.
            IA32_MCG_CAP | IA32_MCG_STATUS => 0,
            AMD_SYSCFG | AMD_HWCR | AMD_INTERRUPT_PENDING => 0,
            index => *self.plain_msr(index)?,
        })
    }

    /// Writes MSR `index`; `None` when it is not the CPU's.
    fn write_own_msr(
        &mut self,
        env: &mut Env<'_>,
        index: u32,
        value: u64,
    ) -> Option<Result<(), GeneralProtection>> {
        let valid = match index {
            IA32_LSTAR | IA32_CSTAR | IA32_SYSENTER_ESP | IA32_SYSENTER_EIP => is_canonical(value),
            IA32_FS_BASE | IA32_GS_BASE | IA32_KERNEL_GS_BASE => is_canonical(value),
            IA32_PAT => value.to_le_bytes().iter().all(|kind| matches!(kind, 0 | 1 | 4..=7)),
            IA32_MTRRCAP | IA32_MCG_CAP => false,
            IA32_TSC_AUX => value >> 32 == 0,
            _ => true,
        };
        if !valid {
            return Some(Err(GeneralProtection));
        }
        match index {
            IA32_TIME_STAMP_COUNTER => {
                let change = value.wrapping_sub(self.time_stamp(env));
                self.msrs.tsc_offset = self.msrs.tsc_offset.wrapping_add(change);
                self.msrs.tsc_adjust = self.msrs.tsc_adjust.wrapping_add(change);
            }
            IA32_TSC_ADJUST => {
                let change = value.wrapping_sub(self.msrs.tsc_adjust);
                self.msrs.tsc_offset = self.msrs.tsc_offset.wrapping_add(change);
                self.msrs.tsc_adjust = value;
            }
            IA32_EFER => return Some(self.set_efer(value)),
            IA32_FS_BASE => self.segments[FS].base = value,
            IA32_GS_BASE => self.segments[GS].base = value,
            IA32_MCG_STATUS | AMD_SYSCFG | AMD_HWCR | AMD_INTERRUPT_PENDING => {}
            index => *self.plain_msr(index)? = value,
        }
        Some(Ok(()))
    }

    fn set_efer(&mut self, value: u64) -> Result<(), GeneralProtection> {
        let changed = (value ^ self.msrs.efer) & !EFER_LMA;
        if value & !self.derived.features.efer != 0 || changed & EFER_LME != 0 && self.cr0 & CR0_PG != 0 {
            return Err(GeneralProtection);
        }
        self.msrs.efer = value & !EFER_LMA | self.msrs.efer & EFER_LMA;
        if changed & EFER_NXE != 0 {
            self.tlb.flush();
        }
        Ok(())
    }

    /// Registers that simply hold what is written to them.
    fn plain_msr(&mut self, index: u32) -> Option<&mut u64> {
        let msrs = &mut self.msrs;
        Some(match index {
            IA32_EFER => &mut msrs.efer,
            IA32_STAR => &mut msrs.star,
            IA32_LSTAR => &mut msrs.lstar,
            IA32_CSTAR => &mut msrs.cstar,
            IA32_FMASK => &mut msrs.sfmask,
            IA32_KERNEL_GS_BASE => &mut msrs.kernel_gs_base,
            IA32_TSC_AUX => &mut msrs.tsc_aux,
            IA32_TSC_ADJUST => &mut msrs.tsc_adjust,
            IA32_SYSENTER_CS => &mut msrs.sysenter_cs,
            IA32_SYSENTER_ESP => &mut msrs.sysenter_esp,
            IA32_SYSENTER_EIP => &mut msrs.sysenter_eip,
            IA32_PAT => &mut msrs.pat,
            IA32_MISC_ENABLE => &mut msrs.misc_enable,
            IA32_MTRR_DEF_TYPE => &mut msrs.mtrr_default_type,
            0x200..=0x20f => &mut msrs.mtrr_variable[(index - 0x200) as usize],
            0x250 => &mut msrs.mtrr_fixed[0],
            0x258 | 0x259 => &mut msrs.mtrr_fixed[(index - 0x258 + 1) as usize],
            0x268..=0x26f => &mut msrs.mtrr_fixed[(index - 0x268 + 3) as usize],
            _ => return None,
        })
    }
}

const IA32_TIME_STAMP_COUNTER: u32 = 0x10;
const IA32_TSC_ADJUST: u32 = 0x3b;
const IA32_MTRRCAP: u32 = 0xfe;
const IA32_SYSENTER_CS: u32 = 0x174;
const IA32_SYSENTER_ESP: u32 = 0x175;
const IA32_SYSENTER_EIP: u32 = 0x176;
const IA32_MCG_CAP: u32 = 0x179;
const IA32_MCG_STATUS: u32 = 0x17a;
const IA32_MISC_ENABLE: u32 = 0x1a0;
const IA32_PAT: u32 = 0x277;
const IA32_MTRR_DEF_TYPE: u32 = 0x2ff;
const IA32_EFER: u32 = 0xc000_0080;
const IA32_STAR: u32 = 0xc000_0081;
const IA32_LSTAR: u32 = 0xc000_0082;
const IA32_CSTAR: u32 = 0xc000_0083;
const IA32_FMASK: u32 = 0xc000_0084;
const IA32_FS_BASE: u32 = 0xc000_0100;
const IA32_GS_BASE: u32 = 0xc000_0101;
const IA32_KERNEL_GS_BASE: u32 = 0xc000_0102;
const IA32_TSC_AUX: u32 = 0xc000_0103;
const AMD_SYSCFG: u32 = 0xc001_0010;
const AMD_HWCR: u32 = 0xc001_0015;
const AMD_INTERRUPT_PENDING: u32 = 0xc001_0055;
/// Eight variable ranges, fixed ranges, write-combining.
const MTRR_CAPABILITIES: u64 = 0x508;
