use nicvisor_core::PowerEvent;
use nicvisor_core::testing::Bench;
use proptest::prelude::*;

use super::*;

fn out(bench: &mut Bench, platform: &mut Platform, port: u16, data: &[u8]) -> bool {
    bench.call(|context| platform.port_write(context, port, data))
}

#[test]
fn ports_lead_to_their_devices() {
    let mut bench = Bench::default();
    let mut platform = Platform::new(PlatformConfig::default());
    assert!(out(&mut bench, &mut platform, 0x3f8, b"x"));
    assert_eq!(bench.take_effects().host[0].bytes, b"x");
    assert!(out(&mut bench, &mut platform, 0xcf9, &[6]));
    assert_eq!(bench.take_effects().power, Some(PowerEvent::Reset));
    assert!(out(&mut bench, &mut platform, 0xf4, &[0, 0, 0, 0]));
    assert_eq!(bench.take_effects().power, Some(PowerEvent::DebugExit(1)));
    assert!(out(&mut bench, &mut platform, 0x80, &[0]));
    assert!(!out(&mut bench, &mut platform, 0x1234, &[0]));
    assert!(!out(&mut bench, &mut platform, 0xcf8, &[0; 4]), "that is PCI's");
    let mut data = [0xff];
    assert!(!bench.call(|context| platform.port_read(context, 0x1234, &mut data)));
    assert_eq!(data, [0xff]);
}

#[test]
fn the_test_device_is_optional_and_drives_lines() {
    let mut bench = Bench::default();
    let mut platform = Platform::new(PlatformConfig { test_device: false, ..PlatformConfig::default() });
    assert!(!out(&mut bench, &mut platform, 0x200e, &[1]));
    let mut platform = Platform::new(PlatformConfig::default());
    let write = |bench: &mut Bench, platform: &mut Platform, address, value: u32| {
        bench.call(|context| platform.memory_write(context, 0, address, &value.to_le_bytes()))
    };
    write(&mut bench, &mut platform, 0xfee0_00f0, 0x1ff);
    write(&mut bench, &mut platform, 0xfec0_0000, 0x10 + 2 * 14);
    write(&mut bench, &mut platform, 0xfec0_0010, 0x81);
    assert!(out(&mut bench, &mut platform, 0x200e, &[1]));
    assert_eq!(platform.interrupts.acknowledge(0), Some(0x81));
    assert!(bench.take_effects().is_empty(), "the line was routed");
    assert!(write(&mut bench, &mut platform, 0xff00_0010, 7));
    assert!(!write(&mut bench, &mut platform, 0xff01_0000, 7));
}

#[test]
fn deadlines_of_all_devices_are_kept() {
    let mut bench = Bench::default();
    let mut platform = Platform::new(PlatformConfig::default());
    assert_eq!(platform.next_deadline(), None);
    for (port, value) in [(0x43, 0x34), (0x40, 0), (0x40, 0x10)] {
        out(&mut bench, &mut platform, port, &[value]);
    }
    for (port, value) in [(0x20, 0x11), (0x21, 0x30), (0x21, 4), (0x21, 1), (0x21, 0xfe)] {
        out(&mut bench, &mut platform, port, &[value]);
    }
    platform.interrupts.set_virtual_wire();
    bench.now = platform.next_deadline().unwrap();
    bench.call(|context| platform.deadline(context));
    assert!(platform.interrupts.interrupt_pending(0));
    assert!(platform.next_deadline().unwrap() > bench.now);
}

#[test]
fn a_saved_state_comes_back_and_reset_forgets_all_but_the_clock() {
    let mut bench = Bench::default();
    let config = PlatformConfig { cpus: 2, ..PlatformConfig::default() };
    let mut platform = Platform::new(config.clone());
    let fresh = serde_json::to_value(&platform).unwrap();
    for (port, value) in [(0x43, 0x34), (0x40, 0), (0x40, 0x10), (0x3ff, 0x5a), (0x92, 2), (0xe0, 7)] {
        out(&mut bench, &mut platform, port, &[value]);
    }
    let state = serde_json::to_value(&platform).unwrap();
    assert_ne!(state, fresh);
    let other: Platform = serde_json::from_value(state.clone()).unwrap();
    assert_eq!(serde_json::to_value(&other).unwrap(), state);
    bench.call(|context| platform.reset(context));
    assert_eq!(serde_json::to_value(&platform).unwrap(), fresh);
}

proptest! {
    #[test]
    fn no_port_access_panics(
        accesses in prop::collection::vec((0_u16..0x700, any::<bool>(), prop::collection::vec(any::<u8>(), 1..9), 0_u64..1_000_000_000), 0..150),
    ) {
        let mut bench = Bench::default();
        let mut platform = Platform::new(PlatformConfig::default());
        for (port, is_write, mut data, pause) in accesses {
            bench.advance(nicvisor_core::Duration::from_nanos(pause));
            bench.call(|context| {
                if is_write {
                    platform.port_write(context, port, &data);
                } else {
                    platform.port_read(context, port, &mut data);
                }
                platform.deadline(context);
            });
        }
    }
}
