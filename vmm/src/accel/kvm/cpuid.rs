//! The processor that guests see, as KVM wants it told.

use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, KVM_MAX_CPUID_ENTRIES, kvm_cpuid_entry2};
use softcpu::{CpuidEntry, CpuidTable};

use super::capability::Host;
use super::error::KvmError;
use crate::accel::CpuModel;
use crate::accel::cpuid::CLOCK_HERTZ;

/// What CPU `cpu` answers on a machine whose common baseline is `table`, with a time-stamp counter of `tsc_khz`.
pub(super) fn answers(
    host: &Host,
    model: CpuModel,
    table: &CpuidTable,
    cpu: usize,
    tsc_khz: u32,
) -> Result<CpuId, KvmError> {
    let ours = baseline(table);
    let mut entries = match model {
        CpuModel::Baseline => ours,
        CpuModel::Host => like_host(host, &ours)?,
    };
    for entry in &mut entries {
        personalise(entry, cpu as u32, tsc_khz);
    }
    CpuId::from_entries(&entries).map_err(|_| KvmError::Refused {
        step: "take so many CPUID entries",
        source: kvm_ioctls::Error::new(libc::E2BIG),
    })
}

/// The rate that guests are told of a time-stamp counter of `tsc_khz`, on a host that runs them `slowdown` times slower
/// than ordinary. A kernel that is interpreted does nothing but serve its own clock tick: it comes hundreds of times a
/// second, whoever needs how long for it. A counter that is said to be faster makes its time pass more slowly, with
/// everything that the kernel derives from it: the tick, the timer of the local APIC, what programs read.
pub(super) fn told_rate(tsc_khz: u32, slowdown: u32) -> u32 {
    if slowdown < SLOW {
        return tsc_khz;
    }
    let told = u64::from(tsc_khz) * u64::from(slowdown);
    told.min(HIGHEST_RATE.max(tsc_khz).into()) as u32
}

fn baseline(table: &CpuidTable) -> Vec<kvm_cpuid_entry2> {
    let convert = |entry: &CpuidEntry| kvm_cpuid_entry2 {
        function: entry.leaf,
        index: entry.subleaf.unwrap_or(0),
        flags: if entry.subleaf.is_some() { KVM_CPUID_FLAG_SIGNIFCANT_INDEX } else { 0 },
        eax: entry.eax,
        ebx: entry.ebx,
        ecx: entry.ecx,
        edx: entry.edx,
        ..kvm_cpuid_entry2::default()
    };
    table.entries.iter().map(convert).collect()
}

/// All that the host's CPU and KVM can do, but with the machine's own topology and clock, and without KVM's
/// paravirtual interface, which is not part of this machine.
fn like_host(host: &Host, ours: &[kvm_cpuid_entry2]) -> Result<Vec<kvm_cpuid_entry2>, KvmError> {
    let supported = host
        .device
        .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
        .map_err(KvmError::refused("tell what its CPU can do"))?;
    let topology = |leaf: u32| matches!(leaf, 4 | 0xb | 0x15 | 0x16);
    let interface = |leaf: u32| (0x4000_0000..0x5000_0000).contains(&leaf);
    let foreign = |leaf: u32| topology(leaf) || interface(leaf) || leaf == 0x1f;
    let mut entries: Vec<_> =
        supported.as_slice().iter().filter(|entry| !foreign(entry.function)).copied().collect();
    let first = ours.iter().find(|entry| entry.function == 1).copied().unwrap_or_default();
    for entry in &mut entries {
        match entry.function {
            0 => entry.eax = entry.eax.max(0x16),
            1 => {
                entry.ebx = first.ebx;
                entry.ecx |= TSC_DEADLINE | HYPERVISOR;
                entry.edx = entry.edx & !HYPER_THREADING | first.edx & HYPER_THREADING;
            }
            _ => {}
        }
    }
    entries.extend(ours.iter().filter(|entry| topology(entry.function) || interface(entry.function)));
    Ok(entries)
}

/// Fills in what differs from CPU to CPU, and the rate of the time-stamp counter.
fn personalise(entry: &mut kvm_cpuid_entry2, apic_id: u32, tsc_khz: u32) {
    match entry.function {
        1 => entry.ebx = entry.ebx & 0x00ff_ffff | apic_id << 24,
        0xb => entry.edx = apic_id,
        0x15 => (entry.ebx, entry.eax, entry.ecx) = clock(tsc_khz),
        0x16 => (entry.eax, entry.ebx) = (tsc_khz / 1000, tsc_khz / 1000),
        _ => {}
    }
}

