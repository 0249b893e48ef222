//! What the device does wrong on purpose.

use nicvisor_core::fault::FaultError;
use nicvisor_core::{Device, DeviceEvent, DropReason, Duration, EventKind, EventKinds, Fate};
use nicvisor_net::parse::IpVersion;
use nicvisor_net::testing::Packet;

use super::{config, open};
use crate::Config;
use crate::testing::{ALL_CAPABILITIES, Completed, Driver, Offload, PASSED, SCRATCH};
use crate::wire::admin::{Opcode, QueryFlowRules, ReportLinkSpeed, Status};

fn started(config: Config) -> Driver {
    let mut driver = Driver::new(config).unwrap();
    driver.start_admin();
    driver
}

fn open_with(fault: &str) -> Driver {
    let mut driver = open(config());
    driver.inject(fault).unwrap();
    driver
}

/// Sends `count` packets and returns what completed.
fn send(driver: &mut Driver, count: usize) -> Vec<Completed> {
    let frame = Packet::new(IpVersion::V4, 100).build();
    for _ in 0..count {
        driver.send(0, &frame, Offload::None, 1000);
    }
    driver.completed(0)
}

fn link_speed() -> ReportLinkSpeed {
    ReportLinkSpeed { link_speed_address: SCRATCH.into() }
}

#[test]
fn the_nth_use_of_a_command_fails() {
    let mut driver = Driver::new(config()).unwrap();
    let fault = r#"command = { name = "GVE_ADMINQ_CREATE_TX_QUEUE", uses = { nth = 2 }, fail = "ERROR_INTERNAL_ERROR" }"#;
    driver.inject(fault).unwrap();
    driver.open(1);
    assert_eq!(driver.create_tx(1, 256, 0), Status::InternalError as u32);
    assert_eq!(driver.create_tx(1, 256, 0), PASSED, "the failed one had no effect");
    assert_eq!(driver.harness.device.fault_status()[0].hit, 1);
}

#[test]
fn a_command_can_take_effect_and_yet_fail() {
    let mut driver = open(config());
    let fault = r#"command = { name = "GVE_ADMINQ_CREATE_TX_QUEUE", where = { queue_id = 5 }, uses = { nth = 1 }, fail = 0, take-effect = true }"#;
    driver.inject(fault).unwrap();
    assert_eq!(driver.create_tx(4, 256, 0), PASSED);
    assert_eq!(driver.create_tx(5, 256, 0), 0, "status unset");
    assert_eq!(driver.create_tx(5, 256, 0), Status::AlreadyExists as u32);
}

