//! Entry points of fuzzing. Each takes bytes from the fuzzer, drives a device with them, and must neither panic
//! nor run long.

use nicvisor_core::Device;

use super::driver::Driver;
use super::send::Send;
use super::setup::Setup;
use crate::Config;
use crate::wire::doorbell::Doorbell;

/// Messages of the hardware channel: each piece of the input is one, with its length in front.
pub fn exercise_channel(input: &[u8]) {
    exercise(0, input);
}

/// Entries of a send queue: each piece of the input overwrites the start of a sound one.
pub fn exercise_send_ring(input: &[u8]) {
    exercise(1, input);
}

/// Entries of a receive queue, and frames that arrive for them.
pub fn exercise_receive_ring(input: &[u8]) {
    exercise(2, input);
}

/// Doorbells, and frames and packets in between.
pub fn exercise_doorbells(input: &[u8]) {
    exercise(3, input);
}

/// All of that, one after the other: pieces of input, each for the entry point of that number, and for the bus
/// resetting the device.
pub fn exercise_mixture<'a>(pieces: impl Iterator<Item = (u8, &'a [u8])>) {
    let Some(mut driver) = driver() else { return };
    for (kind, piece) in pieces {
        match kind {
            4 => driver.harness.call(|device, context| device.reset(context)),
            _ => perform(&mut driver, kind, piece),
        }
    }
    finish(&mut driver);
}

fn exercise(kind: u8, input: &[u8]) {
    let Some(mut driver) = driver() else { return };
    perform(&mut driver, kind, input);
    finish(&mut driver);
}

fn perform(driver: &mut Driver, kind: u8, input: &[u8]) {
    match kind {
        0 => messages(driver, input),
        1 => send_entries(driver, input),
        2 => receive_entries(driver, input),
        _ => doorbells(driver, input),
    }
}

fn messages(driver: &mut Driver, mut rest: &[u8]) {
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length) % MAX_MESSAGE).min(behind.len());
        let (message, behind) = behind.split_at(length);
        rest = behind;
        driver.channel.exchange(&mut driver.harness, message);
        driver.harness.effects();
    }
}

fn send_entries(driver: &mut Driver, input: &[u8]) {
    let (packet, entries) = input.split_at(input.len().min(PACKET));
    if packet.is_empty() {
        return;
    }
    for changes in entries.chunks(ENTRY) {
        let mut entry = driver.entry(0, 0, &Send::lso(packet, packet.len().min(54), 1000));
        for (byte, change) in entry.iter_mut().zip(changes) {
            *byte ^= change;
        }
        if driver.ports[0].send[0].work.room() < entry.len() as u32 {
            break;
        }
        driver.post_send(0, 0, &entry, true);
        driver.harness.effects();
    }
}

fn receive_entries(driver: &mut Driver, input: &[u8]) {
    let mac = driver.ports[0].mac;
    for (id, chunk) in (1..).zip(input.chunks(ENTRY)) {
        let receive = &mut driver.ports[0].receive[0].work;
        receive.tail = receive.head();
        let mut entry = chunk.to_vec();
        entry.resize(ENTRY, 0);
        receive.push(&driver.harness.bench.dma(), &entry);
        let doorbell = receive.doorbell();
        driver.ring(doorbell);
        let frame = [&mac[..], chunk, chunk].concat();
        driver.harness.arrive(0, id, frame);
        driver.harness.effects();
    }
}

fn doorbells(driver: &mut Driver, input: &[u8]) {
    let mac = driver.ports[0].mac;
    for (id, step) in (1..).zip(input.as_chunks::<STEP>().0) {
        let [kind, page, low, high, value @ ..] = *step;
        let offset = u64::from(u16::from_le_bytes([low, high])) % 0x1000;
        let value = u64::from_le_bytes(value);
        let doorbells = super::rings_of(driver);
        match kind % 8 {
            0..=3 => {
                let (offset, old) = doorbells[usize::from(low) % doorbells.len()].encode();
                ring(driver, page % 4, offset, old ^ value & 0xff00_ffff_0000_0000);
            }
            4 => ring(driver, page, offset, value),
            5 => driver.harness.arrive(0, id, [&mac[..], &[high; 80]].concat()),
            6 => driver.harness.advance(std::time::Duration::from_nanos(offset)),
            _ => {
                let doorbell = Doorbell::Moderation {
                    id: u32::from(low),
                    microseconds: Some(9),
                    completions: Some(high),
                };
                driver.ring(doorbell);
            }
        }
        driver.harness.effects();
    }
}

fn ring(driver: &mut Driver, page: u8, offset: u64, value: u64) {
    let base = u64::from_le_bytes(driver.harness.read_bar(0, crate::wire::registers::DB_PAGE_OFFSET));
    let offset = base + u64::from(page) * crate::wire::registers::DOORBELL_PAGE + offset;
    driver.harness.write_bar(0, offset, &value.to_le_bytes());
}

fn driver() -> Option<Driver> {
    let mut driver = Driver::new(Config::default()).ok()?;
    driver.open(Setup { queues: 1, ..Setup::default() });
    driver.harness.effects();
    Some(driver)
}

/// A device takes back its own state, and can be reset in any.
fn finish(driver: &mut Driver) {
    let state = driver.harness.device.save();
    assert!(driver.harness.device.restore(&state).is_ok(), "a device takes back its own state");
    driver.harness.call(|device, context| device.reset(context));
}

/// Bytes of the longest message.
const MAX_MESSAGE: u16 = 4096;
/// Bytes of a packet.
const PACKET: usize = 200;
/// Bytes of an entry.
const ENTRY: usize = 64;
/// Bytes of a step.
const STEP: usize = 12;
