//! General-purpose instructions.

use iced_x86::Mnemonic::*;
use iced_x86::{Code, Instruction, OpKind};

use crate::compare::{Tolerance, check_all, check_codes};
use crate::state::{DATA, READ_ONLY, State};
use softcpu::flags::{AF, ARITHMETIC, CF, OF, PF, SF, ZF};

#[test]
fn moves() {
    check_codes(CASES, |code| code.mnemonic() == Mov && is_general(code), exact);
    check_all(CASES, |mnemonic| matches!(mnemonic, Movzx | Movsx | Lea | Movnti | Xlatb), exact);
    // AMD's CPUs read four bytes for the 16-bit form, Intel's two, as we do.
    check_codes(CASES, |code| code.mnemonic() == Movsxd && code != Code::Movsxd_r16_rm16, exact);
    check_all(CASES, |mnemonic| matches!(mnemonic, Cbw | Cwde | Cdqe | Cwd | Cdq | Cqo | Bswap), exact);
}

#[test]
fn arithmetic() {
    check_all(
        CASES,
        |mnemonic| matches!(mnemonic, Add | Adc | Sub | Sbb | Cmp | Inc | Dec | Neg | Not),
        exact,
    );
}

#[test]
fn logic() {
    check_all(CASES, |mnemonic| matches!(mnemonic, And | Or | Xor | Test), undefined);
}

#[test]
fn conditions() {
    let conditional = |code: Code| {
        let name = format!("{:?}", code.mnemonic());
        (name.starts_with("Set") || name.starts_with("Cmov")) && code.mnemonic() != Setssbsy
            || code.is_jcc_short_or_near()
    };
    check_codes(CASES, conditional, exact);
}

#[test]
fn shifts() {
    check_all(CASES, |mnemonic| matches!(mnemonic, Shl | Sal | Shr | Sar | Rol | Ror | Rcl | Rcr), undefined);
}

#[test]
fn double_shifts() {
    check_all(CASES, |mnemonic| matches!(mnemonic, Shld | Shrd), undefined);
}

#[test]
fn multiplication() {
    check_all(CASES, |mnemonic| matches!(mnemonic, Mul | Imul), undefined);
}

#[test]
fn division() {
    check_all(4 * CASES, |mnemonic| matches!(mnemonic, Div | Idiv), undefined);
}

#[test]
fn bits() {
    check_all(CASES, |mnemonic| matches!(mnemonic, Bt | Bts | Btr | Btc | Bsf | Bsr), undefined);
}

#[test]
fn exchanges() {
    check_all(CASES, |mnemonic| matches!(mnemonic, Xchg | Xadd | Cmpxchg | Cmpxchg8b | Cmpxchg16b), exact);
}

#[test]
fn strings() {
    let string = |code: Code| {
        code.is_string_instruction() && !matches!(code.mnemonic(), Insb | Insw | Insd | Outsb | Outsw | Outsd)
    };
    check_codes(CASES, string, exact);
}

#[test]
fn branches() {
    check_codes(CASES, |code| code.is_jmp_short_or_near() || code.is_jmp_near_indirect(), exact);
    check_codes(CASES, |code| code.is_call_near() || code.is_call_near_indirect(), exact);
    check_codes(CASES, |code| code.is_loop() || code.is_loopcc() || code.is_jcx_short(), exact);
    check_all(CASES, |mnemonic| mnemonic == Ret, exact);
}

#[test]
fn stack() {
    check_codes(CASES, |code| matches!(code.mnemonic(), Push | Pop) && is_general(code), exact);
    check_all(CASES, |mnemonic| matches!(mnemonic, Enter | Leave | Pusha | Pushad | Popa | Popad), undefined);
}

#[test]
fn decimal() {
    check_all(
        CASES,
        |mnemonic| matches!(mnemonic, Aaa | Aas | Aam | Aad | Daa | Das | Salc | Bound),
        undefined,
    );
}

#[test]
fn status() {
    check_all(CASES, |mnemonic| matches!(mnemonic, Clc | Stc | Cmc | Cld | Std | Lahf | Sahf), exact);
    check_codes(
        CASES,
        |code| {
            code.mnemonic() == Nop && code != Code::Nopw
                || matches!(code, Code::Lfence | Code::Mfence | Code::Sfence)
        },
        exact,
    );
}

/// What the manuals (Intel SDM vol. 2, AMD APM vol. 3) leave undefined.
fn undefined(instruction: &Instruction, state: &State) -> Tolerance {
    let flags = match instruction.mnemonic() {
        And | Or | Xor | Test => AF,
        Aaa | Aas => OF | SF | ZF | PF,
        Aam | Aad => OF | AF | CF,
        Daa | Das => OF,
        Mul | Imul => SF | ZF | AF | PF,
        Div | Idiv => ARITHMETIC,
        Bt | Bts | Btr | Btc => OF | SF | AF | PF,
        Bsf | Bsr => CF | OF | SF | AF | PF,
        Shl | Sal | Shr | Sar | Rol | Ror | Rcl | Rcr | Shld | Shrd => {
            return undefined_shift(instruction, state);
        }
        // A fault may leave it half done.
        Enter | Pusha | Pushad | Popa | Popad => {
            let safe = DATA + 0x400..READ_ONLY - 0x400;
            return Tolerance { result: !safe.contains(&state.registers[4]), ..Tolerance::default() };
        }
        _ => 0,
    };
    Tolerance { flags, ..Tolerance::default() }
}

fn undefined_shift(instruction: &Instruction, state: &State) -> Tolerance {
    let bits = if instruction.op0_kind() == OpKind::Memory {
        8 * instruction.memory_size().size() as u32
    } else {
        8 * instruction.op0_register().size() as u32
    };
    let operand = instruction.op_count() - 1;
    let count = match instruction.op_kind(operand) {
        OpKind::Register => state.registers[1] as u8,
        _ => instruction.immediate8(),
    };
    let count = u32::from(count) & if bits == 64 { 63 } else { 31 };
    let double = matches!(instruction.mnemonic(), Shld | Shrd);
    let rotate = matches!(instruction.mnemonic(), Rol | Ror | Rcl | Rcr);
    if count == 0 {
        return Tolerance::default();
    }
    Tolerance {
        flags: if count == 1 { 0 } else { OF }
            | if rotate { 0 } else { AF }
            | if !rotate && !double && count >= bits && instruction.mnemonic() != Sar { CF } else { 0 }
            | if double && count > bits { ARITHMETIC } else { 0 },
        result: double && count > bits,
        ..Tolerance::default()
    }
}

/// Nothing is undefined.
fn exact(_instruction: &Instruction, _state: &State) -> Tolerance {
    Tolerance::default()
}

/// Whether an instruction leaves segment, control and debug registers alone.
fn is_general(code: Code) -> bool {
    let info = code.op_code();
    (0..info.op_count()).all(|operand| {
        let name = format!("{:?}", info.op_kind(operand));
        !["seg_reg", "cr_reg", "dr_reg", "tr_reg", "es", "cs", "ss", "ds", "fs", "gs"]
            .contains(&name.as_str())
    })
}

const CASES: u32 = 64;