#[test]
fn a_command_is_answered_late_and_those_behind_it_wait() {
    let mut driver = started(config());
    driver
        .inject(r#"command = { name = "GVE_ADMINQ_REPORT_LINK_SPEED", uses = { nth = 1 }, delay = "50ms" }"#)
        .unwrap();
    let first = driver.issue(Opcode::ReportLinkSpeed as u32, &link_speed());
    let second = driver.issue(Opcode::ReportLinkSpeed as u32, &link_speed());
    driver.harness.pass(Duration::from_millis(49));
    assert_eq!((driver.register(0x18), driver.admin_status(first)), (0, 0));
    driver.harness.pass(Duration::from_millis(1));
    assert_eq!(driver.register(0x18), 2);
    assert_eq!([driver.admin_status(first), driver.admin_status(second)], [PASSED; 2]);
}

#[test]
fn a_command_that_is_delayed_for_ever_goes_on_when_faults_are_lifted() {
    let mut driver = started(config());
    driver.inject(r#"command = { name = "GVE_ADMINQ_REPORT_LINK_SPEED", delay = "forever" }"#).unwrap();
    let address = driver.issue(Opcode::ReportLinkSpeed as u32, &link_speed());
    assert_eq!(driver.harness.device.next_deadline(), None);
    driver.inject("lift = {}").unwrap();
    assert_eq!((driver.register(0x18), driver.admin_status(address)), (1, PASSED));
}

#[test]
fn a_command_is_lost_or_answered_twice() {
    let mut driver = started(config());
    driver
        .inject(r#"command = { name = "GVE_ADMINQ_REPORT_LINK_SPEED", uses = { nth = 1 }, drop = true }"#)
        .unwrap();
    let lost = driver.issue(Opcode::ReportLinkSpeed as u32, &link_speed());
    assert_eq!((driver.register(0x18), driver.admin_status(lost)), (0, 0));
    driver.issue(Opcode::ReportLinkSpeed as u32, &link_speed());
    assert_eq!(driver.register(0x18), 1);
    driver.inject(r#"command = { name = "GVE_ADMINQ_REPORT_LINK_SPEED", duplicate = 3 }"#).unwrap();
    driver.issue(Opcode::ReportLinkSpeed as u32, &link_speed());
    assert_eq!(driver.register(0x18), 5, "past the producer");
}

#[test]
fn fields_of_answers_are_rewritten() {
    let mut config = config();
    config.options.flow_rules = 16;
    let mut driver = started(config);
    driver.inject(r#"command = { name = "GVE_ADMINQ_QUERY_FLOW_RULES", where = { opcode = 0 }, rewrite = { num_queried_rules = { add = 7 } } }"#).unwrap();
    let query = |opcode: u16| QueryFlowRules {
        opcode: opcode.into(),
        padding: [0; 2],
        starting_rule_id: 0.into(),
        available_length: 4096.into(),
        rule_descriptor_addr: SCRATCH.into(),
    };
    let count = |driver: &Driver| u32::from_be_bytes(driver.harness.read(SCRATCH + 8));
    assert_eq!(driver.admin(Opcode::QueryFlowRules as u32, &query(0)), PASSED);
    assert_eq!(count(&driver), 7);
    assert_eq!(driver.admin(Opcode::QueryFlowRules as u32, &query(1)), PASSED);
    assert_eq!(count(&driver), 0);
}

#[test]
fn the_device_describes_itself_as_something_else() {
    let mut driver = started(config());
    driver.verify(ALL_CAPABILITIES);
    let honest = driver.describe();
    driver.inject(r#"override = { name = "device_descriptor.mtu", value = 60 }"#).unwrap();
    driver.inject(r#"override = { name = "rss_config.hash_lut_size", value = 0xffff }"#).unwrap();
    driver.inject(r#"command = { name = "GVE_ADMINQ_DESCRIBE_DEVICE", rewrite = { "jumbo_frames.option_length" = 4 } }"#).unwrap();
    let described = driver.describe();
    let changed: Vec<_> = (0..honest.len()).filter(|at| honest[*at] != described[*at]).collect();
    assert_eq!(described[16..18], [0, 60]);
    assert_eq!(described[described.len() - 2..], [0xff, 0xff]);
    // MTU, option length, table size.
    assert_eq!(changed.len(), 2 + 1 + 2, "{changed:?}");
}

#[test]
fn a_register_shows_something_else_for_a_while() {
    let mut driver = started(config());
    driver
        .inject(
            r#"override = { name = "register.adminq_event_counter", value = { add = -1 }, lasts = "1s" }"#,
        )
        .unwrap();
    driver.issue(Opcode::ReportLinkSpeed as u32, &link_speed());
    assert_eq!(driver.register(0x18), 0);
    assert_eq!(driver.register(0x0c), 16, "no other register");
    driver.harness.pass(Duration::from_secs(1));
    assert_eq!(driver.register(0x18), 1);
}

#[test]
fn the_release_of_the_admin_queue_is_never_acknowledged() {
    let mut driver = started(config());
    driver.inject(r#"override = { name = "register.adminq_pfn", value = 1 }"#).unwrap();
    assert!(!driver.release());
    let mut driver = started(Config { revision: 1, ..config() });
    driver.inject(r#"override = { name = "register.device_status", value = { xor = 0x10 } }"#).unwrap();
    assert!(!driver.release());
}

#[test]
fn completions_of_one_queue_are_withheld_and_resumed() {
    let mut driver = open_with(r#"completion = { queue = "tx 0", uses = { nth = 3 }, hold = "16s" }"#);
    assert_eq!(send(&mut driver, 5), [0, 1].map(Completed::Packet));
    driver.harness.pass(Duration::from_secs(15));
    assert!(driver.completed(0).is_empty());
    // The first unmasks what came before.
    driver.ring(driver.interrupts[0], 1);
    driver.ring(driver.interrupts[0], 1);
    driver.effects();
    driver.harness.pass(Duration::from_secs(1));
    assert_eq!(driver.completed(0), [2, 3, 4].map(Completed::Packet));
    assert_eq!(driver.effects().vectors, [0], "the driver is told");
}

#[test]
fn transmit_completions_lie() {
    let mut driver =
        open_with(r#"completion = { queue = "tx", uses = { nth = 1 }, rewrite = { type = "miss" } }"#);
    assert_eq!(send(&mut driver, 2), [Completed::Miss(0), Completed::Packet(1)]);
    let mut driver = open_with(
        r#"completion = { queue = "tx", uses = { nth = 1 }, insert = { completion_tag = 0x7ff0 } }"#,
    );
    assert_eq!(send(&mut driver, 1), [Completed::Packet(0), Completed::Packet(0x7ff0)]);
    let mut driver = open_with(
        r#"completion = { queue = "tx", uses = { nth = 2 }, rewrite = { generation = { xor = 1 } } }"#,
    );
    assert_eq!(send(&mut driver, 3), [Completed::Packet(0)], "the driver does not see the second");
    let mut driver = open_with(r#"completion = { queue = "tx", interrupt = "suppress" }"#);
    assert_eq!(send(&mut driver, 1), [Completed::Packet(0)]);
    assert!(driver.effects().vectors.is_empty());
    let mut driver = open_with(r#"completion = { queue = "tx", interrupt = { vector = 3 } }"#);
    send(&mut driver, 1);
    assert_eq!(driver.effects().vectors, [3]);
}

#[test]
fn a_completion_comes_for_no_packet() {
    let mut driver = open(config());
    let event =
        r#"event = { name = "tx-completion", arguments = { queue = 1, type = "reinjection", tag = 9 } }"#;
    driver.inject(event).unwrap();
    assert_eq!(driver.completed(1), [Completed::Reinjection(9)]);
    driver.close();
    assert!(matches!(driver.inject(event), Err(FaultError::NotNow(_))));
}

#[test]
fn received_frames_are_described_wrongly() {
    let mut driver =
        open_with(r#"completion = { queue = "rx", uses = { nth = 1 }, rewrite = { packet_len = 0 } }"#);
    let frame = Packet::new(IpVersion::V4, 100).build();
    driver.arrive(1, frame.clone());
    driver.arrive(2, frame.clone());
    let packets: Vec<_> = (0..2).flat_map(|queue| driver.received(queue)).collect();
    assert!(packets[0].bytes.is_empty());
    assert_eq!(packets[1].bytes, frame);
}

#[test]
fn frames_whose_completion_is_lost_or_withheld_are_accounted_for() {
    let mut driver = open_with(r#"completion = { queue = "rx", uses = { nth = 1 }, drop = true }"#);
    driver.inject(r#"completion = { queue = "rx", uses = { from = 2 }, hold = "forever" }"#).unwrap();
    let frame = Packet::new(IpVersion::V4, 100).build();
    (1..=3).for_each(|id| driver.arrive(id, frame.clone()));
    let fates: Vec<_> = driver.effects().fates.into_iter().map(|(_, fate)| fate).collect();
    assert_eq!(fates, [Fate::Dropped(DropReason::INJECTED)]);
    driver.harness.call(|device, context| device.reset(context));
    let fates: Vec<_> = driver.effects().fates.into_iter().map(|(_, fate)| fate).collect();
    assert_eq!(fates, [const { Fate::Dropped(DropReason::RESET) }; 2]);
    assert_eq!(driver.harness.device.fault_status().len(), 2, "faults outlive a reset");
}

#[test]
fn the_device_asks_for_attention() {
    let mut driver = open(config());
    driver.inject(r#"event = { name = "reset-request" }"#).unwrap();
    assert_eq!(driver.register(0) & 2, 2);
    assert_eq!(driver.effects().vectors, [4], "the management vector");
    driver.inject(r#"event = { name = "link", arguments = { up = false } }"#).unwrap();
    assert_eq!(driver.register(0) & 4, 0);
    driver.inject(r#"event = { name = "interrupt", arguments = { vector = 1 } }"#).unwrap();
    assert_eq!(driver.effects().vectors, [4, 1]);
}

#[test]
fn what_the_driver_does_can_be_observed() {
    let mut driver = Driver::new(config()).unwrap();
    driver.harness.bench.effects.wanted = EventKinds::ALL;
    driver.inject(r#"completion = { queue = "tx", drop = true, label = "lost" }"#).unwrap();
    driver.inject(r#"completion = { queue = "tx", interrupt = "suppress", label = "quiet" }"#).unwrap();
    driver.open(1);
    let events = driver.effects().events;
    let created = DeviceEvent::new(EventKind::QueueCreated, "rx 0").with("id", 0_u8);
    assert!(events.contains(&created));
    let commands = events.iter().filter(|event| event.kind == EventKind::Command);
    let names: Vec<_> = commands.map(|event| event.name.trim_start_matches("GVE_ADMINQ_")).collect();
    let expected = ["VERIFY_DRIVER_COMPATIBILITY", "DESCRIBE_DEVICE", "CONFIGURE_DEVICE_RESOURCES"];
    assert_eq!(names[..3], expected);
    assert_eq!(names[3..], ["CREATE_TX_QUEUE", "CREATE_RX_QUEUE"]);
    assert!(send(&mut driver, 1).is_empty());
    let events = driver.effects().events;
    let doorbell = DeviceEvent::new(EventKind::Doorbell, "tx 0").with("value", 2_u8);
    assert!(events.contains(&doorbell), "{events:?}");
    assert!(events.contains(&DeviceEvent::new(EventKind::Fault, "lost")));
}

#[test]
fn every_name_of_the_device_is_accepted() {
    let points = Driver::new(config()).unwrap().harness.device.fault_points();
    let mut driver = open(config());
    for command in &points.channels[0].commands {
        for field in &command.request {
            let fault = format!(
                r#"command = {{ name = "{}", where = {{ {} = 1 }}, uses = {{ nth = 1 }}, fail = 1 }}"#,
                command.name, field.name
            );
            driver.inject(&fault).unwrap();
        }
        for field in &command.answer {
            let fault =
                format!(r#"command = {{ name = "{}", rewrite = {{ "{}" = 1 }} }}"#, command.name, field.name);
            driver.inject(&fault).unwrap();
        }
    }
    for point in &points.overrides {
        driver.inject(&format!(r#"override = {{ name = "{}", value = 0 }}"#, point.value.name)).unwrap();
    }
    let message = driver.inject(r#"command = { name = "CREATE_TX_QUEUE" }"#).unwrap_err().to_string();
    assert!(message.contains("did you mean \"GVE_ADMINQ_CREATE_TX_QUEUE\"?"), "{message}");
}

#[test]
fn packets_take_the_miss_path_in_the_way_that_the_driver_knows() {
    for (capabilities, miss) in
        [(ALL_CAPABILITIES, Completed::Packet(1 | 1 << 15)), (0b1000, Completed::Miss(1))]
    {
        let config = Config { miss_interval: 2, reinjection_delay: 50, ..config() };
        let mut driver = Driver::new(config).unwrap();
        driver.start_admin();
        assert_eq!(driver.verify(capabilities), PASSED);
        assert_eq!(driver.configure_resources(2), PASSED);
        assert_eq!(driver.create_tx(0, 256, 0), PASSED);
        assert_eq!(send(&mut driver, 3), [Completed::Packet(0), miss, Completed::Packet(2)]);
        driver.harness.pass(Duration::from_micros(49));
        assert!(driver.completed(0).is_empty());
        driver.harness.pass(Duration::from_micros(1));
        assert_eq!(driver.completed(0), [Completed::Reinjection(1)]);
    }
}

#[test]
fn a_driver_that_does_not_take_the_device_back_is_found() {
    for revision in [0, 1] {
        let config = Config { previous_owner: true, revision, ..config() };
        let mut driver = Driver::new(config.clone()).unwrap();
        driver.start_admin();
        assert_eq!(super::broken(&driver.effects()), ["gve-admin-setup"]);
        let mut driver = Driver::new(config).unwrap();
        assert!(driver.release());
        driver.open(1);
        super::assert_clean(&driver.effects());
    }
}
