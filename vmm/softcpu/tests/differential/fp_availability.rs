//! When floating-point instructions may execute at all. The host's operating system decides that for the host;
//! here it is compared with the tables in Intel SDM vol. 3, 2.5 and 13.1.

use softcpu::Cpu;
use softcpu::control::{CR0_EM, CR0_MP, CR0_NE, CR0_TS, CR4_OSFXSR, CR4_OSXMMEXCPT};

use crate::machine::Machine;
use crate::state::{DATA, State};

#[test]
fn sse_needs_the_system_to_support_it() {
    for code in [ADDPS, MOVAPS, LDMXCSR, CVTSD2SI] {
        expect(code, |_| (), NOTHING);
        expect(code, |cpu| cpu.cr0 |= CR0_TS, DEVICE_NOT_AVAILABLE);
        expect(code, |cpu| cpu.cr0 |= CR0_EM, INVALID_OPCODE);
        expect(code, |cpu| cpu.cr4 &= !CR4_OSFXSR, INVALID_OPCODE);
        // The missing support is found first.
        expect(code, |cpu| cpu.cr0 |= CR0_EM | CR0_TS, INVALID_OPCODE);
        expect(
            code,
            |cpu| {
                cpu.cr0 |= CR0_TS;
                cpu.cr4 &= !CR4_OSFXSR;
            },
            INVALID_OPCODE,
        );
        expect(code, pending_x87_error, NOTHING);
    }
}

#[test]
fn mmx_uses_the_x87() {
    for code in [PADDB, EMMS, CVTPI2PS] {
        expect(code, |_| (), NOTHING);
        expect(code, |cpu| cpu.cr0 |= CR0_TS, DEVICE_NOT_AVAILABLE);
        expect(code, |cpu| cpu.cr0 |= CR0_EM, INVALID_OPCODE);
        expect(code, pending_x87_error, X87_ERROR);
    }
    expect(PADDB, |cpu| cpu.cr4 &= !CR4_OSFXSR, NOTHING);
    expect(CVTPI2PS, |cpu| cpu.cr4 &= !CR4_OSFXSR, INVALID_OPCODE);
}

#[test]
fn x87_instructions_trap_for_emulation_and_after_task_switches() {
    for code in [FADD, FNINIT, FNSTSW, FXSAVE] {
        expect(code, |_| (), NOTHING);
        expect(code, |cpu| cpu.cr0 |= CR0_TS, DEVICE_NOT_AVAILABLE);
        expect(code, |cpu| cpu.cr0 |= CR0_EM, DEVICE_NOT_AVAILABLE);
        expect(code, |cpu| cpu.cr4 &= !CR4_OSFXSR, NOTHING);
    }
}

#[test]
fn fwait_looks_at_monitor_coprocessor() {
    expect(FWAIT, |cpu| cpu.cr0 = cpu.cr0 & !CR0_MP | CR0_TS, NOTHING);
    expect(FWAIT, |cpu| cpu.cr0 |= CR0_EM, NOTHING);
    expect(FWAIT, |cpu| cpu.cr0 |= CR0_TS | CR0_MP, DEVICE_NOT_AVAILABLE);
    expect(FWAIT, pending_x87_error, X87_ERROR);
}

#[test]
fn x87_errors_wait_for_the_next_instruction_that_looks() {
    expect(FADD, pending_x87_error, X87_ERROR);
    for code in [FNINIT, FNSTSW, FXSAVE] {
        expect(code, pending_x87_error, NOTHING);
    }
    let ignored = |cpu: &mut Cpu| {
        pending_x87_error(cpu);
        cpu.cr0 &= !CR0_NE;
    };
    expect(FADD, ignored, NOTHING);
}

#[test]
fn unmasked_sse_exceptions_need_the_system_to_handle_them() {
    // A signalling NaN, with invalid operations unmasked.
    let invalid = |cpu: &mut Cpu| {
        cpu.fpu.xmm[1] = 0x7f80_0001;
        cpu.fpu.mxcsr &= !0x80;
    };
    expect(ADDPS, invalid, SIMD_ERROR);
    let unhandled = |cpu: &mut Cpu| {
        invalid(cpu);
        cpu.cr4 &= !CR4_OSXMMEXCPT;
    };
    expect(ADDPS, unhandled, INVALID_OPCODE);
}

#[test]
fn cache_control_is_always_available() {
    for code in [MOVNTI, SFENCE, CLFLUSH] {
        let forbidden = |cpu: &mut Cpu| {
            cpu.cr0 |= CR0_EM | CR0_TS;
            cpu.cr4 &= !CR4_OSFXSR;
        };
        expect(code, forbidden, NOTHING);
    }
}

/// Executes `code` with RAX pointing to memory, after `adjust`, and expects it to raise `vector`.
#[track_caller]
fn expect(code: &[u8], adjust: impl FnOnce(&mut Cpu), vector: Option<u8>) {
    let mut state = State::new();
    state.registers[0] = DATA;
    state.registers[4] = DATA + 0x800;
    let outcome = Machine::new().run_adjusted(code, 64, &state, adjust);
    assert_eq!(outcome.trap.map(|trap| trap.vector), vector, "{code:02x?}");
    let length = if vector.is_some() { 0 } else { code.len() as u64 };
    assert_eq!(outcome.state.rip, state.rip + length);
}

/// An unmasked division by zero has happened.
fn pending_x87_error(cpu: &mut Cpu) {
    cpu.fpu.control &= !4;
    cpu.fpu.status |= 4;
}

const NOTHING: Option<u8> = None;
const INVALID_OPCODE: Option<u8> = Some(6);
const DEVICE_NOT_AVAILABLE: Option<u8> = Some(7);
const X87_ERROR: Option<u8> = Some(16);
const SIMD_ERROR: Option<u8> = Some(19);

/// `addps xmm0, xmm1`
const ADDPS: &[u8] = &[0x0f, 0x58, 0xc1];
/// `movaps xmm0, [rax]`
const MOVAPS: &[u8] = &[0x0f, 0x28, 0x00];
/// `ldmxcsr [rax]`
const LDMXCSR: &[u8] = &[0x0f, 0xae, 0x10];
/// `cvtsd2si ecx, xmm1`
const CVTSD2SI: &[u8] = &[0xf2, 0x0f, 0x2d, 0xc9];
/// `paddb mm0, mm1`
const PADDB: &[u8] = &[0x0f, 0xfc, 0xc1];
/// `emms`
const EMMS: &[u8] = &[0x0f, 0x77];
/// `cvtpi2ps xmm0, mm1`
const CVTPI2PS: &[u8] = &[0x0f, 0x2a, 0xc1];
/// `fadd st, st(1)`
const FADD: &[u8] = &[0xd8, 0xc1];
/// `fninit`
const FNINIT: &[u8] = &[0xdb, 0xe3];
/// `fnstsw ax`
const FNSTSW: &[u8] = &[0xdf, 0xe0];
/// `fxsave [rax]`
const FXSAVE: &[u8] = &[0x0f, 0xae, 0x00];
/// `fwait`
const FWAIT: &[u8] = &[0x9b];
/// `movnti [rax], ecx`
const MOVNTI: &[u8] = &[0x0f, 0xc3, 0x08];
/// `sfence`
const SFENCE: &[u8] = &[0x0f, 0xae, 0xf8];
/// `clflush [rax]`
const CLFLUSH: &[u8] = &[0x0f, 0xae, 0x38];
