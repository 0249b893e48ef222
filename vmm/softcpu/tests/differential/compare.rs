//! Runs a form on both sides and compares.

use std::cell::RefCell;
use std::sync::OnceLock;

use iced_x86::{Code, Instruction, Mnemonic};
use proptest::array::{uniform16, uniform32};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::forms::{Form, all};
use crate::machine::Machine;
use crate::native;
use crate::random::Random;
use crate::state::*;

/// What may differ, because the architecture leaves it undefined.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tolerance {
    /// Flags.
    pub(crate) flags: u64,
    /// Flags of MXCSR.
    pub(crate) mxcsr: u32,
    /// Bits of the x87 status word.
    pub(crate) status: u16,
    /// Which byte of the operand a page fault names.
    pub(crate) fault_address: bool,
    /// The result: nothing but traps and memory around is compared.
    pub(crate) result: bool,
}

/// What a random execution starts from.
#[derive(Clone, Debug)]
struct Case {
    registers: [u64; 16],
    flags: u64,
    /// Repeated over the data area.
    memory: [u8; 32],
    xmm: [u128; 16],
    /// Decides about operands and everything else.
    seed: u64,
}

/// Executes every form of the mnemonics that `select` wants `cases` times (or as often as the environment
/// variable PROPTEST_CASES says, if that is more), and panics with all forms that come
/// out differently from the host. `tolerance` says what may differ in a state that is about to be executed.
pub(crate) fn check_all(
    cases: u32,
    select: impl Fn(Mnemonic) -> bool,
    tolerance: impl Fn(&Instruction, &State) -> Tolerance,
) {
    check_codes(cases, |code| select(code.mnemonic()), tolerance);
}

/// As [`check_all`], by code.
pub(crate) fn check_codes(
    cases: u32,
    select: impl Fn(Code) -> bool,
    tolerance: impl Fn(&Instruction, &State) -> Tolerance,
) {
    check_arranged(cases, select, |_, _, _| (), tolerance);
}

/// As [`check_codes`]; `arrange` gets the chance to change a state before it is executed (except for registers
/// that the instruction's address is made from).
pub(crate) fn check_arranged(
    cases: u32,
    select: impl Fn(Code) -> bool,
    arrange: impl Fn(&Instruction, &mut State, &mut Random),
    tolerance: impl Fn(&Instruction, &State) -> Tolerance,
) {
    let forms = all(select);
    assert!(!forms.is_empty(), "no such instruction");
    let more = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = cases.max(more.unwrap_or(0));
    let machine = RefCell::new(Machine::new());
    let mut failures = Vec::new();
    for form in forms {
        let config = Config { cases, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
        let result = TestRunner::new(config)
            .run(&case(), |case| check(&form, &case, &mut machine.borrow_mut(), &arrange, &tolerance));
        if let Err(error) = result {
            failures.push(format!("{form:?}: {error}"));
        }
    }
    let shown = failures.iter().take(8).cloned().collect::<Vec<_>>().join("\n\n");
    assert!(failures.is_empty(), "{} forms differ\n\n{shown}", failures.len());
}

fn check(
    form: &Form,
    case: &Case,
    machine: &mut Machine,
    arrange: &impl Fn(&Instruction, &mut State, &mut Random),
    tolerance: &impl Fn(&Instruction, &State) -> Tolerance,
) -> Result<(), TestCaseError> {
    let mut state = case.state(form.bits);
    let mut random = Random(case.seed);
    let (code, instruction) = form.encode(&mut state, &mut random);
    arrange(&instruction, &mut state, &mut random);
    let tolerance = tolerance(&instruction, &state);
    let expected = native::run(&code, form.bits, &state);
    let actual = machine.run(&code, form.bits, &state);
    let faults = |outcome: &Outcome| outcome.trap.is_some_and(|trap| trap.vector == PAGE_FAULT);
    if (faults(&expected) || faults(&actual)) && !host_is_amd() {
        return Ok(());
    }
    match difference(&expected, &actual, tolerance) {
        None => Ok(()),
        Some(what) => Err(TestCaseError::fail(format!(
            "{}-bit {:?} {code:02x?}: {what}\nbefore\n{state}on the host ({:?})\n{}in softcpu ({:?})\n{}",
            form.bits,
            instruction.code(),
            expected.trap,
            expected.state,
            actual.trap,
            actual.state
        ))),
    }
}

/// What an instruction has changed when a page fault stops it, and whether it gets as far as the fault, is up to
/// the model; softcpu does as AMD's do.
fn host_is_amd() -> bool {
    static IS_AMD: OnceLock<bool> = OnceLock::new();
    *IS_AMD.get_or_init(|| {
        std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains("AuthenticAMD"))
    })
}

