//! Port input and output.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use crate::cpu::{RAX, RCX, RDI, RDX, RSI};
use crate::flags::{DF, IOPL};
use crate::op::{FLAT, Handler, Op, Repeat};
use crate::segment::ES;
use crate::{Access, Cpu, Env, Exception, Stop, Width};

pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    let handler: Handler = match instruction.mnemonic() {
        Mnemonic::In => match (instruction.op0_register(), instruction.op1_kind()) {
            (Register::AL, OpKind::Register) => input::<u8, true>,
            (Register::AX, OpKind::Register) => input::<u16, true>,
            (_, OpKind::Register) => input::<u32, true>,
            (Register::AL, _) => input::<u8, false>,
            (Register::AX, _) => input::<u16, false>,
            _ => input::<u32, false>,
        },
        Mnemonic::Out => match (instruction.op1_register(), instruction.op0_kind()) {
            (Register::AL, OpKind::Register) => output::<u8, true>,
            (Register::AX, OpKind::Register) => output::<u16, true>,
            (_, OpKind::Register) => output::<u32, true>,
            (Register::AL, _) => output::<u8, false>,
            (Register::AX, _) => output::<u16, false>,
            _ => output::<u32, false>,
        },
        Mnemonic::Insb => input_string::<u8>,
        Mnemonic::Insw => input_string::<u16>,
        Mnemonic::Insd => input_string::<u32>,
        Mnemonic::Outsb => output_string::<u8>,
        Mnemonic::Outsw => output_string::<u16>,
        Mnemonic::Outsd => output_string::<u32>,
        _ => return None,
    };
    Some(handler)
}

impl Cpu {
    /// #GP(0) unless the current code may access the `bytes` ports from `port`.
    fn require_port(&mut self, env: &mut Env<'_>, port: u16, bytes: usize) -> Result<(), Stop> {
        if !self.is_protected() || u64::from(self.cpl()) <= (self.system_flags & IOPL) >> 12 {
            return Ok(());
        }
        let refused = Exception::general_protection(0);
        if self.tr.kind() & 8 == 0 || self.tr.limit < IO_MAP_BASE + 1 {
            return Err(self.fault(refused));
        }
        let map: u16 = self.read_task_state(env, IO_MAP_BASE)?;
        let offset = u32::from(map) + u32::from(port / 8);
        if offset + 1 > self.tr.limit {
            return Err(self.fault(refused));
        }
        let bits: u16 = self.read_task_state(env, offset)?;
        if bits >> (port % 8) & ((1 << bytes) - 1) != 0 {
            return Err(self.fault(refused));
        }
        Ok(())
    }

    fn port_read<T: Width>(&mut self, env: &mut Env<'_>, port: u16) -> T {
        let mut bytes = [0; 8];
        let at = env.position(self);
        env.bus.read_port(at, port, &mut bytes[..T::BYTES]);
        env.end_block();
        T::truncate(u64::from_le_bytes(bytes))
    }

    fn port_write<T: Width>(&mut self, env: &mut Env<'_>, port: u16, value: T) {
        let at = env.position(self);
        env.bus.write_port(at, port, &value.zero_extend().to_le_bytes()[..T::BYTES]);
        env.end_block();
    }

    /// Moves RSI or RDI on by one element of a string.
    fn advance(&mut self, register: u8, op: &Op, bytes: usize) {
        let step = if self.system_flags & DF != 0 { (bytes as u64).wrapping_neg() } else { bytes as u64 };
        let next = self.registers[register as usize].wrapping_add(step);
        self.set_sized(register, op.address_size, next);
    }

    fn set_sized(&mut self, register: u8, bytes: u8, value: u64) {
        match bytes {
            2 => self.set(register, value as u16),
            4 => self.set(register, value as u32),
            _ => self.set(register, value),
        }
    }

    fn get_sized(&self, register: u8, bytes: u8) -> u64 {
        match bytes {
            2 => u64::from(self.get::<u16>(register)),
            4 => u64::from(self.get::<u32>(register)),
            _ => self.get(register),
        }
    }

    /// Whether a repeated string instruction has nothing (more) to do.
    fn string_done(&self, op: &Op) -> bool {
        op.repeat != Repeat::No && self.get_sized(RCX, op.address_size) == 0
    }

    /// After one element: counts down, and says how the instruction goes on.
    fn string_step(&mut self, op: &Op) -> Result<(), Stop> {
        if op.repeat == Repeat::No {
            return Ok(());
        }
        let count = self.get_sized(RCX, op.address_size).wrapping_sub(1);
        self.set_sized(RCX, op.address_size, count);
        if self.string_done(op) { Ok(()) } else { Err(Stop::Repeat) }
    }

    fn port_operand<const IN_DX: bool>(&self, op: &Op) -> u16 {
        if IN_DX { self.get(RDX) } else { op.immediate as u8 as u16 }
    }
}

fn input<T: Width, const IN_DX: bool>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let port = cpu.port_operand::<IN_DX>(op);
    cpu.require_port(env, port, T::BYTES)?;
    let value: T = cpu.port_read(env, port);
    cpu.set(RAX, value);
    Err(Stop::Resume)
}

fn output<T: Width, const IN_DX: bool>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let port = cpu.port_operand::<IN_DX>(op);
    cpu.require_port(env, port, T::BYTES)?;
    let at = env.position(cpu);
    let registers = cpu.registers.first_chunk_mut().expect("there are more than 16");
    if env.bus.call(at, port, registers) {
        env.end_block();
    } else {
        cpu.port_write::<T>(env, port, cpu.get(RAX));
    }
    Err(Stop::Resume)
}

fn input_string<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let port = cpu.get(RDX);
    cpu.require_port(env, port, T::BYTES)?;
    if cpu.string_done(op) {
        return Ok(());
    }
    let offset = cpu.get_sized(RDI, op.address_size);
    let segment = if cpu.is_64_bit() { FLAT } else { ES as u8 };
    let linear = cpu.linear_in(segment, offset, T::BYTES, Access::Write)?;
    // The port must not be read for nothing.
    cpu.check_writable(env, linear, T::BYTES)?;
    let value: T = cpu.port_read(env, port);
    cpu.store(env, linear, value)?;
    cpu.advance(RDI, op, T::BYTES);
    cpu.string_step(op)
}

fn output_string<T: Width>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    let port = cpu.get(RDX);
    cpu.require_port(env, port, T::BYTES)?;
    if cpu.string_done(op) {
        return Ok(());
    }
    let offset = cpu.get_sized(RSI, op.address_size);
    let linear = cpu.linear_in(op.segment, offset, T::BYTES, Access::Read)?;
    let value: T = cpu.load(env, linear)?;
    cpu.port_write(env, port, value);
    cpu.advance(RSI, op, T::BYTES);
    cpu.string_step(op)
}

/// Where the task state segment has the offset of the I/O permission map.
const IO_MAP_BASE: u32 = 0x66;
