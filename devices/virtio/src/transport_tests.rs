use nicvisor_core::pci::Function;
use nicvisor_core::testing::Bench;
use proptest::prelude::*;

use super::*;
use crate::Console;
use crate::driver::{AVAILABLE, Driver, USED};

#[test]
fn configuration_space_describes_the_structures() {
    let function = Function::new(Box::new(VirtioPci::new(Console::for_agent()))).unwrap();
    let read = |offset: u16, length: usize| {
        let mut data = [0; 4];
        function.config_read(offset, &mut data[..length]);
        u32::from_le_bytes(data)
    };
    assert_eq!(read(0, 4), 0x1043_1af4);
    assert_eq!(read(8, 4), 0x0780_0001);
    let mut kinds = Vec::new();
    let mut capability = read(0x34, 1) as u16;
    while capability != 0 {
        if read(capability, 1) == 9 {
            kinds.push((read(capability + 3, 1), read(capability + 4, 1), read(capability + 8, 4)));
            let length = read(capability + 2, 1);
            assert_eq!(length, if kinds.len() == 2 { 20 } else { 16 });
        }
        capability = read(capability + 1, 1) as u16;
    }
    assert_eq!(kinds, [(1, 4, 0), (2, 4, 0x3000), (3, 4, 0x1000), (4, 4, 0x2000)]);
}

#[test]
fn features_must_be_ours_and_include_version_one() {
    for (features, accepted) in [(1_u64 << 32 | 2, true), (2, false), (1 << 32 | 1 << 63, false)] {
        let mut driver = Driver::idle(Console::for_agent());
        for select in 0..2_u32 {
            driver.write(common::DRIVER_FEATURE_SELECT, &select.to_le_bytes());
            driver.write(common::DRIVER_FEATURE, &half(features, select).to_le_bytes());
        }
        driver.write(common::STATUS, &[3 | status::FEATURES_OK]);
        assert_eq!(driver.status() & status::FEATURES_OK != 0, accepted, "{features:#x}");
    }
}

#[test]
fn vectors_that_do_not_exist_read_back_as_none() {
    let mut driver = Driver::idle(Console::for_agent());
    driver.write(common::CONFIG_VECTOR, &7_u16.to_le_bytes());
    assert_eq!(driver.read32(common::CONFIG_VECTOR) as u16, wire::NO_VECTOR);
    driver.write(common::QUEUE_VECTOR, &6_u16.to_le_bytes());
    assert_eq!(driver.read32(common::QUEUE_VECTOR) as u16, 6);
}

#[test]
fn an_enabled_queue_does_not_move() {
    let mut driver = Driver::ready(Console::for_agent());
    driver.write(common::QUEUE_SELECT, &0_u16.to_le_bytes());
    let before = driver.read32(common::QUEUE_DESCRIPTORS);
    driver.write(common::QUEUE_DESCRIPTORS, &0x7000_u32.to_le_bytes());
    driver.write(common::QUEUE_DESCRIPTORS, &0x7000_u64.to_le_bytes());
    assert_eq!(driver.read32(common::QUEUE_DESCRIPTORS), before);
    driver.write(common::STATUS, &[0]);
    assert_eq!(driver.status(), 0);
    driver.write(common::QUEUE_SELECT, &0_u16.to_le_bytes());
    driver.write(common::QUEUE_DESCRIPTORS, &0x1_0000_7000_u64.to_le_bytes());
    assert_eq!(driver.read32(common::QUEUE_DESCRIPTORS), 0x7000);
    assert_eq!(driver.read32(common::QUEUE_DESCRIPTORS + 4), 1);
}

#[test]
fn the_interrupt_status_is_cleared_by_reading() {
    let mut driver = Driver::ready(Console::for_agent());
    driver.add(1, Ok(b"lost: there is no port 0"));
    driver.kick(1);
    assert_eq!(driver.read32(wire::INTERRUPT_STATUS), 1);
    assert_eq!(driver.read32(wire::INTERRUPT_STATUS), 0);
}

#[test]
fn the_driver_can_ask_not_to_be_interrupted() {
    let mut driver = Driver::ready(Console::for_agent());
    for (flags, interrupts) in [(1_u16, 0), (0, 1)] {
        driver.corrupt(5, AVAILABLE, &flags.to_le_bytes());
        driver.add(5, Ok(b"x"));
        driver.kick(5);
        assert_eq!(driver.effects().vectors.len(), interrupts);
    }
}

#[test]
fn a_broken_ring_stops_the_device_until_reset() {
    let mut driver = Driver::ready(Console::for_agent());
    driver.corrupt(5, AVAILABLE + 2, &1000_u16.to_le_bytes());
    driver.kick(5);
    assert_eq!(driver.status() & status::NEEDS_RESET, status::NEEDS_RESET);
    assert_eq!(driver.effects().vectors, [0], "configuration change");
    driver.start();
    driver.add(5, Ok(b"again"));
    driver.kick(5);
    assert_eq!(driver.effects().host[0].bytes, b"again");
}

/// Registers worth writing to: all fields, weighted towards those that matter.
fn access() -> impl Strategy<Value = (u64, Vec<u8>)> {
    let offset = prop_oneof![
        4 => 0_u64..0x40,
        1 => 0x1000_u64..0x1008,
        1 => 0x2000_u64..0x2010,
        2 => (0_u64..8).prop_map(|queue| 0x3000 + queue * 4),
    ];
    let small = (0_u64..16).prop_map(|value| value.to_le_bytes().to_vec());
    let address = (0_u64..0x1_0000).prop_map(|page| (page << 8).to_le_bytes().to_vec());
    let data = prop_oneof![prop::collection::vec(any::<u8>(), 8), small, address];
    (offset, data, 0_u32..4).prop_map(|(offset, mut data, width)| {
        data.truncate(1 << width);
        (offset, data)
    })
}

proptest! {
    #[test]
    fn no_register_sequence_panics(accesses in prop::collection::vec(access(), 0..200)) {
        let mut bench = Bench::default();
        let mut device = VirtioPci::new(Console::for_agent());
        for (offset, mut data) in accesses {
            bench.call(|context| {
                device.write_bar(context, wire::REGISTER_BAR, offset, &data);
                device.read_bar(context, wire::REGISTER_BAR, offset, &mut data);
            });
        }
        let mut other = VirtioPci::new(Console::for_agent());
        other.restore(&device.save()).unwrap();
        prop_assert_eq!(other.save(), device.save());
    }

    #[test]
    fn no_ring_content_panics(
        rings in prop::collection::vec(any::<u8>(), 0x200),
        places in prop::collection::vec((0_u16..6, prop::sample::select(vec![0, AVAILABLE, USED]), 0_usize..0x1c0), 1..40),
        kicks in prop::collection::vec(0_u16..6, 1..40),
    ) {
        let mut driver = Driver::ready(Console::for_agent());
        driver.host_input(1, &[0x5a; 1000]);
        for (queue, place, start) in places {
            driver.corrupt(queue, place, &rings[start..start + 0x40]);
        }
        for queue in kicks {
            driver.kick(queue);
        }
    }
}
