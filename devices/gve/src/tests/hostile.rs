//! Guests that do not play by the rules.

use nicvisor_core::{Device, PciDevice};
use proptest::prelude::*;

use super::config;
use crate::testing::{Driver, exercise};
use crate::wire::admin::Opcode;

/// What a hostile driver does to a device that is open.
#[derive(Clone, Debug)]
enum Act {
    Admin(u32, Vec<u8>),
    Register(u64, u32),
    Doorbell(u32, u32),
    Descriptors(bool, Vec<[u8; 16]>),
    Arrive(Vec<u8>),
    Time(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let bytes = |most| proptest::collection::vec(any::<u8>(), 0..most);
    let address = prop_oneof![Just(0), Just(u64::MAX - 3), 0..40_u64 << 20, any::<u64>()];
    let parameters = (proptest::collection::vec(address, 0..7), bytes(56)).prop_map(|(words, mut bytes)| {
        for (at, word) in words.iter().enumerate() {
            bytes.splice((at * 8).min(bytes.len()).., word.to_be_bytes());
        }
        bytes.truncate(56);
        bytes
    });
    let descriptor = (any::<[u8; 16]>(), prop_oneof![Just(0xc_u8), Just(0x2c), Just(5), Just(0x25), Just(4)])
        .prop_map(|(mut raw, kind)| {
            raw[8] = raw[8] & 0xc0 | kind;
            raw[3..8].fill(0);
            raw
        });
    prop_oneof![
        (prop_oneof![1..0x14_u32, Just(0xff)], parameters)
            .prop_map(|(opcode, bytes)| Act::Admin(opcode, bytes)),
        (0..12_u64, any::<u32>()).prop_map(|(index, value)| Act::Register(index * 4, value)),
        (0..1024_u32, prop_oneof![0..600_u32, any::<u32>()])
            .prop_map(|(index, value)| Act::Doorbell(index, value)),
        (any::<bool>(), proptest::collection::vec(descriptor, 0..40))
            .prop_map(|(rx, raw)| Act::Descriptors(rx, raw)),
        bytes(1600).prop_map(Act::Arrive),
        (0..1_000_000_u64).prop_map(Act::Time),
    ]
}

fn perform(driver: &mut Driver, act: Act, id: u64) {
    match act {
        Act::Admin(opcode, bytes) => {
            if driver.register(0x10) != 0 {
                // Resets in between move the counter: the command is lost then, and that is fine.
                let address = (31 << 20) + u64::from(driver.register(0x18) % 64) * 64;
                let mut command = vec![0; 64];
                command[..4].copy_from_slice(&opcode.to_be_bytes());
                command[8..8 + bytes.len()].copy_from_slice(&bytes);
                driver.harness.bench.dma().write(address, &command).unwrap();
                let next = driver.register(0x18).wrapping_add(1);
                driver.set_register(0x14, next);
            }
        }
        Act::Register(offset, value) => driver.set_register(offset, value),
        Act::Doorbell(index, value) => driver.ring(index, value),
        Act::Descriptors(rx, raw) => {
            let Some(ring) = driver.tx.first() else { return };
            let address = if rx { driver.rx[0].ring() } else { ring.ring() };
            driver.harness.bench.dma().write(address, raw.as_flattened()).unwrap();
            let (tx, rx, count) = (ring.doorbell, driver.rx[0].doorbell, raw.len() as u32);
            driver.ring(tx, count);
            driver.ring(rx, count);
        }
        Act::Arrive(mut bytes) => {
            if let Some(destination) = bytes.get_mut(..6) {
                destination.copy_from_slice(&config().mac);
            }
            driver.arrive(id, bytes);
        }
        Act::Time(microseconds) => {
            driver.harness.bench.advance(std::time::Duration::from_micros(microseconds));
            driver.harness.bench.call(|context| driver.harness.device.deadline(context));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn nothing_a_driver_does_to_an_open_device_breaks_it(
        acts in proptest::collection::vec(act(), 1..60),
        moved in proptest::collection::vec((0..5_usize, any::<bool>(), any::<u16>()), 0..3),
    ) {
        let mut driver = Driver::new(config()).unwrap();
        driver.open(2);
        for (index, add, value) in moved {
            let value = if add { format!("{{ add = {value} }}") } else { value.to_string() };
            driver.inject(&format!(r#"override = {{ name = "{}", value = {value} }}"#, INDICES[index])).unwrap();
        }
        let mut arrived = 0_u64;
        let mut settled = 0;
        for act in acts {
            arrived += u64::from(matches!(act, Act::Arrive(_)));
            perform(&mut driver, act, arrived);
            settled += driver.effects().fates.len() as u64;
        }
        let state = driver.harness.device.save();
        driver.harness.device.restore(&state).unwrap();
        driver.harness.bench.call(|context| driver.harness.device.reset(context));
        settled += driver.effects().fates.len() as u64;
        prop_assert_eq!(settled, arrived, "every frame has one fate");
    }

    #[test]
    fn no_input_breaks_a_device_at_power_on(input in proptest::collection::vec(any::<u8>(), 0..600)) {
        exercise(&input);
    }
}

#[test]
fn a_full_ring_of_unfinished_packet_stops_the_queue() {
    let mut driver = super::open(config());
    let dma = driver.harness.bench.dma();
    let piece = crate::wire::tx::PacketDescriptor { buf_size: 100, ..Default::default() };
    (0..255).for_each(|_| driver.tx[0].push(&dma, &piece.encode()));
    let doorbell = driver.tx[0].doorbell;
    driver.ring(doorbell, 100);
    driver.ring(doorbell, 255);
    assert_eq!(super::broken(&driver.effects()), ["gve-tx-unfinished", "gve-tx-unfinished"]);
    driver.ring(doorbell, 200);
    assert!(driver.effects().is_empty(), "halted");
}

#[test]
fn commands_without_bus_mastering_change_nothing() {
    let mut driver = super::open(config());
    let before = driver.harness.device.save();
    let mut effects = nicvisor_core::Effects::default();
    let memory = driver.harness.bench.memory.clone();
    let mut context = nicvisor_core::Context::new(driver.harness.bench.now, &memory, false, &mut effects);
    let count = driver.register(0x18) + 1;
    driver.harness.device.write_bar(&mut context, 0, 0x14, &count.to_be_bytes());
    assert_eq!(super::broken(&effects), ["gve-admin-memory"]);
    assert_eq!(driver.harness.device.save(), before);
    assert!(Opcode::from_number(0).is_none());
}

const INDICES: [&str; 5] =
    ["tx.tail", "tx 0.complq_tail", "rx.bufq_tail", "rx.complq_tail", "adminq_prod_cnt"];
