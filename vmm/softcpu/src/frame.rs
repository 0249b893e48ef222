//! A stack that a far transfer pushes to or pops from, before it is (or after it was) the CPU's own.

use crate::access::Env;
use crate::mode::Mode;
use crate::segment::{SS, Segment};
use crate::{Cpu, Exception, Stop};

/// Stack segment and pointer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack {
    pub(crate) segment: Segment,
    pub(crate) pointer: u64,
    /// Bytes of the pointer in use.
    pub(crate) address_size: u8,
}

impl Stack {
    /// The one that `cpu` uses.
    pub(crate) fn current(cpu: &Cpu) -> Stack {
        Stack {
            segment: cpu.segments[SS],
            pointer: cpu.registers[crate::cpu::RSP as usize],
            address_size: cpu.stack_address_size(),
        }
    }

    /// A stack of 64-bit code.
    pub(crate) fn long(segment: Segment, pointer: u64) -> Stack {
        Stack { segment, pointer, address_size: 8 }
    }

    /// A stack in `segment` outside 64-bit mode.
    pub(crate) fn legacy(segment: Segment, pointer: u64) -> Stack {
        Stack { segment, pointer, address_size: if segment.is_32_bit() { 4 } else { 2 } }
    }

    fn mask(&self) -> u64 {
        match self.address_size {
            8 => u64::MAX,
            4 => 0xffff_ffff,
            _ => 0xffff,
        }
    }

    fn linear(&self, cpu: &mut Cpu, offset: u64, size: u8) -> Result<u64, Stop> {
        if self.address_size == 8 {
            return if crate::access::is_canonical(offset) {
                Ok(offset)
            } else {
                Err(cpu.fault(Exception::stack(0)))
            };
        }
        let writable = self.segment.is_writable_data() && self.segment.present() || cpu.mode() == Mode::Real;
        if !writable || !self.segment.contains(offset, u64::from(size)) {
            return Err(cpu.fault(Exception::stack(0)));
        }
        Ok(self.segment.base.wrapping_add(offset) & 0xffff_ffff)
    }

    /// Pushes the low `size` bytes of `value`.
    pub(crate) fn push(
        &mut self,
        cpu: &mut Cpu,
        env: &mut Env<'_>,
        value: u64,
        size: u8,
    ) -> Result<(), Stop> {
        let offset = self.pointer.wrapping_sub(u64::from(size)) & self.mask();
        let linear = self.linear(cpu, offset, size)?;
        cpu.store_bytes(env, linear, &value.to_le_bytes()[..usize::from(size)])?;
        self.pointer = self.pointer & !self.mask() | offset;
        Ok(())
    }

    /// Pops `size` bytes.
    pub(crate) fn pop(&mut self, cpu: &mut Cpu, env: &mut Env<'_>, size: u8) -> Result<u64, Stop> {
        let offset = self.pointer & self.mask();
        let linear = self.linear(cpu, offset, size)?;
        let mut bytes = [0; 8];
        cpu.load_bytes(env, linear, &mut bytes[..usize::from(size)])?;
        self.skip(u64::from(size));
        Ok(u64::from_le_bytes(bytes))
    }

    /// Drops `bytes` bytes.
    pub(crate) fn skip(&mut self, bytes: u64) {
        self.pointer = self.pointer & !self.mask() | self.pointer.wrapping_add(bytes) & self.mask();
    }

    /// Makes this the CPU's stack pointer: all of RSP in 64-bit mode, otherwise what the segment uses.
    pub(crate) fn commit_pointer(&self, cpu: &mut Cpu) {
        let slot = &mut cpu.registers[crate::cpu::RSP as usize];
        *slot = match self.address_size {
            2 => *slot & !0xffff | self.pointer & 0xffff,
            _ => self.pointer & self.mask(),
        };
    }
}