/// The first thing that is different.
fn difference(expected: &Outcome, actual: &Outcome, tolerance: Tolerance) -> Option<String> {
    let (host, ours) = (&expected.state, &actual.state);
    let [trap_on_host, our_trap] = [expected, actual].map(|outcome| {
        let address = |trap: Trap| if tolerance.fault_address { trap.address & !0xfff } else { trap.address };
        outcome.trap.map(|trap| Trap { address: address(trap), ..trap })
    });
    if trap_on_host != our_trap {
        return Some("trap".into());
    }
    if host.rip != ours.rip {
        return Some("rip".into());
    }
    if tolerance.result {
        return None;
    }
    let flags = (host.flags ^ ours.flags) & !tolerance.flags;
    if flags != 0 {
        return Some(format!("flags {flags:03x}"));
    }
    if let Some(number) = (0..16).find(|&number| host.registers[number] != ours.registers[number]) {
        return Some(REGISTER_NAMES[number].into());
    }
    if let Some(at) = (0..DATA_BYTES).find(|&at| host.memory[at] != ours.memory[at]) {
        let (host, ours) = (host.memory[at], ours.memory[at]);
        return Some(format!(
            "memory at {:x}: {host:02x} on the host, {ours:02x} in softcpu",
            DATA + at as u64
        ));
    }
    let [host, ours] = [host, ours].map(|state| {
        let mut fx = state.fx.clone().without_pointers();
        fx.set_mxcsr(fx.mxcsr() & !tolerance.mxcsr);
        fx.set_status(fx.status() & !tolerance.status);
        fx
    });
    let at = (0..FX_BYTES).find(|&at| host.0[at] != ours.0[at])?;
    let line = at & !15;
    let (host, ours) = (&host.0[line..line + 16], &ours.0[line..line + 16]);
    Some(format!("FXSAVE image at {line}: {host:02x?} on the host, {ours:02x?} in softcpu"))
}

impl Case {
    fn state(&self, bits: u32) -> State {
        let mut state = State::new();
        let mut random = Random(!self.seed);
        if bits == 64 {
            state.registers = self.registers;
        } else {
            for number in 0..8 {
                state.registers[number] = self.registers[number] as u32 as u64;
            }
        }
        state.registers[4] = random.place();
        state.flags = self.flags & 0xcd5;
        for (at, byte) in state.memory.iter_mut().enumerate() {
            *byte = self.memory[at % self.memory.len()];
        }
        for (number, value) in self.xmm.iter().enumerate() {
            if bits == 64 || number < 8 {
                state.fx.set_xmm(number, *value);
            }
        }
        state
    }
}

fn case() -> impl Strategy<Value = Case> {
    (uniform16(number()), any::<u64>(), uniform32(any::<u8>()), uniform16(any::<u128>()), any::<u64>())
        .prop_map(|(registers, flags, memory, xmm, seed)| Case { registers, flags, memory, xmm, seed })
}

/// Numbers of all magnitudes.
fn number() -> impl Strategy<Value = u64> {
    any::<u64>().prop_map(|seed| Random(seed).number())
}

const PAGE_FAULT: u8 = 14;
