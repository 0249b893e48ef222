//! A driver for tests, benches and fuzz targets: sets the device up as Linux does, sends, receives, and checks
//! what every driver relies on (generation bits, buffer ids).

mod driver;
mod rings;

pub use driver::{ALL_CAPABILITIES, Driver, Offload, PASSED, SCRATCH};
pub use rings::{Completed, Received, RxRing, TxRing};

use nicvisor_core::testing::Bench;
use nicvisor_core::{Device, Frame, FrameId, PciDevice};

use crate::{Config, Gve};

/// Throws `input` at a device: register and doorbell writes, frames, time, link changes and whatever the device
/// makes of memory filled with `input`. The entry point of fuzzing: must neither panic nor run long.
pub fn exercise(input: &[u8]) {
    let Ok(mut device) = Gve::new(Config::default()) else { return };
    let mut bench = Bench::with_memory(1 << 20);
    fill_memory(&bench, input);
    for (index, step) in input.chunks(STEP).enumerate() {
        let mut padded = [0; STEP];
        padded[..step.len()].copy_from_slice(step);
        run_step(&mut device, &mut bench, index as u64, padded);
        bench.take_effects();
    }
    let state = device.save();
    assert!(device.restore(&state).is_ok(), "a device takes back its own state");
}

fn run_step(device: &mut Gve, bench: &mut Bench, index: u64, step: [u8; STEP]) {
    let [kind, width, low, high, value @ ..] = step;
    let offset = u64::from(u16::from_le_bytes([low, high]));
    let data = &value[..[1, 2, 4, 8][usize::from(width) % 4].min(value.len())];
    match kind % 10 {
        0..=3 => bench.call(|context| device.write_bar(context, 0, offset % 0x40, data)),
        4 | 5 => {
            bench.call(|context| device.write_bar(context, 2, offset % crate::doorbells::BAR_SIZE, data))
        }
        6 => {
            let mut data = [0xff; 8];
            bench.call(|context| device.read_bar(context, 0, offset % 4088, &mut data));
        }
        7 => {
            let mut bytes = vec![0xff; 6];
            bytes.extend(value.iter().cycle().take(usize::from(low) * 8));
            let frame = Frame { id: FrameId(index + 1), bytes };
            bench.call(|context| device.receive(context, 0, frame));
        }
        8 => {
            bench.advance(std::time::Duration::from_micros(offset));
            bench.call(|context| device.deadline(context));
        }
        _ => bench.call(|context| device.set_link(context, 0, low & 1 != 0)),
    }
}

/// The input all over memory, so that whatever the device reads is the input's choice.
fn fill_memory(bench: &Bench, input: &[u8]) {
    if input.is_empty() {
        return;
    }
    let page: Vec<u8> = input.iter().copied().cycle().take(4096).collect();
    for address in (0..1_u64 << 20).step_by(4096) {
        let written = bench.dma().write(address, &page);
        assert!(written.is_ok(), "test memory");
    }
}

/// Bytes of a step.
const STEP: usize = 12;
