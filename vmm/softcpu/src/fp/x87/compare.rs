//! x87 comparisons and `FXAM`.

use iced_x86::{Code, Instruction};

use super::arithmetic::load;
use super::stack::{C0, C1, C2, C3, CODES};
use crate::flags::{ARITHMETIC, CF, PF, ZF};
use crate::fp::Extended;
use crate::fp::host::x87::{self as host, MemoryOperation, StackOperation};
use crate::op::{Handler, Op};
use crate::{Cpu, Env, Stop};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    Some(match instruction.code() {
        Code::Fcom_st0_sti | Code::Fcom_st0_sti_DCD0 => registers::<host::Fcom, 0>,
        Code::Fcomp_st0_sti | Code::Fcomp_st0_sti_DCD8 | Code::Fcomp_st0_sti_DED0 => {
            registers::<host::Fcom, 1>
        }
        Code::Fucom_st0_sti => registers::<host::Fucom, 0>,
        Code::Fucomp_st0_sti => registers::<host::Fucom, 1>,
        Code::Fcompp => two_and_pop::<host::Fcom>,
        Code::Fucompp => two_and_pop::<host::Fucom>,
        Code::Fcom_m32fp => memory::<host::FcomSingle, false>,
        Code::Fcom_m64fp => memory::<host::FcomDouble, false>,
        Code::Ficom_m16int => memory::<host::FicomWord, false>,
        Code::Ficom_m32int => memory::<host::FicomDword, false>,
        Code::Fcomp_m32fp => memory::<host::FcomSingle, true>,
        Code::Fcomp_m64fp => memory::<host::FcomDouble, true>,
        Code::Ficomp_m16int => memory::<host::FicomWord, true>,
        Code::Ficomp_m32int => memory::<host::FicomDword, true>,
        Code::Fcomi_st0_sti => to_flags::<host::Fcom, false>,
        Code::Fcomip_st0_sti => to_flags::<host::Fcom, true>,
        Code::Fucomi_st0_sti => to_flags::<host::Fucom, false>,
        Code::Fucomip_st0_sti => to_flags::<host::Fucom, true>,
        Code::Ftst => test,
        Code::Fxam => examine,
        _ => return None,
    })
}

/// Compares `ST(0)` with `ST(i)` and pops `POPS` times.
fn registers<O: StackOperation, const POPS: u8>(
    cpu: &mut Cpu,
    _env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    cpu.begin_x87(op)?;
    compare::<O>(cpu, op.source, POPS);
    Ok(())
}

/// Compares `ST(0)` with `ST(1)` and pops both.
fn two_and_pop<O: StackOperation>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.begin_x87(op)?;
    compare::<O>(cpu, 1, 2);
    Ok(())
}

fn compare<O: StackOperation>(cpu: &mut Cpu, other: u8, pops: u8) {
    let fpu = &mut cpu.fpu;
    let done = if fpu.is_empty(0) || fpu.is_empty(other) {
        let masked = fpu.stack_underflow();
        fpu.status |= UNORDERED;
        masked
    } else {
        let outcome = O::run(fpu.control, fpu.st(0), fpu.st(other));
        fpu.raise(outcome.status, CODES);
        !fpu.prevents_result(outcome.status)
    };
    if done {
        (0..pops).for_each(|_| fpu.pop());
    }
}

/// Compares `ST(0)` with a number in memory.
fn memory<O: MemoryOperation, const POP: bool>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    cpu.enter_x87()?;
    let memory = load::<O>(cpu, env, op)?;
    cpu.note_instruction_and_data(op);
    let fpu = &mut cpu.fpu;
    let done = if fpu.is_empty(0) {
        let masked = fpu.stack_underflow();
        fpu.status |= UNORDERED;
        masked
    } else {
        let outcome = O::run(fpu.control, fpu.st(0), memory);
        fpu.raise(outcome.status, CODES);
        !fpu.prevents_result(outcome.status)
    };
    if done && POP {
        fpu.pop();
    }
    Ok(())
}

/// `FCOMI` and `FUCOMI`: the condition codes go to RFLAGS and stay as they are.
fn to_flags<O: StackOperation, const POP: bool>(
    cpu: &mut Cpu,
    _env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    cpu.begin_x87(op)?;
    let fpu = &mut cpu.fpu;
    let (codes, done) = if fpu.is_empty(0) || fpu.is_empty(op.source) {
        (UNORDERED, fpu.stack_underflow())
    } else {
        let outcome = O::run(fpu.control, fpu.st(0), fpu.st(op.source));
        fpu.raise(outcome.status, 0);
        (outcome.status, !fpu.prevents_result(outcome.status))
    };
    if done && POP {
        fpu.pop();
    }
    let flag = |code: u16, flag: u64| if codes & code != 0 { flag } else { 0 };
    let flags = flag(C3, ZF) | flag(C2, PF) | flag(C0, CF);
    cpu.set_rflags(cpu.rflags() & !ARITHMETIC | flags);
    Ok(())
}

/// `FTST`: compares `ST(0)` with zero.
fn test(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.begin_x87(op)?;
    let fpu = &mut cpu.fpu;
    if fpu.is_empty(0) {
        fpu.stack_underflow();
        fpu.status |= UNORDERED;
        return Ok(());
    }
    let outcome = host::Ftst::run(fpu.control, fpu.st(0), Extended::default());
    fpu.raise(outcome.status, CODES);
    Ok(())
}

/// `FXAM`: classifies `ST(0)`, empty or not.
fn examine(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.begin_x87(op)?;
    let fpu = &mut cpu.fpu;
    let class = host::Fxam::run(fpu.control, fpu.st(0), Extended::default()).status & CODES;
    let class = if fpu.is_empty(0) { class & C1 | C3 | C0 } else { class };
    fpu.raise(class, CODES);
    Ok(())
}

/// The condition codes of operands that cannot be compared.
const UNORDERED: u16 = C3 | C2 | C0;
