//! The processor that guests see: one CPUID table for every backend, so that what fails on one can be
//! compared with the other.
//!
//! x86-64-v1 with SSE3, CMPXCHG16B, NX, RDTSCP, x2APIC, the TSC deadline timer and fast string instructions;
//! no XSAVE, no AVX. It calls itself an in-order Atom: kernels know that those do not speculate and leave
//! their mitigations out by themselves. The time-stamp counter counts nanoseconds, and leaf 0x15 says so:
//! nothing has to be calibrated.

use softcpu::{CpuidEntry, CpuidTable};

use crate::machine::Machine;

/// The table for the CPUs of `machine`, with the leaves of its hypervisor's interface if it has one.
pub fn of(machine: &Machine) -> CpuidTable {
    let mut table = table(machine.config().cpus);
    if let Some(hypervisor) = machine.hypervisor() {
        table.entries.extend(hypervisor.cpuid().into_iter().map(|(number, values)| leaf(number, values)));
    }
    table
}

/// The table for a machine with `cpus` CPUs.
pub fn table(cpus: usize) -> CpuidTable {
    let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
    let id_bits = cpus.next_power_of_two().trailing_zeros();
    let mut entries = vec![
        leaf(0, [HIGHEST_BASIC, word(b"Genu"), word(b"ntel"), word(b"ineI")]),
        leaf(1, [SIGNATURE, 1 << (16 + id_bits) | CLFLUSH_64, FEATURES_1_ECX, features_1_edx(cpus)]),
        // "The caches are described by leaf 4."
        leaf(2, [0x00ff_0001, 0, 0, 0]),
        leaf(3, [0; 4]),
        leaf(5, [0; 4]),
        // The local APIC timer always runs.
        leaf(6, [1 << 2, 0, 0, 0]),
        subleaf(7, 0, [1, TSC_ADJUST | FAST_STRINGS_ERMS, 0, FAST_STRINGS_FSRM]),
        subleaf(7, 1, [FAST_STRINGS_SHORT, 0, 0, 0]),
        subleaf(0xb, 0, [0, 1, 1 << 8, 0]),
        subleaf(0xb, 1, [id_bits, cpus, 2 << 8 | 1, 0]),
        // The time-stamp counter runs at 1/1 of a clock of 1 GHz.
        leaf(0x15, [1, 1, CLOCK_HERTZ, 0]),
        leaf(0x16, [CLOCK_HERTZ / 1_000_000, CLOCK_HERTZ / 1_000_000, CLOCK_HERTZ / 1_000_000, 0]),
        leaf(0x8000_0000, [HIGHEST_EXTENDED, 0, 0, 0]),
        leaf(0x8000_0001, [0, 0, LAHF, SYSCALL | NX | RDTSCP | LONG_MODE]),
        leaf(0x8000_0007, [0, 0, 0, INVARIANT_TSC]),
        leaf(0x8000_0008, [VIRTUAL_BITS << 8 | PHYSICAL_BITS, 0, 0, 0]),
    ];
    entries.extend(caches(cpus, id_bits));
    entries.extend(BRAND.as_chunks::<16>().0.iter().enumerate().map(|(index, text)| {
        let words = text.as_chunks::<4>().0;
        leaf(0x8000_0002 + index as u32, [0, 1, 2, 3].map(|register| word(&words[register])))
    }));
    CpuidTable { entries }
}

/// Leaf 4: data, instruction, second and third level.
fn caches(cpus: u32, id_bits: u32) -> impl Iterator<Item = CpuidEntry> {
    let cores = ((1 << id_bits) - 1) << 26;
    let describe = move |index: u32, kind: u32, level: u32, shared: u32, ways: u32, sets: u32| {
        let eax = cores | (shared - 1) << 14 | 1 << 8 | level << 5 | kind;
        subleaf(4, index, [eax, (ways - 1) << 22 | (CACHE_LINE - 1), sets - 1, 0])
    };
    [
        describe(0, 1, 1, 1, 8, 64),
        describe(1, 2, 1, 1, 8, 64),
        describe(2, 3, 2, 1, 16, 1024),
        describe(3, 3, 3, cpus.next_power_of_two(), 16, 16384),
        subleaf(4, 4, [0; 4]),
    ]
    .into_iter()
}

