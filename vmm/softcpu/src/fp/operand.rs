//! Where SSE and MMX instructions take their operands from.

use std::arch::x86_64::__m128i;
use std::marker::PhantomData;

use iced_x86::{Instruction, OpKind};

use super::host;
use crate::integer::memory::{Address, Addressing, Indexed, Other, addressing};
use crate::op::{Handler, Op};
use crate::{Access, Cpu, Env, Exception, Stop, Width};

/// A source operand: register or memory. MMX values are in the low half, the upper half is then zero.
pub(super) trait Source {
    /// Its value, if there is a short way to it (see [`crate::integer::memory`]).
    #[inline(always)]
    fn fetch_cached(_cpu: &Cpu, _op: &Op) -> Option<u128> {
        None
    }

    /// Its value.
    fn fetch(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<u128, Stop>;
}

/// XMM register.
pub(super) struct Xmm;
/// 16 bytes in memory, aligned.
pub(super) struct Memory128<A = Other>(PhantomData<A>);
/// 16 bytes in memory, anywhere.
pub(super) struct Memory128Unaligned<A = Other>(PhantomData<A>);
/// 8 bytes in memory.
pub(super) struct Memory64;
/// 4 bytes in memory.
pub(super) struct Memory32;
/// MMX register.
pub(super) struct Mm;

impl Source for Xmm {
    #[inline(always)]
    fn fetch_cached(cpu: &Cpu, op: &Op) -> Option<u128> {
        Some(cpu.xmm(op.source))
    }

    #[inline(always)]
    fn fetch(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<u128, Stop> {
        Ok(cpu.xmm(op.source))
    }
}

impl Source for Mm {
    #[inline(always)]
    fn fetch_cached(cpu: &Cpu, op: &Op) -> Option<u128> {
        Some(u128::from(cpu.mm(op.source)))
    }

    #[inline(always)]
    fn fetch(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<u128, Stop> {
        Ok(u128::from(cpu.mm(op.source)))
    }
}

impl<A: Address> Source for Memory128<A> {
    #[inline(always)]
    fn fetch_cached(cpu: &Cpu, op: &Op) -> Option<u128> {
        A::linear(cpu, op).filter(|linear| linear & 15 == 0).and_then(|linear| cpu.load_128_cached(linear))
    }

    #[inline(always)]
    fn fetch(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<u128, Stop> {
        let linear = cpu.linear_aligned(op, Access::Read)?;
        cpu.load_128(env, linear)
    }
}

impl<A: Address> Source for Memory128Unaligned<A> {
    #[inline(always)]
    fn fetch_cached(cpu: &Cpu, op: &Op) -> Option<u128> {
        A::linear(cpu, op).and_then(|linear| cpu.load_128_cached(linear))
    }

    #[inline(always)]
    fn fetch(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<u128, Stop> {
        let linear = cpu.linear(op, 16, Access::Read)?;
        cpu.load_128(env, linear)
    }
}

impl Source for Memory64 {
    #[inline(always)]
    fn fetch(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<u128, Stop> {
        cpu.load_operand::<u64>(env, op).map(u128::from)
    }
}

impl Source for Memory32 {
    #[inline(always)]
    fn fetch(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<u128, Stop> {
        cpu.load_operand::<u32>(env, op).map(u128::from)
    }
}

/// The registers that an instruction works in: XMM or MMX.
pub(super) trait RegisterFile {
    /// Whether they may be used.
    fn is_available(cpu: &Cpu) -> bool;
    /// Faults unless they may be used.
    fn enter(cpu: &mut Cpu) -> Result<(), Stop>;
    /// Reads one.
    fn read(cpu: &Cpu, register: u8) -> u128;
    /// Writes one.
    fn write(cpu: &mut Cpu, register: u8, value: u128);
    /// Takes note that an instruction only read some.
    fn used(cpu: &mut Cpu);
}

impl RegisterFile for Xmm {
    #[inline(always)]
    fn is_available(cpu: &Cpu) -> bool {
        cpu.sse_is_available()
    }

    #[inline(always)]
    fn enter(cpu: &mut Cpu) -> Result<(), Stop> {
        cpu.enter_sse()
    }

    #[inline(always)]
    fn read(cpu: &Cpu, register: u8) -> u128 {
        cpu.xmm(register)
    }

    #[inline(always)]
    fn write(cpu: &mut Cpu, register: u8, value: u128) {
        cpu.set_xmm(register, value);
    }

    #[inline(always)]
    fn used(_cpu: &mut Cpu) {}
}

impl RegisterFile for Mm {
    #[inline(always)]
    fn is_available(cpu: &Cpu) -> bool {
        cpu.mmx_is_available()
    }

    #[inline(always)]
    fn enter(cpu: &mut Cpu) -> Result<(), Stop> {
        cpu.enter_mmx()
    }

    #[inline(always)]
    fn read(cpu: &Cpu, register: u8) -> u128 {
        u128::from(cpu.mm(register))
    }

    #[inline(always)]
    fn write(cpu: &mut Cpu, register: u8, value: u128) {
        cpu.set_mm(register, value as u64);
    }

