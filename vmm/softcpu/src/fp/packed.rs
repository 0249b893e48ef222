//! Packed integer instructions on two operands, MMX and SSE2, and the bitwise and interleaving instructions of
//! SSE, which are the same thing under other names.

use std::arch::x86_64::*;

use iced_x86::{Code, Instruction, OpKind};

use super::host::sse2;
use super::operand::{Binary, Memory32, Memory64, Mm, binary, binary_xmm};
use crate::op::Handler;

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    lookup_pairs(instruction).or_else(|| lookup_mmx(instruction)).or_else(|| lookup_sse(instruction))
}

/// A lookup function for a table of operations on 128-bit vectors. For MMX the operands come in the low halves
/// and the low half of the result counts.
macro_rules! operations {
    ($name:ident, $select:ident, $($($code:ident)+ => $apply:expr;)*) => {
        fn $name(instruction: &Instruction) -> Option<Handler> {
            Some(match instruction.code() {
                $($(Code::$code)|+ => {
                    struct Operation;
                    impl Binary for Operation {
                        #[inline(always)]
                        fn apply(destination: __m128i, source: __m128i) -> __m128i {
                            sse2!(($apply)(destination, source))
                        }
                    }
                    $select::<Operation>(instruction)
                })*
                _ => return None,
            })
        }
    };
}

fn select<O: Binary>(instruction: &Instruction) -> Handler {
    if instruction.op0_register().is_mm() {
        select_mmx::<O>(instruction)
    } else {
        binary_xmm::<O>(instruction)
    }
}

fn select_mmx<O: Binary>(instruction: &Instruction) -> Handler {
    match (instruction.op1_kind(), instruction.code()) {
        (OpKind::Register, _) => binary::<O, Mm, Mm>,
        (_, Code::Punpcklbw_mm_mmm32 | Code::Punpcklwd_mm_mmm32 | Code::Punpckldq_mm_mmm32) => {
            binary::<O, Mm, Memory32>
        }
        _ => binary::<O, Mm, Memory64>,
    }
}

/// What MMX's pack and high unpack instructions work on: both operands in one vector.
#[inline]
#[target_feature(enable = "sse2")]
fn both(destination: __m128i, source: __m128i) -> __m128i {
    _mm_unpacklo_epi64(destination, source)
}

#[inline]
#[target_feature(enable = "sse2")]
fn high_half(value: __m128i) -> __m128i {
    _mm_srli_si128::<8>(value)
}

