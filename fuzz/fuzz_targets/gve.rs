//! Register writes, admin commands, doorbells, descriptors and frames for a gVNIC, all from the fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nicvisor_gve::testing::exercise(data));
