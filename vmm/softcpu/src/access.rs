//! How handlers reach memory.
//!
//! Addresses handed to [`Cpu::load`] and its siblings are *linear*; [`Cpu::linear`] makes one from an op's
//! memory operand, applying segmentation where it has an effect.

use crate::cpu::{RBP, RSP};
use crate::cpuid::CpuidTable;
use crate::host::Memory;
use crate::mode::Mode;
use crate::op::{FLAT, Op};
use crate::segment::SS;
use crate::tlb::{Context, Scope};
use crate::width::Width;
use crate::{Bus, Cpu, Exception, Position, Stop};

/// What a handler works with besides its CPU.
pub struct Env<'a> {
    /// The rest of the machine.
    pub bus: &'a mut dyn Bus,
    /// Index of the executing CPU.
    pub cpu_index: usize,
    pub(crate) memory: &'a Memory,
    pub(crate) cpuid: &'a CpuidTable,
    /// The block being executed.
    pub(crate) ops: &'a [Op],
    /// RIP at its start.
    pub(crate) block_rip: u64,
    /// Instructions completed before it.
    pub(crate) executed: u64,
    /// How many of its ops to execute. Lowered to end it early.
    pub(crate) limit: usize,
    /// Something happened that needs a look between blocks: the bus was called, code was written to, a debug
    /// trap waits, or the instruction may have made the CPU interruptible, shadowed or single-stepping.
    pub(crate) look: bool,
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

