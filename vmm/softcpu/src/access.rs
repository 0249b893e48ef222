//! How handlers reach memory.
//!
//! Addresses handed to [`Cpu::load`] and its siblings are *linear*; [`Cpu::linear`] makes one from an op's
//! memory operand, applying segmentation where it has an effect.

use nicvisor_memory::GuestRam;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

use crate::op::Op;
use crate::width::Width;
use crate::{Bus, Cpu, Exception, Stop};

/// What a handler works with besides its CPU.
pub struct Env<'a> {
    /// Guest RAM.
    pub ram: &'a GuestRam,
    /// The rest of the machine.
    pub bus: &'a mut dyn Bus,
    /// Index of the executing CPU.
    pub cpu_index: usize,
}

/// What an access is for, as far as protection cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Data read.
    Read,
    /// Data write, or read for a later write.
    Write,
    /// Instruction fetch.
    Execute,
}

impl Cpu {
    /// The effective address of `op`'s memory operand within its segment (what `LEA` computes).
    #[inline(always)]
    pub fn effective(&self, op: &Op) -> u64 {
        let address = self.registers[op.base as usize]
            .wrapping_add(self.registers[op.index as usize] << op.scale)
            .wrapping_add(i64::from(op.displacement) as u64);
        match op.address_size {
            8 => address,
            4 => address & 0xffff_ffff,
            _ => address & 0xffff,
        }
    }

    /// The linear address of `op`'s memory operand of `bytes` bytes, after the segment's checks.
    ///
    /// # Errors
    /// #GP or #SS when the segment does not allow the access.
    #[inline(always)]
    pub fn linear(&mut self, op: &Op, _bytes: usize, _access: Access) -> Result<u64, Stop> {
        Ok(self.effective(op))
    }

    /// The linear address of `bytes` bytes at `offset` in `segment` (a number as [`Op::segment`] has it,
    /// [`crate::op::FLAT`] included), after the segment's checks. For operands that an [`Op`] does not
    /// describe: stack, string destinations, 64-bit absolute addresses.
    ///
    /// # Errors
    /// As [`Self::linear`].
    #[inline(always)]
    pub fn linear_in(
        &mut self,
        _segment: u8,
        offset: u64,
        _bytes: usize,
        _access: Access,
    ) -> Result<u64, Stop> {
        Ok(offset)
    }

    /// How many bytes of RSP address the stack: 8 in 64-bit mode, otherwise 4 or 2 (SS.B).
    #[inline(always)]
    pub fn stack_address_size(&self) -> u8 {
        8
    }

    /// Sets RIP to the target of a near branch, already truncated to the operand size.
    ///
    /// # Errors
    /// #GP(0) when it is not canonical or is beyond the code segment's limit; RIP is unchanged then.
    #[inline(always)]
    pub fn branch(&mut self, target: u64) -> Result<(), Stop> {
        if (target << 16) as i64 >> 16 != target as i64 {
            return Err(self.fault(Exception::general_protection(0)));
        }
        self.set_rip(target);
        Ok(())
    }

    /// Whether `access` to the page at `linear` would succeed and reach RAM, so that the width of accesses
    /// makes no difference and string instructions may move many elements at once. No side effects that
    /// software can see.
    #[inline]
    pub fn is_plain_ram(&mut self, env: &mut Env<'_>, linear: u64, _access: Access) -> bool {
        env.ram.address_in_range(GuestAddress(linear))
    }

    /// Reads guest memory with the current privilege.
    ///
    /// # Errors
    /// #PF, #GP (non-canonical), #AC.
    #[inline(always)]
    pub fn load<T: Width>(&mut self, env: &mut Env<'_>, linear: u64) -> Result<T, Stop> {
        let mut bytes = [0; 8];
        self.load_bytes(env, linear, &mut bytes[..T::BYTES])?;
        Ok(T::truncate(u64::from_le_bytes(bytes)))
    }

    /// Writes guest memory with the current privilege.
    ///
    /// # Errors
    /// As [`Self::load`]; nothing is written then, even where only the second of two pages faults.
    #[inline(always)]
    pub fn store<T: Width>(&mut self, env: &mut Env<'_>, linear: u64, value: T) -> Result<(), Stop> {
        self.store_bytes(env, linear, &value.zero_extend().to_le_bytes()[..T::BYTES])
    }

    /// Replaces the value at `linear` by `change` of it. Write permission is checked before reading, so a
    /// fault leaves no trace. All locked instructions are built on this (CPUs of an engine never run at the
    /// same time, so it is atomic). Returns the old value and what `change` said besides.
    ///
    /// # Errors
    /// As [`Self::store`].
    #[inline(always)]
    pub fn modify<T: Width, R>(
        &mut self,
        env: &mut Env<'_>,
        linear: u64,
        change: impl FnOnce(&mut Cpu, T) -> (T, R),
    ) -> Result<R, Stop> {
        let old = self.load::<T>(env, linear)?;
        let (new, result) = change(self, old);
        self.store(env, linear, new)?;
        Ok(result)
    }

    /// Reads `data.len()` bytes (at most 512).
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_bytes(&mut self, env: &mut Env<'_>, linear: u64, data: &mut [u8]) -> Result<(), Stop> {
        env.ram
            .read_slice(data, GuestAddress(linear))
            .map_err(|_| self.fault(Exception::page_fault(linear, 0)))
    }

    /// Writes `data` (at most 512 bytes), all or nothing.
    ///
    /// # Errors
    /// As [`Self::store`].
    pub fn store_bytes(&mut self, env: &mut Env<'_>, linear: u64, data: &[u8]) -> Result<(), Stop> {
        env.ram
            .write_slice(data, GuestAddress(linear))
            .map_err(|_| self.fault(Exception::page_fault(linear, 2)))
    }
}
