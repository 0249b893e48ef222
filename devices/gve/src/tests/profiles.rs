//! Devices of different age: what they offer, and to whom.

use nicvisor_core::{KernelVersion, Profile};
use nicvisor_net::parse::IpVersion;
use nicvisor_net::testing::Packet;
use proptest::prelude::*;

use super::{RECEIVER, assert_clean, broken, config};
use crate::config::RingSizes;
use crate::features::Feature;
use crate::testing::{ALL_CAPABILITIES, Completed, Driver, Offload, PASSED, SCRATCH};
use crate::wire::admin::{ExtendedCommand, Opcode, QueryFlowRules, QueryRss, Status};
use crate::{Config, QueueFormat};

/// What a device offers by an option.
const OPTIONAL: [Feature; 6] = [
    Feature::AlternativeMiss,
    Feature::DqoQpl,
    Feature::BufferSizes,
    Feature::ModifyRing,
    Feature::FlowSteering,
    Feature::RssConfig,
];

/// A device with everything on, whose default ring sizes are those that the driver uses.
fn everything() -> Config {
    let mut config = config();
    config.tx_ring = RingSizes { default: 256, min: 256, max: 4096 };
    config.rx_ring = RingSizes { default: 512, min: 512, max: 4096 };
    config.options.flow_rules = 8;
    config
}

/// The device for `feature` with a driver of `release` that has not gone on from saying who it is.
fn driver(feature: Feature, profile: Profile, release: &str) -> Driver {
    let mut config = Config { profile, miss_interval: 1, ..everything() };
    if feature == Feature::DqoQpl {
        config.format = QueueFormat::DqoQpl;
    }
    let mut driver = Driver::new(config).unwrap();
    release.clone_into(&mut driver.kernel);
    driver.start_admin();
    driver.verify(ALL_CAPABILITIES);
    driver
}

/// Whether the driver can tell that the device has `feature`.
fn shows(feature: Feature, driver: &mut Driver) -> bool {
    let offered = offered(driver);
    match feature {
        Feature::DqoQpl => offered.contains(&7),
        Feature::BufferSizes => offered.contains(&0xa),
        Feature::ModifyRing => offered.contains(&6),
        Feature::FlowSteering => {
            let query = QueryFlowRules {
                opcode: 2.into(),
                padding: [0; 2],
                starting_rule_id: 0.into(),
                available_length: 4096.into(),
                rule_descriptor_addr: SCRATCH.into(),
            };
            let inner = ExtendedCommand {
                inner_opcode: 0x101.into(),
                inner_length: 92.into(),
                inner_command_addr: SCRATCH.into(),
            };
            let known = knows(driver, Opcode::QueryFlowRules, &query);
            assert_eq!(known, knows(driver, Opcode::Extended, &inner));
            assert_eq!(known, offered.contains(&0xb));
            known
        }
        Feature::RssConfig => {
            let query = QueryRss { available_length: 4096.into(), rss_descriptor_addr: SCRATCH.into() };
            let known = knows(driver, Opcode::QueryRss, &query);
            assert_eq!(known, offered.contains(&0xe));
            known
        }
        Feature::AlternativeMiss => {
            assert_eq!(driver.configure_resources(2), PASSED);
            assert_eq!(driver.create_tx(0, 256, 0), PASSED);
            driver.send(0, &Packet::new(IpVersion::V4, 100).build(), Offload::None, 4096);
            matches!(driver.completed(0)[..], [Completed::Packet(_)])
        }
        Feature::DriverInformation | Feature::Revision1 => panic!("no option"),
    }
}

fn knows(
    driver: &mut Driver,
    opcode: Opcode,
    command: &(impl zerocopy::IntoBytes + zerocopy::Immutable),
) -> bool {
    driver.admin(opcode as u32, command) != Status::Unimplemented as u32
}

