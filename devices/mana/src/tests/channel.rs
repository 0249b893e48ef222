//! The hardware channel itself: what a driver must not do to it, and what faults do.

use nicvisor_core::fault::Fault;
use nicvisor_core::testing::Harness;
use nicvisor_core::{Device, Duration};
use serde_json::{Value, json};
use zerocopy::IntoBytes;

use super::{ESTABLISH, NOTHING, SENDER, SHARED_MEMORY, broken, config, open, started};
use crate::Mana;
use crate::config::FunctionKind;
use crate::testing::{Driver, header_of, write_establish};
use crate::wire::RequestType;
use crate::wire::gdma_requests::RequestHeader;
use crate::wire::hwc::{EVENT_INIT_DATA, EVENT_RNIC_QP_FATAL, type_data};
use crate::wire::shared_memory::{DESTROY, Header, request};

/// Where the header of the shared memory is in BAR0.
const HEADER: u64 = SHARED_MEMORY + 28;

fn inject(harness: &mut Harness<Mana>, fault: Value) {
    let fault: Fault = serde_json::from_value(fault).unwrap();
    harness.call(|device, context| device.inject(context, &fault)).unwrap();
}

#[test]
fn requests_name_the_queues_that_they_belong_to() {
    let mut driver = started(config(SENDER));
    driver.harness.device.config.function = FunctionKind::Pf2;
    assert_eq!(driver.request(RequestType::QueryMaxResources, 1, &NOTHING).status, 0);
    assert_eq!(broken(&driver.effects()), ["mana-hwc-oob"], "the other side's queues are missing");
}

#[test]
fn a_response_needs_a_buffer() {
    let mut driver = started(config(SENDER));
    driver.effects();
    // The channel's receive queue is number 1.
    driver.harness.call(|device, context| {
        assert!(device.state.queues.works.get_mut(&1).unwrap().next(context).is_some());
    });
    let message = header_of(RequestType::QueryMaxResources as u32, 40);
    assert_eq!(driver.channel.exchange(&mut driver.harness, message.as_bytes()), None);
    assert_eq!(broken(&driver.effects()), ["mana-hwc-receive"]);
}

#[test]
fn a_response_needs_a_buffer_that_it_fits_into() {
    let mut driver = started(config(SENDER));
    driver.effects();
    // The buffer for the next response is posted after this one.
    driver.channel.response_room = 200;
    assert_eq!(driver.request(RequestType::QueryMaxResources, 1, &NOTHING).status, 0);
    let mut message = header_of(RequestType::QueryMaxResources as u32, 40);
    for (length, expected) in [(200, &[][..]), (201, &["mana-hwc-receive"])] {
        message.resp.msg_size = length.into();
        let response = driver.channel.exchange(&mut driver.harness, message.as_bytes());
        assert_eq!(response.is_some(), expected.is_empty());
        assert_eq!(broken(&driver.effects()), expected);
    }
}

#[test]
fn the_headers_of_a_request_agree() {
    let sound = header_of(RequestType::QueryMaxResources as u32, 40);
    let with = |change: &dyn Fn(&mut RequestHeader)| {
        let mut header = sound;
        change(&mut header);
        header
    };
    let wrong = [
        with(&|header| header.req.msg_size = 41.into()),
        with(&|header| header.req.hdr_type = 1.into()),
        with(&|header| header.resp.hdr_type = 1.into()),
        with(&|header| header.resp.msg_type = 3.into()),
        with(&|header| header.req.msg_version = 0.into()),
        with(&|header| header.resp.msg_version = 0.into()),
        with(&|header| header.req.hwc_msg_id = 1.into()),
    ];
    let mut driver = started(config(SENDER));
    for header in wrong {
        driver.channel.exchange(&mut driver.harness, header.as_bytes()).unwrap();
        assert_eq!(broken(&driver.effects()), ["mana-hwc-message"], "{header:?}");
    }
    driver.channel.exchange(&mut driver.harness, sound.as_bytes()).unwrap();
    assert_eq!(broken(&driver.effects()), Vec::<&str>::new());
}

#[test]
fn the_shared_memory_belongs_to_one_side_at_a_time() {
    let mut driver = Driver::new(config(SENDER)).unwrap();
    let silence = json!({ "event": { "name": "fpga-reconfig", "arguments": { "silence_ms": 100 } } });
    inject(&mut driver.harness, silence);
    let word = request(DESTROY, true).to_le_bytes();
    driver.harness.write_bar(0, HEADER, &word);
    assert_eq!(broken(&driver.effects()), Vec::<&str>::new());
    driver.harness.write_bar(0, HEADER, &word);
    assert_eq!(broken(&driver.effects()), ["mana-shm-ownership"]);
    driver.harness.advance(Duration::from_millis(100));
    driver.harness.write_bar(0, HEADER, &word);
    assert_eq!(broken(&driver.effects()), ["mana-hwc-setup"], "the driver owns it again");
}

/// Establishes the channel by hand. The answer's header and the words of the events.
fn establish(harness: &mut Harness<Mana>) -> (Header, Vec<(u8, u32)>) {
    write_establish(harness, SHARED_MEMORY, &ESTABLISH, false);
    let events = (0..16_u64).map(|index| {
        let raw: [u8; 16] = harness.read(0x1000 + 16 * index);
        (raw[12], u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]))
    });
    let events = events.collect();
    (Header::decode(u32::from_le_bytes(harness.read_bar(0, HEADER))), events)
}

#[test]
fn what_the_channel_says_of_itself_can_be_a_lie() {
    let device = Mana::new(config(SENDER)).unwrap();
    let mut harness = Harness::new(device, 1 << 20, 0x8000..0x8_0000);
    for (name, value) in [("init.max_num_cqs", 0), ("init.queue_depth", 0xffff), ("smc.status", 7)] {
        inject(&mut harness, json!({ "override": { "name": name, "value": value } }));
    }
    let (header, events) = establish(&mut harness);
    assert_eq!((header.response, header.status), (true, 7));
    assert!(events.contains(&(EVENT_INIT_DATA, type_data(7, 0))), "{events:?}");
    assert!(events.contains(&(EVENT_INIT_DATA, type_data(4, 0xffff))), "{events:?}");
}

#[test]
fn any_event_can_come_on_any_event_queue() {
    let mut driver = open(SENDER);
    let id = driver.ports[0].events[1].id;
    let arguments = json!({ "queue": id, "type": "RNIC_QP_FATAL", "details": 5 });
    inject(&mut driver.harness, json!({ "event": { "name": "eqe", "arguments": arguments } }));
    assert_eq!(driver.events(0, 1), [EVENT_RNIC_QP_FATAL]);
    assert!(driver.events(0, 0).is_empty());
}
