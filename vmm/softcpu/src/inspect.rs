//! A look at a CPU from outside, without any effect on it: for debuggers, backtraces and reports.

use std::fmt;

use crate::segment::{CS, DS, ES, FS, GS, SS, Segment};
use crate::{Cpu, Engine};

impl Engine {
    /// The physical address that `linear` has for CPU `index` now; `None` when it is not mapped. Permissions
    /// are not looked at, and accessed bits stay as they are.
    pub fn translate(&self, index: usize, linear: u64) -> Option<u64> {
        self.cpus[index].walk(&self.memory, linear).ok().map(|mapping| mapping.physical)
    }

    /// Reads guest memory at `linear` as CPU `index` sees it. Returns how many bytes could be read: reading ends
    /// at the first page that is not mapped or not RAM.
    pub fn read_linear(&self, index: usize, linear: u64, data: &mut [u8]) -> usize {
        let mut done = 0;
        while done < data.len() {
            let address = linear.wrapping_add(done as u64);
            let bytes = (data.len() - done).min(4096 - (address & 0xfff) as usize);
            match self.translate(index, address) {
                Some(physical) if self.memory.read(physical, &mut data[done..done + bytes]) => done += bytes,
                _ => break,
            }
        }
        done
    }
}

/// All registers but the floating-point ones, in the order in which one looks for them.
impl fmt::Display for Cpu {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "RIP {:04x}:{:016x}  RFLAGS {:08x}  {:?}, privilege {}, {:?}",
            self.segments[CS].selector,
            self.rip(),
            self.rflags(),
            self.mode(),
            self.segments[CS].rpl(),
            self.activity,
        )?;
        for (index, name) in NAMES.iter().enumerate() {
            let end = if index % 4 == 3 { '\n' } else { ' ' };
            write!(formatter, "{name} {:016x}{end}", self.registers[index])?;
        }
        for (index, name) in [(ES, "ES"), (CS, "CS"), (SS, "SS"), (DS, "DS"), (FS, "FS"), (GS, "GS")] {
            write_segment(formatter, name, &self.segments[index])?;
        }
        write_segment(formatter, "LD", &self.ldtr)?;
        write_segment(formatter, "TR", &self.tr)?;
        writeln!(
            formatter,
            "GDT {:016x} {:04x}  IDT {:016x} {:04x}",
            self.gdtr.base, self.gdtr.limit, self.idtr.base, self.idtr.limit
        )?;
        writeln!(
            formatter,
            "CR0 {:08x}  CR2 {:016x}  CR3 {:016x}  CR4 {:08x}  EFER {:04x}",
            self.cr0, self.cr2, self.cr3, self.cr4, self.msrs.efer
        )
    }
}

fn write_segment(formatter: &mut fmt::Formatter<'_>, name: &str, segment: &Segment) -> fmt::Result {
    writeln!(
        formatter,
        "{name}  {:04x} base {:016x} limit {:08x} attributes {:04x}",
        segment.selector, segment.base, segment.limit, segment.attributes
    )
}

const NAMES: [&str; 16] = [
    "RAX", "RCX", "RDX", "RBX", "RSP", "RBP", "RSI", "RDI", "R8 ", "R9 ", "R10", "R11", "R12", "R13", "R14",
    "R15",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{CR0_PG, CR4_PAE, EFER_LMA, EFER_LME};
    use crate::segment::DescriptorTable;
    use vm_memory::{Bytes, GuestAddress};

    #[test]
    fn linear_memory_is_read_up_to_the_first_hole() {
        let ram = nicvisor_memory::allocate(0x10_0000).unwrap();
        for (address, entry) in [(0x1000, 0x2003_u64), (0x2000, 0x3003), (0x3000, 0x4003), (0x4000, 0x5003)] {
            ram.write_obj(entry, GuestAddress(address)).unwrap();
        }
        ram.write_slice(&[7; 0x1000], GuestAddress(0x5000)).unwrap();
        let mut engine = Engine::new(ram, 1, crate::CpuidTable::default());
        engine.cpu_mut(0).enter_long(0, 0x1000, DescriptorTable::default());
        let cpu = engine.cpu(0);
        assert_eq!((cpu.cr0 & CR0_PG, cpu.cr4), (CR0_PG, CR4_PAE));
        assert_eq!(cpu.msrs.efer, EFER_LME | EFER_LMA);
        assert_eq!(engine.translate(0, 0x123), Some(0x5123));
        assert_eq!(engine.translate(0, 0x1000), None);
        let mut data = [0; 32];
        assert_eq!(engine.read_linear(0, 0xff0, &mut data), 16);
        assert_eq!(data, [[7; 16], [0; 16]].concat()[..]);
    }

    #[test]
    fn a_dump_names_what_matters() {
        let mut cpu = Cpu::default();
        cpu.enter_protected(0x10_0000);
        cpu.registers[3] = 0xabcd;
        let dump = cpu.to_string();
        assert!(dump.contains("RIP 0010:0000000000100000"), "{dump}");
        assert!(dump.contains("Protected32, privilege 0, Running"), "{dump}");
        assert!(dump.contains("RBX 000000000000abcd"), "{dump}");
    }
}
