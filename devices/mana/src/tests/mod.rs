//! The device as a driver sees it.

mod channel;
mod channel_faults;
mod faults;
mod hostile;
mod indices;
mod legal;
mod lifecycle;
mod objects;
mod physical;
mod profiles;
mod queues;
mod receive;
mod receive_tunnels;
mod requests;
mod statistics;
mod steering;
mod transmit;
mod transmit_rules;
mod vports;

use nicvisor_core::{Device, Effects};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use crate::Config;
use crate::testing::{Driver, Response, Setup};
use crate::wire::RequestType;
use crate::wire::gdma_requests::{CreateDmaRegion, Handle};
use crate::wire::mana_requests::QueryDeviceConfig;
use crate::wire::shared_memory::Establish;

/// The sender and the receiver of packets that `nicvisor_net::testing` makes.
const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 1];
const RECEIVER: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// The parameters of a request that has none.
const NOTHING: [u8; 0] = [];
/// Where the shared memory is in BAR0.
const SHARED_MEMORY: u64 = 0x1000;
/// A channel that is established by hand.
const ESTABLISH: Establish = Establish {
    event_queue: 0x1000,
    completion_queue: 0x2000,
    receive_queue: 0x3000,
    send_queue: 0x4000,
    vector: 0,
};

fn config(mac: [u8; 6]) -> Config {
    Config { mac, mtu: 1500, ..Config::default() }
}

/// Asks for the device's configuration, as the driver of protocol 0.1.1 does.
fn device_question() -> QueryDeviceConfig {
    QueryDeviceConfig {
        mn_drv_cap_flags: [0.into(); 4],
        proto_major_ver: 0.into(),
        proto_minor_ver: 1.into(),
        proto_micro_ver: 1.into(),
        reserved: 0.into(),
    }
}

/// A device with one open vPort whose address is `mac`.
fn open_with(config: Config, setup: Setup) -> Driver {
    let mut driver = Driver::new(config).unwrap();
    driver.open(setup);
    assert_clean(&driver.effects());
    driver
}

fn open(mac: [u8; 6]) -> Driver {
    open_with(config(mac), Setup::default())
}

/// A driver that said who it is and registered the Ethernet device.
fn started(config: Config) -> Driver {
    let mut driver = Driver::new(config).unwrap();
    driver.register();
    driver
}

fn handle(handle: u64) -> Handle {
    Handle { handle: handle.into() }
}

/// Asks for a region over these pages.
fn region(driver: &mut Driver, length: u64, pages: &[u64]) -> Response {
    let create = CreateDmaRegion {
        length: length.into(),
        offset_in_page: 0.into(),
        gdma_page_type: 0.into(),
        page_count: (length.div_ceil(4096) as u32).into(),
        page_addr_list_len: (pages.len() as u32).into(),
    };
    let pages: Vec<U64> = pages.iter().map(|page| U64::new(*page)).collect();
    let body = [create.as_bytes(), pages.as_bytes()].concat();
    driver.request(RequestType::CreateDmaRegion, 1, &body[..])
}

fn assert_clean(effects: &Effects) {
    assert_eq!(effects.findings, []);
}

/// Ids of the rules that were broken.
fn broken(effects: &Effects) -> Vec<&str> {
    effects.findings.iter().map(|finding| finding.rule.as_ref()).collect()
}

fn counter(driver: &Driver, name: &str) -> u64 {
    let counters = driver.harness.device.counters();
    counters.iter().find(|(counter, _)| counter == name).unwrap_or_else(|| panic!("{name}")).1
}
