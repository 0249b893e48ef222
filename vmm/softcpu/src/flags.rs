//! The arithmetic flags, kept in a form that is cheap to write and cheap to test.
//!
//! Most flags that instructions compute are never read. An arithmetic handler therefore stores its result and
//! its carries as they are; each flag is one or two operations away from that when somebody looks:
//!
//! | flag | from |
//! |------|------|
//! | ZF   | `result == 0` |
//! | SF   | bit 63 of `result ^ twist` |
//! | PF   | parity of the low byte of `result ^ twist` |
//! | CF   | bit 63 of `carries` |
//! | OF   | bit 63 ^ bit 62 of `carries` |
//! | AF   | bit 3 of `carries` |

use serde::{Deserialize, Serialize};

use crate::Cpu;
use crate::width::Width;

/// What the arithmetic flags are computed from.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct LazyFlags {
    /// The last result, sign-extended.
    result: u64,
    /// The carry out of each bit of the last addition (or borrow of a subtraction), aligned so that the most
    /// significant bit of the operand is bit 63; bit 3 is the carry out of bit 3.
    carries: u64,
    /// Non-zero for the combinations that no result has (zero and negative, zero and odd).
    twist: u64,
}

impl LazyFlags {
    /// From the six flags at their RFLAGS positions (other bits of `flags` are ignored).
    #[inline]
    pub fn from_bits(flags: u64) -> LazyFlags {
        let sign = (flags & SF) << (63 - SF.trailing_zeros());
        let odd = u64::from(flags & PF == 0);
        let zero = flags & ZF != 0;
        LazyFlags {
            result: if zero { 0 } else { sign | NEITHER_ZERO_NOR_NEGATIVE | odd },
            carries: carries_from(flags & CF != 0, flags & OF != 0, flags & AF != 0),
            twist: if zero { sign | odd } else { 0 },
        }
    }

    /// The six flags at their RFLAGS positions.
    #[inline]
    pub fn to_bits(self) -> u64 {
        bit(self.carry(), CF)
            | bit(self.parity(), PF)
            | bit(self.adjust(), AF)
            | bit(self.zero(), ZF)
            | bit(self.sign(), SF)
            | bit(self.overflow(), OF)
    }

    /// CF
    #[inline(always)]
    pub fn carry(self) -> bool {
        (self.carries as i64) < 0
    }

    /// PF
    #[inline(always)]
    pub fn parity(self) -> bool {
        ((self.result ^ self.twist) as u8).count_ones() & 1 == 0
    }

    /// AF
    #[inline(always)]
    pub fn adjust(self) -> bool {
        self.carries & 8 != 0
    }

    /// ZF
    #[inline(always)]
    pub fn zero(self) -> bool {
        self.result == 0
    }

    /// SF
    #[inline(always)]
    pub fn sign(self) -> bool {
        ((self.result ^ self.twist) as i64) < 0
    }

    /// OF
    #[inline(always)]
    pub fn overflow(self) -> bool {
        ((self.carries ^ self.carries << 1) as i64) < 0
    }

    /// SF != OF: less than, after a comparison of signed numbers.
    #[inline(always)]
    fn less(self) -> bool {
        ((self.result ^ self.twist ^ self.carries ^ self.carries << 1) as i64) < 0
    }

    /// Condition `CODE` as the low four bits of `Jcc`, `SETcc` and `CMOVcc` opcodes number it.
    #[inline(always)]
    pub fn condition<const CODE: u8>(self) -> bool {
        let met = match CODE >> 1 {
            0 => self.overflow(),
            1 => self.carry(),
            2 => self.zero(),
            3 => self.carry() | self.zero(),
            4 => self.sign(),
            5 => self.parity(),
            6 => self.less(),
            _ => self.less() | self.zero(),
        };
        met != (CODE & 1 != 0)
    }
}

impl Default for LazyFlags {
    fn default() -> Self {
        LazyFlags::from_bits(0)
    }
}

impl Cpu {
    /// RFLAGS, all of it.
    pub fn rflags(&self) -> u64 {
        self.flags.to_bits() | self.system_flags & !ARITHMETIC | 2
    }

    /// Replaces all of RFLAGS (the caller has applied the privilege rules).
    pub fn set_rflags(&mut self, value: u64) {
        self.flags = LazyFlags::from_bits(value);
        self.system_flags = value & !ARITHMETIC | 2;
    }

    /// Replaces the arithmetic flags, given at their RFLAGS positions, and leaves the rest of RFLAGS alone.
    #[inline]
    pub fn set_arithmetic_flags(&mut self, flags: u64) {
        self.flags = LazyFlags::from_bits(flags);
    }

    /// The flags of `result = left + right (+ carry)`.
    #[inline(always)]
    pub(crate) fn set_flags_add<T: Width>(&mut self, left: T, right: T, result: T) {
        let (left, right, sum) = (left.zero_extend(), right.zero_extend(), result.zero_extend());
        self.set_result(result, align_carries::<T>(left & right | (left | right) & !sum));
    }

    /// The flags of `result = left - right (- borrow)`.
    #[inline(always)]
    pub(crate) fn set_flags_subtract<T: Width>(&mut self, left: T, right: T, result: T) {
        let (left, right, difference) = (left.zero_extend(), right.zero_extend(), result.zero_extend());
        self.set_result(result, align_carries::<T>(!left & right | !(left ^ right) & difference));
    }

    /// The flags of a bitwise operation: no carry, no overflow.
    #[inline(always)]
    pub(crate) fn set_flags_logic<T: Width>(&mut self, result: T) {
        self.set_result(result, 0);
    }

