//! Control and debug registers, TLB and cache management.

use iced_x86::{Instruction, Mnemonic};

use crate::access::is_canonical;
use crate::control::*;
use crate::op::{FLAT, Handler, Op};
use crate::{Access, Cpu, Env, Exception, Stop};

pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    let handler: Handler = match instruction.mnemonic() {
        Mnemonic::Mov if instruction.op0_register().is_cr() => write_control,
        Mnemonic::Mov if instruction.op1_register().is_cr() => read_control,
        Mnemonic::Mov if instruction.op0_register().is_dr() => write_debug,
        Mnemonic::Mov if instruction.op1_register().is_dr() => read_debug,
        Mnemonic::Clts => clear_task_switched,
        Mnemonic::Invlpg => invalidate_page,
        Mnemonic::Invd | Mnemonic::Wbinvd => flush_caches,
        Mnemonic::Clflush => flush_line,
        _ => return None,
    };
    Some(handler)
}

impl Cpu {
    /// MOV to CR0 and LMSW.
    pub(super) fn set_cr0(&mut self, env: &mut Env<'_>, value: u64) -> Result<(), Stop> {
        let paging = value & CR0_PG != 0;
        let inconsistent = value >> 32 != 0
            || paging && value & CR0_PE == 0
            || value & CR0_NW != 0 && value & CR0_CD == 0
            || !paging && self.is_64_bit() && self.cr0 & CR0_PG != 0;
        if inconsistent {
            return Err(self.fault(Exception::general_protection(0)));
        }
        let value = value & CR0_KNOWN | CR0_ET;
        let changed = value ^ self.cr0;
        if changed & CR0_PG != 0 {
            if paging && self.msrs.efer & EFER_LME != 0 {
                if self.cr4 & CR4_PAE == 0 || self.segments[crate::segment::CS].is_long() {
                    return Err(self.fault(Exception::general_protection(0)));
                }
                self.msrs.efer |= EFER_LMA;
            } else if paging && self.cr4 & CR4_PAE != 0 {
                self.load_pae_pointers(env, self.cr3)?;
            } else if !paging {
                self.msrs.efer &= !EFER_LMA;
            }
        }
        self.cr0 = value;
        if changed & (CR0_PG | CR0_WP | CR0_PE) != 0 {
            self.tlb.flush();
        }
        self.refresh();
        Ok(())
    }

    fn set_cr3(&mut self, env: &mut Env<'_>, value: u64) -> Result<(), Stop> {
        if self.is_long_mode() {
            if value >> self.derived.features.physical_bits != 0 {
                return Err(self.fault(Exception::general_protection(0)));
            }
        } else if self.cr0 & CR0_PG != 0 && self.cr4 & CR4_PAE != 0 {
            self.load_pae_pointers(env, value)?;
        }
        self.cr3 = value;
        self.tlb.flush_local();
        Ok(())
    }

    fn set_cr4(&mut self, env: &mut Env<'_>, value: u64) -> Result<(), Stop> {
        let leaves_pae = value & CR4_PAE == 0 && self.is_long_mode();
        if value & !self.derived.features.cr4 != 0 || leaves_pae {
            return Err(self.fault(Exception::general_protection(0)));
        }
        let changed = value ^ self.cr4;
        let paging_bits = CR4_PSE | CR4_PAE | CR4_PGE | CR4_SMEP | CR4_SMAP;
        if changed & paging_bits != 0 {
            if value & CR4_PAE != 0 && self.cr0 & CR0_PG != 0 && !self.is_long_mode() {
                self.load_pae_pointers(env, self.cr3)?;
            }
            self.tlb.flush();
        }
        self.cr4 = value;
        self.refresh();
        Ok(())
    }

    fn load_pae_pointers(&mut self, env: &mut Env<'_>, cr3: u64) -> Result<(), Stop> {
        match self.read_pae_pointers(env.memory, cr3) {
            Some(pointers) => {
                self.pae_pointers = pointers;
                Ok(())
            }
            None => Err(self.fault(Exception::general_protection(0))),
        }
    }

