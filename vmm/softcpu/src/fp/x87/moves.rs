//! x87 loads, stores, constants and register moves.

use iced_x86::{Code, Instruction};

use super::arithmetic::load;
use super::stack::{C1, INDEFINITE, INVALID, STACK_FAULT};
use crate::flags::{CF, PF, ZF};
use crate::fp::Extended;
use crate::fp::host::x87::{self as host, MemoryOperation, Outcome, StackOperation, StoreOperation};
use crate::op::{Handler, Op};
use crate::{Access, Cpu, Env, Stop};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    Some(match instruction.code() {
        Code::Fld_m32fp => load_memory::<host::FldSingle>,
        Code::Fld_m64fp => load_memory::<host::FldDouble>,
        Code::Fld_m80fp => load_memory::<host::FldExtended>,
        Code::Fild_m16int => load_memory::<host::FildWord>,
        Code::Fild_m32int => load_memory::<host::FildDword>,
        Code::Fild_m64int => load_memory::<host::FildQword>,
        Code::Fbld_m80bcd => load_memory::<host::Fbld>,
        Code::Fld1 => load_constant::<host::Fld1>,
        Code::Fldl2t => load_constant::<host::Fldl2t>,
        Code::Fldl2e => load_constant::<host::Fldl2e>,
        Code::Fldpi => load_constant::<host::Fldpi>,
        Code::Fldlg2 => load_constant::<host::Fldlg2>,
        Code::Fldln2 => load_constant::<host::Fldln2>,
        Code::Fldz => load_constant::<host::Fldz>,
        Code::Fld_sti => load_register,
        Code::Fst_m32fp => store_memory::<host::FstpSingle, false>,
        Code::Fst_m64fp => store_memory::<host::FstpDouble, false>,
        Code::Fist_m16int => store_memory::<host::FistpWord, false>,
        Code::Fist_m32int => store_memory::<host::FistpDword, false>,
        Code::Fstp_m32fp => store_memory::<host::FstpSingle, true>,
        Code::Fstp_m64fp => store_memory::<host::FstpDouble, true>,
        Code::Fstp_m80fp => store_memory::<host::FstpExtended, true>,
        Code::Fistp_m16int => store_memory::<host::FistpWord, true>,
        Code::Fistp_m32int => store_memory::<host::FistpDword, true>,
        Code::Fistp_m64int => store_memory::<host::FistpQword, true>,
        Code::Fisttp_m16int => store_memory::<host::FisttpWord, true>,
        Code::Fisttp_m32int => store_memory::<host::FisttpDword, true>,
        Code::Fisttp_m64int => store_memory::<host::FisttpQword, true>,
        Code::Fbstp_m80bcd => store_memory::<host::Fbstp, true>,
        Code::Fst_sti => store_register::<false>,
        Code::Fstp_sti | Code::Fstp_sti_DFD0 | Code::Fstp_sti_DFD8 => store_register::<true>,
        Code::Fstpnce_sti => store_register_unchecked,
        Code::Fxch_st0_sti | Code::Fxch_st0_sti_DDC8 | Code::Fxch_st0_sti_DFC8 => exchange,
        Code::Fcmovb_st0_sti => conditional::<CF, true>,
        Code::Fcmove_st0_sti => conditional::<ZF, true>,
        Code::Fcmovbe_st0_sti => conditional::<{ CF | ZF }, true>,
        Code::Fcmovu_st0_sti => conditional::<PF, true>,
        Code::Fcmovnb_st0_sti => conditional::<CF, false>,
        Code::Fcmovne_st0_sti => conditional::<ZF, false>,
        Code::Fcmovnbe_st0_sti => conditional::<{ CF | ZF }, false>,
        Code::Fcmovnu_st0_sti => conditional::<PF, false>,
        _ => return None,
    })
}

fn load_memory<O: MemoryOperation>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_x87()?;
    let memory = load::<O>(cpu, env, op)?;
    cpu.note_instruction_and_data(op);
    let control = cpu.fpu.control;
    push_result(cpu, || O::run(control, Extended::default(), memory));
    Ok(())
}

fn load_constant<O: StackOperation>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.begin_x87(op)?;
    let control = cpu.fpu.control;
    push_result(cpu, || O::run(control, Extended::default(), Extended::default()));
    Ok(())
}