    /// ZF, SF and PF by `result`, the others as given.
    #[inline(always)]
    pub(crate) fn set_flags_result<T: Width>(
        &mut self,
        result: T,
        carry: bool,
        overflow: bool,
        adjust: bool,
    ) {
        self.set_result(result, carries_from(carry, overflow, adjust));
    }

    /// As [`Self::set_flags_add`] for `INC`, which leaves CF alone.
    #[inline(always)]
    pub(crate) fn set_flags_increment<T: Width>(&mut self, left: T, result: T) {
        let carry = self.flags.carries;
        self.set_flags_add(left, T::truncate(1), result);
        self.keep_carry(carry);
    }

    /// As [`Self::set_flags_subtract`] for `DEC`, which leaves CF alone.
    #[inline(always)]
    pub(crate) fn set_flags_decrement<T: Width>(&mut self, left: T, result: T) {
        let carry = self.flags.carries;
        self.set_flags_subtract(left, T::truncate(1), result);
        self.keep_carry(carry);
    }

    /// Replaces CF alone.
    #[inline(always)]
    pub(crate) fn set_carry(&mut self, carry: bool) {
        self.keep_carry(u64::from(carry) << 63);
    }

    /// Replaces CF and OF alone.
    #[inline(always)]
    pub(crate) fn set_carry_overflow(&mut self, carry: bool, overflow: bool) {
        let adjust = self.flags.adjust();
        self.flags.carries = carries_from(carry, overflow, adjust);
    }

    /// Replaces ZF alone.
    #[inline(always)]
    pub(crate) fn set_zero(&mut self, zero: bool) {
        self.set_arithmetic_flags(self.flags.to_bits() & !ZF | bit(zero, ZF));
    }

    #[inline(always)]
    fn set_result<T: Width>(&mut self, result: T, carries: u64) {
        self.flags = LazyFlags { result: result.sign_extend(), carries, twist: 0 };
    }

    /// Puts bit 63 of `carries` in place, and changes bit 62 with it so that OF stays.
    #[inline(always)]
    fn keep_carry(&mut self, carries: u64) {
        let change = (self.flags.carries ^ carries) & 1 << 63;
        self.flags.carries ^= change | change >> 1;
    }
}

/// Moves the carry out of the most significant bit of a `T` to bit 63; the low bits stay where they are too.
#[inline(always)]
fn align_carries<T: Width>(carries: u64) -> u64 {
    if T::BITS == 64 { carries } else { carries << (64 - T::BITS) | carries }
}

#[inline(always)]
fn carries_from(carry: bool, overflow: bool, adjust: bool) -> u64 {
    u64::from(carry) << 63 | u64::from(carry ^ overflow) << 62 | u64::from(adjust) << 3
}

#[inline(always)]
fn bit(set: bool, flag: u64) -> u64 {
    if set { flag } else { 0 }
}

/// A result that is not zero, positive, and of even parity.
const NEITHER_ZERO_NOR_NEGATIVE: u64 = 1 << 32;

/// Carry.
pub const CF: u64 = 1 << 0;
/// Parity of the result's low byte.
pub const PF: u64 = 1 << 2;
/// Carry out of bit 3.
pub const AF: u64 = 1 << 4;
/// Zero.
pub const ZF: u64 = 1 << 6;
/// Sign.
pub const SF: u64 = 1 << 7;
/// Trap after the instruction.
pub const TF: u64 = 1 << 8;
/// Maskable interrupts accepted.
pub const IF: u64 = 1 << 9;
/// String instructions count down.
pub const DF: u64 = 1 << 10;
/// Signed overflow.
pub const OF: u64 = 1 << 11;
/// I/O privilege level.
pub const IOPL: u64 = 3 << 12;
/// Nested task.
pub const NT: u64 = 1 << 14;
/// Resume: no instruction breakpoint on the next instruction.
pub const RF: u64 = 1 << 16;
/// Virtual 8086 mode.
pub const VM: u64 = 1 << 17;
/// Alignment check, and SMAP override.
pub const AC: u64 = 1 << 18;
/// CPUID can be used if this can be toggled.
pub const ID: u64 = 1 << 21;
/// The six flags that arithmetic sets.
pub const ARITHMETIC: u64 = CF | PF | AF | ZF | SF | OF;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_survives_the_lazy_form() {
        for bits in (0..=ARITHMETIC).filter(|bits| bits & !ARITHMETIC == 0) {
            assert_eq!(LazyFlags::from_bits(bits).to_bits(), bits);
        }
    }

    #[test]
    fn one_flag_can_be_replaced_in_every_combination() {
        let mut cpu = Cpu::default();
        for bits in (0..=ARITHMETIC).filter(|bits| bits & !ARITHMETIC == 0) {
            for set in [false, true] {
                cpu.set_arithmetic_flags(bits);
                cpu.set_carry(set);
                assert_eq!(cpu.flags.to_bits(), bits & !CF | bit(set, CF));
                cpu.set_arithmetic_flags(bits);
                cpu.set_zero(set);
                assert_eq!(cpu.flags.to_bits(), bits & !ZF | bit(set, ZF));
            }
        }
    }

    #[test]
    fn conditions_follow_their_definitions() {
        for bits in (0..=ARITHMETIC).filter(|bits| bits & !ARITHMETIC == 0) {
            let flags = LazyFlags::from_bits(bits);
            let [carry, zero, sign, overflow] = [CF, ZF, SF, OF].map(|flag| bits & flag != 0);
            assert_eq!(flags.condition::<2>(), carry);
            assert_eq!(flags.condition::<7>(), !(carry || zero));
            assert_eq!(flags.condition::<0xc>(), sign != overflow);
            assert_eq!(flags.condition::<0xf>(), !zero && sign == overflow);
        }
    }
}
