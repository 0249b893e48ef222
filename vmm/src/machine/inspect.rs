//! Looking at a stopped CPU: its registers, and memory as it sees it.

use nicvisor_memory::GuestRam;
use serde::Serialize;
use vm_memory::{Bytes, GuestAddress};

/// What of a CPU's state a report shows, the same from every backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CpuState {
    /// RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 to R15.
    pub registers: [u64; 16],
    /// Instruction pointer, as an offset in the code segment.
    pub rip: u64,
    /// Flags.
    pub rflags: u64,
    /// Code segment selector.
    pub cs: u16,
    /// Code segment base.
    pub cs_base: u64,
    /// Stack segment base.
    pub ss_base: u64,
    /// FS base.
    pub fs_base: u64,
    /// GS base.
    pub gs_base: u64,
    /// Control register 0.
    pub cr0: u64,
    /// Address of the last page fault.
    pub cr2: u64,
    /// Page table root.
    pub cr3: u64,
    /// Control register 4.
    pub cr4: u64,
    /// Extended feature enable register.
    pub efer: u64,
    /// What it is doing.
    pub activity: CpuActivity,
}

/// Whether a CPU executes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuActivity {
    /// It executes instructions.
    #[default]
    Running,
    /// It waits for an interrupt.
    Halted,
    /// It waits for a start-up IPI.
    Offline,
}

impl CpuState {
    /// Whether the CPU executes 64-bit code, as far as a report cares.
    pub fn is_long_mode(&self) -> bool {
        self.efer & EFER_LMA != 0
    }

    /// The physical address behind `linear`, by the CPU's page tables; protection is not looked at.
    pub fn translate(&self, ram: &GuestRam, linear: u64) -> Option<u64> {
        if self.cr0 & CR0_PG == 0 {
            return Some(linear);
        }
        if !self.is_long_mode() {
            return self.translate_32_bit(ram, linear);
        }
        let mut table = self.cr3 & ADDRESS;
        for shift in [39, 30, 21, 12] {
            let entry: u64 = ram.read_obj(GuestAddress(table + 8 * (linear >> shift & 0x1ff))).ok()?;
            if entry & PRESENT == 0 {
                return None;
            }
            let offset = (1 << shift) - 1;
            if shift == 12 || (shift < 39 && entry & LARGE != 0) {
                return Some(entry & ADDRESS & !offset | linear & offset);
            }
            table = entry & ADDRESS;
        }
        None
    }

    /// Two-level paging; three-level paging only ever runs in start-up code here and is left out.
    fn translate_32_bit(&self, ram: &GuestRam, linear: u64) -> Option<u64> {
        if self.cr4 & CR4_PAE != 0 {
            return None;
        }
        let entry = |table: u64, index: u64| -> Option<u64> {
            let entry: u32 = ram.read_obj(GuestAddress((table & !0xfff) + 4 * index)).ok()?;
            (u64::from(entry) & PRESENT != 0).then_some(u64::from(entry))
        };
        let directory = entry(self.cr3, linear >> 22 & 0x3ff)?;
        if directory & LARGE != 0 {
            return Some(directory & 0xffc0_0000 | linear & 0x3f_ffff);
        }
        Some(entry(directory, linear >> 12 & 0x3ff)? & !0xfff | linear & 0xfff)
    }

    /// Fills `data` from memory at `linear`; `None` when a part is not mapped to RAM.
    pub fn read(&self, ram: &GuestRam, linear: u64, data: &mut [u8]) -> Option<()> {
        let mut address = linear;
        let mut rest = data;
        while !rest.is_empty() {
            let in_page = (0x1000 - (address & 0xfff)) as usize;
            let (part, tail) = rest.split_at_mut(in_page.min(rest.len()));
            ram.read_slice(part, GuestAddress(self.translate(ram, address)?)).ok()?;
            address = address.wrapping_add(part.len() as u64);
            rest = tail;
        }
        Some(())
    }

    /// Reads a 64-bit word at `linear`.
    pub fn read_u64(&self, ram: &GuestRam, linear: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(ram, linear, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }
}

const CR0_PG: u64 = 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const EFER_LMA: u64 = 1 << 10;
const PRESENT: u64 = 1;
const LARGE: u64 = 1 << 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_level_tables_are_walked_with_small_and_large_pages() {
        let ram = nicvisor_memory::allocate(4 << 20).unwrap();
        let write = |address: u64, value: u64| ram.write_obj(value, GuestAddress(address)).unwrap();
        write(0x1000 + 8 * 511, 0x2003);
        write(0x2000 + 8 * 510, 0x3003);
        write(0x3000, 0x20_0083);
        write(0x3008, 0x4003);
        write(0x4000, 0x5001);
        write(0x5ffc, 0x1122_3344);
        write(0x20_0010, 0x5566);
        let cpu = CpuState { cr0: CR0_PG, cr3: 0x1000, cr4: CR4_PAE, efer: EFER_LMA, ..CpuState::default() };
        assert_eq!(cpu.read_u64(&ram, 0xffff_ffff_8000_0010), Some(0x5566));
        assert_eq!(cpu.translate(&ram, 0xffff_ffff_8020_0ffc), Some(0x5ffc));
        assert_eq!(cpu.translate(&ram, 0xffff_ffff_8020_1000), None);
        // The second half of the word is not mapped.
        assert_eq!(cpu.read_u64(&ram, 0xffff_ffff_8020_0ffc), None);
        assert_eq!(cpu.translate(&ram, 0), None);
    }
}
