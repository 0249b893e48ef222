//! x87, MMX and SSE instructions.
//!
//! SSE up to SSE3 is there; later extensions are not advertised and raise #UD. Arithmetic is done by the host's
//! own units (`host`), everything else in plain Rust.

mod approximate;
mod convert;
mod float;
mod gate;
mod host;
mod image;
mod moves;
mod operand;
mod packed;
mod shuffle;
mod state;
mod x87;

use iced_x86::Instruction;

pub use state::{Extended, FpuState, MXCSR_MASK, MXCSR_RESET, X87_CONTROL_INIT};

use crate::op::Handler;

/// The handler for `instruction` if it belongs to this family.
pub(crate) fn lookup(instruction: &Instruction) -> Option<Handler> {
    [
        moves::lookup,
        packed::lookup,
        shuffle::lookup,
        float::lookup,
        convert::lookup,
        approximate::lookup,
        image::lookup,
        x87::lookup,
    ]
    .into_iter()
    .find_map(|lookup| lookup(instruction))
}

#[cfg(test)]
mod tests {
    use iced_x86::{Code, CpuidFeature, EncodingKind};

    use super::*;

    #[test]
    fn every_instruction_of_the_advertised_extensions_is_there() {
        let missing: Vec<Code> =
            legacy_codes().filter(|&code| is_ours(code) && find(code).is_none()).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn nothing_of_later_extensions_is_there() {
        let later = [
            CpuidFeature::SSSE3,
            CpuidFeature::SSE4_1,
            CpuidFeature::SSE4_2,
            CpuidFeature::SSE4A,
            CpuidFeature::AES,
            CpuidFeature::PCLMULQDQ,
            CpuidFeature::SHA,
            CpuidFeature::XSAVE,
        ];
        let found: Vec<Code> = legacy_codes()
            .filter(|code| later.iter().any(|feature| code.cpuid_features().contains(feature)))
            .filter(|&code| find(code).is_some())
            .collect();
        assert!(found.is_empty(), "{found:?}");
    }

    fn find(code: Code) -> Option<Handler> {
        let mut instruction = Instruction::default();
        instruction.set_code(code);
        lookup(&instruction)
    }

    fn legacy_codes() -> impl Iterator<Item = Code> {
        Code::values().filter(|code| code.op_code().encoding() == EncodingKind::Legacy)
    }

    fn is_ours(code: Code) -> bool {
        let name = format!("{code:?}");
        let features = code.cpuid_features();
        let family = [
            CpuidFeature::FPU,
            CpuidFeature::FPU287,
            CpuidFeature::FPU387,
            CpuidFeature::MMX,
            CpuidFeature::SSE,
            CpuidFeature::SSE2,
            CpuidFeature::SSE3,
            CpuidFeature::FXSR,
            CpuidFeature::CLFSH,
        ];
        // The encoder's names for FWAIT with the following instruction.
        let with_wait = ["Fclex", "Finit", "Fstcw", "Fstenv", "Fsave", "Fstsw", "Feni", "Fdisi", "Fsetpm"];
        // Those that touch no floating-point register are general-purpose or system instructions.
        let elsewhere = ["Lfence", "Mfence", "Sfence", "Prefetch", "Movnti", "Monitor", "Mwait"];
        family.iter().any(|feature| features.contains(feature))
            && !with_wait.iter().chain(&elsewhere).any(|prefix| name.starts_with(prefix))
    }
}
