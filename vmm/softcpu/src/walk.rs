//! Paging: from linear to physical addresses by the guest's page tables (Intel SDM vol. 3, chapter 4).

use crate::access::{Access, Env};
use crate::control::*;
use crate::host::Memory;
use crate::tlb::Context;
use crate::{Cpu, Exception};

/// Where a linear address leads and what its page tables allow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    pub(crate) physical: u64,
    pub(crate) writable: bool,
    pub(crate) user: bool,
    pub(crate) executable: bool,
    pub(crate) global: bool,
    pub(crate) large: bool,
    /// The entries on the way, top first.
    entries: [Entry; 4],
    depth: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    address: u64,
    value: u64,
}

/// Why there is no mapping, as bits of a page-fault error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unmapped(pub(crate) u32);

impl Cpu {
    /// The physical address of `linear` for `access` with `context`'s permissions, as if accessed: accessed
    /// and dirty bits are set. Only for addresses that are canonical.
    pub(crate) fn translate(
        &mut self,
        env: &mut Env<'_>,
        linear: u64,
        access: Access,
        context: Context,
    ) -> Result<Mapping, Exception> {
        let fault = |code| Exception::page_fault(linear, code | self.access_code(access, context));
        let mapping = self.walk(env.memory, linear).map_err(|unmapped| fault(unmapped.0))?;
        if !self.permits(&mapping, access, context) {
            return Err(fault(FAULT_PRESENT));
        }
        self.mark_accessed(env, &mapping, access);
        Ok(mapping)
    }

    /// Follows the page tables without any effect on them.
    pub(crate) fn walk(&self, memory: &Memory, linear: u64) -> Result<Mapping, Unmapped> {
        if self.cr0 & CR0_PG == 0 {
            return Ok(Mapping {
                physical: if self.derived.long { linear } else { linear & 0xffff_ffff },
                writable: true,
                user: true,
                executable: true,
                global: false,
                large: false,
                entries: [Entry::default(); 4],
                depth: 0,
            });
        }
        if self.cr4 & CR4_PAE == 0 {
            self.walk_32_bit(memory, linear)
        } else {
            self.walk_64_bit(memory, linear)
        }
    }

    /// 4-level paging, and PAE paging, which is its two lower levels below four fixed pointers.
    fn walk_64_bit(&self, memory: &Memory, linear: u64) -> Result<Mapping, Unmapped> {
        let long = self.msrs.efer & EFER_LMA != 0;
        let mut mapping = Mapping::all();
        let (mut table, top) = if long {
            (self.cr3 & ADDRESS, 3)
        } else {
            let pointer = self.pae_pointers[(linear >> 30 & 3) as usize];
            if pointer & PRESENT == 0 {
                return Err(Unmapped(0));
            }
            (pointer & ADDRESS, 1)
        };
        let mut reserved = ADDRESS & !((1 << self.derived.features.physical_bits) - 1);
        if self.msrs.efer & EFER_NXE == 0 {
            reserved |= NO_EXECUTE;
        }
        if !long {
            reserved |= !(NO_EXECUTE | ADDRESS | 0xfff);
        }
        for level in (0..=top).rev() {
            let shift = 12 + 9 * level;
            let address = table + (linear >> shift & 0x1ff) * 8;
            let value = read_entry::<8>(memory, address);
            if value & PRESENT == 0 {
                return Err(Unmapped(0));
            }
            let large = level > 0 && value & LARGE != 0;
            let mut reserved = reserved;
            if large {
                reserved |= match level {
                    1 => 0x1f_e000,
                    2 if self.derived.features.giant_pages => 0x3fff_e000,
                    _ => LARGE,
                };
            }
            if value & reserved != 0 {
                return Err(Unmapped(FAULT_PRESENT | FAULT_RESERVED));
            }
            mapping.add(address, value);
            mapping.executable &= value & NO_EXECUTE == 0;
            if large || level == 0 {
                let offset = (1 << shift) - 1;
                mapping.physical = value & ADDRESS & !offset | linear & offset;
                mapping.global = value & GLOBAL != 0 && self.cr4 & CR4_PGE != 0;
                mapping.large = large;
                break;
            }
            table = value & ADDRESS;
        }
        Ok(mapping)
    }

