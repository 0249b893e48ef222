//! From bytes to an [`Op`].

use iced_x86::{Decoder, DecoderOptions, Instruction};

use crate::op::{Handler, Op};
use crate::{Cpu, Env, Exception, Stop, fp, integer, system};

/// Decodes the instruction at the start of `bytes`, which lies at `rip` in a code segment of `bits`.
/// `None` when `bytes` ends before the instruction does.
pub fn decode(bytes: &[u8], rip: u64, bits: u32) -> Option<(Op, Instruction)> {
    let mut decoder = Decoder::with_ip(bits, bytes, rip, DecoderOptions::NONE);
    let instruction = decoder.decode();
    if instruction.is_invalid() && decoder.last_error() == iced_x86::DecoderError::NoMoreBytes {
        return None;
    }
    Some((Op::new(&instruction, bits, handler(&instruction)), instruction))
}

/// The function that executes `instruction`: the first family that knows it.
fn handler(instruction: &Instruction) -> Handler {
    integer::lookup(instruction)
        .or_else(|| system::lookup(instruction))
        .or_else(|| fp::lookup(instruction))
        .unwrap_or(invalid_opcode)
}

fn invalid_opcode(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    Err(cpu.fault(Exception::INVALID_OPCODE))
}
