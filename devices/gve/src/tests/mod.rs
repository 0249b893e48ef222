//! The device as a driver sees it.

mod control;
mod faults;
mod gqi;
mod hostile;
mod indices;
mod profiles;
mod receive;
mod transmit;

use nicvisor_core::Effects;

use crate::Config;
use crate::testing::Driver;

/// The receiver of packets that `nicvisor_net::testing` makes.
const RECEIVER: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn config() -> Config {
    Config { mac: RECEIVER, mtu: 1500, ..Config::default() }
}

fn open(config: Config) -> Driver {
    let mut driver = Driver::new(config).unwrap();
    driver.open(2);
    assert_clean(&driver.effects());
    driver
}

fn assert_clean(effects: &Effects) {
    assert_eq!(effects.findings, []);
}

/// Ids of the rules that were broken.
fn broken(effects: &Effects) -> Vec<&str> {
    effects.findings.iter().map(|finding| finding.rule.as_ref()).collect()
}

fn counter(driver: &Driver, name: &str) -> u64 {
    use nicvisor_core::Device;
    let counters = driver.harness.device.counters();
    counters.iter().find(|(counter, _)| counter == name).unwrap_or_else(|| panic!("{name}")).1
}
