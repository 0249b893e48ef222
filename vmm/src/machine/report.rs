//! What is told about a guest that ended badly: every CPU's registers and backtrace, with names.

use std::fmt;

use nicvisor_memory::GuestRam;
use serde::Serialize;

use super::inspect::{CpuActivity, CpuState};
use crate::boot::Symbols;

/// One CPU at the end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpuReport {
    /// Index of the CPU.
    pub cpu: usize,
    /// Its registers.
    pub state: CpuState,
    /// Where it was, innermost first.
    pub backtrace: Vec<Frame>,
}

/// One line of a backtrace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Frame {
    /// The address in the code.
    pub address: u64,
    /// Its symbol with offset and size; `None` when no symbol is known.
    pub symbol: Option<String>,
    /// Whether the frame is certain. Kernels are built without frame pointers: all but the innermost are return
    /// addresses found on the stack, some of which may be left over from earlier calls.
    pub certain: bool,
}

impl CpuReport {
    /// Looks at a stopped CPU.
    pub fn new(cpu: usize, state: CpuState, ram: &GuestRam, symbols: &Symbols) -> CpuReport {
        let backtrace = backtrace(&state, ram, symbols);
        CpuReport { cpu, state, backtrace }
    }
}

fn backtrace(state: &CpuState, ram: &GuestRam, symbols: &Symbols) -> Vec<Frame> {
    let rip = state.rip.wrapping_add(state.cs_base);
    let name = |address: u64| symbols.resolve(address).map(|symbol| symbol.to_string());
    let mut frames = vec![Frame { address: rip, symbol: name(rip), certain: true }];
    if state.activity == CpuActivity::Offline || !state.is_long_mode() {
        return frames;
    }
    let mut address = state.registers[RSP] & !7;
    for _ in 0..STACK_WORDS {
        let Some(word) = state.read_u64(ram, address) else { break };
        address = address.wrapping_add(8);
        // A return address is one byte past the call's last: look up the call itself, print as kernels do.
        let in_code = symbols.resolve(word.wrapping_sub(1)).is_some_and(|symbol| symbol.code);
        let in_module = MODULE_AREA.contains(&word);
        if (in_code || in_module) && follows_call(state, ram, word) {
            frames.push(Frame { address: word, symbol: name(word), certain: false });
            if frames.len() == LONGEST_BACKTRACE {
                break;
            }
        }
    }
    frames
}

/// Whether the instruction before `address` is a call: direct, or through a register or memory.
fn follows_call(state: &CpuState, ram: &GuestRam, address: u64) -> bool {
    let mut code = [0; 7];
    if state.read(ram, address.wrapping_sub(7), &mut code).is_none() {
        return false;
    }
    let direct = code[2] == 0xe8;
    let indirect = [2, 3, 4, 6, 7].iter().any(|length| {
        let [opcode, operand] = [code[7 - length], code[8 - length]];
        opcode == 0xff && operand >> 3 & 7 == 2
    });
    direct || indirect
}

impl fmt::Display for CpuReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = &self.state;
        let activity = match state.activity {
            CpuActivity::Running => "running",
            CpuActivity::Halted => "halted",
            CpuActivity::Offline => return writeln!(out, "CPU {}: not started", self.cpu),
        };
        let interrupts = if state.rflags & RFLAGS_IF == 0 { "off" } else { "on" };
        let ring = state.cs & 3;
        writeln!(out, "CPU {}: {activity}, ring {ring}, interrupts {interrupts}", self.cpu)?;
        writeln!(
            out,
            "  RIP {:04x}:{:016x} RFLAGS {:08x} CR0 {:08x} CR2 {:016x} CR3 {:08x} CR4 {:06x}",
            state.cs, state.rip, state.rflags, state.cr0, state.cr2, state.cr3, state.cr4
        )?;
        for (names, values) in REGISTERS.chunks(4).zip(state.registers.chunks(4)) {
            for (name, value) in names.iter().zip(values) {
                write!(out, "  {name:3} {value:016x}")?;
            }
            writeln!(out)?;
        }
        writeln!(out, "  FS  {:016x}  GS  {:016x}", state.fs_base, state.gs_base)?;
        for frame in &self.backtrace {
            let mark = if frame.certain { ' ' } else { '?' };
            match &frame.symbol {
                Some(symbol) => writeln!(out, "  {mark} [{:016x}] {symbol}", frame.address)?,
                None if MODULE_AREA.contains(&frame.address) => {
                    writeln!(out, "  {mark} [{:016x}] (in a module)", frame.address)?;
                }
                None => writeln!(out, "  {mark} [{:016x}]", frame.address)?,
            }
        }
        Ok(())
    }
}

const RSP: usize = 4;
const RFLAGS_IF: u64 = 1 << 9;
/// Where Linux places modules: 1 GiB behind the kernel image (Documentation/arch/x86/x86_64/mm.rst).
const MODULE_AREA: std::ops::Range<u64> = 0xffff_ffff_c000_0000..0xffff_ffff_ff00_0000;
/// A kernel stack is 16 KiB.
const STACK_WORDS: usize = 2048;
const LONGEST_BACKTRACE: usize = 40;
const REGISTERS: [&str; 16] = [
    "RAX", "RCX", "RDX", "RBX", "RSP", "RBP", "RSI", "RDI", "R8", "R9", "R10", "R11", "R12", "R13", "R14",
    "R15",
];

#[cfg(test)]
mod tests {
    use vm_memory::{Bytes, GuestAddress};

    use super::*;

    #[test]
    fn return_addresses_behind_calls_are_listed_and_other_words_are_not() {
        let ram = nicvisor_memory::allocate(4 << 20).unwrap();
        // Identity mapped first 2 MiB.
        for (address, entry) in [(0x1000, 0x2003_u64), (0x2000, 0x3003), (0x3000, 0x83)] {
            ram.write_obj(entry, GuestAddress(address)).unwrap();
        }
        ram.write_slice(&[0xe8, 0, 0, 0, 0], GuestAddress(0x10_0010)).unwrap();
        ram.write_slice(&[0xff, 0xd0], GuestAddress(0x10_0113)).unwrap();
        for (index, word) in [0x10_0015_u64, 7, 0x10_0020, 0x10_0115].iter().enumerate() {
            ram.write_obj(*word, GuestAddress(0x8000 + 8 * index as u64)).unwrap();
        }
        let symbols = Symbols::from_system_map("100000 T outer\n100100 t inner\n100200 D data\n");
        let mut state =
            CpuState { rip: 0x10_0104, cr0: 1 << 31, cr3: 0x1000, efer: 1 << 10, ..CpuState::default() };
        state.registers[RSP] = 0x8000;
        let report = CpuReport::new(0, state, &ram, &symbols);
        let names: Vec<_> = report.backtrace.iter().map(|frame| frame.symbol.as_deref().unwrap()).collect();
        assert_eq!(names, ["inner+0x4/0x100", "outer+0x15/0x100", "inner+0x15/0x100"]);
        let text = report.to_string();
        assert!(text.contains("CPU 0: running, ring 0, interrupts off"), "{text}");
        assert!(text.contains("? [0000000000100015] outer+0x15/0x100"), "{text}");
    }
}
