//! SSE floating-point arithmetic and conversions between XMM formats.

use iced_x86::{Code, Instruction, OpKind};

use super::host::sse::{self, Operation};
use super::operand::{Memory32, Memory64, Memory128, Source, Xmm};
use crate::op::{Handler, Op};
use crate::{Cpu, Env, Stop};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    lookup_arithmetic(instruction).or_else(|| lookup_compare(instruction))
}

macro_rules! arithmetic {
    ($($code:ident $operation:ident $memory:ident;)*) => {
        fn lookup_arithmetic(instruction: &Instruction) -> Option<Handler> {
            Some(match instruction.code() {
                $(Code::$code => match instruction.op1_kind() {
                    OpKind::Register => arithmetic::<sse::$operation, Xmm>,
                    _ => arithmetic::<sse::$operation, $memory>,
                },)*
                _ => return None,
            })
        }
    };
}

arithmetic! {
    Addps_xmm_xmmm128 Addps Memory128;
    Addss_xmm_xmmm32 Addss Memory32;
    Addpd_xmm_xmmm128 Addpd Memory128;
    Addsd_xmm_xmmm64 Addsd Memory64;
    Subps_xmm_xmmm128 Subps Memory128;
    Subss_xmm_xmmm32 Subss Memory32;
    Subpd_xmm_xmmm128 Subpd Memory128;
    Subsd_xmm_xmmm64 Subsd Memory64;
    Mulps_xmm_xmmm128 Mulps Memory128;
    Mulss_xmm_xmmm32 Mulss Memory32;
    Mulpd_xmm_xmmm128 Mulpd Memory128;
    Mulsd_xmm_xmmm64 Mulsd Memory64;
    Divps_xmm_xmmm128 Divps Memory128;
    Divss_xmm_xmmm32 Divss Memory32;
    Divpd_xmm_xmmm128 Divpd Memory128;
    Divsd_xmm_xmmm64 Divsd Memory64;
    Sqrtps_xmm_xmmm128 Sqrtps Memory128;
    Sqrtss_xmm_xmmm32 Sqrtss Memory32;
    Sqrtpd_xmm_xmmm128 Sqrtpd Memory128;
    Sqrtsd_xmm_xmmm64 Sqrtsd Memory64;
    Minps_xmm_xmmm128 Minps Memory128;
    Minss_xmm_xmmm32 Minss Memory32;
    Minpd_xmm_xmmm128 Minpd Memory128;
    Minsd_xmm_xmmm64 Minsd Memory64;
    Maxps_xmm_xmmm128 Maxps Memory128;
    Maxss_xmm_xmmm32 Maxss Memory32;
    Maxpd_xmm_xmmm128 Maxpd Memory128;
    Maxsd_xmm_xmmm64 Maxsd Memory64;
    Cvtps2pd_xmm_xmmm64 Cvtps2pd Memory64;
    Cvtss2sd_xmm_xmmm32 Cvtss2sd Memory32;
    Cvtpd2ps_xmm_xmmm128 Cvtpd2ps Memory128;
    Cvtsd2ss_xmm_xmmm64 Cvtsd2ss Memory64;
    Cvtdq2ps_xmm_xmmm128 Cvtdq2ps Memory128;
    Cvtdq2pd_xmm_xmmm64 Cvtdq2pd Memory64;
    Cvtps2dq_xmm_xmmm128 Cvtps2dq Memory128;
    Cvttps2dq_xmm_xmmm128 Cvttps2dq Memory128;
    Cvtpd2dq_xmm_xmmm128 Cvtpd2dq Memory128;
    Cvttpd2dq_xmm_xmmm128 Cvttpd2dq Memory128;
    Haddps_xmm_xmmm128 Haddps Memory128;
    Hsubps_xmm_xmmm128 Hsubps Memory128;
    Haddpd_xmm_xmmm128 Haddpd Memory128;
    Hsubpd_xmm_xmmm128 Hsubpd Memory128;
    Addsubps_xmm_xmmm128 Addsubps Memory128;
    Addsubpd_xmm_xmmm128 Addsubpd Memory128;
}

fn arithmetic<O: Operation, S: Source>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    let source = S::fetch(cpu, env, op)?;
    let result = cpu.compute::<O>(cpu.xmm(op.destination), source)?;
    cpu.set_xmm(op.destination, result);
    Ok(())
}

