//! No instruction of the baseline CPU is forgotten.

use iced_x86::{Code, CpuidFeature, Mnemonic};
use softcpu::decode::decode;

use crate::forms::all;
use crate::random::Random;
use crate::state::{CENTER, CODE, State};

#[test]
fn every_baseline_instruction_has_a_handler() {
    let (undefined, _) = decode(&[0x0f, 0x0b], CODE, 64).unwrap();
    let mut missing = Vec::new();
    for form in all(is_baseline) {
        let mut random = Random(form.code as u64);
        let mut state = State::new();
        state.registers[4] = CENTER;
        let (bytes, _) = form.encode(&mut state, &mut random);
        let (op, instruction) = decode(&bytes, CODE, form.bits).unwrap();
        if op.handler as usize == undefined.handler as usize {
            missing.push(format!("{}-bit {:?} {bytes:02x?}", form.bits, instruction.code()));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn hints_do_nothing() {
    let (nop, _) = decode(&[0x90], CODE, 64).unwrap();
    // 0F 18 to 0F 1F were set aside for hints; later extensions use them in such a way that older CPUs ignore
    // them.
    for opcode in 0x18..=0x1f {
        for prefix in [0x40, 0x66, 0xf2, 0xf3] {
            for modrm in 0..=0xff {
                let bytes = [prefix, 0x0f, opcode, modrm, 0, 0, 0, 0, 0];
                let (op, instruction) = decode(&bytes, CODE, 64).unwrap();
                assert_eq!(
                    op.handler as usize,
                    nop.handler as usize,
                    "{bytes:02x?} {:?}",
                    instruction.code()
                );
            }
        }
    }
}

/// Whether the baseline CPU (x86-64-v1, CMPXCHG16B, SSE3) has the instruction, as far as [`all`] can encode it.
fn is_baseline(code: Code) -> bool {
    use CpuidFeature::*;
    let info = code.op_code();
    let encodable = (0..info.op_count()).all(|operand| {
        let name = format!("{:?}", info.op_kind(operand));
        !["farbr", "seg_reg", "cr_reg", "dr_reg", "tr_reg", "brdisp", "xbegin", "mem_mpx", "bnd", "_mpx"]
            .iter()
            .any(|part| name.contains(part))
            && !["es", "cs", "ss", "ds", "fs", "gs"].contains(&name.as_str())
    });
    let features = code.cpuid_features();
    let present = features.iter().all(|feature| {
        matches!(
            feature,
            INTEL8086
                | INTEL8086_ONLY
                | INTEL186
                | INTEL286
                | INTEL386
                | INTEL486
                | X64
                | CMOV
                | CX8
                | CMPXCHG16B
                | FPU
                | FPU287
                | FPU387
                | FXSR
                | MMX
                | SSE
                | SSE2
                | SSE3
                | TSC
                | MSR
                | SYSCALL
                | SEP
                | CLFSH
                | CPUID
                | PAUSE
                | MULTIBYTENOP
                | RDPMC
        )
    });
    let undefined = matches!(code.mnemonic(), Mnemonic::Ud0 | Mnemonic::Ud1 | Mnemonic::Ud2);
    info.is_instruction() && encodable && present && !undefined
}
