//! Which model-specific registers are KVM's, which are the machine's, and what they hold at the start.
//!
//! KVM keeps those that the software CPU keeps, no more: everything else, known to KVM or not, comes to the
//! machine, so that a guest finds the same registers on both backends.

use kvm_bindings::{Msrs, kvm_msr_entry};
use kvm_ioctls::{MsrFilterDefaultAction, MsrFilterRange, MsrFilterRangeFlags, VcpuFd, VmFd};

/// Leaves KVM only the registers of [`OWN`], and not even [`LSTAR`] when `system_calls` are the assist's.
pub(super) fn filter(vm: &VmFd, system_calls: bool) -> Result<(), kvm_ioctls::Error> {
    let bitmaps: Vec<Vec<u8>> = BLOCKS.iter().map(|block| bitmap(*block, system_calls)).collect();
    let ranges: Vec<MsrFilterRange<'_>> = BLOCKS
        .iter()
        .zip(&bitmaps)
        .map(|(&(base, count), bitmap)| MsrFilterRange {
            flags: MsrFilterRangeFlags::READ | MsrFilterRangeFlags::WRITE,
            base,
            msr_count: count,
            bitmap,
        })
        .collect();
    vm.set_msr_filter(MsrFilterDefaultAction::DENY, &ranges)
}

/// What firmware leaves: fast strings on, memory cacheable unless the page tables say otherwise.
pub(super) fn initialise(vcpu: &VcpuFd) -> Result<(), kvm_ioctls::Error> {
    write(vcpu, &[(MISC_ENABLE, FAST_STRINGS), (MTRR_DEFAULT_TYPE, MTRR_ENABLED_WRITE_BACK)])
}

/// The values of `indices`; registers that cannot be read are left out at the end.
pub(super) fn read(vcpu: &VcpuFd, indices: &[u32]) -> Result<Vec<u64>, kvm_ioctls::Error> {
    let entries: Vec<kvm_msr_entry> =
        indices.iter().map(|&index| kvm_msr_entry { index, ..kvm_msr_entry::default() }).collect();
    let mut msrs = Msrs::from_entries(&entries).expect("a few dozen entries fit");
    let read = vcpu.get_msrs(&mut msrs)?;
    Ok(msrs.as_slice()[..read].iter().map(|entry| entry.data).collect())
}

/// Writes registers.
pub(super) fn write(vcpu: &VcpuFd, values: &[(u32, u64)]) -> Result<(), kvm_ioctls::Error> {
    let entries: Vec<kvm_msr_entry> = values
        .iter()
        .map(|&(index, data)| kvm_msr_entry { index, data, ..kvm_msr_entry::default() })
        .collect();
    let msrs = Msrs::from_entries(&entries).expect("a few dozen entries fit");
    match vcpu.set_msrs(&msrs)? {
        written if written == values.len() => Ok(()),
        _ => Err(kvm_ioctls::Error::new(libc::EINVAL)),
    }
}

/// Registers that, when an access to them comes to us, read as zero and ignore what is written: those that do so on
/// the software CPU (KVM would show banks and features that its CPUID does not have), and TSC_AUX, which comes here
/// only where KVM cannot keep it.
pub(super) fn reads_as_zero(index: u32) -> bool {
    matches!(index, 0x179 | 0x17a | 0xc001_0010 | 0xc001_0015 | 0xc001_0055 | TSC_AUX)
}

fn bitmap((base, count): (u32, u32), system_calls: bool) -> Vec<u8> {
    let mut bits = vec![0; count.div_ceil(8) as usize];
    let own = OWN.iter().cloned().flatten().filter(|index| !system_calls || *index != LSTAR);
    for index in own.filter(|index| (base..base + count).contains(index)) {
        let bit = index - base;
        bits[bit as usize / 8] |= 1 << (bit % 8);
    }
    bits
}

/// Registers that are the CPU's own, those of its local APIC included: TSC, APIC base, TSC adjust, MTRR
/// capabilities, SYSENTER, MISC_ENABLE, MTRRs, PAT, TSC deadline; EFER, SYSCALL, segment bases, TSC_AUX.
/// (KVM never filters the x2APIC's.)
const OWN: [std::ops::RangeInclusive<u32>; 16] = [
    0x10..=0x10,
    0x1b..=0x1b,
    0x3b..=0x3b,
    0xfe..=0xfe,
    0x174..=0x176,
    MISC_ENABLE..=MISC_ENABLE,
    0x200..=0x20f,
    0x250..=0x250,
    0x258..=0x259,
    0x268..=0x26f,
    0x277..=0x277,
    MTRR_DEFAULT_TYPE..=MTRR_DEFAULT_TYPE,
    0x6e0..=0x6e0,
    0xc000_0080..=0xc000_0084,
    0xc000_0100..=0xc000_0102,
    TSC_AUX..=TSC_AUX,
];
/// Where they lie: first register and number.
const BLOCKS: [(u32, u32); 3] = [(0, 0x300), (0x6e0, 8), (0xc000_0080, 0x88)];

/// Where SYSCALL leads from 64-bit code.
pub(super) const LSTAR: u32 = 0xc000_0082;
const MISC_ENABLE: u32 = 0x1a0;
const FAST_STRINGS: u64 = 1;
const TSC_AUX: u32 = 0xc000_0103;
const MTRR_DEFAULT_TYPE: u32 = 0x2ff;
const MTRR_ENABLED_WRITE_BACK: u64 = 0xc06;

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed(index: u32, system_calls: bool) -> bool {
        BLOCKS.iter().any(|&(base, count)| {
            (base..base + count).contains(&index) && {
                let bit = index - base;
                bitmap((base, count), system_calls)[bit as usize / 8] >> (bit % 8) & 1 != 0
            }
        })
    }

    #[test]
    fn every_own_register_lies_in_a_block_and_is_allowed_there() {
        for index in OWN.iter().cloned().flatten() {
            assert!(is_allowed(index, false), "{index:#x}");
            assert_eq!(is_allowed(index, true), index != LSTAR, "{index:#x}");
        }
        for index in [0x17, 0x3a, 0x48, 0x8b, 0xce, 0x140, 0x179, 0xc000_0085, 0x4000_0000, 0x4b56_4d00] {
            assert!(!is_allowed(index, false), "{index:#x}");
        }
    }
}
