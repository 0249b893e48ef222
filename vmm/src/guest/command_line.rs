//! The kernel's command line.

/// What a kernel is told, and in front of `append` what helps it on a host that runs it `slowdown` times slower than
/// ordinary and shows it features (`leaks`) that it is not meant to use: see [`crate::accel::leaks`].
pub(super) fn build(verbose: bool, slowdown: u32, leaks: &[u16], append: &str) -> String {
    let slow = slowdown >= SLOW;
    let mut pieces = vec![COMMAND_LINE.to_owned()];
    if !verbose {
        pieces.push("quiet".into());
    }
    if slow {
        pieces.push(SLOW_COMMAND_LINE.into());
    }
    pieces.extend(hide(leaks, slow));
    if !append.is_empty() {
        pieces.push(append.into());
    }
    pieces.join(" ")
}

/// The parameters that make a kernel, and the C library in it, leave `leaks` alone.
///
/// `clearcpuid=` takes any number of features, but the kernel reads only [`LONGEST_LIST`] of its characters. So
/// features that have a parameter of their own go by that, those that depend on others go with them, and what the
/// kernel may use itself comes before what only programs use (which run on the host's CPU, that has it all).
fn hide(leaks: &[u16], slow: bool) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut cleared = Vec::new();
    if slow {
        cleared.extend(BYTEWISE_STRINGS);
    }
    for (feature, parameter) in PARAMETERS {
        if leaks.contains(&feature) {
            pieces.push(parameter.to_owned());
        }
    }
    let has_parameter = |feature: &u16| PARAMETERS.iter().any(|(other, _)| other == feature);
    let mut rest: Vec<u16> =
        leaks.iter().copied().filter(|feature| !has_parameter(feature) && !needs_xsave(*feature)).collect();
    rest.sort_by_key(|feature| PROGRAMS_ONLY.contains(feature));
    cleared.extend(rest);
    if let Some(list) = list(&cleared) {
        pieces.push(format!("clearcpuid={list}"));
    }
    if !leaks.is_empty() {
        pieces.push(C_LIBRARY.into());
    }
    pieces
}

/// As many of `features` as the kernel reads; `None` when there are none.
fn list(features: &[u16]) -> Option<String> {
    let mut list = String::new();
    for feature in features {
        let next = if list.is_empty() { feature.to_string() } else { format!("{list},{feature}") };
        if next.len() > LONGEST_LIST {
            break;
        }
        list = next;
    }
    (!list.is_empty()).then_some(list)
}

/// Whether a kernel without XSAVE clears `feature` by itself, or cannot use it: the variants of XSAVE, AVX and what
/// builds on it, protection keys, AMX.
fn needs_xsave(feature: u16) -> bool {
    match feature {
        128..160 => matches!(feature, 140 | 155 | 156),
        288..320 => matches!(feature, 293 | 302 | 304 | 305 | 309 | 314..=316 | 318 | 319),
        320..352 => true,
        384..416 => matches!(feature, 388 | 389 | 405 | 407),
        512..544 => matches!(feature, 513 | 515 | 516 | 518 | 519 | 521..=524 | 526),
        576..608 => matches!(feature, 578 | 579 | 584 | 598..=601),
        _ => false,
    }
}

/// A panic restarts the machine at once, which ends the run; a kernel that notices that it makes no progress
/// panics. Interface names are the kernel's own.
pub const COMMAND_LINE: &str =
    "console=ttyS0 panic=-1 softlockup_panic=1 hung_task_panic=1 net.ifnames=0 mitigations=off";

/// From this factor on a kernel takes itself for stuck.
const SLOW: u32 = 10;
/// No watchdogs, and no self-tests of ciphers, which would take minutes.
const SLOW_COMMAND_LINE: &str =
    "nowatchdog hung_task_panic=0 rcupdate.rcu_cpu_stall_suppress=1 cryptomgr.notests";

/// What it does not know goes to the kernel's first process as an environment variable: the C library looks at CPUID
/// too, and a kernel without XSAVE does not keep the registers of AVX.
const C_LIBRARY: &str = "GLIBC_TUNABLES=glibc.cpu.hwcaps=-XSAVE,-XSAVEC,-AVX,-AVX2,-AVX512F,-AVX512VL,-AVX512BW,\
-ERMS,-BMI2,-MOVBE";

/// Of `arg` in the kernel's `cpu_parse_early_param`, less the terminator.
const LONGEST_LIST: usize = 127;

/// Features with a parameter of their own: XSAVE, PCID, INVPCID, FSGSBASE, pages of 1 GiB, five-level paging.
const PARAMETERS: [(u16, &str); 6] = [
    (154, "noxsave"),
    (145, "nopcid"),
    (298, "noinvpcid"),
    (288, "nofsgsbase"),
    (58, "nogbpages"),
    (528, "no5lvl"),
];

/// ERMS, FSRM, and FZRM, FSRS and FSRC: with these a kernel copies and clears memory byte by byte (`REP MOVSB`),
/// without in words of eight. An interpreter needs the same time for either.
const BYTEWISE_STRINGS: [u16; 5] = [297, 580, 394, 395, 396];

/// What kernels leave to programs, or use in modules only that nothing here needs: half floats, GFNI, SHA, bit
/// manipulation, hints for transactions, prefetching and caches, direct stores.
const PROGRAMS_ONLY: [u16; 11] = [157, 197, 200, 291, 292, 317, 520, 537, 539, 540, 592];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_host_that_shows_what_it_is_told_gets_nothing_more() {
        assert_eq!(build(true, 1, &[], ""), COMMAND_LINE);
        assert_eq!(build(false, 1, &[], "loglevel=7"), format!("{COMMAND_LINE} quiet loglevel=7"));
    }

    #[test]
    fn an_interpreter_gets_patience_and_copies_words() {
        let line = build(true, 50, &[], "");
        assert!(line.contains("nowatchdog") && line.ends_with("clearcpuid=297,580,394,395,396"), "{line}");
    }

    #[test]
    fn features_go_by_their_own_parameter_with_xsave_or_in_the_list() {
        // PCID, POPCNT, XSAVE, AVX, AVX2, PKU, SERIALIZE.
        let pieces = hide(&[145, 151, 154, 156, 293, 515, 590], false);
        assert_eq!(pieces, ["noxsave", "nopcid", "clearcpuid=151,590", C_LIBRARY]);
    }

    #[test]
    fn what_kernels_do_not_use_comes_last() {
        assert_eq!(hide(&[157, 197, 308, 520, 590], false)[0], "clearcpuid=308,590,157,197,520");
    }

    proptest! {
        #[test]
        fn the_kernel_reads_all_of_the_list(leaks in prop::collection::btree_set(0_u16..704, 0..200)) {
            let leaks: Vec<u16> = leaks.into_iter().collect();
            for piece in hide(&leaks, true) {
                let Some(list) = piece.strip_prefix("clearcpuid=") else { continue };
                prop_assert!(list.len() <= LONGEST_LIST);
                let numbers: Vec<u16> = list.split(',').map(|number| number.parse().unwrap()).collect();
                prop_assert_eq!(&numbers[..5], &BYTEWISE_STRINGS[..]);
                prop_assert!(numbers[5..].iter().all(|number| leaks.contains(number)));
            }
        }
    }
}
