//! Doorbells of MANA, with frames and time in between.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nicvisor_mana::testing::exercise_doorbells(data));
