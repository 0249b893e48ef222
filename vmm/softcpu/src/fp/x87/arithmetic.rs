//! x87 arithmetic on registers and memory.

use iced_x86::{Code, Instruction};

use super::stack::{C0, C1, C2, C3, CODES, INDEFINITE};
use crate::fp::Extended;
use crate::fp::host::x87::{self as host, MemoryOperation, StackOperation};
use crate::op::{Handler, Op};
use crate::{Access, Cpu, Env, Stop};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    Some(match instruction.code() {
        Code::Fadd_st0_sti => to_top::<host::Fadd>,
        Code::Fmul_st0_sti => to_top::<host::Fmul>,
        Code::Fsub_st0_sti => to_top::<host::Fsub>,
        Code::Fsubr_st0_sti => to_top::<host::Fsubr>,
        Code::Fdiv_st0_sti => to_top::<host::Fdiv>,
        Code::Fdivr_st0_sti => to_top::<host::Fdivr>,
        Code::Fadd_sti_st0 => from_top::<host::Fadd, false>,
        Code::Fmul_sti_st0 => from_top::<host::Fmul, false>,
        Code::Fsub_sti_st0 => from_top::<host::Fsub, false>,
        Code::Fsubr_sti_st0 => from_top::<host::Fsubr, false>,
        Code::Fdiv_sti_st0 => from_top::<host::Fdiv, false>,
        Code::Fdivr_sti_st0 => from_top::<host::Fdivr, false>,
        Code::Faddp_sti_st0 => from_top::<host::Fadd, true>,
        Code::Fmulp_sti_st0 => from_top::<host::Fmul, true>,
        Code::Fsubp_sti_st0 => from_top::<host::Fsub, true>,
        Code::Fsubrp_sti_st0 => from_top::<host::Fsubr, true>,
        Code::Fdivp_sti_st0 => from_top::<host::Fdiv, true>,
        Code::Fdivrp_sti_st0 => from_top::<host::Fdivr, true>,
        Code::Fadd_m32fp => from_memory::<host::FaddSingle>,
        Code::Fmul_m32fp => from_memory::<host::FmulSingle>,
        Code::Fsub_m32fp => from_memory::<host::FsubSingle>,
        Code::Fsubr_m32fp => from_memory::<host::FsubrSingle>,
        Code::Fdiv_m32fp => from_memory::<host::FdivSingle>,
        Code::Fdivr_m32fp => from_memory::<host::FdivrSingle>,
        Code::Fadd_m64fp => from_memory::<host::FaddDouble>,
        Code::Fmul_m64fp => from_memory::<host::FmulDouble>,
        Code::Fsub_m64fp => from_memory::<host::FsubDouble>,
        Code::Fsubr_m64fp => from_memory::<host::FsubrDouble>,
        Code::Fdiv_m64fp => from_memory::<host::FdivDouble>,
        Code::Fdivr_m64fp => from_memory::<host::FdivrDouble>,
        Code::Fiadd_m16int => from_memory::<host::FiaddWord>,
        Code::Fimul_m16int => from_memory::<host::FimulWord>,
        Code::Fisub_m16int => from_memory::<host::FisubWord>,
        Code::Fisubr_m16int => from_memory::<host::FisubrWord>,
        Code::Fidiv_m16int => from_memory::<host::FidivWord>,
        Code::Fidivr_m16int => from_memory::<host::FidivrWord>,
        Code::Fiadd_m32int => from_memory::<host::FiaddDword>,
        Code::Fimul_m32int => from_memory::<host::FimulDword>,
        Code::Fisub_m32int => from_memory::<host::FisubDword>,
        Code::Fisubr_m32int => from_memory::<host::FisubrDword>,
        Code::Fidiv_m32int => from_memory::<host::FidivDword>,
        Code::Fidivr_m32int => from_memory::<host::FidivrDword>,
        Code::Fsqrt => unary::<host::Fsqrt, C1>,
        Code::Frndint => unary::<host::Frndint, C1>,
        Code::F2xm1 => unary::<host::F2xm1, C1>,
        Code::Fsin => unary::<host::Fsin, { C1 | C2 }>,
        Code::Fcos => unary::<host::Fcos, { C1 | C2 }>,
        Code::Fscale => scale,
        Code::Fprem => remainder::<host::Fprem>,
        Code::Fprem1 => remainder::<host::Fprem1>,
        Code::Fyl2x => binary_pop::<host::Fyl2x>,
        Code::Fyl2xp1 => binary_pop::<host::Fyl2xp1>,
        Code::Fpatan => binary_pop::<host::Fpatan>,
        Code::Fxtract => unary_push::<host::Fxtract, C1>,
        Code::Fptan => unary_push::<host::Fptan, { C1 | C2 }>,
        Code::Fsincos => unary_push::<host::Fsincos, { C1 | C2 }>,
        Code::Fabs => sign::<false>,
        Code::Fchs => sign::<true>,
        _ => return None,
    })
}

/// `ST(0) = ST(0) op ST(i)`
fn to_top<O: StackOperation>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.begin_x87(op)?;
    between::<O>(cpu, 0, op.source, C1);
    Ok(())
}

/// `ST(i) = ST(i) op ST(0)`, popping if `POP`.
fn from_top<O: StackOperation, const POP: bool>(
    cpu: &mut Cpu,
    _env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    cpu.begin_x87(op)?;
    if between::<O>(cpu, op.destination, 0, C1) && POP {
        cpu.fpu.pop();
    }
    Ok(())
}