/// Pushes what `load` comes to, if there is room.
fn push_result(cpu: &mut Cpu, load: impl FnOnce() -> Outcome) {
    let fpu = &mut cpu.fpu;
    if fpu.is_full() {
        if fpu.stack_overflow() {
            fpu.push(INDEFINITE);
        }
        return;
    }
    let outcome = load();
    fpu.raise(outcome.status, C1);
    if !fpu.prevents_result(outcome.status & INVALID) {
        fpu.push(outcome.st0);
    }
}

/// `FLD ST(i)`
fn load_register(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.begin_x87(op)?;
    let fpu = &mut cpu.fpu;
    let empty = fpu.is_empty(op.destination);
    if empty || fpu.is_full() {
        let masked = if empty { fpu.stack_underflow() } else { fpu.stack_overflow() };
        if masked {
            fpu.push(INDEFINITE);
        }
        return Ok(());
    }
    fpu.status &= !C1;
    fpu.push(fpu.st(op.destination));
    Ok(())
}

fn store_memory<O: StoreOperation, const POP: bool>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    cpu.enter_x87()?;
    // A fault on the store must leave no trace: the flags are noted after it.
    let (memory, status) = if cpu.fpu.is_empty(0) {
        (O::INDEFINITE, INVALID | STACK_FAULT)
    } else {
        O::run(cpu.fpu.control, cpu.fpu.st(0))
    };
    let stores = !cpu.fpu.prevents_store(status);
    let linear = cpu.linear(op, O::BYTES, Access::Write)?;
    if stores {
        cpu.store_bytes(env, linear, &memory[..O::BYTES])?;
    } else {
        cpu.check_writable(env, linear, O::BYTES)?;
    }
    cpu.note_instruction_and_data(op);
    cpu.fpu.raise(status, C1);
    cpu.fpu.status |= status & STACK_FAULT;
    if stores && POP {
        cpu.fpu.pop();
    }
    Ok(())
}

/// `FST ST(i)`, `FSTP ST(i)`
fn store_register<const POP: bool>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.begin_x87(op)?;
    let fpu = &mut cpu.fpu;
    if fpu.is_empty(0) {
        if !fpu.stack_underflow() {
            return Ok(());
        }
        fpu.set_st(op.destination, INDEFINITE);
    } else {
        fpu.status &= !C1;
        fpu.set_st(op.destination, fpu.st(0));
    }
    if POP {
        fpu.pop();
    }
    Ok(())
}

/// Undocumented: `FSTP ST(i)` that does not report an empty register; nothing is stored then.
fn store_register_unchecked(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.begin_x87(op)?;
    let fpu = &mut cpu.fpu;
    fpu.status &= !C1;
    if !fpu.is_empty(0) {
        fpu.set_st(op.destination, fpu.st(0));
    }
    fpu.pop();
    Ok(())
}

/// `FXCH`
fn exchange(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.begin_x87(op)?;
    let fpu = &mut cpu.fpu;
    if fpu.is_empty(0) || fpu.is_empty(op.source) {
        if !fpu.stack_underflow() {
            return Ok(());
        }
        for number in [0, op.source] {
            if fpu.is_empty(number) {
                fpu.set_st(number, INDEFINITE);
            }
        }
    } else {
        fpu.status &= !C1;
    }
    let (first, second) = (fpu.st(0), fpu.st(op.source));
    fpu.set_st(0, second);
    fpu.set_st(op.source, first);
    Ok(())
}

/// `FCMOVcc`: moves when any of `FLAGS` being set is `SET`.
fn conditional<const FLAGS: u64, const SET: bool>(
    cpu: &mut Cpu,
    _env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    cpu.begin_x87(op)?;
    let condition = (cpu.rflags() & FLAGS != 0) == SET;
    let fpu = &mut cpu.fpu;
    if fpu.is_empty(0) || fpu.is_empty(op.source) {
        if fpu.stack_underflow() {
            fpu.set_st(0, INDEFINITE);
        }
        return Ok(());
    }
    if condition {
        fpu.set_st(0, fpu.st(op.source));
    }
    Ok(())
}
