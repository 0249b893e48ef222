//! Near control transfers. Far ones are in `system`.
//!
//! Handlers are generic over the operand size `B`, to which RIP is truncated.

use iced_x86::{Code, Instruction, Mnemonic, OpKind};

use super::operand::{Form, by_condition, by_width_16_up, condition_table, form, operand_bytes};
use super::stack;
use crate::access::{Access, is_canonical};
use crate::cpu::{RCX, RSP};
use crate::op::{Handler, Op};
use crate::{Cpu, Env, Stop, Width};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    match instruction.mnemonic() {
        Mnemonic::Jmp => jump(instruction),
        Mnemonic::Call => call(instruction),
        Mnemonic::Ret => ret(instruction),
        _ if instruction.is_jcc_short_or_near() => jump_on_condition(instruction),
        _ => jump_on_count(instruction),
    }
}

fn jump_on_condition(instruction: &Instruction) -> Option<Handler> {
    let handlers = match branch_bytes(instruction)? {
        8 => condition_table!(jump_if, u64),
        4 => condition_table!(jump_if, u32),
        _ => condition_table!(jump_if, u16),
    };
    by_condition(instruction, handlers)
}

fn jump(instruction: &Instruction) -> Option<Handler> {
    if let Some(bytes) = branch_bytes(instruction) {
        return Some(by_width_16_up!(bytes, jump_relative));
    }
    if !instruction.is_jmp_near_indirect() {
        return None;
    }
    let bytes = operand_bytes(instruction, 0);
    Some(match form(instruction)? {
        Form::Register => by_width_16_up!(bytes, jump_register),
        _ => by_width_16_up!(bytes, jump_memory),
    })
}

fn call(instruction: &Instruction) -> Option<Handler> {
    match branch_bytes(instruction) {
        Some(8) => return Some(call_relative_long),
        Some(bytes) => return Some(by_width_16_up!(bytes, call_relative)),
        None => {}
    }
    if !instruction.is_call_near_indirect() {
        return None;
    }
    let bytes = operand_bytes(instruction, 0);
    Some(match form(instruction)? {
        Form::Register => by_width_16_up!(bytes, call_register),
        _ => by_width_16_up!(bytes, call_memory),
    })
}

fn ret(instruction: &Instruction) -> Option<Handler> {
    Some(match instruction.code() {
        Code::Retnw | Code::Retnw_imm16 => return_near::<u16>,
        Code::Retnd | Code::Retnd_imm16 => return_near::<u32>,
        Code::Retnq | Code::Retnq_imm16 => return_long,
        _ => return None,
    })
}

/// `LOOP`, `LOOPE`, `LOOPNE`, `JCXZ`: by width of the branch and of the counter.
fn jump_on_count(instruction: &Instruction) -> Option<Handler> {
    Some(match instruction.code() {
        Code::Loop_rel8_16_CX => loop_while::<Always, u16, u16>,
        Code::Loop_rel8_32_CX => loop_while::<Always, u32, u16>,
        Code::Loop_rel8_16_ECX => loop_while::<Always, u16, u32>,
        Code::Loop_rel8_32_ECX => loop_while::<Always, u32, u32>,
        Code::Loop_rel8_64_ECX => loop_while::<Always, u64, u32>,
        Code::Loop_rel8_16_RCX => loop_while::<Always, u16, u64>,
        Code::Loop_rel8_64_RCX => loop_while::<Always, u64, u64>,
        Code::Loope_rel8_16_CX => loop_while::<Equal, u16, u16>,
        Code::Loope_rel8_32_CX => loop_while::<Equal, u32, u16>,
        Code::Loope_rel8_16_ECX => loop_while::<Equal, u16, u32>,
        Code::Loope_rel8_32_ECX => loop_while::<Equal, u32, u32>,
        Code::Loope_rel8_64_ECX => loop_while::<Equal, u64, u32>,
        Code::Loope_rel8_16_RCX => loop_while::<Equal, u16, u64>,
        Code::Loope_rel8_64_RCX => loop_while::<Equal, u64, u64>,
        Code::Loopne_rel8_16_CX => loop_while::<NotEqual, u16, u16>,
        Code::Loopne_rel8_32_CX => loop_while::<NotEqual, u32, u16>,
        Code::Loopne_rel8_16_ECX => loop_while::<NotEqual, u16, u32>,
        Code::Loopne_rel8_32_ECX => loop_while::<NotEqual, u32, u32>,
        Code::Loopne_rel8_64_ECX => loop_while::<NotEqual, u64, u32>,
        Code::Loopne_rel8_16_RCX => loop_while::<NotEqual, u16, u64>,
        Code::Loopne_rel8_64_RCX => loop_while::<NotEqual, u64, u64>,
        Code::Jcxz_rel8_16 => jump_if_count_zero::<u16, u16>,
        Code::Jcxz_rel8_32 => jump_if_count_zero::<u32, u16>,
        Code::Jecxz_rel8_16 => jump_if_count_zero::<u16, u32>,
        Code::Jecxz_rel8_32 => jump_if_count_zero::<u32, u32>,
        Code::Jecxz_rel8_64 => jump_if_count_zero::<u64, u32>,
        Code::Jrcxz_rel8_16 => jump_if_count_zero::<u16, u64>,
        Code::Jrcxz_rel8_64 => jump_if_count_zero::<u64, u64>,
        _ => return None,
    })
}

