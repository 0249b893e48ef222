//! The device as a driver sees it.

mod channel;
mod channel_faults;
mod control;
mod faults;
mod hostile;
mod legal;
mod physical;
mod queues;
mod receive;
mod receive_tunnels;
mod statistics;
mod steering;
mod transmit;
mod transmit_rules;

use nicvisor_core::{Device, Effects};

use crate::Config;
use crate::testing::{Driver, Setup};

/// The sender and the receiver of packets that `nicvisor_net::testing` makes.
const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 1];
const RECEIVER: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn config(mac: [u8; 6]) -> Config {
    Config { mac, mtu: 1500, ..Config::default() }
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