impl Env<'_> {
    /// When it is for `cpu`, to be passed on to the bus.
    ///
    /// The instruction counter is not kept up to date within a block: which op executes follows from RIP,
    /// which is just behind it.
    pub fn position(&self, cpu: &Cpu) -> Position {
        Position { cpu: self.cpu_index, executed: self.executed + self.op_index(cpu) as u64 }
    }

    /// Index of the executing op.
    fn op_index(&self, cpu: &Cpu) -> usize {
        let mut end = self.block_rip;
        let index = self.ops.iter().position(|op| {
            end = end.wrapping_add(u64::from(op.length));
            end == cpu.rip()
        });
        // Only the last instruction of a block changes RIP.
        index.unwrap_or(self.ops.len().saturating_sub(1))
    }

    /// Ends the block after the current instruction.
    pub(crate) fn end_block(&mut self) {
        self.limit = 0;
        self.look = true;
    }

    /// Writes within one page of RAM; false when `physical` is not RAM. A write to code ends the block, which
    /// may be the code itself.
    pub(crate) fn write_ram(&mut self, physical: u64, data: &[u8]) -> bool {
        if self.memory.is_code(physical) {
            self.end_block();
        }
        self.memory.write(physical, data)
    }
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
    pub fn linear(&mut self, op: &Op, bytes: usize, access: Access) -> Result<u64, Stop> {
        self.linear_in(op.segment, self.effective(op), bytes, access)
    }

    /// The linear address of `bytes` bytes at `offset` in `segment` (a number as [`Op::segment`] has it,
    /// [`FLAT`] included), after the segment's checks. For operands that an [`Op`] does not describe: stack,
    /// string destinations, 64-bit absolute addresses.
    ///
    /// # Errors
    /// As [`Self::linear`].
    #[inline(always)]
    pub fn linear_in(&mut self, segment: u8, offset: u64, bytes: usize, access: Access) -> Result<u64, Stop> {
        if segment == FLAT {
            return Ok(offset);
        }
        if self.derived.code_bits == 64 {
            // Only FS and GS have a base; a stack operand may name SS.
            let base = if segment >= 4 { self.segments[segment as usize].base } else { 0 };
            return Ok(base.wrapping_add(offset));
        }
        self.linear_checked(segment, offset, bytes, access)
    }

    #[inline(never)]
    fn linear_checked(
        &mut self,
        segment: u8,
        offset: u64,
        bytes: usize,
        access: Access,
    ) -> Result<u64, Stop> {
        let cached = &self.segments[segment as usize % 6];
        let permitted = self.mode() == Mode::Real
            || cached.present()
                && match access {
                    Access::Read => cached.is_readable(),
                    Access::Write => cached.is_writable_data(),
                    Access::Execute => cached.is_code(),
                };
        if !permitted || !cached.contains(offset, bytes.max(1) as u64) {
            return Err(self.fault(if usize::from(segment) == SS {
                Exception::stack(0)
            } else {
                Exception::general_protection(0)
            }));
        }
        Ok(cached.base.wrapping_add(offset) & 0xffff_ffff)
    }

    /// How many bytes of RSP address the stack: 8 in 64-bit mode, otherwise 4 or 2 (SS.B).
    #[inline(always)]
    pub fn stack_address_size(&self) -> u8 {
        self.derived.stack_bytes
    }

    /// Sets RIP to the target of a near branch, already truncated to the operand size.
    ///
    /// # Errors
    /// #GP(0) when it is not canonical or is beyond the code segment's limit; RIP is unchanged then.
    #[inline(always)]
    pub fn branch(&mut self, target: u64) -> Result<(), Stop> {
        let valid = if self.derived.code_bits == 64 {
            is_canonical(target)
        } else {
            target <= u64::from(self.segments[crate::segment::CS].limit)
        };
        if !valid {
            return Err(self.fault(Exception::general_protection(0)));
        }
        self.set_rip(target);
        Ok(())
    }

    /// Whether `access` to the page at `linear` would succeed and reach RAM, so that the width of accesses
    /// makes no difference and string instructions may move many elements at once. No side effects that
    /// software can see.
    #[inline]
    pub fn is_plain_ram(&mut self, env: &mut Env<'_>, linear: u64, access: Access) -> bool {
        let cached = match access {
            Access::Read => self.tlb.readable(linear),
            Access::Write => self.tlb.writable(linear),
            Access::Execute => None,
        };
        cached.is_some() || self.would_be_plain_ram(env, linear, access)
    }

    #[cold]
    fn would_be_plain_ram(&self, env: &Env<'_>, linear: u64, access: Access) -> bool {
        let context = self.tlb.context();
        context != Context::UserAligned
            && self.valid_linear(linear)
            && !self.is_watched(linear, 4096)
            && self.walk(env.memory, linear).is_ok_and(|mapping| {
                self.permits(&mapping, access, context) && env.memory.page(mapping.physical).is_some()
            })
    }

    /// Reads guest memory with the current privilege.
    ///
    /// # Errors
    /// #PF, #GP (non-canonical), #AC.
    #[inline(always)]
    pub fn load<T: Width>(&mut self, env: &mut Env<'_>, linear: u64) -> Result<T, Stop> {
        if let Some(value) = self.tlb.read(linear) {
            return Ok(value);
        }
        self.load_slow(env, linear, T::BYTES).map(T::truncate)
    }

    #[cold]
    #[inline(never)]
    fn load_slow(&mut self, env: &mut Env<'_>, linear: u64, bytes: usize) -> Result<u64, Stop> {
        let mut data = [0; 8];
        self.load_bytes_slow(env, linear, &mut data[..bytes])?;
        Ok(u64::from_le_bytes(data))
    }

    /// Writes guest memory with the current privilege.
    ///
    /// # Errors
    /// As [`Self::load`]; nothing is written then, even where only the second of two pages faults.
    #[inline(always)]
    pub fn store<T: Width>(&mut self, env: &mut Env<'_>, linear: u64, value: T) -> Result<(), Stop> {
        if self.tlb.write(linear, value) {
            return Ok(());
        }
        self.store_slow(env, linear, value.zero_extend(), T::BYTES)
    }

    #[cold]
    #[inline(never)]
    fn store_slow(&mut self, env: &mut Env<'_>, linear: u64, value: u64, bytes: usize) -> Result<(), Stop> {
        self.store_bytes_slow(env, linear, &value.to_le_bytes()[..bytes])
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
        let offset = (linear & 0xfff) as usize;
        if let Some(page) = self.tlb.writable(linear)
            && let Some(old) = page.read::<T>(offset)
        {
            let (new, result) = change(self, old);
            page.write(offset, new);
            return Ok(result);
        }
        self.check_writable(env, linear, T::BYTES)?;
        let old = T::truncate(self.load_slow(env, linear, T::BYTES)?);
        let (new, result) = change(self, old);
        self.store_slow(env, linear, new.zero_extend(), T::BYTES)?;
        Ok(result)
    }

    /// The short way of [`Self::load`]: `None`, and nothing done, if it takes more than a look at the TLB.
    #[inline(always)]
    pub(crate) fn load_cached<T: Width>(&self, linear: u64) -> Option<T> {
        self.tlb.read(linear)
    }

    /// The short way of [`Self::store`] likewise; says whether it was enough.
    #[inline(always)]
    pub(crate) fn store_cached<T: Width>(&mut self, linear: u64, value: T) -> bool {
        self.tlb.write(linear, value)
    }

    /// The short way of [`Self::modify`] likewise.
    #[inline(always)]
    pub(crate) fn modify_cached<T: Width>(
        &mut self,
        linear: u64,
        change: impl FnOnce(&mut Cpu, T) -> T,
    ) -> bool {
        let offset = (linear & 0xfff) as usize;
        let Some(page) = self.tlb.writable(linear) else { return false };
        let Some(old) = page.read::<T>(offset) else { return false };
        let new = change(self, old);
        page.write(offset, new)
    }

    /// Faults as a write of `bytes` bytes at `linear` would.
    #[cold]
    #[inline(never)]
    pub(crate) fn check_writable(
        &mut self,
        env: &mut Env<'_>,
        linear: u64,
        bytes: usize,
    ) -> Result<(), Stop> {
        self.resolve(env, linear, Access::Write)?;
        if let Some(second) = self.second_page(linear, bytes) {
            self.resolve(env, second, Access::Write)?;
        }
        Ok(())
    }

    /// Reads `data.len()` bytes (at most 512).
    ///
    /// # Errors
    /// As [`Self::load`].
    #[inline]
    pub fn load_bytes(&mut self, env: &mut Env<'_>, linear: u64, data: &mut [u8]) -> Result<(), Stop> {
        match self.tlb.readable(linear) {
            Some(page) if page.read_bytes((linear & 0xfff) as usize, data) => Ok(()),
            _ => self.load_bytes_slow(env, linear, data),
        }
    }

    #[cold]
    #[inline(never)]
    fn load_bytes_slow(&mut self, env: &mut Env<'_>, linear: u64, data: &mut [u8]) -> Result<(), Stop> {
        self.check_alignment(linear, data.len())?;
        let first = self.resolve(env, linear, Access::Read)?;
        match self.second_page(linear, data.len()) {
            None => self.read_physical(env, first, data),
            Some(next) => {
                let second = self.resolve(env, next, Access::Read)?;
                let (head, tail) = data.split_at_mut(4096 - (linear & 0xfff) as usize);
                self.read_physical(env, first, head);
                self.read_physical(env, second, tail);
            }
        }
        self.watch_access(linear, data.len(), Access::Read);
        if self.debug_trap != 0 {
            env.end_block();
        }
        Ok(())
    }

    /// Writes `data` (at most 512 bytes), all or nothing.
    ///
    /// # Errors
    /// As [`Self::store`].
    #[inline]
    pub fn store_bytes(&mut self, env: &mut Env<'_>, linear: u64, data: &[u8]) -> Result<(), Stop> {
        match self.tlb.writable(linear) {
            Some(page) if page.write_bytes((linear & 0xfff) as usize, data) => Ok(()),
            _ => self.store_bytes_slow(env, linear, data),
        }
    }

    #[cold]
    #[inline(never)]
    fn store_bytes_slow(&mut self, env: &mut Env<'_>, linear: u64, data: &[u8]) -> Result<(), Stop> {
        self.check_alignment(linear, data.len())?;
        let first = self.resolve(env, linear, Access::Write)?;
        match self.second_page(linear, data.len()) {
            None => self.write_physical(env, first, data),
            Some(next) => {
                let second = self.resolve(env, next, Access::Write)?;
                let (head, tail) = data.split_at(4096 - (linear & 0xfff) as usize);
                self.write_physical(env, first, head);
                self.write_physical(env, second, tail);
            }
        }
        self.watch_access(linear, data.len(), Access::Write);
        if self.debug_trap != 0 {
            env.end_block();
        }
        Ok(())
    }

    /// The linear address of the next page, if `bytes` bytes at `linear` reach into it.
    fn second_page(&self, linear: u64, bytes: usize) -> Option<u64> {
        ((linear & 0xfff) as usize + bytes > 4096).then(|| {
            let next = (linear | 0xfff).wrapping_add(1);
            if self.derived.long { next } else { next & 0xffff_ffff }
        })
    }

    /// Translates `linear` for `access` and gives its page a TLB entry if it may have one.
    pub(crate) fn resolve(&mut self, env: &mut Env<'_>, linear: u64, access: Access) -> Result<u64, Stop> {
        if !self.valid_linear(linear) {
            let stack = access != Access::Execute && self.is_stack_access(env, linear);
            return Err(self.fault(if stack {
                Exception::stack(0)
            } else {
                Exception::general_protection(0)
            }));
        }
        let context = self.tlb.context();
        let mapping = match self.translate(env, linear, access, context) {
            Ok(mapping) => mapping,
            Err(exception) => return Err(self.fault(exception)),
        };
        let physical = mapping.physical;
        let scope = Scope { global: mapping.global, large: mapping.large };
        if access == Access::Execute {
            self.tlb.allow_execute(linear, physical, scope);
        } else if let Some(page) = env.memory.page(physical)
            && !self.is_watched(linear & !0xfff, 4096)
        {
            self.tlb.allow_read(linear, page, scope);
            if access == Access::Write && env.memory.allow_direct_writes(physical) {
                self.tlb.allow_write(linear, page, scope);
            }
        }
        Ok(physical)
    }

    /// Whether the current instruction reaches `linear` through the stack segment, as far as that shows: 64-bit
    /// code has no segment to tell by, only the registers it uses.
    fn is_stack_access(&self, env: &Env<'_>, linear: u64) -> bool {
        let Some(op) = env.ops.get(env.op_index(self)) else { return false };
        // With such a base both the operand and what is pushed or popped besides are on the stack.
        let operand = op.segment == FLAT && matches!(op.base, RSP | RBP);
        let distance = linear.wrapping_sub(self.registers[RSP as usize]) as i64;
        operand || distance.unsigned_abs() <= 16
    }

    fn valid_linear(&self, linear: u64) -> bool {
        !self.derived.long || is_canonical(linear)
    }

    fn check_alignment(&mut self, linear: u64, bytes: usize) -> Result<(), Stop> {
        let aligned = bytes > 8 || linear & (bytes.next_power_of_two() as u64 - 1) == 0;
        if self.tlb.context() == Context::UserAligned && !aligned {
            return Err(self.fault(Exception::alignment_check()));
        }
        Ok(())
    }

    /// Reads within one page.
    fn read_physical(&mut self, env: &mut Env<'_>, physical: u64, data: &mut [u8]) {
        if !env.memory.read(physical, data) {
            env.end_block();
            let at = env.position(self);
            for (address, range) in bus_accesses(physical, data.len()) {
                env.bus.read_memory(at, address, &mut data[range]);
            }
        }
    }

    /// Writes within one page.
    fn write_physical(&mut self, env: &mut Env<'_>, physical: u64, data: &[u8]) {
        if !env.write_ram(physical, data) {
            env.end_block();
            let at = env.position(self);
            for (address, range) in bus_accesses(physical, data.len()) {
                env.bus.write_memory(at, address, &data[range]);
            }
        }
    }
}

/// Splits an access into ones of 1, 2, 4 or 8 bytes.
fn bus_accesses(physical: u64, bytes: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = bytes - start;
        let size = [8, 4, 2, 1].into_iter().find(|&size| size <= rest)?;
        let range = start..start + size;
        start += size;
        Some((physical + range.start as u64, range))
    })
}

/// Whether bits 48 to 63 all equal bit 47.
#[inline(always)]
pub(crate) fn is_canonical(linear: u64) -> bool {
    (linear << 16) as i64 >> 16 == linear as i64
}
