//! Random page tables and accesses, against a page walk written down straight from the manual.

use iced_x86::code_asm::*;
use proptest::prelude::*;
use softcpu::Exit;
use softcpu::control::*;

use crate::guest::*;

const TOP: u64 = 0x20_0000;

#[derive(Clone, Copy, Debug)]
struct Case {
    entries: [u64; 4],
    index: u64,
    offset: u64,
    write: bool,
    user: bool,
    override_: bool,
    wp: bool,
    smap: bool,
    nxe: bool,
}

fn case() -> impl Strategy<Value = Case> {
    // Flags that are mostly sensible, so that walks get somewhere.
    let entry = prop_oneof![
        6 => Just(TABLE),
        1 => Just(PRESENT | WRITABLE),
        1 => Just(PRESENT | USER),
        1 => Just(TABLE | NO_EXECUTE),
        1 => Just(TABLE | LARGE),
        1 => Just(TABLE | LARGE | 1 << 13),
        1 => Just(TABLE | 1 << 46),
        1 => Just(TABLE & !PRESENT),
        1 => any::<u64>().prop_map(|bits| bits & !(0xf_ffff_ffff_f000) | PRESENT),
    ];
    (prop::array::uniform4(entry), 0..512_u64, 0..512_u64, any::<[bool; 6]>()).prop_map(
        |(entries, index, offset, [write, user, override_, wp, smap, nxe])| Case {
            entries,
            index,
            offset: offset * 8,
            write,
            user,
            override_,
            wp,
            smap,
            nxe,
        },
    )
}

/// Either the physical address or the error code.
fn expected(case: &Case) -> Result<u64, u64> {
    let access = u64::from(case.write) << 1 | u64::from(case.user) << 2;
    let (mut writable, mut user) = (true, true);
    for (depth, &entry) in case.entries.iter().enumerate() {
        let size_bit = entry & LARGE != 0 && depth < 3;
        if entry & PRESENT == 0 {
            return Err(access);
        }
        let mut reserved = ((1 << 52) - 1) & !((1 << 40) - 1);
        if !case.nxe {
            reserved |= NO_EXECUTE;
        }
        if size_bit {
            reserved |= match depth {
                0 => LARGE,
                1 => 0x3fff_e000,
                _ => 0x1f_e000,
            };
        }
        if entry & reserved != 0 {
            return Err(access | 9);
        }
        writable &= entry & WRITABLE != 0;
        user &= entry & USER != 0;
        if size_bit || depth == 3 {
            let allowed = if case.user {
                user && (!case.write || writable)
            } else {
                let smap = case.smap && user && !case.override_;
                !smap && (!case.write || writable || !case.wp)
            };
            if !allowed {
                return Err(access | 1);
            }
            let offset = case.offset | if depth < 3 { case.index << 12 } else { 0 };
            return Ok(
                entry & 0xf_ffff_ffff_f000 & !0x1_e000 & !if size_bit { 0x1f_f000 } else { 0 } | offset
            );
        }
    }
    unreachable!("the last level is a leaf");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn translation_agrees_with_the_manual(case in case()) {
        let mut guest = supervisor_guest();
        // A chain of tables in the second top-level entry: TOP, TOP + 0x1000, ... down to a page at TOP + 0x4000
        // for the last level. Large pages reach what their address bits say: physical 0.
        let mut case = case;
        for (depth, entry) in case.entries.iter_mut().enumerate() {
            let next = TOP + 0x1000 * (depth as u64 + 1);
            if !(*entry & LARGE != 0 && depth < 3) {
                *entry |= next;
            }
        }
        guest.write(PAGE_MAP + 8, &case.entries[0].to_le_bytes());
        guest.write(TOP + 0x1000, &case.entries[1].to_le_bytes());
        guest.write(TOP + 0x2000, &case.entries[2].to_le_bytes());
        guest.write(TOP + 0x3000 + case.index * 8, &case.entries[3].to_le_bytes());
        let linear = 1 << 39 | case.index << 12 | case.offset;
        let cpu = guest.cpu();
        cpu.cr0 = if case.wp { cpu.cr0 | CR0_WP } else { cpu.cr0 & !CR0_WP };
        cpu.cr0 &= !CR0_AM;
        cpu.cr4 |= if case.smap { CR4_SMAP } else { 0 };
        if !case.nxe {
            cpu.msrs.efer &= !EFER_NXE;
        }
        if case.override_ {
            cpu.system_flags |= softcpu::flags::AC;
        }
        let code = if case.user { USER_CODE_AT } else { CODE };
        if case.user {
            guest.enter_user(code);
        }
        guest.program(code, |a| {
            a.mov(rbx, linear).unwrap();
            if case.write {
                a.mov(qword_ptr(rbx), rax).unwrap();
            } else {
                a.mov(rax, qword_ptr(rbx)).unwrap();
            }
            a.int3().unwrap();
        });
        guest.set_gate(3, 0xe, 3, 0);
        let marker = 0x0123_4567_89ab_cdef_u64;
        let wanted = expected(&case);
        if let (Ok(physical), false) = (wanted, case.write) {
            prop_assume!(physical >= TOP + 0x4000 || physical > 0x8_0000);
            guest.write(physical, &marker.to_le_bytes());
        }
        if let Ok(physical) = wanted {
            prop_assume!(physical < RAM_BYTES && (physical >= TOP + 0x4000 || (0x8_0000..TOP - 8).contains(&physical)));
        }
        guest.cpu().registers[0] = if case.write { marker } else { 0 };
        prop_assert_eq!(guest.run(10).1, Exit::Halt);
        let taken = {
            guest.cpu().activity = Default::default();
            let rip = guest.cpu().rip();
            (rip - 1 - HANDLERS) / 16
        };
        match wanted {
            Ok(physical) => {
                prop_assert_eq!(taken, 3);
                prop_assert_eq!(guest.read_u64(physical), marker);
                prop_assert_eq!(guest.cpu().registers[0], marker);
            }
            Err(code) => {
                prop_assert_eq!(taken, 14);
                prop_assert_eq!(guest.cpu().cr2, linear);
                let frame = guest.cpu().registers[softcpu::cpu::RSP as usize];
                prop_assert_eq!(guest.read_u64(frame), code);
            }
        }
    }
}

/// A guest whose own pages are the supervisor's, but for the one that user code is in.
fn supervisor_guest() -> Guest {
    let guest = Guest::new();
    for index in 0..8 {
        let user = if index << 21 == USER_CODE_AT & !0x1f_ffff { USER } else { 0 };
        let entry = index << 21 | LARGE | PRESENT | WRITABLE | user;
        guest.write(DIRECTORY + index * 8, &entry.to_le_bytes());
    }
    guest
}

const USER_CODE_AT: u64 = 0x60_0000;
