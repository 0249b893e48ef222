//! Instructions beyond the baseline that the CPU can execute when its CPUID table shows them.
//!
//! The machine's own table shows none of them. They are there for the stand-in of a CPU that shows its guests more
//! than it was told to: what such a guest has seen in CPUID, it uses.

use iced_x86::{Instruction, Mnemonic};

use crate::CpuidTable;

/// A group of instructions with a CPUID bit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Named as in the manuals.
pub enum Extension {
    Popcnt,
    Movbe,
    /// Of SSE4.2 only `CRC32`, which works on general-purpose registers.
    Crc32,
    Bmi1,
    Bmi2,
    Adx,
    Clflushopt,
    Clwb,
    Serialize,
}

/// A set of extensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extensions(u16);

impl Extension {
    /// The one that `instruction` belongs to; `None` for instructions of the baseline and for unknown ones. Where
    /// an older CPU ignores a prefix, as in `TZCNT`, the instruction is the older one.
    pub fn of(instruction: &Instruction) -> Option<Extension> {
        Some(match instruction.mnemonic() {
            Mnemonic::Popcnt => Extension::Popcnt,
            Mnemonic::Movbe => Extension::Movbe,
            Mnemonic::Crc32 => Extension::Crc32,
            Mnemonic::Andn | Mnemonic::Bextr | Mnemonic::Blsi | Mnemonic::Blsmsk | Mnemonic::Blsr => {
                Extension::Bmi1
            }
            Mnemonic::Bzhi
            | Mnemonic::Mulx
            | Mnemonic::Pdep
            | Mnemonic::Pext
            | Mnemonic::Rorx
            | Mnemonic::Sarx
            | Mnemonic::Shlx
            | Mnemonic::Shrx => Extension::Bmi2,
            Mnemonic::Adcx | Mnemonic::Adox => Extension::Adx,
            Mnemonic::Clflushopt => Extension::Clflushopt,
            Mnemonic::Clwb => Extension::Clwb,
            Mnemonic::Serialize => Extension::Serialize,
            _ => return None,
        })
    }

    /// Whether `table` shows it.
    pub fn is_shown(self, table: &CpuidTable) -> bool {
        let leaf = |leaf| table.find(leaf, 0).copied().unwrap_or_default();
        let (register, bit) = match self {
            Extension::Crc32 => (leaf(1).ecx, 20),
            Extension::Movbe => (leaf(1).ecx, 22),
            Extension::Popcnt => (leaf(1).ecx, 23),
            Extension::Bmi1 => (leaf(7).ebx, 3),
            Extension::Bmi2 => (leaf(7).ebx, 8),
            Extension::Adx => (leaf(7).ebx, 19),
            Extension::Clflushopt => (leaf(7).ebx, 23),
            Extension::Clwb => (leaf(7).ebx, 24),
            Extension::Serialize => (leaf(7).edx, 14),
        };
        register >> bit & 1 != 0
    }

    /// Every one.
    pub const ALL: [Extension; 9] = [
        Extension::Popcnt,
        Extension::Movbe,
        Extension::Crc32,
        Extension::Bmi1,
        Extension::Bmi2,
        Extension::Adx,
        Extension::Clflushopt,
        Extension::Clwb,
        Extension::Serialize,
    ];
}

impl Extensions {
    /// Those that `table` shows.
    pub(crate) fn shown(table: &CpuidTable) -> Extensions {
        let shown = Extension::ALL.into_iter().filter(|extension| extension.is_shown(table));
        Extensions(shown.fold(0, |set, extension| set | 1 << extension as u16))
    }

    pub(crate) fn contains(self, extension: Extension) -> bool {
        self.0 >> extension as u16 & 1 != 0
    }
}
