//! Can this host's KVM run kernels, and how fast? Found out by running a short program that does what kernels do.
//!
//! To open `/dev/kvm` and to create a machine says little: there are hosts where that works, small programs run,
//! and a stock kernel takes half an hour or stops at an instruction. The program here is a guest like any other, on
//! a machine like any other, and tells each thing that it has managed by a letter on the serial port.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nicvisor_net::network::{Network, SharedMedium};
use vm_memory::{Bytes, GuestAddress};

use super::{Host, Kvm, KvmConfig};
use crate::accel::{Accelerator, CpuModel, Patience, RunControl, RunEvent};
use crate::boot::bare_entry;
use crate::machine::{HostOutput, Machine, MachineConfig};

/// What the program found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probe {
    /// What it managed, of [`STEPS`].
    pub managed: usize,
    /// How it ended, unless well.
    pub failure: Option<String>,
    /// Instructions that KVM could not execute, and how often.
    pub assists: BTreeMap<String, u64>,
    /// Million instructions of kernel code a second, once known.
    pub speed: Option<f64>,
    /// Guests see features of the host's CPU that CPUID was told to hide.
    pub leaky: bool,
}

/// How well the host's KVM runs kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quality {
    /// As hardware does.
    Good,
    /// It does run them, but so slowly or with so much help that the software CPU is better.
    Poor,
    /// It does not.
    Unusable,
}

/// Runs the program on `host`.
pub fn probe(host: &Host, model: CpuModel) -> Probe {
    match try_probe(host, model) {
        Ok(probe) => probe,
        Err(failure) => Probe { failure: Some(failure), ..Probe::default() },
    }
}

impl Probe {
    /// The verdict.
    pub fn quality(&self) -> Quality {
        match self.speed {
            _ if self.failure.is_some() => Quality::Unusable,
            Some(speed) if speed >= GOOD_SPEED && self.assists.is_empty() && !self.leaky => Quality::Good,
            _ => Quality::Poor,
        }
    }

    /// How many times slower than an ordinary host this one is.
    pub fn slowdown(&self) -> u32 {
        let unknown = if self.failure.is_some() { SLOWEST } else { 1.0 };
        self.speed.map_or(unknown, |speed| ORDINARY_SPEED / speed.max(0.1)).clamp(1.0, SLOWEST) as u32
    }

    /// The finding in words.
    pub fn describe(&self) -> String {
        if let Some(failure) = &self.failure {
            let step = STEPS.get(self.managed).map_or("the end", |step| step.1);
            return format!("this host's KVM fails at {step}: {failure}");
        }
        let speed = self.speed.map_or_else(String::new, |speed| {
            let digits = usize::from(speed < 10.0);
            format!("{speed:.digits$} million instructions a second")
        });
        if self.quality() == Quality::Good {
            return format!("this host's KVM runs kernels as hardware does ({speed})");
        }
        let mut text = format!("this host's KVM interprets kernels ({speed})");
        if !self.assists.is_empty() {
            let names: Vec<&str> = self.assists.keys().map(String::as_str).collect();
            text.push_str(&format!(", lacks {}", names.join(", ")));
        }
        if self.leaky {
            text.push_str(", shows guests the host's CPU");
        }
        text
    }
}

fn try_probe(host: &Host, model: CpuModel) -> Result<Probe, String> {
    let config = MachineConfig { memory: MEMORY, cpus: 1, ..MachineConfig::default() };
    let medium = SharedMedium::new(Network::new());
    let mut machine = Machine::new(config, medium).map_err(|error| error.to_string())?;
    machine.ram().write_slice(program(), GuestAddress(PROGRAM)).map_err(|error| error.to_string())?;
    let entry = bare_entry(machine.ram(), PROGRAM).map_err(|error| error.to_string())?;
    let config = KvmConfig { model, ..KvmConfig::default() };
    let mut kvm = Kvm::new(host, &mut machine, config).map_err(|error| error.to_string())?;
    kvm.start(&entry).map_err(|error| error.to_string())?;
    Ok(watch(&mut kvm, &mut machine))
}

