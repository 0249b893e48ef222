//! Where received frames go: what is refused, and what is left when it changes.

use nicvisor_core::{Device, DropReason, Fate};
use nicvisor_net::parse::IpVersion;
use nicvisor_net::testing::Packet;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use super::{RECEIVER, assert_clean, broken, config, open_with};
use crate::Config;
use crate::testing::{Channel, Driver, Setup};
use crate::vport::Coalescing;
use crate::wire::mana_requests::{ConfigRxSteering, HASH_KEY_SIZE};
use crate::wire::{RequestType, Status};

/// A request that changes nothing.
pub(super) fn unchanged(driver: &Driver) -> ConfigRxSteering {
    ConfigRxSteering {
        vport: driver.ports[0].handle.into(),
        num_indir_entries: 0.into(),
        indir_tab_offset: (40 + size_of::<ConfigRxSteering>() as u16).into(),
        rx_enable: u32::MAX.into(),
        rss_enable: u32::MAX.into(),
        update_default_rxobj: 0,
        update_hashkey: 0,
        update_indir_tab: 0,
        reserved: 0,
        default_rxobj: 0.into(),
        hashkey: [0; HASH_KEY_SIZE],
        cqe_coalescing_enable: 0,
        reserved2: [0; 3],
        rss_hash_types: 0x3f.into(),
        cqe8_coalescing_enable: 0,
        reserved3: 0,
    }
}

fn ask(driver: &mut Driver, asked: &ConfigRxSteering, table: &[u64]) -> u32 {
    let table: Vec<U64> = table.iter().map(|handle| U64::new(*handle)).collect();
    let body = [asked.as_bytes(), table.as_bytes()].concat();
    driver.request(RequestType::ConfigVportRx, 5, &body[..]).status
}

#[test]
fn tables_name_receive_queues_of_the_same_vport() {
    let mut driver = Driver::new(Config { ports: 2, ..config(RECEIVER) }).unwrap();
    (0..2).for_each(|_| driver.open(Setup::default()));
    let own = driver.ports[0].receive[0].object;
    let foreign = driver.ports[1].receive[0].object;
    let send = driver.ports[0].send[0].object;
    for (table, rule) in [
        (&[own, own, own][..], "mana-steering"),
        (&[], "mana-steering"),
        (&[own, send], "mana-steering"),
        (&[foreign, own], "mana-steering"),
        (&[own, 0x00de_ad00], "mana-object-unknown"),
    ] {
        let entries = (table.len() as u16).into();
        let asked =
            ConfigRxSteering { num_indir_entries: entries, update_indir_tab: 1, ..unchanged(&driver) };
        assert_ne!(ask(&mut driver, &asked, table), 0);
        assert_eq!(broken(&driver.effects()), [rule], "{table:x?}");
    }
    let asked =
        ConfigRxSteering { update_default_rxobj: 1, default_rxobj: send.into(), ..unchanged(&driver) };
    assert_eq!(ask(&mut driver, &asked, &[]), Status::InvalidParameter as u32);
    assert_eq!(broken(&driver.effects()), ["mana-steering"]);
}

#[test]
fn receiving_needs_a_default_queue_and_hashing_a_table() {
    let mut driver = open_with(config(RECEIVER), Setup::default());
    let steering = driver.harness.device.state.vports[0].steering.clone();
    let asked = ConfigRxSteering { rx_enable: 1.into(), rss_enable: 1.into(), ..unchanged(&driver) };
    assert_eq!(ask(&mut driver, &asked, &[]), 0, "all is as it was");
    driver.harness.device.state.vports[0].steering.hash.table.clear();
    assert_ne!(ask(&mut driver, &asked, &[]), 0);
    driver.harness.device.state.vports[0].steering = steering;
    driver.harness.device.state.vports[0].steering.default_queue = None;
    assert_ne!(ask(&mut driver, &asked, &[]), 0);
    assert_eq!(broken(&driver.effects()), ["mana-steering"; 2]);
}

/// A vPort with one receive queue of 128 buffers, for which 130 frames arrived.
fn overrun() -> Driver {
    let mut driver = open_with(config(RECEIVER), Setup { queues: 1, ..Setup::default() });
    for id in 1..=130 {
        driver.harness.arrive(0, id, Packet::new(IpVersion::V4, 100).build());
    }
    assert_eq!(driver.effects().fates.len(), 128);
    driver
}

#[test]
fn a_fence_waits_for_the_frames_before_it() {
    let mut driver = overrun();
    driver.fence(0, 0);
    assert_eq!(driver.received(0, 0).len(), 128);
    assert_eq!(driver.ports[0].receive[0].fences, 0, "two frames are before it");
    driver.post(0, 0);
    assert_eq!(driver.received(0, 0).len(), 2);
    assert_eq!(driver.ports[0].receive[0].fences, 1);
    assert_clean(&driver.effects());
}

#[test]
fn nothing_arrives_after_receiving_was_switched_off() {
    let mut driver = overrun();
    driver.steer(0, false, Coalescing::Off);
    let fates: Vec<_> = driver.effects().fates.into_iter().map(|(_, fate)| fate).collect();
    assert_eq!(fates, [Fate::Dropped(DropReason::NOT_READY), Fate::Dropped(DropReason::NOT_READY)]);
    driver.fence(0, 0);
    assert_eq!(driver.received(0, 0).len(), 128);
    assert_eq!(driver.ports[0].receive[0].fences, 1);
    driver.post(0, 0);
    assert_eq!(driver.received(0, 0), []);
    assert_clean(&driver.effects());
}

#[test]
fn a_fence_is_passed_when_the_frames_before_it_are_dropped() {
    let mut driver = overrun();
    (0..20).for_each(|_| driver.fence(0, 0));
    driver.steer(0, false, Coalescing::Off);
    driver.received(0, 0);
    assert_eq!(driver.ports[0].receive[0].fences, 8, "no more than these stand in line");
}

#[test]
fn a_receive_queue_is_fenced_between_its_last_frame_and_its_end() {
    let unfenced = &["mana-rx-fence"][..];
    for (acts, expected) in
        [("", &[][..]), ("f", &[]), ("a", unfenced), ("af", &[]), ("afa", unfenced), ("afaf", &[])]
    {
        let mut driver = open_with(config(RECEIVER), Setup { queues: 1, ..Setup::default() });
        for (id, act) in (1..).zip(acts.chars()) {
            match act {
                'a' => driver.harness.arrive(0, id, Packet::new(IpVersion::V4, 100).build()),
                _ => driver.fence(0, 0),
            }
        }
        driver.steer(0, false, Coalescing::Off);
        let object = driver.ports[0].receive[0].object;
        driver.destroy_queue(false, object);
        assert_eq!(broken(&driver.effects()), expected, "{acts}");
    }
}

#[test]
fn a_reset_asks_for_no_fence() {
    let mut driver = open_with(config(RECEIVER), Setup { queues: 1, ..Setup::default() });
    driver.harness.arrive(0, 1, Packet::new(IpVersion::V4, 100).build());
    driver.harness.call(|device, context| device.reset(context));
    driver.channel = Channel::establish(&mut driver.harness);
    driver.ports.clear();
    driver.open(Setup { queues: 1, ..Setup::default() });
    driver.close();
    assert_clean(&driver.effects());
}