    #[inline(always)]
    fn used(cpu: &mut Cpu) {
        cpu.fpu.use_as_mmx();
    }
}

/// An operation on two packed integer operands, destination first.
pub(super) trait Binary {
    /// Its result.
    fn apply(destination: __m128i, source: __m128i) -> __m128i;
}

/// Handler for `destination = destination op source`.
pub(super) fn binary<O: Binary, F: RegisterFile, S: Source>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    if F::is_available(cpu)
        && let Some(source) = S::fetch_cached(cpu, op)
    {
        combine::<O, F>(cpu, op, source);
        return Ok(());
    }
    binary_slow::<O, F, S>(cpu, env, op)
}

#[inline(never)]
fn binary_slow<O: Binary, F: RegisterFile, S: Source>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    F::enter(cpu)?;
    let source = S::fetch(cpu, env, op)?;
    combine::<O, F>(cpu, op, source);
    Ok(())
}

#[inline(always)]
fn combine<O: Binary, F: RegisterFile>(cpu: &mut Cpu, op: &Op, source: u128) {
    let destination = F::read(cpu, op.destination);
    let result = O::apply(host::vector(destination), host::vector(source));
    F::write(cpu, op.destination, host::scalar(result));
}

/// Whether the memory operand's address can be computed without checks.
pub(super) fn has_short_way(instruction: &Instruction) -> bool {
    !matches!(addressing(instruction), Addressing::Other)
}

/// [`binary`] on XMM registers for `instruction`'s kind of source operand.
pub(super) fn binary_xmm<O: Binary>(instruction: &Instruction) -> Handler {
    match instruction.op1_kind() {
        OpKind::Register => binary::<O, Xmm, Xmm>,
        _ if has_short_way(instruction) => binary::<O, Xmm, Memory128<Indexed>>,
        _ => binary::<O, Xmm, Memory128>,
    }
}

impl Cpu {
    /// XMM register `register`.
    #[inline(always)]
    pub(super) fn xmm(&self, register: u8) -> u128 {
        self.fpu.xmm[(register & 15) as usize]
    }

    /// Writes an XMM register.
    #[inline(always)]
    pub(super) fn set_xmm(&mut self, register: u8, value: u128) {
        self.fpu.xmm[(register & 15) as usize] = value;
    }

    /// Writes the low 64 bits of an XMM register, leaving the rest alone.
    #[inline(always)]
    pub(super) fn set_xmm_low(&mut self, register: u8, value: u64) {
        let slot = &mut self.fpu.xmm[(register & 15) as usize];
        *slot = *slot >> 64 << 64 | u128::from(value);
    }

    /// MMX register `register`.
    #[inline(always)]
    pub(super) fn mm(&self, register: u8) -> u64 {
        self.fpu.registers[(register & 7) as usize].mantissa
    }

    /// Writes an MMX register.
    #[inline(always)]
    pub(super) fn set_mm(&mut self, register: u8, value: u64) {
        self.fpu.use_as_mmx();
        let slot = &mut self.fpu.registers[(register & 7) as usize];
        slot.mantissa = value;
        slot.sign_exponent = 0xffff;
    }

    /// The linear address of `op`'s 16-byte operand; #GP when it is not aligned.
    #[inline(always)]
    pub(super) fn linear_aligned(&mut self, op: &Op, access: Access) -> Result<u64, Stop> {
        let linear = self.linear(op, 16, access)?;
        if linear & 15 != 0 {
            return Err(self.fault(Exception::general_protection(0)));
        }
        Ok(linear)
    }

    /// The short way of [`Self::load_128`]: `None` if it takes more than a look at the TLB.
    #[inline(always)]
    pub(super) fn load_128_cached(&self, linear: u64) -> Option<u128> {
        let mut bytes = [0; 16];
        let page = self.tlb.readable(linear)?;
        page.read_bytes((linear & 0xfff) as usize, &mut bytes).then_some(u128::from_le_bytes(bytes))
    }

    /// The short way of [`Self::store_128`] likewise; says whether it was enough.
    #[inline(always)]
    pub(super) fn store_128_cached(&mut self, linear: u64, value: u128) -> bool {
        let Some(page) = self.tlb.writable(linear) else { return false };
        page.write_bytes((linear & 0xfff) as usize, &value.to_le_bytes())
    }

    /// Reads 16 bytes.
    #[inline(always)]
    pub(super) fn load_128(&mut self, env: &mut Env<'_>, linear: u64) -> Result<u128, Stop> {
        let mut bytes = [0; 16];
        self.load_bytes(env, linear, &mut bytes)?;
        Ok(u128::from_le_bytes(bytes))
    }

    /// Writes 16 bytes.
    #[inline(always)]
    pub(super) fn store_128(&mut self, env: &mut Env<'_>, linear: u64, value: u128) -> Result<(), Stop> {
        self.store_bytes(env, linear, &value.to_le_bytes())
    }

    /// Reads `op`'s memory operand.
    #[inline(always)]
    pub(super) fn load_operand<T: Width>(&mut self, env: &mut Env<'_>, op: &Op) -> Result<T, Stop> {
        let linear = self.linear(op, T::BYTES, Access::Read)?;
        self.load(env, linear)
    }

    /// Writes `op`'s memory operand.
    #[inline(always)]
    pub(super) fn store_operand<T: Width>(
        &mut self,
        env: &mut Env<'_>,
        op: &Op,
        value: T,
    ) -> Result<(), Stop> {
        let linear = self.linear(op, T::BYTES, Access::Write)?;
        self.store(env, linear, value)
    }
}