/// Follows the program to its end.
fn watch(kvm: &mut Kvm, machine: &mut Machine) -> Probe {
    let interrupted = AtomicBool::new(false);
    let control = RunControl {
        interrupted: &interrupted,
        host_deadline: Some(Instant::now() + LONGEST),
        until: None,
        stop_at: None,
        since: nicvisor_core::Time::ZERO,
        report_idle: false,
        patience: Patience::default(),
    };
    let mut letters = Vec::new();
    let mut loop_started = None;
    let mut speed = None;
    loop {
        let event = kvm.run(machine, &control);
        for output in machine.take_output() {
            let HostOutput::Serial(bytes) = output else { continue };
            letters.extend(&bytes);
            if bytes.contains(&SPEED_BEGINS) {
                loop_started = Some(Instant::now());
            }
            if let (Some(started), true) = (loop_started, bytes.contains(&SPEED_ENDS)) {
                speed = Some(LOOP_INSTRUCTIONS / started.elapsed().as_secs_f64().max(1e-6) / 1e6);
            }
        }
        let failure = match event {
            RunEvent::Output | RunEvent::Idle(_) | RunEvent::Until => continue,
            RunEvent::DebugExit(1) => None,
            RunEvent::Failed(what) => Some(what),
            RunEvent::TimedOut => Some(format!("nothing more in {} ms", LONGEST.as_millis())),
            other => Some(format!("the program ended with {other:?}")),
        };
        let managed = STEPS.iter().take_while(|(letter, _)| letters.contains(letter)).count();
        let leaky = letters.contains(&LEAKY);
        return Probe { managed, failure, assists: kvm.statistics().assists, speed, leaky };
    }
}

/// What the program does, in order, and the letter that it writes after each.
pub const STEPS: [(u8, &str); 9] = [
    (b'A', "entering long mode"),
    (b'P', "a page fault"),
    (b'C', "CMPXCHG16B"),
    (b'F', "FXSAVE and FXRSTOR"),
    (b'B', "INT3"),
    (b'I', "an interrupt"),
    (b'M', "a BMI2 instruction that CPUID advertises"),
    (SPEED_BEGINS, "writing to the serial port"),
    (SPEED_ENDS, "a loop"),
];

/// Written in between where CPUID says what it was not told to.
const LEAKY: u8 = b'X';
const SPEED_BEGINS: u8 = b'S';
const SPEED_ENDS: u8 = b'E';
/// Two instructions in each round of the loop.
const LOOP_INSTRUCTIONS: f64 = 2.0 * 25_000.0;
/// Well under a second, whatever happens.
const LONGEST: Duration = Duration::from_millis(600);
/// Million instructions a second. The measured speed of a fast host is mostly that of the serial port, so this is
/// far below what hardware does and far above what interpreters reach.
const GOOD_SPEED: f64 = 60.0;
const ORDINARY_SPEED: f64 = 100.0;
const SLOWEST: f64 = 1000.0;
const MEMORY: u64 = 8 << 20;
const PROGRAM: u64 = 0x10_0000;

/// The program: position-independent 64-bit code.
fn program() -> &'static [u8] {
    unsafe extern "C" {
        static nicvisor_probe_start: u8;
        static nicvisor_probe_end: u8;
    }
    // SAFETY: the two symbols are the ends of the block of constant bytes below.
    unsafe {
        let (start, end) = (&raw const nicvisor_probe_start, &raw const nicvisor_probe_end);
        std::slice::from_raw_parts(start, end.offset_from(start) as usize)
    }
}

