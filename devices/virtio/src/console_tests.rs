use nicvisor_core::Device;
use proptest::prelude::*;

use super::*;
use crate::VirtioPci;
use crate::driver::Driver;

const INPUT: u16 = 4;
const OUTPUT: u16 = 5;

fn control(driver: &mut Driver<Console>, port: u32, event: u16, value: u16) {
    let message = Control { port, event, value }.to_bytes();
    driver.add(CONTROL_OUTPUT, Ok(&message));
    driver.kick(CONTROL_OUTPUT);
}

/// A guest whose agent has the port open.
fn open() -> Driver<Console> {
    let mut driver = Driver::ready(Console::for_agent());
    for _ in 0..8 {
        driver.add(CONTROL_INPUT, Err(64));
    }
    control(&mut driver, u32::MAX, event::DEVICE_READY, 1);
    control(&mut driver, 1, event::PORT_READY, 1);
    control(&mut driver, 1, event::PORT_OPEN, 1);
    driver
}

#[test]
fn linux_learns_of_the_port_and_its_name() {
    let mut driver = open();
    let expected = [
        [&1_u32.to_le_bytes()[..], &[1, 0, 1, 0]].concat(),
        [&1_u32.to_le_bytes()[..], &[7, 0, 1, 0], b"nicvisor.agent"].concat(),
        [&1_u32.to_le_bytes()[..], &[6, 0, 1, 0]].concat(),
    ];
    assert_eq!(driver.used(CONTROL_INPUT), expected);
    assert_eq!(driver.read32(crate::wire::DEVICE_CONFIG + 4), 2, "ports 0 and 1");
    let effects = driver.effects();
    assert!(effects.vectors.contains(&(CONTROL_INPUT + 1)));
}

#[test]
fn control_messages_wait_for_buffers() {
    let mut driver = Driver::ready(Console::for_agent());
    control(&mut driver, u32::MAX, event::DEVICE_READY, 1);
    assert!(driver.used(CONTROL_INPUT).is_empty());
    driver.add(CONTROL_INPUT, Err(64));
    driver.kick(CONTROL_INPUT);
    assert_eq!(driver.used(CONTROL_INPUT).len(), 1);
}

#[test]
fn what_the_guest_writes_reaches_the_host_in_order() {
    let mut driver = open();
    driver.effects();
    for part in [&b"hello "[..], b"world"] {
        driver.add(OUTPUT, Ok(part));
    }
    driver.kick(OUTPUT);
    let effects = driver.effects();
    let parts: Vec<_> = effects.host.iter().map(|message| (message.channel, &message.bytes[..])).collect();
    assert_eq!(parts, [(1, &b"hello "[..]), (1, b"world")]);
    assert_eq!(driver.used(OUTPUT).len(), 2);
    assert_eq!(effects.vectors, [OUTPUT + 1]);
}

#[test]
fn input_waits_until_the_port_is_open_and_buffers_are_there() {
    let mut driver = Driver::ready(Console::for_agent());
    driver.add(INPUT, Err(4));
    driver.kick(INPUT);
    driver.host_input(1, b"abcdefghij");
    assert!(driver.used(INPUT).is_empty(), "nobody would read it");
    control(&mut driver, 1, event::PORT_OPEN, 1);
    assert_eq!(driver.used(INPUT), [b"abcd"]);
    assert_eq!(driver.device.host_input_queued(1), 6);
    driver.add(INPUT, Err(4));
    driver.add(INPUT, Err(4));
    driver.kick(INPUT);
    assert_eq!(driver.used(INPUT), [&b"efgh"[..], b"ij"]);
    assert_eq!(driver.device.host_input_queued(1), 0);
    control(&mut driver, 1, event::PORT_OPEN, 0);
    driver.add(INPUT, Err(4));
    driver.host_input(1, b"x");
    assert!(driver.used(INPUT).is_empty(), "closed again");
}

#[test]
fn a_saved_state_comes_back() {
    let mut driver = open();
    driver.host_input(1, b"waiting");
    let state = driver.device.save();
    let mut other = VirtioPci::new(Console::for_agent());
    other.restore(&state).unwrap();
    assert_eq!(other.save(), state);
    driver.device = other;
    driver.add(INPUT, Err(64));
    driver.kick(INPUT);
    assert_eq!(driver.used(INPUT), [b"waiting"]);
    let mut different = VirtioPci::new(Console::new(vec![ConsolePort::new(1, "other")]));
    assert!(different.restore(&state).is_err());
}

#[test]
fn a_reset_by_the_driver_keeps_the_hosts_bytes() {
    let mut driver = open();
    driver.host_input(1, b"kept");
    driver.start();
    driver.add(INPUT, Err(64));
    control(&mut driver, 1, event::PORT_OPEN, 1);
    assert_eq!(driver.used(INPUT), [b"kept"]);
}

#[test]
fn too_long_a_write_stops_the_device() {
    let mut driver = open();
    driver.add(OUTPUT, Ok(b"x"));
    driver.corrupt(OUTPUT, 8, &(LARGEST_WRITE as u32 + 1).to_le_bytes());
    driver.kick(OUTPUT);
    assert_eq!(driver.status() & 0x40, 0x40);
}

proptest! {
    #[test]
    fn bytes_arrive_complete_and_in_order(
        writes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..20),
        rooms in prop::collection::vec(1_u32..200, 1..20),
    ) {
        let mut driver = open();
        let sent = writes.concat();
        let mut received = Vec::new();
        let mut rooms = rooms.iter().cycle();
        for write in &writes {
            driver.host_input(1, write);
            driver.add(INPUT, Err(*rooms.next().unwrap()));
            driver.kick(INPUT);
            received.extend(driver.used(INPUT).concat());
        }
        while driver.device.host_input_queued(1) > 0 {
            driver.add(INPUT, Err(*rooms.next().unwrap()));
            driver.kick(INPUT);
            received.extend(driver.used(INPUT).concat());
        }
        prop_assert_eq!(received, sent);
    }
}