/// The rate of the time-stamp counter as leaf 0x15 tells it: numerator, denominator, and the crystal's rate in Hz,
/// which is also that of the local APIC's timer. What the fraction leaves of the counter's rate the crystal makes up
/// for, by less than a thousandth.
fn clock(tsc_khz: u32) -> (u32, u32, u32) {
    let (numerator, denominator) = ratio(tsc_khz);
    let crystal = u64::from(tsc_khz) * 1000 * u64::from(denominator) / u64::from(numerator);
    (numerator, denominator, crystal as u32)
}

/// A fraction close to the rate of the time-stamp counter over [`CLOCK_HERTZ`] whose numerator is small enough for
/// guests that multiply it with the crystal's rate in kHz in 32 bits.
fn ratio(tsc_khz: u32) -> (u32, u32) {
    let (mut number, mut base) = (u64::from(tsc_khz), u64::from(CLOCK_HERTZ / 1000));
    let (mut numerator, mut denominator) = ((1, 0), (0, 1));
    while base != 0 {
        let whole = number / base;
        let next = (whole * numerator.0 + numerator.1, whole * denominator.0 + denominator.1);
        if next.0 > MOST_NUMERATOR {
            break;
        }
        numerator = (next.0, numerator.0);
        denominator = (next.1, denominator.0);
        (number, base) = (base, number % base);
    }
    (numerator.0 as u32, denominator.0.max(1) as u32)
}

/// From this slowdown on, a kernel has no time for anything beside its tick.
const SLOW: u32 = 10;
/// In kHz. Linux computes 125 times as much in 32 bits, for the timer that compares with the counter.
const HIGHEST_RATE: u32 = 34_000_000;
/// The crystal may be a thousandth faster.
const MOST_NUMERATOR: u64 = u32::MAX as u64 / (CLOCK_HERTZ as u64 / 1000) * 999 / 1000;
const TSC_DEADLINE: u32 = 1 << 24;
const HYPERVISOR: u32 = 1 << 31;
const HYPER_THREADING: u32 = 1 << 28;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_counter_of_one_gigahertz_is_told_as_on_the_software_cpu() {
        assert_eq!(clock(1_000_000), (1, 1, CLOCK_HERTZ));
        assert_eq!(clock(2_300_000), (23, 10, CLOCK_HERTZ));
    }

    proptest! {
        #[test]
        fn the_told_rates_are_right_for_a_guest_that_counts_in_kilohertz(tsc_khz in 800_000_u32..=HIGHEST_RATE) {
            let (numerator, denominator, crystal) = clock(tsc_khz);
            let told = u64::from(crystal / 1000) * u64::from(numerator);
            prop_assert!(told <= u64::from(u32::MAX));
            let off = |told: f64, real: f64| (told / real - 1.0).abs();
            prop_assert!(off(told as f64 / f64::from(denominator), f64::from(tsc_khz)) < 2e-6);
            prop_assert!(off(f64::from(crystal), f64::from(CLOCK_HERTZ)) < 1e-3);
        }
    }

    #[test]
    fn time_passes_more_slowly_only_where_kernels_have_no_time() {
        assert_eq!(told_rate(2_300_000, 1), 2_300_000);
        assert_eq!(told_rate(2_300_000, SLOW - 1), 2_300_000);
        assert_eq!(told_rate(2_300_000, 12), 27_600_000);
        assert_eq!(told_rate(2_300_000, 1000), HIGHEST_RATE);
        assert!(HIGHEST_RATE.checked_mul(125).is_some());
    }

    #[test]
    fn every_cpu_finds_its_own_apic_id() {
        let mut entries = baseline(&crate::accel::cpuid::table(4));
        entries.iter_mut().for_each(|entry| personalise(entry, 3, 2_300_000));
        let find = |leaf| *entries.iter().find(|entry| entry.function == leaf).unwrap();
        assert_eq!((find(1).ebx >> 24, find(0xb).edx), (3, 3));
        assert_eq!((find(0x15).ebx, find(0x15).eax, find(0x15).ecx), (23, 10, CLOCK_HERTZ));
    }
}
