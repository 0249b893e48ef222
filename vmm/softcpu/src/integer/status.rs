//! Instructions on single flags, and those that do nothing.

use iced_x86::{Instruction, Mnemonic};

use crate::cpu::{HIGH_BYTE, RAX};
use crate::flags::{ARITHMETIC, DF, OF};
use crate::op::{Handler, Op};
use crate::{Cpu, Env, Stop};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    Some(match instruction.mnemonic() {
        Mnemonic::Clc => clear_carry,
        Mnemonic::Stc => set_carry,
        Mnemonic::Cmc => complement_carry,
        Mnemonic::Cld => clear_direction,
        Mnemonic::Std => set_direction,
        Mnemonic::Lahf => load_flags,
        Mnemonic::Sahf => store_flags,
        // Memory is always in order here, and there is nothing to prefetch into; the last are hints or
        // extensions in encodings that were set aside to do nothing.
        Mnemonic::Nop
        | Mnemonic::Lfence
        | Mnemonic::Mfence
        | Mnemonic::Sfence
        | Mnemonic::Prefetch
        | Mnemonic::Prefetchnta
        | Mnemonic::Prefetcht0
        | Mnemonic::Prefetcht1
        | Mnemonic::Prefetcht2
        | Mnemonic::Prefetchit0
        | Mnemonic::Prefetchit1
        | Mnemonic::Prefetchw
        | Mnemonic::Prefetchwt1
        | Mnemonic::Cldemote
        | Mnemonic::Reservednop
        | Mnemonic::Endbr32
        | Mnemonic::Endbr64
        | Mnemonic::Rdsspd
        | Mnemonic::Rdsspq => nothing,
        _ => return None,
    })
}

fn nothing(_cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    Ok(())
}

fn clear_carry(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.set_carry(false);
    Ok(())
}

fn set_carry(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.set_carry(true);
    Ok(())
}

fn complement_carry(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.set_carry(!cpu.flags.carry());
    Ok(())
}

fn clear_direction(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.system_flags &= !DF;
    Ok(())
}

fn set_direction(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    cpu.system_flags |= DF;
    Ok(())
}

/// `LAHF`: all arithmetic flags but OF, and bit 1, which is always set.
fn load_flags(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    let flags = cpu.flags.to_bits() as u8 | 2;
    cpu.set(HIGH_BYTE | RAX, flags);
    Ok(())
}

fn store_flags(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    let flags = u64::from(cpu.get::<u8>(HIGH_BYTE | RAX)) & ARITHMETIC;
    let overflow = if cpu.flags.overflow() { OF } else { 0 };
    cpu.set_arithmetic_flags(flags | overflow);
    Ok(())
}
