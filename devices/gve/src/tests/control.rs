//! Registers, admin queue, resets.

use nicvisor_core::Device;
use nicvisor_core::Severity;

use super::{assert_clean, broken, config, counter, open};
use crate::Config;
use crate::config::Options;
use crate::testing::Driver;
use crate::testing::{ALL_CAPABILITIES, PASSED, SCRATCH};
use crate::wire::admin::{
    ConfigureFlowRule, ConfigureRss, ExtendedCommand, FlowRule, FlowSpec, GetPtypeMap, Id, Opcode, QueryRss,
    ReportStats, Status,
};

/// Ids of the options in a device description.
fn options(description: &[u8]) -> Vec<u16> {
    let word = |at: usize| u16::from_be_bytes([description[at], description[at + 1]]);
    let mut ids = Vec::new();
    let mut at = 40;
    while at < description.len() {
        ids.push(word(at));
        at += 8 + usize::from(word(at + 2));
    }
    assert_eq!(ids.len(), usize::from(word(30)), "num_device_options");
    ids
}

fn started(config: Config) -> Driver {
    let mut driver = Driver::new(config).unwrap();
    driver.start_admin();
    driver
}

#[test]
fn both_revisions_start_and_give_the_device_back() {
    for revision in [0, 1] {
        let mut driver = Driver::new(Config { revision, ..config() }).unwrap();
        for _ in 0..2 {
            driver.open(2);
            driver.close();
            assert!(driver.release());
            assert_eq!(driver.register(0x18), 0, "the event counter starts anew");
        }
        assert_clean(&driver.effects());
        assert_eq!(driver.register(0x00) & 4, 4, "link up");
    }
}

#[test]
fn the_device_describes_itself_to_a_driver_of_linux_6_12() {
    let mut driver = started(Config { mtu: 8896, ..config() });
    assert_eq!((driver.register(0x08), driver.register(0x0c)), (16, 16));
    driver.verify(ALL_CAPABILITIES);
    let description = driver.describe();
    assert_eq!(description[24..30], config().mac);
    assert_eq!(u16::from_be_bytes([description[16], description[17]]), 4082, "MTU within a page");
    // DQO-RDA, ring sizes, jumbo frames, buffer sizes, RSS.
    assert_eq!(options(&description), [4, 6, 8, 0xa, 0xe]);
    assert_eq!(u32::from_be_bytes(description[48..52].try_into().unwrap()), 1 | 4 | 0x10 | 0x80);
    assert_clean(&driver.effects());
}

#[test]
fn a_driver_is_offered_what_it_can_use() {
    // Linux 6.1 announces nothing, and has no flexible buffer sizes.
    let mut driver = started(config());
    let description = driver.describe();
    assert_eq!(options(&description), [4, 6, 8, 0xe]);
    // It takes the sizes of its TX completion and RX buffer rings from the first option.
    assert_eq!(description[52..56], [4, 0, 4, 0]);
    assert_clean(&driver.effects());

    assert_eq!(driver.verify(0b0011), Status::FailedPrecondition as u32, "GQI only");
    assert_eq!(broken(&driver.effects()), ["gve-driver-format"]);
    assert!(!options(&driver.describe()).contains(&4));
}

