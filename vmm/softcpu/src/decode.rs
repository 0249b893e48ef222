//! From bytes to an [`Op`].

pub use iced_x86::Instruction;
use iced_x86::{Decoder, DecoderError, DecoderOptions, FlowControl};

use crate::op::{Handler, Op};
use crate::{Cpu, Env, Exception, Stop, fp, integer, system};

/// Decodes the instruction at the start of `bytes`, which lies at `rip` in a code segment of `bits`.
/// `None` when `bytes` ends before the instruction does.
pub fn decode(bytes: &[u8], rip: u64, bits: u32) -> Option<(Op, Instruction)> {
    let mut decoder = Decoder::with_ip(bits, bytes, rip, DecoderOptions::NONE);
    let instruction = decoder.decode();
    if instruction.is_invalid() && decoder.last_error() == DecoderError::NoMoreBytes {
        return None;
    }
    Some((Op::new(&instruction, bits, handler(&instruction)), instruction))
}

/// Decodes the ops of a block: up to the first instruction that always leaves it, or the last one that is
/// complete.
pub(crate) struct BlockDecoder<'a> {
    decoder: Decoder<'a>,
    bits: u32,
    ended: bool,
}

impl<'a> BlockDecoder<'a> {
    pub(crate) fn new(bytes: &'a [u8], rip: u64, bits: u8) -> BlockDecoder<'a> {
        let bits = u32::from(bits);
        BlockDecoder { decoder: Decoder::with_ip(bits, bytes, rip, DecoderOptions::NONE), bits, ended: false }
    }
}

impl Iterator for BlockDecoder<'_> {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        if self.ended || !self.decoder.can_decode() {
            return None;
        }
        let instruction = self.decoder.decode();
        if instruction.is_invalid() && self.decoder.last_error() == DecoderError::NoMoreBytes {
            return None;
        }
        self.ended = ends_block(&instruction);
        Some(Op::new(&instruction, self.bits, handler(&instruction)))
    }
}

/// Whether what follows `instruction` is not what is executed next. Others may leave their block too; this
/// only saves decoding what is never reached.
fn ends_block(instruction: &Instruction) -> bool {
    !matches!(instruction.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch)
        || instruction.is_privileged()
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