operations! { lookup_pairs, select,
    Paddb_mm_mmm64 Paddb_xmm_xmmm128 => _mm_add_epi8;
    Paddw_mm_mmm64 Paddw_xmm_xmmm128 => _mm_add_epi16;
    Paddd_mm_mmm64 Paddd_xmm_xmmm128 => _mm_add_epi32;
    Paddq_mm_mmm64 Paddq_xmm_xmmm128 => _mm_add_epi64;
    Paddsb_mm_mmm64 Paddsb_xmm_xmmm128 => _mm_adds_epi8;
    Paddsw_mm_mmm64 Paddsw_xmm_xmmm128 => _mm_adds_epi16;
    Paddusb_mm_mmm64 Paddusb_xmm_xmmm128 => _mm_adds_epu8;
    Paddusw_mm_mmm64 Paddusw_xmm_xmmm128 => _mm_adds_epu16;
    Psubb_mm_mmm64 Psubb_xmm_xmmm128 => _mm_sub_epi8;
    Psubw_mm_mmm64 Psubw_xmm_xmmm128 => _mm_sub_epi16;
    Psubd_mm_mmm64 Psubd_xmm_xmmm128 => _mm_sub_epi32;
    Psubq_mm_mmm64 Psubq_xmm_xmmm128 => _mm_sub_epi64;
    Psubsb_mm_mmm64 Psubsb_xmm_xmmm128 => _mm_subs_epi8;
    Psubsw_mm_mmm64 Psubsw_xmm_xmmm128 => _mm_subs_epi16;
    Psubusb_mm_mmm64 Psubusb_xmm_xmmm128 => _mm_subs_epu8;
    Psubusw_mm_mmm64 Psubusw_xmm_xmmm128 => _mm_subs_epu16;
    Pmaddwd_mm_mmm64 Pmaddwd_xmm_xmmm128 => _mm_madd_epi16;
    Pmulhw_mm_mmm64 Pmulhw_xmm_xmmm128 => _mm_mulhi_epi16;
    Pmulhuw_mm_mmm64 Pmulhuw_xmm_xmmm128 => _mm_mulhi_epu16;
    Pmullw_mm_mmm64 Pmullw_xmm_xmmm128 => _mm_mullo_epi16;
    Pmuludq_mm_mmm64 Pmuludq_xmm_xmmm128 => _mm_mul_epu32;
    Pavgb_mm_mmm64 Pavgb_xmm_xmmm128 => _mm_avg_epu8;
    Pavgw_mm_mmm64 Pavgw_xmm_xmmm128 => _mm_avg_epu16;
    Pmaxsw_mm_mmm64 Pmaxsw_xmm_xmmm128 => _mm_max_epi16;
    Pmaxub_mm_mmm64 Pmaxub_xmm_xmmm128 => _mm_max_epu8;
    Pminsw_mm_mmm64 Pminsw_xmm_xmmm128 => _mm_min_epi16;
    Pminub_mm_mmm64 Pminub_xmm_xmmm128 => _mm_min_epu8;
    Psadbw_mm_mmm64 Psadbw_xmm_xmmm128 => _mm_sad_epu8;
    Pcmpeqb_mm_mmm64 Pcmpeqb_xmm_xmmm128 => _mm_cmpeq_epi8;
    Pcmpeqw_mm_mmm64 Pcmpeqw_xmm_xmmm128 => _mm_cmpeq_epi16;
    Pcmpeqd_mm_mmm64 Pcmpeqd_xmm_xmmm128 => _mm_cmpeq_epi32;
    Pcmpgtb_mm_mmm64 Pcmpgtb_xmm_xmmm128 => _mm_cmpgt_epi8;
    Pcmpgtw_mm_mmm64 Pcmpgtw_xmm_xmmm128 => _mm_cmpgt_epi16;
    Pcmpgtd_mm_mmm64 Pcmpgtd_xmm_xmmm128 => _mm_cmpgt_epi32;
    Pand_mm_mmm64 Pand_xmm_xmmm128 Andps_xmm_xmmm128 Andpd_xmm_xmmm128 => _mm_and_si128;
    Pandn_mm_mmm64 Pandn_xmm_xmmm128 Andnps_xmm_xmmm128 Andnpd_xmm_xmmm128 => _mm_andnot_si128;
    Por_mm_mmm64 Por_xmm_xmmm128 Orps_xmm_xmmm128 Orpd_xmm_xmmm128 => _mm_or_si128;
    Pxor_mm_mmm64 Pxor_xmm_xmmm128 Xorps_xmm_xmmm128 Xorpd_xmm_xmmm128 => _mm_xor_si128;
    Punpcklbw_mm_mmm32 Punpcklbw_xmm_xmmm128 => _mm_unpacklo_epi8;
    Punpcklwd_mm_mmm32 Punpcklwd_xmm_xmmm128 => _mm_unpacklo_epi16;
    Punpckldq_mm_mmm32 Punpckldq_xmm_xmmm128 Unpcklps_xmm_xmmm128 => _mm_unpacklo_epi32;
    Psllw_mm_mmm64 Psllw_xmm_xmmm128 => _mm_sll_epi16;
    Pslld_mm_mmm64 Pslld_xmm_xmmm128 => _mm_sll_epi32;
    Psllq_mm_mmm64 Psllq_xmm_xmmm128 => _mm_sll_epi64;
    Psrlw_mm_mmm64 Psrlw_xmm_xmmm128 => _mm_srl_epi16;
    Psrld_mm_mmm64 Psrld_xmm_xmmm128 => _mm_srl_epi32;
    Psrlq_mm_mmm64 Psrlq_xmm_xmmm128 => _mm_srl_epi64;
    Psraw_mm_mmm64 Psraw_xmm_xmmm128 => _mm_sra_epi16;
    Psrad_mm_mmm64 Psrad_xmm_xmmm128 => _mm_sra_epi32;
}

operations! { lookup_mmx, select_mmx,
    Packsswb_mm_mmm64 => |a, b| _mm_packs_epi16(both(a, b), _mm_setzero_si128());
    Packssdw_mm_mmm64 => |a, b| _mm_packs_epi32(both(a, b), _mm_setzero_si128());
    Packuswb_mm_mmm64 => |a, b| _mm_packus_epi16(both(a, b), _mm_setzero_si128());
    Punpckhbw_mm_mmm64 => |a, b| high_half(_mm_unpacklo_epi8(a, b));
    Punpckhwd_mm_mmm64 => |a, b| high_half(_mm_unpacklo_epi16(a, b));
    Punpckhdq_mm_mmm64 => |a, b| high_half(_mm_unpacklo_epi32(a, b));
}

operations! { lookup_sse, binary_xmm,
    Packsswb_xmm_xmmm128 => _mm_packs_epi16;
    Packssdw_xmm_xmmm128 => _mm_packs_epi32;
    Packuswb_xmm_xmmm128 => _mm_packus_epi16;
    Punpckhbw_xmm_xmmm128 => _mm_unpackhi_epi8;
    Punpckhwd_xmm_xmmm128 => _mm_unpackhi_epi16;
    Punpckhdq_xmm_xmmm128 Unpckhps_xmm_xmmm128 => _mm_unpackhi_epi32;
    Punpcklqdq_xmm_xmmm128 Unpcklpd_xmm_xmmm128 => _mm_unpacklo_epi64;
    Punpckhqdq_xmm_xmmm128 Unpckhpd_xmm_xmmm128 => _mm_unpackhi_epi64;
}
