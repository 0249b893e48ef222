//! Entries of a send queue of MANA: a packet, then what is changed about sound entries.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nicvisor_mana::testing::exercise_send_ring(data));