/// Operand size of a relative branch; `None` for another instruction.
fn branch_bytes(instruction: &Instruction) -> Option<usize> {
    match instruction.op0_kind() {
        OpKind::NearBranch16 => Some(2),
        OpKind::NearBranch32 => Some(4),
        OpKind::NearBranch64 => Some(8),
        _ => None,
    }
}

fn jump_if<const CODE: u8, B: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    if cpu.flags.condition::<CODE>() { Err(take::<B>(cpu, op)) } else { Ok(()) }
}

fn jump_relative<B: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    Err(take::<B>(cpu, op))
}

fn jump_register<B: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let target = cpu.get::<B>(op.destination);
    cpu.branch(target.zero_extend())?;
    Err(Stop::Resume)
}

fn jump_memory<B: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let linear = cpu.linear(op, B::BYTES, Access::Read)?;
    let target = cpu.load::<B>(env, linear)?;
    cpu.branch(target.zero_extend())?;
    Err(Stop::Resume)
}

fn call_relative<B: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let target = B::truncate(cpu.rip().wrapping_add(op.immediate));
    enter(cpu, env, target)
}

fn call_relative_long(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let (back, pointer) = (cpu.rip(), cpu.registers[RSP as usize].wrapping_sub(8));
    let target = back.wrapping_add(op.immediate);
    if !is_canonical(target) || !cpu.store_cached(pointer, back) {
        return call_relative::<u64>(cpu, env, op);
    }
    cpu.registers[RSP as usize] = pointer;
    cpu.set_rip(target);
    Err(Stop::Resume)
}

fn call_register<B: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let target = cpu.get::<B>(op.destination);
    enter(cpu, env, target)
}

fn call_memory<B: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let linear = cpu.linear(op, B::BYTES, Access::Read)?;
    let target = cpu.load::<B>(env, linear)?;
    enter(cpu, env, target)
}

/// Calls `target`.
#[inline(always)]
fn enter<B: Width>(cpu: &mut Cpu, env: &mut Env<'_>, target: B) -> Result<(), Stop> {
    let pointer = cpu.registers[RSP as usize];
    stack::push_sized(cpu, env, B::truncate(cpu.rip()))?;
    // The target faults in the call, not behind it: undo the push, but for what it left below the stack.
    cpu.branch(target.zero_extend()).inspect_err(|_| cpu.registers[RSP as usize] = pointer)?;
    Err(Stop::Resume)
}

fn return_near<B: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let target = stack::peek_sized::<B>(cpu, env, 0)?;
    cpu.branch(target.zero_extend())?;
    stack::release_sized::<B>(cpu, B::BYTES as u64 + op.immediate);
    Err(Stop::Resume)
}

fn return_long(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let pointer = cpu.registers[RSP as usize];
    match cpu.load_cached::<u64>(pointer) {
        Some(target) if is_canonical(target) => {
            cpu.registers[RSP as usize] = pointer.wrapping_add(8).wrapping_add(op.immediate);
            cpu.set_rip(target);
            Err(Stop::Resume)
        }
        _ => return_near::<u64>(cpu, env, op),
    }
}

fn loop_while<W: While, B: Width, C: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let count = C::truncate(cpu.get::<C>(RCX).zero_extend().wrapping_sub(1));
    let stop = if count != C::default() && W::met(cpu) { Err(take_checked::<B>(cpu, op)?) } else { Ok(()) };
    cpu.set(RCX, count);
    stop
}

fn jump_if_count_zero<B: Width, C: Width>(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    if cpu.get::<C>(RCX) == C::default() { Err(take::<B>(cpu, op)) } else { Ok(()) }
}

/// Takes the relative branch `op`, or faults.
#[inline(always)]
fn take<B: Width>(cpu: &mut Cpu, op: &Op) -> Stop {
    match take_checked::<B>(cpu, op) {
        Ok(stop) | Err(stop) => stop,
    }
}

/// Takes the relative branch `op`.
///
/// In 64-bit mode the target is not looked at: one that is not canonical faults when it is fetched from.
#[inline(always)]
fn take_checked<B: Width>(cpu: &mut Cpu, op: &Op) -> Result<Stop, Stop> {
    let target = B::truncate(cpu.rip().wrapping_add(op.immediate)).zero_extend();
    if B::BITS == 64 {
        cpu.set_rip(target);
    } else {
        cpu.branch(target)?;
    }
    Ok(Stop::Resume)
}

/// The further condition of a `LOOP`.
trait While {
    fn met(cpu: &Cpu) -> bool;
}

struct Always;
struct Equal;
struct NotEqual;

impl While for Always {
    fn met(_cpu: &Cpu) -> bool {
        true
    }
}

impl While for Equal {
    fn met(cpu: &Cpu) -> bool {
        cpu.flags.zero()
    }
}

impl While for NotEqual {
    fn met(cpu: &Cpu) -> bool {
        !cpu.flags.zero()
    }
}
