//! Halting, spinning, and software interrupts.

use iced_x86::{Instruction, Mnemonic};

use crate::flags::OF;
use crate::op::{Handler, Op};
use crate::{Cpu, Env, Stop};

pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    let handler: Handler = match instruction.mnemonic() {
        Mnemonic::Hlt => halt,
        Mnemonic::Pause => pause,
        Mnemonic::Int => interrupt,
        Mnemonic::Int3 => breakpoint,
        Mnemonic::Int1 => debug_interrupt,
        Mnemonic::Into => overflow,
        _ => return None,
    };
    Some(handler)
}

fn halt(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.require_privilege()?;
    Err(Stop::Halt)
}

fn pause(_cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    Err(Stop::Pause)
}

fn interrupt(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.software_interrupt(env, op.immediate as u8)
}

fn breakpoint(cpu: &mut Cpu, env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.software_interrupt(env, 3)
}

fn debug_interrupt(cpu: &mut Cpu, env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.debug_interrupt(env)
}

fn overflow(cpu: &mut Cpu, env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    if cpu.rflags() & OF != 0 { cpu.software_interrupt(env, 4) } else { Ok(()) }
}
