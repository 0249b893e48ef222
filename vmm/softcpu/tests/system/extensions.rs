//! Instructions that exist only where CPUID shows them.

use softcpu::extensions::Extension;
use softcpu::{CpuidEntry, CpuidTable, Exit};

use crate::guest::*;

#[test]
fn what_cpuid_does_not_show_is_an_invalid_opcode() {
    for (extension, code) in EXAMPLES {
        let mut guest = Guest::new();
        guest.write(CODE, code);
        let taken = guest.run_to_exception();
        assert_eq!((taken.vector, taken.rip), (6, CODE), "{extension:?}");
    }
}

#[test]
fn what_cpuid_shows_is_executed() {
    for (extension, code) in EXAMPLES {
        let mut guest = Guest::with_cpuid(shows(*extension));
        guest.write(CODE, code);
        guest.cpu().registers[0] = DATA;
        assert_eq!(guest.run(1), (1, Exit::Budget), "{extension:?}");
        assert_eq!(guest.cpu().rip(), CODE + code.len() as u64, "{extension:?}");
    }
}

#[test]
fn every_extension_has_an_example() {
    for extension in Extension::ALL {
        assert!(EXAMPLES.iter().any(|(example, _)| *example == extension), "{extension:?}");
    }
}

/// The smallest table that shows `extension`.
fn shows(extension: Extension) -> CpuidTable {
    let tables = [1, 7].into_iter().flat_map(|leaf| {
        (0..96).map(move |bit: u32| {
            let register = |number: u32| if bit / 32 == number { 1 << (bit % 32) } else { 0 };
            let entry = CpuidEntry {
                leaf,
                ebx: register(0),
                ecx: register(1),
                edx: register(2),
                ..CpuidEntry::default()
            };
            CpuidTable { entries: vec![entry] }
        })
    });
    let showing: Vec<CpuidTable> = tables.filter(|table| extension.is_shown(table)).collect();
    assert_eq!(showing.len(), 1, "{extension:?} has one bit");
    showing.into_iter().next().unwrap()
}

/// One of each, with its operand in or at RAX.
const EXAMPLES: &[(Extension, &[u8])] = &[
    (Extension::Popcnt, &[0xf3, 0x48, 0x0f, 0xb8, 0xc0]),
    (Extension::Movbe, &[0x0f, 0x38, 0xf0, 0x08]),
    (Extension::Movbe, &[0x0f, 0x38, 0xf1, 0x08]),
    (Extension::Crc32, &[0xf2, 0x0f, 0x38, 0xf0, 0xc8]),
    (Extension::Bmi1, &[0xc4, 0xe2, 0x78, 0xf2, 0xc8]),
    (Extension::Bmi2, &[0xc4, 0xe2, 0x71, 0xf7, 0xc8]),
    (Extension::Adx, &[0x66, 0x0f, 0x38, 0xf6, 0xc8]),
    (Extension::Clflushopt, &[0x66, 0x0f, 0xae, 0x38]),
    (Extension::Clwb, &[0x66, 0x0f, 0xae, 0x30]),
    (Extension::Serialize, &[0x0f, 0x01, 0xe8]),
];