    /// A general-purpose register as MOV to and from system registers sees it: 64 bits in 64-bit mode, else 32.
    fn natural(&self, register: u8) -> u64 {
        if self.is_64_bit() { self.get::<u64>(register) } else { u64::from(self.get::<u32>(register)) }
    }

    fn set_natural(&mut self, register: u8, value: u64) {
        if self.is_64_bit() { self.set(register, value) } else { self.set(register, value as u32) }
    }

    /// The index of debug register `number`, after the checks that all accesses share.
    fn debug_register(&mut self, number: u8) -> Result<usize, Stop> {
        self.require_privilege()?;
        let number = match number {
            4 | 5 if self.cr4 & CR4_DE == 0 => number + 2,
            0..=3 | 6 | 7 => number,
            _ => return Err(self.fault(Exception::INVALID_OPCODE)),
        };
        if self.debug[7] & DR7_GD != 0 {
            self.debug[7] &= !DR7_GD;
            self.debug[6] |= DR6_BD;
            return Err(self.fault(Exception::DEBUG));
        }
        Ok(usize::from(number))
    }
}

fn write_control(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.require_privilege()?;
    let value = cpu.natural(op.source);
    match op.destination {
        0 => cpu.set_cr0(env, value)?,
        2 => cpu.cr2 = value,
        3 => cpu.set_cr3(env, value)?,
        4 => cpu.set_cr4(env, value)?,
        8 if value > 15 => return Err(cpu.fault(Exception::general_protection(0))),
        8 => {
            let at = env.position(cpu);
            env.bus.set_task_priority(at, value as u8);
            env.end_block();
        }
        _ => return Err(cpu.fault(Exception::INVALID_OPCODE)),
    }
    Err(Stop::Resume)
}

fn read_control(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.require_privilege()?;
    let value = match op.source {
        0 => cpu.cr0,
        2 => cpu.cr2,
        3 => cpu.cr3,
        4 => cpu.cr4,
        8 => {
            let at = env.position(cpu);
            u64::from(env.bus.task_priority(at))
        }
        _ => return Err(cpu.fault(Exception::INVALID_OPCODE)),
    };
    cpu.set_natural(op.destination, value);
    Ok(())
}

fn write_debug(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let index = cpu.debug_register(op.destination)?;
    let value = cpu.natural(op.source);
    if index >= 6 && value >> 32 != 0 {
        return Err(cpu.fault(Exception::general_protection(0)));
    }
    cpu.debug[index] = match index {
        6 => value & DR6_WRITABLE | DR6_ONES,
        7 => value & DR7_WRITABLE | DR7_ONES,
        _ => value,
    };
    cpu.refresh();
    // Watched pages must not be in the TLB.
    cpu.tlb.flush();
    env.look = true;
    Err(Stop::Resume)
}

fn read_debug(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let index = cpu.debug_register(op.source)?;
    cpu.set_natural(op.destination, cpu.debug[index]);
    Ok(())
}

fn clear_task_switched(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.require_privilege()?;
    cpu.cr0 &= !CR0_TS;
    Ok(())
}

fn invalidate_page(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.require_privilege()?;
    let offset = cpu.effective(op);
    // No access is made, so there is no check either.
    let base = if op.segment == FLAT { 0 } else { cpu.segments[usize::from(op.segment) % 6].base };
    let linear = base.wrapping_add(offset);
    if is_canonical(linear) {
        cpu.tlb.flush_page(if cpu.is_64_bit() { linear } else { linear & 0xffff_ffff });
    }
    Err(Stop::Resume)
}

fn flush_caches(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.require_privilege()
}

fn flush_line(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let linear = cpu.linear(op, 1, Access::Read)?;
    cpu.load::<u8>(env, linear).map(|_| ())
}

const DR6_WRITABLE: u64 = 0xe00f;
const DR7_WRITABLE: u64 = 0xffff_2bff;
