//! Any bytes from a guest that only pretends to be the agent.
#![no_main]

use agent_protocol::Session;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut session = Session::new();
    let _ = session.receive(data);
    while session.next_event().is_some() {}
});