/// `FSCALE`: `ST(0) = ST(0) * 2^ST(1)`
fn scale(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.begin_x87(op)?;
    between::<host::Fscale>(cpu, 0, 1, C1);
    Ok(())
}

/// `FPREM` and `FPREM1`: `ST(0) = ST(0) % ST(1)`. The condition codes tell the low bits of the quotient, and
/// whether the reduction is incomplete.
fn remainder<O: StackOperation>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.begin_x87(op)?;
    let before = cpu.fpu.status;
    let done = between::<O>(cpu, 0, 1, CODES);
    if !done || cpu.fpu.st(0).is_nan() {
        // There is no quotient.
        cpu.fpu.status = cpu.fpu.status & !(C0 | C3) | before & (C0 | C3);
    }
    Ok(())
}

/// `ST(destination) = ST(destination) op ST(source)`. Says whether that happened.
fn between<O: StackOperation>(cpu: &mut Cpu, destination: u8, source: u8, codes: u16) -> bool {
    let fpu = &mut cpu.fpu;
    if fpu.is_empty(destination) || fpu.is_empty(source) {
        fpu.status &= !(codes & C2);
        let masked = fpu.stack_underflow();
        if masked {
            fpu.set_st(destination, INDEFINITE);
        }
        return masked;
    }
    let outcome = O::run(fpu.control, fpu.st(destination), fpu.st(source));
    fpu.raise(outcome.status, codes);
    let done = !fpu.prevents_result(outcome.status);
    if done {
        fpu.set_st(destination, outcome.st0);
    }
    done
}

/// `ST(1) = ST(0) op ST(1)`, then pop.
fn binary_pop<O: StackOperation>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.begin_x87(op)?;
    let fpu = &mut cpu.fpu;
    let result = if fpu.is_empty(0) || fpu.is_empty(1) {
        fpu.stack_underflow().then_some(INDEFINITE)
    } else {
        let outcome = O::run(fpu.control, fpu.st(0), fpu.st(1));
        fpu.raise(outcome.status, C1);
        (!fpu.prevents_result(outcome.status)).then_some(outcome.st0)
    };
    if let Some(result) = result {
        fpu.pop();
        fpu.set_st(0, result);
    }
    Ok(())
}

/// `ST(0) = op ST(0)`
fn unary<O: StackOperation, const CODES: u16>(
    cpu: &mut Cpu,
    _env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    cpu.begin_x87(op)?;
    let fpu = &mut cpu.fpu;
    if fpu.is_empty(0) {
        fpu.status &= !(CODES & C2);
        if fpu.stack_underflow() {
            fpu.set_st(0, INDEFINITE);
        }
        return Ok(());
    }
    let outcome = O::run(fpu.control, fpu.st(0), Extended::default());
    fpu.raise(outcome.status, CODES);
    if !fpu.prevents_result(outcome.status) {
        fpu.set_st(0, outcome.st0);
    }
    Ok(())
}

/// Two results of `ST(0)`: one replaces it, the other is pushed.
fn unary_push<O: StackOperation, const CODES: u16>(
    cpu: &mut Cpu,
    _env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    cpu.begin_x87(op)?;
    let fpu = &mut cpu.fpu;
    if fpu.is_empty(0) || fpu.is_full() {
        fpu.status &= !(CODES & C2);
        let masked = if fpu.is_empty(0) { fpu.stack_underflow() } else { fpu.stack_overflow() };
        if masked {
            fpu.set_st(0, INDEFINITE);
            fpu.push(INDEFINITE);
        }
        return Ok(());
    }
    let outcome = O::run(fpu.control, fpu.st(0), Extended::default());
    fpu.raise(outcome.status, CODES);
    let out_of_range = outcome.status & CODES & C2 != 0;
    if !out_of_range && !fpu.prevents_result(outcome.status) {
        fpu.set_st(0, outcome.st1);
        fpu.push(outcome.st0);
    }
    Ok(())
}

/// `ST(0) = ST(0) op memory`
fn from_memory<O: MemoryOperation>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_x87()?;
    let memory = load::<O>(cpu, env, op)?;
    cpu.note_instruction_and_data(op);
    let fpu = &mut cpu.fpu;
    if fpu.is_empty(0) {
        if fpu.stack_underflow() {
            fpu.set_st(0, INDEFINITE);
        }
        return Ok(());
    }
    let outcome = O::run(fpu.control, fpu.st(0), memory);
    fpu.raise(outcome.status, C1);
    if !fpu.prevents_result(outcome.status) {
        fpu.set_st(0, outcome.st0);
    }
    Ok(())
}

/// The memory operand of `O`.
pub(super) fn load<O: MemoryOperation>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<[u8; 10], Stop> {
    let linear = cpu.linear(op, O::BYTES, Access::Read)?;
    let mut memory = [0; 10];
    cpu.load_bytes(env, linear, &mut memory[..O::BYTES])?;
    Ok(memory)
}

/// `FCHS` if `FLIP`, else `FABS`. These look at the sign only: a NaN raises nothing.
fn sign<const FLIP: bool>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.begin_x87(op)?;
    let fpu = &mut cpu.fpu;
    if fpu.is_empty(0) {
        if fpu.stack_underflow() {
            fpu.set_st(0, INDEFINITE);
        }
        return Ok(());
    }
    fpu.status &= !C1;
    let value = fpu.st_mut(0);
    value.sign_exponent = if FLIP { value.sign_exponent ^ SIGN } else { value.sign_exponent & !SIGN };
    Ok(())
}

const SIGN: u16 = 1 << 15;
