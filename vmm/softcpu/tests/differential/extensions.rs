//! Instructions beyond the baseline, where the host has them.

use iced_x86::Mnemonic::*;
use iced_x86::{Code, Instruction};
use softcpu::extensions::Extension;
use softcpu::flags::{AF, PF, SF};

use crate::compare::{Tolerance, check_codes};
use crate::state::State;

#[test]
fn bits_that_are_counted_and_swapped_bytes() {
    check(Extension::Popcnt, is_x86_feature_detected!("popcnt"));
    check(Extension::Movbe, is_x86_feature_detected!("movbe"));
}

#[test]
fn checksums() {
    check(Extension::Crc32, is_x86_feature_detected!("sse4.2"));
}

#[test]
fn bit_manipulation() {
    check(Extension::Bmi1, is_x86_feature_detected!("bmi1"));
    check(Extension::Bmi2, is_x86_feature_detected!("bmi2"));
}

#[test]
fn additions_with_one_flag() {
    check(Extension::Adx, is_x86_feature_detected!("adx"));
}

fn check(extension: Extension, present: bool) {
    if !present {
        eprintln!("not tried: this host has no {extension:?}");
        return;
    }
    check_codes(CASES, |code| belongs_to(code, extension), undefined);
}

fn belongs_to(code: Code, extension: Extension) -> bool {
    let mut instruction = Instruction::default();
    instruction.set_code(code);
    Extension::of(&instruction) == Some(extension)
}

/// What the manuals leave undefined.
fn undefined(instruction: &Instruction, _state: &State) -> Tolerance {
    let flags = match instruction.mnemonic() {
        Andn | Blsi | Blsmsk | Blsr | Bzhi => AF | PF,
        Bextr => AF | PF | SF,
        _ => 0,
    };
    Tolerance { flags, ..Tolerance::default() }
}

const CASES: u32 = 64;