// Uses the 64 KiB from 0x120000 for its interrupt table and data. RBX counts interrupts.
std::arch::global_asm!(
    r#"
    .pushsection .rodata
    .globl nicvisor_probe_start
    .globl nicvisor_probe_end
nicvisor_probe_start:
    cld
    mov rsp, 0x130000
    mov al, 'A'
    call 90f
    // Gates of the page fault, the breakpoint and the interrupt.
    mov edi, 0x120000 + 14 * 16
    lea rax, [rip + 70f]
    call 80f
    mov edi, 0x120000 + 3 * 16
    lea rax, [rip + 71f]
    call 80f
    mov edi, 0x120000 + 0x40 * 16
    lea rax, [rip + 72f]
    call 80f
    mov edi, 0x120000 + 6 * 16
    lea rax, [rip + 73f]
    call 80f
    mov word ptr [0x121000], 0xfff
    mov qword ptr [0x121002], 0x120000
    lidt [0x121000]

    // Beyond the identity map; the handler skips the four bytes of the read.
    mov rsi, 0x100000000
    xor ebx, ebx
    mov rax, [rsi + 0x10]
    cmp ebx, 1
    jne 99f
    mov al, 'P'
    call 90f

    xor eax, eax
    xor edx, edx
    mov [0x121010], rax
    mov [0x121018], rdx
    mov ebx, 5
    mov ecx, 6
    lock cmpxchg16b [0x121010]
    jne 99f
    cmp qword ptr [0x121018], 6
    jne 99f
    mov al, 'C'
    call 90f

    mov rax, cr4
    or eax, 0x600
    mov cr4, rax
    fxsave64 [0x122000]
    fxrstor64 [0x122000]
    mov al, 'F'
    call 90f

    xor ebx, ebx
    int3
    cmp ebx, 1
    jne 99f
    mov al, 'B'
    call 90f

    // An IPI to itself.
    xor ebx, ebx
    mov esi, 0xfee00000
    mov dword ptr [rsi + 0xf0], 0x1ff
    mov dword ptr [rsi + 0x300], 0x40040
    sti
    mov ecx, 10000
20: pause
    test ebx, ebx
    jnz 21f
    loop 20b
    jmp 99f
21: cli
    mov al, 'I'
    call 90f

    // OSXSAVE follows CR4, where it is off.
    mov eax, 1
    cpuid
    bt ecx, 27
    jnc 22f
    mov al, 'X'
    call 90f
22: mov eax, 7
    xor ecx, ecx
    cpuid
    bt ebx, 8
    jnc 30f
    mov ecx, 4
    mov eax, 3
    .byte 0xc4, 0xe2, 0x71, 0xf7, 0xc0 // SHLX EAX, EAX, ECX
    cmp eax, 48
    je 30f
    // Advertised, but an invalid opcode, is a leak too.
    cmp ebx, 0
    jne 99f
    mov al, 'X'
    call 90f
30: mov al, 'M'
    call 90f

    mov al, 'S'
    call 90f
    mov ecx, 25000
40: dec ecx
    jnz 40b
    mov al, 'E'
    call 90f
    xor eax, eax
    mov dx, 0xf4
    out dx, eax
99: mov eax, 1
    mov dx, 0xf4
    out dx, eax
    hlt
    jmp 99b

70: inc ebx
    add rsp, 8
    add qword ptr [rsp], 4
    iretq
71: inc ebx
    iretq
72: inc ebx
    mov dword ptr [rsi + 0xb0], 0
    iretq
73: xor ebx, ebx
    add qword ptr [rsp], 5
    iretq

    // The gate at RDI leads to RAX.
80: mov [rdi], ax
    mov word ptr [rdi + 2], 0x10
    mov word ptr [rdi + 4], 0x8e00
    shr rax, 16
    mov [rdi + 6], ax
    shr rax, 16
    mov [rdi + 8], eax
    mov dword ptr [rdi + 12], 0
    ret

    // AL to the serial port.
90: mov dx, 0x3f8
    out dx, al
    ret
nicvisor_probe_end:
    .popsection
    "#
);

#[cfg(test)]
mod tests {
    use super::*;

    fn result(speed: Option<f64>, assists: &[&str], failure: Option<&str>) -> Probe {
        Probe {
            managed: if failure.is_some() { 2 } else { STEPS.len() },
            failure: failure.map(str::to_owned),
            assists: assists.iter().map(|name| ((*name).to_owned(), 1)).collect(),
            speed,
            leaky: false,
        }
    }

    #[test]
    fn the_verdict_follows_speed_and_help() {
        assert_eq!(result(Some(900.0), &[], None).quality(), Quality::Good);
        assert_eq!(result(Some(2.0), &[], None).quality(), Quality::Poor);
        let helped = result(Some(2.0), &["cmpxchg16b", "int3"], None);
        assert_eq!((helped.quality(), helped.slowdown()), (Quality::Poor, 50));
        assert!(helped.describe().contains("2.0 million instructions a second), lacks cmpxchg16b, int3"));
        let leaky = Probe { leaky: true, ..result(Some(900.0), &[], None) };
        assert_eq!(leaky.quality(), Quality::Poor);
        assert!(leaky.describe().ends_with("shows guests the host's CPU"), "{}", leaky.describe());
        let failed = result(None, &[], Some("out of luck"));
        assert_eq!(failed.quality(), Quality::Unusable);
        assert!(failed.describe().contains("fails at CMPXCHG16B: out of luck"), "{}", failed.describe());
    }

    /// On a host with KVM, the program must come to its end, helped or not.
    #[test]
    fn the_program_manages_every_step_where_there_is_kvm() {
        let Ok(host) = Host::open() else { return };
        let started = Instant::now();
        let probe = probe(&host, CpuModel::Baseline);
        assert_eq!((probe.failure.as_deref(), probe.managed), (None, STEPS.len()), "{probe:?}");
        assert!(probe.speed.is_some());
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }
}
