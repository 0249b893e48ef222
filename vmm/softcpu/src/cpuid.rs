//! What `CPUID` reports: a table given by the machine, the same for every backend.

use serde::{Deserialize, Serialize};

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
