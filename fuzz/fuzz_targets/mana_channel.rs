//! Messages of MANA's hardware channel, each with its length in front.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nicvisor_mana::testing::exercise_channel(data));