macro_rules! compare {
    ($($code:ident $operation:ident $memory:ident;)*) => {
        fn lookup_compare(instruction: &Instruction) -> Option<Handler> {
            Some(match instruction.code() {
                $(Code::$code => {
                    let predicate = instruction.immediate8() & 7;
                    match instruction.op1_kind() {
                        OpKind::Register => [
                            arithmetic::<sse::$operation<0>, Xmm>,
                            arithmetic::<sse::$operation<1>, Xmm>,
                            arithmetic::<sse::$operation<2>, Xmm>,
                            arithmetic::<sse::$operation<3>, Xmm>,
                            arithmetic::<sse::$operation<4>, Xmm>,
                            arithmetic::<sse::$operation<5>, Xmm>,
                            arithmetic::<sse::$operation<6>, Xmm>,
                            arithmetic::<sse::$operation<7>, Xmm>,
                        ][usize::from(predicate)],
                        _ => [
                            arithmetic::<sse::$operation<0>, $memory>,
                            arithmetic::<sse::$operation<1>, $memory>,
                            arithmetic::<sse::$operation<2>, $memory>,
                            arithmetic::<sse::$operation<3>, $memory>,
                            arithmetic::<sse::$operation<4>, $memory>,
                            arithmetic::<sse::$operation<5>, $memory>,
                            arithmetic::<sse::$operation<6>, $memory>,
                            arithmetic::<sse::$operation<7>, $memory>,
                        ][usize::from(predicate)],
                    }
                })*
                _ => return None,
            })
        }
    };
}

compare! {
    Cmpps_xmm_xmmm128_imm8 Cmpps Memory128;
    Cmpss_xmm_xmmm32_imm8 Cmpss Memory32;
    Cmppd_xmm_xmmm128_imm8 Cmppd Memory128;
    Cmpsd_xmm_xmmm64_imm8 Cmpsd Memory64;
}

impl Cpu {
    /// Computes `O` under the guest's MXCSR and notes the exception flags there.
    ///
    /// # Errors
    /// #XM (or #UD) for an unmasked exception.
    #[inline(always)]
    pub(super) fn compute<O: Operation>(&mut self, destination: u128, source: u128) -> Result<u128, Stop> {
        self.guarded(|mxcsr| O::run(mxcsr, destination, source), |result| O::TINY.found_in(*result))
    }

    /// Runs a host operation under the guest's MXCSR, which it gets with all exceptions masked and returns
    /// with the raised flags. `tiny` says whether a result is denormal.
    #[inline(always)]
    pub(super) fn guarded<R>(
        &mut self,
        run: impl Fn(u32) -> (R, u32),
        tiny: impl Fn(&R) -> bool,
    ) -> Result<R, Stop> {
        if self.fpu.mxcsr & MASKS == MASKS {
            let (result, mxcsr) = run(self.fpu.mxcsr);
            self.fpu.mxcsr = mxcsr;
            return Ok(result);
        }
        self.guarded_unmasked(run, tiny)
    }

    #[cold]
    fn guarded_unmasked<R>(
        &mut self,
        run: impl Fn(u32) -> (R, u32),
        tiny: impl Fn(&R) -> bool,
    ) -> Result<R, Stop> {
        let mxcsr = self.fpu.mxcsr;
        let underflow_traps = mxcsr & UNDERFLOW << MASK_SHIFT == 0;
        // Results are flushed to zero only where underflow is masked.
        let flush = if underflow_traps { FLUSH_TO_ZERO } else { 0 };
        let (result, status) = run((mxcsr | MASKS) & !(FLAGS | flush));
        let mut raised = status & FLAGS;
        if underflow_traps && tiny(&result) {
            // Masked, underflow means tiny and inexact; unmasked, tiny is enough.
            raised |= UNDERFLOW;
        }
        let unmasked = raised & !(mxcsr >> MASK_SHIFT);
        if unmasked == 0 {
            self.fpu.mxcsr |= raised;
            return Ok(result);
        }
        // Errors in the operands are found in all lanes before anything is computed.
        // (For a trapping overflow or underflow, processors judge whether the result is inexact by one with an
        // unbounded exponent. Here it is judged as if the exception were masked.)
        self.fpu.mxcsr |= if unmasked & BEFORE_COMPUTING != 0 { raised & BEFORE_COMPUTING } else { raised };
        Err(self.simd_fault())
    }
}

/// Exception flags.
const FLAGS: u32 = 0x3f;
/// Exception masks.
const MASKS: u32 = FLAGS << MASK_SHIFT;
/// From a flag to its mask.
const MASK_SHIFT: u32 = 7;
/// Invalid, denormal, divide by zero.
const BEFORE_COMPUTING: u32 = 7;
const UNDERFLOW: u32 = 1 << 4;
const FLUSH_TO_ZERO: u32 = 1 << 15;
