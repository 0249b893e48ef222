//! What the CPU is and what time it is.

use iced_x86::{Instruction, Mnemonic};

use crate::control::{CR4_PCE, CR4_TSD};
use crate::cpu::{RAX, RBX, RCX, RDX};
use crate::op::{Handler, Op};
use crate::{Cpu, Env, Exception, Stop};

pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    let handler: Handler = match instruction.mnemonic() {
        Mnemonic::Cpuid => identify,
        Mnemonic::Rdtsc => read_time,
        Mnemonic::Rdtscp => read_time_and_processor,
        Mnemonic::Rdpid => read_processor,
        Mnemonic::Rdpmc => read_counter,
        _ => return None,
    };
    Some(handler)
}

fn identify(cpu: &mut Cpu, env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    let (leaf, subleaf) = (cpu.get::<u32>(RAX), cpu.get::<u32>(RCX));
    let mut entry = env.cpuid.find(leaf, subleaf).copied().unwrap_or_default();
    let apic_id = env.cpu_index as u32;
    match leaf {
        1 => entry.ebx = entry.ebx & 0x00ff_ffff | apic_id << 24,
        0xb => entry.edx = apic_id,
        _ => {}
    }
    cpu.set(RAX, entry.eax);
    cpu.set(RBX, entry.ebx);
    cpu.set(RCX, entry.ecx);
    cpu.set(RDX, entry.edx);
    Ok(())
}

impl Cpu {
    /// What the time-stamp counter reads as.
    pub(super) fn time_stamp(&mut self, env: &mut Env<'_>) -> u64 {
        let at = env.position(self);
        env.bus.time_stamp(at).wrapping_add(self.msrs.tsc_offset)
    }

    /// Splits `value` over EDX and EAX.
    pub(super) fn set_pair(&mut self, value: u64) {
        self.set(RAX, value as u32);
        self.set(RDX, (value >> 32) as u32);
    }
}

fn read_time(cpu: &mut Cpu, env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    if cpu.cr4 & CR4_TSD != 0 {
        cpu.require_privilege()?;
    }
    let now = cpu.time_stamp(env);
    cpu.set_pair(now);
    Ok(())
}

fn read_time_and_processor(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    if !cpu.derived.features.rdtscp {
        return Err(cpu.fault(Exception::INVALID_OPCODE));
    }
    read_time(cpu, env, op)?;
    cpu.set(RCX, cpu.msrs.tsc_aux as u32);
    Ok(())
}

fn read_processor(cpu: &mut Cpu, _env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    if !cpu.derived.features.rdpid {
        return Err(cpu.fault(Exception::INVALID_OPCODE));
    }
    cpu.set(op.destination, cpu.msrs.tsc_aux);
    Ok(())
}

fn read_counter(cpu: &mut Cpu, _env: &mut Env<'_>, _op: &Op) -> Result<(), Stop> {
    if cpu.cr4 & CR4_PCE == 0 {
        cpu.require_privilege()?;
    }
    // There are no performance counters, so every index is out of range.
    Err(cpu.fault(Exception::general_protection(0)))
}
