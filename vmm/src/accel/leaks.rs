//! Features that guests see in CPUID although the machine's table does not show them.
//!
//! A KVM that has the host's CPU answer `CPUID` cannot hide what that CPU has. Features go by the numbers that Linux
//! gives them (`arch/x86/include/asm/cpufeature.h`): 32 times the number of a word, plus the bit in it.

use softcpu::CpuidTable;

/// The leaves and subleaves that tell of features, and those that tell which leaves there are.
pub fn leaves() -> Vec<(u32, u32)> {
    let mut leaves: Vec<(u32, u32)> = WORDS.iter().map(|word| (word.leaf, word.subleaf)).collect();
    leaves.extend([(0, 0), (HIGHEST_EXTENDED, 0)]);
    leaves.sort_unstable();
    leaves.dedup();
    leaves
}

/// The features that `visible` shows and `told` does not, in the order of their numbers.
pub fn between(told: &CpuidTable, visible: &CpuidTable) -> Vec<u16> {
    let mut features = Vec::new();
    for word in &WORDS {
        let more = word.of(visible) & !word.of(told);
        features.extend((0..32).filter(|bit| more >> bit & 1 != 0).map(|bit| 32 * word.number + bit));
    }
    features.sort_unstable();
    features
}

/// One register of one leaf.
struct Word {
    leaf: u32,
    subleaf: u32,
    register: Register,
    number: u16,
    /// Bits that tell of features.
    mask: u32,
}

#[derive(Clone, Copy)]
enum Register {
    Eax,
    Ebx,
    Ecx,
    Edx,
}

impl Word {
    /// Its value in `table`; nothing when the leaf is beyond the highest, for then CPUs answer anything.
    fn of(&self, table: &CpuidTable) -> u32 {
        let highest = table.find(self.leaf & HIGHEST_EXTENDED, 0).map_or(0, |entry| entry.eax);
        let Some(entry) = table.find(self.leaf, self.subleaf).filter(|_| self.leaf <= highest) else {
            return 0;
        };
        let value = match self.register {
            Register::Eax => entry.eax,
            Register::Ebx => entry.ebx,
            Register::Ecx => entry.ecx,
            Register::Edx => entry.edx,
        };
        value & self.mask
    }
}

const fn word(number: u16, (leaf, subleaf): (u32, u32), register: Register) -> Word {
    Word { leaf, subleaf, register, number, mask: u32::MAX }
}

/// All words that are a register of a leaf, but those about virtual machines, encryption of memory and old makers.
const WORDS: [Word; 12] = [
    word(0, (1, 0), Register::Edx),
    // The lower bits repeat those of word 0 on some CPUs.
    Word { mask: 0xfee0_0800, ..word(1, (0x8000_0001, 0), Register::Edx) },
    word(4, (1, 0), Register::Ecx),
    word(6, (0x8000_0001, 0), Register::Ecx),
    word(9, (7, 0), Register::Ebx),
    word(10, (0xd, 1), Register::Eax),
    word(12, (7, 1), Register::Eax),
    word(13, (0x8000_0008, 0), Register::Ebx),
    word(14, (6, 0), Register::Eax),
    word(16, (7, 0), Register::Ecx),
    word(17, (0x8000_0007, 0), Register::Ebx),
    word(18, (7, 0), Register::Edx),
];
const HIGHEST_EXTENDED: u32 = 0x8000_0000;

/// XSAVE has been enabled by the operating system.
pub const OSXSAVE: u16 = 4 * 32 + 27;
/// Bit manipulation, second set.
pub const BMI2: u16 = 9 * 32 + 8;

#[cfg(test)]
mod tests {
    use softcpu::CpuidEntry;

    use super::*;
    use crate::accel::cpuid;

    fn change(table: &mut CpuidTable, leaf: u32, change: impl FnOnce(&mut CpuidEntry)) {
        let matches = |entry: &&mut CpuidEntry| entry.leaf == leaf && entry.subleaf.unwrap_or(0) == 0;
        change(table.entries.iter_mut().find(matches).unwrap());
    }

    #[test]
    fn what_is_told_is_no_leak() {
        let told = cpuid::table(2);
        assert!(between(&told, &told).is_empty());
        // Less is none either.
        assert!(between(&told, &cpuid::table(1)).is_empty());
    }

    #[test]
    fn more_bits_are_found_by_their_numbers_in_linux() {
        let told = cpuid::table(1);
        let mut visible = told.clone();
        change(&mut visible, 1, |entry| entry.ecx |= 1 << 23 | 1 << 27);
        change(&mut visible, 7, |entry| entry.ebx |= 1 << 8);
        change(&mut visible, 7, |entry| entry.edx |= 1 << 14);
        // POPCNT, OSXSAVE, BMI2, SERIALIZE.
        assert_eq!(between(&told, &visible), [151_u16, OSXSAVE, BMI2, 590]);
    }

    #[test]
    fn leaves_beyond_the_highest_say_nothing() {
        let told = cpuid::table(1);
        let mut visible = told.clone();
        change(&mut visible, 7, |entry| entry.ebx |= 1 << 8);
        change(&mut visible, 0, |entry| entry.eax = 6);
        assert!(between(&told, &visible).is_empty());
    }

    #[test]
    fn every_word_is_among_the_leaves_asked_for() {
        let leaves = leaves();
        assert!(WORDS.iter().all(|word| leaves.contains(&(word.leaf, word.subleaf))));
        assert!(leaves.contains(&(0, 0)) && leaves.contains(&(HIGHEST_EXTENDED, 0)));
    }
}
