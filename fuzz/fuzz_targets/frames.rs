//! Any bytes as a frame: finding its headers, judging it, cutting it up.
#![no_main]

use nicvisor_net::{check, parse, tso};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = parse::parse(data);
    let _ = check::check_wire(data, 1500);
    if let Ok(segments) = tso::segment(data, &tso::LsoRequest::tcp(54, 1448)) {
        segments.for_each(drop);
    }
});