#[test]
fn commands_out_of_order_are_refused_with_a_finding() {
    let mut driver = started(config());
    let none = Id { id: 0.into() };
    let cases: [(u32, Status, &str); 4] = [
        (Opcode::DeconfigureDeviceResources as u32, Status::FailedPrecondition, "gve-admin-order"),
        (Opcode::DestroyTxQueue as u32, Status::NotFound, "gve-admin-object"),
        (Opcode::UnregisterPageList as u32, Status::NotFound, "gve-admin-object"),
        (0x77, Status::Unimplemented, "gve-admin-opcode"),
    ];
    for (opcode, status, rule) in cases {
        assert_eq!(driver.admin(opcode, &none), status as u32);
        assert_eq!(broken(&driver.effects()), [rule]);
    }
    assert_eq!(driver.create_tx(0, 256, 0), Status::FailedPrecondition as u32);
    assert_eq!(
        driver.configure_resources(33),
        Status::InvalidArgument as u32,
        "all vectors, none for management"
    );
    driver.effects();

    assert_eq!(driver.configure_resources(4), PASSED);
    assert_eq!(driver.configure_resources(4), Status::AlreadyExists as u32);
    for (id, size, block, status) in [
        (0, 128, 0, Status::InvalidArgument),
        (0, 300, 0, Status::InvalidArgument),
        (0, 8192, 0, Status::InvalidArgument),
        (0, 256, 4, Status::InvalidArgument),
        (16, 256, 0, Status::InvalidArgument),
        (0, 256, 0, Status::Passed),
        (0, 256, 0, Status::AlreadyExists),
    ] {
        assert_eq!(driver.create_tx(id, size, block), status as u32, "{id} {size} {block}");
    }
    driver.effects();
    let status = driver.admin(Opcode::DeconfigureDeviceResources as u32, &[0_u8; 0]);
    assert_eq!(status, Status::FailedPrecondition as u32);
    assert_eq!(broken(&driver.effects()), ["gve-admin-leftover"]);
    assert_eq!(counter(&driver, "admin_failures"), 14);
}

#[test]
fn a_reset_with_queues_in_place_is_worth_a_note() {
    let mut driver = open(config());
    assert!(driver.release());
    let effects = driver.effects();
    assert_eq!(broken(&effects), ["gve-reset-leftover"]);
    assert_eq!(effects.findings[0].severity, Severity::Note);
}

#[test]
fn rss_is_what_the_driver_set() {
    let mut driver = open(config());
    let query = QueryRss { available_length: 4096.into(), rss_descriptor_addr: SCRATCH.into() };
    assert_eq!(driver.admin(Opcode::QueryRss as u32, &query), PASSED);
    let table: [u8; 8] = driver.harness.read(SCRATCH + 8 + 40);
    assert_eq!(table, [0, 0, 0, 0, 0, 0, 0, 1], "queues in turn");

    let mut answer = vec![7_u8; 40];
    answer.extend([0, 0, 0, 1].repeat(128));
    driver.harness.bench.dma().write(SCRATCH, &answer).unwrap();
    let command = rss_in_scratch();
    assert_eq!(driver.admin(Opcode::ConfigureRss as u32, &command), PASSED);
    assert_eq!(driver.admin(Opcode::QueryRss as u32, &query), PASSED);
    let mut found = vec![0; answer.len()];
    driver.harness.bench.dma().read(SCRATCH + 8, &mut found).unwrap();
    assert_eq!(found, answer);

    let wrong = ConfigureRss { hash_key_size: 39.into(), ..command };
    assert_eq!(driver.admin(Opcode::ConfigureRss as u32, &wrong), Status::InvalidArgument as u32);
}

#[test]
fn rss_can_be_set_where_it_cannot_be_asked_for() {
    let options = Options { rss_config: false, ..Options::default() };
    let mut driver = open(Config { options, ..config() });
    let query = QueryRss { available_length: 4096.into(), rss_descriptor_addr: SCRATCH.into() };
    assert_eq!(driver.admin(Opcode::QueryRss as u32, &query), Status::Unimplemented as u32);
    driver.harness.bench.dma().write(SCRATCH + 40, &[0, 0, 0, 1].repeat(128)).unwrap();
    assert_eq!(driver.admin(Opcode::ConfigureRss as u32, &rss_in_scratch()), PASSED);
    assert_eq!(driver.harness.device.state.rss.queue(5), Some(1));
}

/// A key and a table that are there.
fn rss_in_scratch() -> ConfigureRss {
    ConfigureRss {
        hash_types: 0x12.into(),
        hash_alg: 1,
        reserved: 0,
        hash_key_size: 40.into(),
        hash_lut_size: 128.into(),
        hash_key_addr: SCRATCH.into(),
        hash_lut_addr: (SCRATCH + 40).into(),
    }
}

