//! Instructions on the x87 unit as a whole: control and status words, stack pointer, tags. And `EMMS`.

use iced_x86::{Code, Instruction};

use super::stack::C1;
use crate::cpu::RAX;
use crate::op::{Handler, Op};
use crate::{Cpu, Env, Stop};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    Some(match instruction.code() {
        Code::Fninit => fninit,
        Code::Fnclex => fnclex,
        Code::Fldcw_m2byte => fldcw,
        Code::Fnstcw_m2byte => fnstcw,
        Code::Fnstsw_m2byte => fnstsw,
        Code::Fnstsw_AX => fnstsw_ax,
        Code::Wait => wait,
        Code::Emms => emms,
        // Enabling and disabling interrupts (8087) and protected mode (80287) have had no effect since.
        Code::Fneni | Code::Fndisi | Code::Fnsetpm => no_operation_without_wait,
        Code::Fnop => no_operation,
        Code::Fincstp => fincstp,
        Code::Fdecstp => fdecstp,
        Code::Ffree_sti => ffree,
        Code::Ffreep_sti => ffreep,
        _ => return None,
    })
}

fn fninit(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.enter_x87_without_wait()?;
    cpu.fpu.init_x87();
    Ok(())
}

fn fnclex(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.enter_x87_without_wait()?;
    cpu.fpu.status &= !EXCEPTIONS_AND_STACK_FAULT;
    Ok(())
}

fn fldcw(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_x87()?;
    let control = cpu.load_operand::<u16>(env, op)?;
    cpu.fpu.set_control_word(control);
    Ok(())
}

fn fnstcw(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_x87_without_wait()?;
    cpu.store_operand(env, op, cpu.fpu.control)
}

fn fnstsw(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_x87_without_wait()?;
    cpu.store_operand(env, op, cpu.fpu.status_word())
}

fn fnstsw_ax(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.enter_x87_without_wait()?;
    cpu.set::<u16>(RAX, cpu.fpu.status_word());
    Ok(())
}

fn wait(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.enter_wait()
}

fn emms(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.enter_mmx()?;
    cpu.fpu.top = 0;
    cpu.fpu.occupied = 0;
    Ok(())
}

fn no_operation(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.enter_x87()
}

fn no_operation_without_wait(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.enter_x87_without_wait()
}

fn fincstp(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.enter_x87()?;
    cpu.fpu.top = (cpu.fpu.top + 1) & 7;
    cpu.fpu.status &= !C1;
    Ok(())
}

fn fdecstp(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.enter_x87()?;
    cpu.fpu.top = cpu.fpu.top.wrapping_sub(1) & 7;
    cpu.fpu.status &= !C1;
    Ok(())
}

fn ffree(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_x87()?;
    cpu.fpu.free(op.destination);
    cpu.fpu.status &= !C1;
    Ok(())
}

/// Undocumented but the same everywhere: `FFREE`, then pop.
fn ffreep(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    ffree(cpu, env, op)?;
    cpu.fpu.pop();
    Ok(())
}

/// The exception flags with the stack fault bit.
const EXCEPTIONS_AND_STACK_FAULT: u16 = 0x7f;