    fn walk_32_bit(&self, memory: &Memory, linear: u64) -> Result<Mapping, Unmapped> {
        let mut mapping = Mapping::all();
        let address = (self.cr3 & 0xffff_f000) + (linear >> 22 & 0x3ff) * 4;
        let mut value = read_entry::<4>(memory, address);
        if value & PRESENT == 0 {
            return Err(Unmapped(0));
        }
        mapping.add(address, value);
        if value & LARGE != 0 && self.cr4 & CR4_PSE != 0 {
            // PSE-36: bits 13 to 20 are address bits 32 to 39, as far as the CPU has them.
            let high = (value >> 13 & 0xff) << 32;
            if value & 1 << 21 != 0 || high >> self.derived.features.physical_bits != 0 {
                return Err(Unmapped(FAULT_PRESENT | FAULT_RESERVED));
            }
            mapping.large = true;
            mapping.physical = high | value & 0xffc0_0000 | linear & 0x3f_ffff;
        } else {
            let address = (value & 0xffff_f000) + (linear >> 12 & 0x3ff) * 4;
            value = read_entry::<4>(memory, address);
            if value & PRESENT == 0 {
                return Err(Unmapped(0));
            }
            mapping.add(address, value);
            mapping.physical = value & 0xffff_f000 | linear & 0xfff;
        }
        mapping.global = value & GLOBAL != 0 && self.cr4 & CR4_PGE != 0;
        Ok(mapping)
    }

    /// Whether the page tables allow `access` with `context`'s permissions.
    pub(crate) fn permits(&self, mapping: &Mapping, access: Access, context: Context) -> bool {
        if self.cr0 & CR0_PG == 0 {
            return true;
        }
        let user = matches!(context, Context::User | Context::UserAligned);
        if user && !mapping.user {
            return false;
        }
        let closed_by = |bit| !user && mapping.user && self.cr4 & bit != 0;
        match access {
            Access::Execute => mapping.executable && !closed_by(CR4_SMEP),
            Access::Read | Access::Write if context != Context::SupervisorOverride && closed_by(CR4_SMAP) => {
                false
            }
            Access::Read => true,
            Access::Write => mapping.writable || !user && self.cr0 & CR0_WP == 0,
        }
    }

    /// The part of a page-fault error code that describes the access.
    fn access_code(&self, access: Access, context: Context) -> u32 {
        let user = if matches!(context, Context::User | Context::UserAligned) { FAULT_USER } else { 0 };
        let fetch_reported =
            self.cr4 & CR4_SMEP != 0 || self.cr4 & CR4_PAE != 0 && self.msrs.efer & EFER_NXE != 0;
        user | match access {
            Access::Read => 0,
            Access::Write => FAULT_WRITE,
            Access::Execute if fetch_reported => FAULT_FETCH,
            Access::Execute => 0,
        }
    }

    fn mark_accessed(&self, env: &mut Env<'_>, mapping: &Mapping, access: Access) {
        let bytes = if self.cr4 & CR4_PAE == 0 { 4 } else { 8 };
        for (position, entry) in mapping.entries[..mapping.depth].iter().enumerate() {
            let leaf = position + 1 == mapping.depth;
            let wanted = ACCESSED | if leaf && access == Access::Write { DIRTY } else { 0 };
            if entry.value & wanted != wanted {
                env.write_ram(entry.address, &(entry.value | wanted).to_le_bytes()[..bytes]);
            }
        }
    }

    /// Loads the four pointers of PAE paging from `cr3`; `None` when one has a reserved bit set.
    pub(crate) fn read_pae_pointers(&self, memory: &Memory, cr3: u64) -> Option<[u64; 4]> {
        let reserved = !(ADDRESS & ((1 << self.derived.features.physical_bits) - 1)) & !0xfff | 0x1e6;
        let mut pointers = [0; 4];
        for (index, pointer) in pointers.iter_mut().enumerate() {
            *pointer = read_entry::<8>(memory, (cr3 & 0xffff_ffe0) + index as u64 * 8);
            if *pointer & PRESENT != 0 && *pointer & reserved != 0 {
                return None;
            }
        }
        Some(pointers)
    }
}

impl Mapping {
    fn all() -> Mapping {
        Mapping {
            physical: 0,
            writable: true,
            user: true,
            executable: true,
            global: false,
            large: false,
            entries: [Entry::default(); 4],
            depth: 0,
        }
    }

    fn add(&mut self, address: u64, value: u64) {
        self.entries[self.depth] = Entry { address, value };
        self.depth += 1;
        self.writable &= value & WRITABLE != 0;
        self.user &= value & USER != 0;
    }
}

/// A paging-structure entry of `N` bytes; where there is no RAM, none is present.
fn read_entry<const N: usize>(memory: &Memory, address: u64) -> u64 {
    let mut bytes = [0; 8];
    memory.read(address, &mut bytes[..N]);
    u64::from_le_bytes(bytes)
}

/// Error code: the page is mapped, but not for this access.
pub(crate) const FAULT_PRESENT: u32 = 1 << 0;
/// Error code: it was a write.
pub(crate) const FAULT_WRITE: u32 = 1 << 1;
/// Error code: it was at privilege 3.
pub(crate) const FAULT_USER: u32 = 1 << 2;
/// Error code: a reserved bit is set in a paging-structure entry.
pub(crate) const FAULT_RESERVED: u32 = 1 << 3;
/// Error code: it was an instruction fetch.
pub(crate) const FAULT_FETCH: u32 = 1 << 4;

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const NO_EXECUTE: u64 = 1 << 63;
/// Bits 12 to 51.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