#[test]
fn flow_rules_are_offered_only_when_configured() {
    let spec = FlowSpec {
        src_ip: [0; 16],
        dst_ip: [0; 16],
        src_port: 0.into(),
        dst_port: 0.into(),
        tos: 0,
        padding: [0; 3],
    };
    let inner = ConfigureFlowRule {
        opcode: 0.into(),
        padding: [0; 2],
        rule: FlowRule { flow_type: 0.into(), action: 1.into(), key: spec, mask: spec },
        location: 3.into(),
    };
    let command = ExtendedCommand {
        inner_opcode: 0x101.into(),
        inner_length: 92.into(),
        inner_command_addr: SCRATCH.into(),
    };
    for (flow_rules, statuses) in [
        (0, [Status::Unimplemented, Status::Unimplemented]),
        (8, [Status::Passed, Status::AlreadyExists]),
        (3, [Status::OutOfRange, Status::OutOfRange]),
    ] {
        let mut config = config();
        config.options.flow_rules = flow_rules;
        let mut driver = open(config);
        driver.harness.bench.dma().write_object(SCRATCH, &inner).unwrap();
        for status in statuses {
            assert_eq!(driver.admin(Opcode::Extended as u32, &command), status as u32);
        }
        assert_clean(&driver.effects());
    }
}

#[test]
fn packet_types_have_a_map() {
    let mut driver = open(config());
    let command = GetPtypeMap { ptype_map_len: 2048.into(), ptype_map_addr: SCRATCH.into() };
    assert_eq!(driver.admin(Opcode::GetPtypeMap as u32, &command), PASSED);
    let map: [u8; 64] = driver.harness.read(SCRATCH);
    assert_eq!(map[2 * (3 * 8 + 2)..][..2], [3, 2], "IPv6, TCP");
    assert_eq!(map[..2], [0, 0], "unknown");
}

#[test]
fn statistics_are_written_in_time_at_the_end_of_the_report() {
    let mut driver = open(config());
    let length = 8 + 16 * 100;
    let report = ReportStats {
        stats_report_len: length.into(),
        stats_report_addr: SCRATCH.into(),
        interval: 20_000.into(),
    };
    assert_eq!(driver.admin(Opcode::ReportStats as u32, &report), PASSED);
    let due = driver.harness.device.next_deadline().unwrap();
    assert_eq!(due.as_nanos(), 20_000_000_000);
    driver.harness.bench.now = due;
    driver.harness.bench.call(|context| driver.harness.device.deadline(context));
    let first: [u8; 16] = driver.harness.read(SCRATCH + length - 2 * 4 * 16);
    assert_eq!(first[..8], [0, 0, 0, 65, 0, 0, 0, 0], "drops of queue 0");
    let before: [u8; 16] = driver.harness.read(SCRATCH + length - 2 * 4 * 16 - 16);
    assert_eq!(before, [0; 16], "the driver's part");
    assert!(driver.harness.device.next_deadline().unwrap() > due);
}

#[test]
fn the_link_goes_down_with_a_management_interrupt() {
    let mut driver = open(config());
    driver.harness.bench.call(|context| driver.harness.device.set_link(context, 0, false));
    assert_eq!(driver.register(0x00) & 4, 0);
    assert_eq!(driver.effects().vectors, [4], "behind four notification blocks");
}

#[test]
fn doorbells_that_were_not_handed_out_are_found() {
    let mut driver = open(config());
    for index in [4, 512 + 2, 768 + 2] {
        driver.ring(index, 0);
        assert_eq!(broken(&driver.effects()), ["gve-doorbell"], "{index}");
    }
    let (tx, rx) = (driver.tx[0].doorbell, driver.rx[0].doorbell);
    driver.ring(tx, 256);
    driver.ring(rx, 512);
    assert_eq!(broken(&driver.effects()), ["gve-tx-doorbell", "gve-rx-doorbell"]);
}

#[test]
fn a_saved_device_goes_on_where_it_was() {
    let mut driver = open(config());
    driver.arrive(1, nicvisor_net::testing::Packet::new(nicvisor_net::parse::IpVersion::V6, 100).build());
    let state = driver.harness.device.save();
    let mut other = crate::Gve::new(config()).unwrap();
    other.restore(&state).unwrap();
    assert_eq!(other.save(), state);
    let mut broken = state.clone();
    broken["tx"][0]["head"] = 256.into();
    assert!(other.restore(&broken).is_err());
    assert_eq!(other.save(), state, "unchanged");
}