/// The ids of the options that the device describes itself with.
fn offered(driver: &mut Driver) -> Vec<u16> {
    let description = driver.describe();
    let mut rest = &description[40..];
    let mut ids = Vec::new();
    while let [a, b, c, d, ..] = *rest {
        ids.push(u16::from_be_bytes([a, b]));
        rest = &rest[8 + usize::from(u16::from_be_bytes([c, d]))..];
    }
    ids
}

/// The release before a feature's, and the feature's own.
fn releases(feature: Feature) -> [KernelVersion; 2] {
    let since = feature.since().release();
    [KernelVersion::new(since.major, since.minor - 1), since]
}

#[test]
fn each_option_is_there_from_its_release_on() {
    for feature in OPTIONAL {
        for (release, expected) in releases(feature).into_iter().zip([false, true]) {
            let name = format!("{release}.45+deb12-cloud-amd64");
            let mut driver_is_old = driver(feature, Profile::Announced, &name);
            assert_eq!(shows(feature, &mut driver_is_old), expected, "{feature:?} for {release}");
            if feature == Feature::DqoQpl {
                continue;
            }
            let mut device_is_old = driver(feature, Profile::Linux(release), "7.3.0");
            assert_eq!(shows(feature, &mut device_is_old), expected, "{feature:?} of {release}");
        }
        let mut unlimited = driver(feature, Profile::Current, "6.1.0");
        assert!(shows(feature, &mut unlimited), "{feature:?}");
    }
}

#[test]
fn an_old_device_knows_no_driver_information() {
    for (release, status) in [((6, 1), Status::Unimplemented), ((6, 2), Status::Passed)] {
        let profile = Profile::Linux(KernelVersion::new(release.0, release.1));
        let mut driver = Driver::new(Config { profile, ..everything() }).unwrap();
        driver.start_admin();
        assert_eq!(driver.verify(ALL_CAPABILITIES), status as u32);
        assert_clean(&driver.effects());
    }
}

#[test]
fn a_driver_that_says_nothing_gets_the_oldest_device() {
    for config in [Config { profile: Profile::Announced, ..everything() }, everything()] {
        let mut driver = Driver::new(config.clone()).unwrap();
        driver.start_admin();
        let expected = if config.profile == Profile::Announced { &[4, 8][..] } else { &[4, 6, 8, 0xb, 0xe] };
        assert_eq!(offered(&mut driver), expected);
    }
}

#[test]
fn a_text_that_is_no_release_tells_none() {
    let mut driver = driver(Feature::RssConfig, Profile::Announced, "built yesterday");
    assert!(!shows(Feature::RssConfig, &mut driver));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_legal_breaks_a_rule_whatever_the_age(
        age in proptest::option::of((6..8_u32, 1..20_u32)), announced: bool, minor in 0..30_u32,
        payloads in proptest::collection::vec(1..9000_usize, 1..20),
    ) {
        let profile = match age {
            Some((major, minor)) => Profile::Linux(KernelVersion { major, minor }),
            None if announced => Profile::Announced,
            None => Profile::Current,
        };
        let mut driver = Driver::new(Config { profile, mac: RECEIVER, miss_interval: 3, ..everything() }).unwrap();
        driver.kernel = format!("6.{minor}.0");
        driver.open(2);
        for (id, payload) in (1..).zip(payloads) {
            let packet = Packet::new(IpVersion::V6, payload);
            driver.arrive(id, Packet::new(IpVersion::V4, payload % 1400).build());
            let mut frame = packet.build();
            nicvisor_net::testing::seed(&mut frame, true);
            let offload = Offload::Tso { header_len: packet.header_len(), mss: 1000 };
            driver.send(0, &frame, offload, 4096);
            driver.completed(0);
            driver.received(0);
        }
        driver.close();
        prop_assert!(driver.release());
        let effects = driver.effects();
        prop_assert_eq!(broken(&effects), Vec::<&str>::new());
    }
}
