//! Entries of a receive queue of MANA, and frames that arrive for them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nicvisor_mana::testing::exercise_receive_ring(data));