fn features_1_edx(cpus: u32) -> u32 {
    // FPU, PSE, TSC, MSR, PAE, CX8, APIC, SEP, MTRR, PGE, CMOV, PAT, PSE36, CLFLUSH, MMX, FXSR, SSE, SSE2, SS.
    let bits = [0, 3, 4, 5, 6, 8, 9, 11, 12, 13, 15, 16, 17, 19, 23, 24, 25, 26, 27];
    let several = u32::from(cpus > 1) << 28;
    bits.iter().fold(several, |features, bit| features | 1 << bit)
}

fn leaf(leaf: u32, [eax, ebx, ecx, edx]: [u32; 4]) -> CpuidEntry {
    CpuidEntry { leaf, subleaf: None, eax, ebx, ecx, edx }
}

fn subleaf(number: u32, subleaf: u32, registers: [u32; 4]) -> CpuidEntry {
    CpuidEntry { subleaf: Some(subleaf), ..leaf(number, registers) }
}

fn word(text: &[u8; 4]) -> u32 {
    u32::from_le_bytes(*text)
}

/// Rate of the time-stamp counter and of the local APIC timer.
pub const CLOCK_HERTZ: u32 = 1_000_000_000;
/// Width of physical addresses.
pub const PHYSICAL_BITS: u32 = 40;
const VIRTUAL_BITS: u32 = 48;
const HIGHEST_BASIC: u32 = 0x16;
const HIGHEST_EXTENDED: u32 = 0x8000_0008;
/// Family 6, model 0x1c (Bonnell, in order), stepping 10.
const SIGNATURE: u32 = 0x0001_06ca;
const CLFLUSH_64: u32 = 8 << 8;
const CACHE_LINE: u32 = 64;
/// SSE3, CX16, x2APIC, TSC deadline, hypervisor present.
const FEATURES_1_ECX: u32 = 1 << 0 | 1 << 13 | 1 << 21 | 1 << 24 | 1 << 31;
const TSC_ADJUST: u32 = 1 << 1;
const FAST_STRINGS_ERMS: u32 = 1 << 9;
const FAST_STRINGS_FSRM: u32 = 1 << 4;
/// Fast zero-length and short MOVSB, STOSB, CMPSB/SCASB.
const FAST_STRINGS_SHORT: u32 = 1 << 10 | 1 << 11 | 1 << 12;
const LAHF: u32 = 1 << 0;
const SYSCALL: u32 = 1 << 11;
const NX: u32 = 1 << 20;
const RDTSCP: u32 = 1 << 27;
const LONG_MODE: u32 = 1 << 29;
const INVARIANT_TSC: u32 = 1 << 8;
/// Three leaves of 16 bytes.
const BRAND: &[u8; 48] = b"nicvisor virtual CPU\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

#[cfg(test)]
mod tests {
    use super::*;

    fn find(table: &CpuidTable, number: u32, subleaf: u32) -> CpuidEntry {
        let matches = |entry: &&CpuidEntry| {
            entry.leaf == number && entry.subleaf.is_none_or(|wanted| wanted == subleaf)
        };
        *table.entries.iter().find(matches).unwrap()
    }

    #[test]
    fn the_vendor_string_reads_in_ebx_edx_ecx_order() {
        let vendor = find(&table(1), 0, 0);
        let text = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat();
        assert_eq!(text, b"GenuineIntel");
    }

    #[test]
    fn topology_follows_the_number_of_cpus() {
        for (cpus, bits) in [(1, 0), (2, 1), (3, 2), (8, 3), (64, 6)] {
            let table = table(cpus);
            let core = find(&table, 0xb, 1);
            assert_eq!((core.eax, core.ebx), (bits, cpus as u32));
            assert_eq!(find(&table, 1, 0).ebx >> 16, 1 << bits);
            assert_eq!(find(&table, 1, 0).edx >> 28 & 1, u32::from(cpus > 1));
        }
    }

    #[test]
    fn what_no_backend_offers_is_not_advertised() {
        let basic = find(&table(2), 1, 0);
        // SSSE3, SSE4.1, SSE4.2, POPCNT, XSAVE, OSXSAVE, AVX, MONITOR.
        for bit in [9, 19, 20, 23, 26, 27, 28, 3] {
            assert_eq!(basic.ecx >> bit & 1, 0, "bit {bit}");
        }
    }
}
