//! What `CPUID` reports: a table given by the machine, the same for every backend.

use serde::{Deserialize, Serialize};

use crate::control::*;
use crate::extensions::Extensions;

/// One leaf. `EAX` and `ECX` select it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuidEntry {
    /// `EAX` on input.
    pub leaf: u32,
    /// `ECX` on input; `None` for leaves that do not look at it.
    pub subleaf: Option<u32>,
    /// Output.
    pub eax: u32,
    /// Output.
    pub ebx: u32,
    /// Output.
    pub ecx: u32,
    /// Output.
    pub edx: u32,
}

/// All leaves. The APIC-id fields (leaf 1 EBX 31:24, leaf 0xb EDX) and OSXSAVE are filled in per CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuidTable {
    /// In any order.
    pub entries: Vec<CpuidEntry>,
}

/// What of [`CpuidTable`] changes how the CPU behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Features {
    /// Width of physical addresses.
    pub(crate) physical_bits: u8,
    /// 1 GiB pages.
    pub(crate) giant_pages: bool,
    /// Bits of CR4 that may be set.
    pub(crate) cr4: u64,
    /// Bits of EFER that may be set.
    pub(crate) efer: u64,
    /// RDTSCP and TSC_AUX.
    pub(crate) rdtscp: bool,
    /// RDPID.
    pub(crate) rdpid: bool,
    /// Instructions beyond the baseline.
    pub(crate) extensions: Extensions,
}

/// Those of a CPU that no engine has run yet: page tables are taken as they are.
impl Default for Features {
    fn default() -> Self {
        Features {
            physical_bits: 52,
            giant_pages: true,
            cr4: 0,
            efer: 0,
            rdtscp: false,
            rdpid: false,
            extensions: Extensions::default(),
        }
    }
}

impl CpuidTable {
    /// The entry for `leaf` and `subleaf`; out-of-range leaves have none.
    pub fn find(&self, leaf: u32, subleaf: u32) -> Option<&CpuidEntry> {
        self.entries
            .iter()
            .find(|entry| entry.leaf == leaf && entry.subleaf.is_none_or(|wanted| wanted == subleaf))
    }

    pub(crate) fn features(&self) -> Features {
        let leaf = |leaf| self.find(leaf, 0).copied().unwrap_or_default();
        let (basic, structured) = (leaf(1), leaf(7));
        let (extended, address) = (leaf(0x8000_0001), leaf(0x8000_0008));
        let bit = |register: u32, bit: u32| register >> bit & 1 != 0;
        let mut cr4 = CR4_TSD | CR4_DE | CR4_PSE | CR4_PAE | CR4_MCE | CR4_PCE | CR4_OSFXSR | CR4_OSXMMEXCPT;
        for (present, mask) in [
            (bit(basic.edx, 1), CR4_VME | CR4_PVI),
            (bit(basic.edx, 13), CR4_PGE),
            (bit(structured.ebx, 0), CR4_FSGSBASE),
            (bit(structured.ebx, 7), CR4_SMEP),
            (bit(structured.ebx, 20), CR4_SMAP),
            (bit(structured.ecx, 2), CR4_UMIP),
        ] {
            cr4 |= if present { mask } else { 0 };
        }
        let mut efer = 0;
        for (present, mask) in [
            (bit(extended.edx, 11), EFER_SCE),
            (bit(extended.edx, 20), EFER_NXE),
            (bit(extended.edx, 29), EFER_LME | EFER_LMA),
        ] {
            efer |= if present { mask } else { 0 };
        }
        Features {
            physical_bits: match address.eax as u8 {
                0 => 36,
                bits => bits.min(52),
            },
            giant_pages: bit(extended.edx, 26),
            cr4,
            efer,
            rdtscp: bit(extended.edx, 27),
            rdpid: bit(structured.ecx, 22),
            extensions: Extensions::shown(self),
        }
    }
}
