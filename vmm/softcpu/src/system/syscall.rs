//! Fast system calls, and the FS and GS bases.

use iced_x86::{Instruction, Mnemonic};

use crate::access::is_canonical;
use crate::control::{CR4_FSGSBASE, EFER_SCE};
use crate::cpu::{RCX, RDX, RSP};
use crate::flags::{IF, RF, VM};
use crate::op::{Handler, Op};
use crate::segment::*;
use crate::{Cpu, Env, Exception, Stop, Width};

pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    let handler: Handler = match instruction.mnemonic() {
        Mnemonic::Syscall => syscall,
        Mnemonic::Sysret => sysret::<false>,
        Mnemonic::Sysretq => sysret::<true>,
        Mnemonic::Sysenter => sysenter,
        Mnemonic::Sysexit => sysexit::<false>,
        Mnemonic::Sysexitq => sysexit::<true>,
        Mnemonic::Swapgs => swap_gs,
        Mnemonic::Rdfsbase => match instruction.op0_register().size() {
            4 => read_base::<u32, FS>,
            _ => read_base::<u64, FS>,
        },
        Mnemonic::Rdgsbase => match instruction.op0_register().size() {
            4 => read_base::<u32, GS>,
            _ => read_base::<u64, GS>,
        },
        Mnemonic::Wrfsbase => match instruction.op0_register().size() {
            4 => write_base::<u32, FS>,
            _ => write_base::<u64, FS>,
        },
        Mnemonic::Wrgsbase => match instruction.op0_register().size() {
            4 => write_base::<u32, GS>,
            _ => write_base::<u64, GS>,
        },
        _ => return None,
    };
    Some(handler)
}

impl Cpu {
    /// Loads CS and SS with the flat segments that fast system calls imply.
    fn load_flat_segments(&mut self, code: u16, stack: u16, width: u16) {
        const CODE: u16 = TYPE_CODE | TYPE_WRITABLE | TYPE_ACCESSED;
        self.segments[CS] = Segment::flat(code, CODE, width);
        self.segments[SS] = Segment::flat(stack, TYPE_WRITABLE | TYPE_ACCESSED, ATTRIBUTE_32_BIT);
        self.refresh();
    }
}

fn syscall(cpu: &mut Cpu, env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    if cpu.msrs.efer & EFER_SCE == 0 || !cpu.is_long_mode() {
        return Err(cpu.fault(Exception::INVALID_OPCODE));
    }
    let flags = cpu.rflags() & !RF;
    let target = if cpu.is_64_bit() { cpu.msrs.lstar } else { cpu.msrs.cstar };
    cpu.registers[RCX as usize] = cpu.rip();
    cpu.registers[R11] = flags;
    cpu.set_rflags(flags & !cpu.msrs.sfmask);
    cpu.set_rip(target);
    let selector = (cpu.msrs.star >> 32) as u16 & !3;
    cpu.load_flat_segments(selector, selector.wrapping_add(8), ATTRIBUTE_LONG);
    env.look = true;
    Err(Stop::Resume)
}

fn sysret<const LONG: bool>(cpu: &mut Cpu, env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    if cpu.msrs.efer & EFER_SCE == 0 || !cpu.is_64_bit() {
        return Err(cpu.fault(Exception::INVALID_OPCODE));
    }
    cpu.require_privilege()?;
    let target = cpu.registers[RCX as usize];
    if LONG && !is_canonical(target) {
        return Err(cpu.fault(Exception::general_protection(0)));
    }
    cpu.set_rflags(cpu.registers[R11] & RETURN_FLAGS);
    let base = (cpu.msrs.star >> 48) as u16;
    let stack = base.wrapping_add(8) | 3;
    if LONG {
        cpu.set_rip(target);
        cpu.load_flat_segments(base.wrapping_add(16) | 3, stack, ATTRIBUTE_LONG);
    } else {
        cpu.set_rip(target & 0xffff_ffff);
        cpu.load_flat_segments(base | 3, stack, ATTRIBUTE_32_BIT);
    }
    env.look = true;
    Err(Stop::Resume)
}

fn sysenter(cpu: &mut Cpu, env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    let selector = cpu.msrs.sysenter_cs as u16 & !3;
    if !cpu.is_protected() || selector == 0 {
        return Err(cpu.fault(Exception::general_protection(0)));
    }
    cpu.system_flags &= !(VM | IF | RF);
    let (mask, width) =
        if cpu.is_long_mode() { (u64::MAX, ATTRIBUTE_LONG) } else { (0xffff_ffff, ATTRIBUTE_32_BIT) };
    cpu.registers[RSP as usize] = cpu.msrs.sysenter_esp & mask;
    cpu.set_rip(cpu.msrs.sysenter_eip & mask);
    cpu.load_flat_segments(selector, selector.wrapping_add(8), width);
    env.look = true;
    Err(Stop::Resume)
}

fn sysexit<const LONG: bool>(cpu: &mut Cpu, env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    let selector = cpu.msrs.sysenter_cs as u16 & !3;
    if !cpu.is_protected() || selector == 0 {
        return Err(cpu.fault(Exception::general_protection(0)));
    }
    cpu.require_privilege()?;
    let (target, stack) = (cpu.registers[RDX as usize], cpu.registers[RCX as usize]);
    if LONG {
        if !is_canonical(target) || !is_canonical(stack) {
            return Err(cpu.fault(Exception::general_protection(0)));
        }
        cpu.set_rip(target);
        cpu.registers[RSP as usize] = stack;
        cpu.load_flat_segments(selector.wrapping_add(32) | 3, selector.wrapping_add(40) | 3, ATTRIBUTE_LONG);
    } else {
        cpu.set_rip(target & 0xffff_ffff);
        cpu.registers[RSP as usize] = stack & 0xffff_ffff;
        cpu.load_flat_segments(
            selector.wrapping_add(16) | 3,
            selector.wrapping_add(24) | 3,
            ATTRIBUTE_32_BIT,
        );
    }
    env.look = true;
    Err(Stop::Resume)
}

fn swap_gs(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    if !cpu.is_64_bit() {
        return Err(cpu.fault(Exception::INVALID_OPCODE));
    }
    cpu.require_privilege()?;
    std::mem::swap(&mut cpu.segments[GS].base, &mut cpu.msrs.kernel_gs_base);
    Ok(())
}

impl Cpu {
    fn require_base_access(&mut self) -> Result<(), Stop> {
        if self.cr4 & CR4_FSGSBASE != 0 { Ok(()) } else { Err(self.fault(Exception::INVALID_OPCODE)) }
    }
}

fn read_base<T: Width, const SEGMENT: usize>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.require_base_access()?;
    cpu.set(op.destination, T::truncate(cpu.segments[SEGMENT].base));
    Ok(())
}

fn write_base<T: Width, const SEGMENT: usize>(
    cpu: &mut Cpu,
    _env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    cpu.require_base_access()?;
    let base = cpu.get::<T>(op.destination).zero_extend();
    if !is_canonical(base) {
        return Err(cpu.fault(Exception::general_protection(0)));
    }
    cpu.segments[SEGMENT].base = base;
    Ok(())
}

const R11: usize = 11;
/// The flags that SYSRET takes from R11.
const RETURN_FLAGS: u64 = 0x3c_7fd7;
