use proptest::prelude::*;

use super::super::probe::Probe;
use super::*;
use crate::testing::Bench;

const WINDOWS: Windows = Windows { low: 0xc000_0000..0xe000_0000, high: 0x80_0000_0000..0x100_0000_0000 };

fn slot(device: u8, function: u8) -> Slot {
    Slot { device, function }
}

fn bus() -> Root {
    let mut root = Root::new();
    for place in [slot(1, 0), slot(2, 0), slot(2, 5)] {
        root.insert(place, Probe::function()).unwrap();
    }
    root.assign_bars(&WINDOWS).unwrap();
    root
}

fn ecam(device: u64, function: u64, register: u64) -> u64 {
    device << 15 | function << 12 | register
}

fn read(root: &mut Root, offset: u64) -> u32 {
    let mut data = [0xff; 4];
    root.ecam_read(offset, &mut data);
    u32::from_le_bytes(data)
}

#[test]
fn slots_that_cannot_be_found_are_refused() {
    let mut root = bus();
    for place in [slot(0, 0), slot(1, 0), slot(3, 1), slot(32, 0), slot(2, 8)] {
        root.insert(place, Probe::function()).unwrap_err();
    }
    root.insert(slot(0, 3), Probe::function()).unwrap();
    assert_eq!(root.free_slot(), Some(slot(3, 0)));
}

#[test]
fn ecam_finds_what_is_there() {
    let mut root = bus();
    assert_eq!(read(&mut root, ecam(0, 0, 0)), 0x0008_1b36);
    assert_eq!(read(&mut root, ecam(2, 5, 0)), 0x0042_1ae0);
    assert_eq!(read(&mut root, ecam(3, 0, 0)), u32::MAX);
    assert_eq!(read(&mut root, 1 << 20), u32::MAX, "no other bus");
    assert_eq!(read(&mut root, ecam(1, 0, 0xffe)), u32::MAX, "not across functions");
    assert_eq!(read(&mut root, ecam(1, 0, 0xc)) >> 16 & 0x80, 0);
    assert_eq!(read(&mut root, ecam(2, 0, 0xc)) >> 16 & 0x80, 0x80, "more than one function");
}

#[test]
fn the_ports_find_the_same() {
    let mut bench = Bench::default();
    let mut root = bus();
    let mut data = [0xff; 2];
    root.port_read(0xcfc, &mut data);
    assert_eq!(data, [0xff; 2], "not enabled");
    let address = 0x8000_0000_u32 | 2 << 11 | 5 << 8;
    bench.call(|context| root.port_write(context, 0xcf8, &address.to_le_bytes()));
    root.port_read(0xcfe, &mut data);
    assert_eq!(data, [0x42, 0]);
    let mut back = [0; 4];
    root.port_read(0xcf8, &mut back);
    assert_eq!(u32::from_le_bytes(back), address);
    bench.call(|context| root.port_write(context, 0xcf8, &(address + 4).to_le_bytes()));
    assert_eq!(bench.call(|context| root.port_write(context, 0xcfc, &[6, 0])), Some(slot(2, 5)));
    assert_eq!(read(&mut root, ecam(2, 5, 4)) & 0xff, 6);
    let mut crossing = [0xff; 4];
    root.port_read(0xcfe, &mut crossing);
    assert_eq!(crossing, [0xff; 4]);
}

#[test]
fn routes_follow_the_bars() {
    let mut bench = Bench::default();
    let mut root = bus();
    assert_eq!(root.route(0x80_0000_0000, 4), None, "decoding is off");
    for device in [1, 2] {
        bench.call(|context| root.ecam_write(context, ecam(device, 0, 4), &[2]));
    }
    let place = |device, bar, offset| Some(Place { slot: slot(device, 0), bar, offset });
    assert_eq!(root.route(0x80_0000_0000, 8), place(1, 0, 0));
    assert_eq!(root.route(0x80_0000_4ffc, 4), place(2, 0, 0xffc));
    assert_eq!(root.route(0x80_0000_3ffc, 8), None, "crosses the end");
    assert_eq!(root.route(0xc000_1004, 4), place(2, 2, 4));
    assert_eq!(root.route(0, 4), None);
    assert_eq!(root.route(u64::MAX, 8), None);

    bench.call(|context| root.ecam_write(context, ecam(2, 0, 0x18), &0xd000_0000_u32.to_le_bytes()));
    assert_eq!(root.route(0xc000_1004, 4), None);
    let mut data = [0xff; 4];
    let reader = bench.call(|context| root.memory_read(context, 0xd000_000c, &mut data));
    assert_eq!((reader, data), (Some(slot(2, 0)), [1, 0, 0, 0]), "a masked MSI-X entry");
    bench.call(|context| root.remove(context, slot(2, 0))).unwrap();
    assert_eq!(root.route(0xd000_000c, 4), None);
}

#[test]
fn a_later_function_gets_addresses_of_its_own() {
    let mut root = bus();
    root.insert(slot(9, 0), Probe::function()).unwrap();
    root.assign_bars(&WINDOWS).unwrap();
    let mut ranges: Vec<_> = root
        .functions()
        .flat_map(|(_, function)| {
            function.bars().iter().map(|bar| (function.bar_address(bar), bar.size)).collect::<Vec<_>>()
        })
        .collect();
    ranges.sort_unstable();
    assert_eq!(ranges.len(), 12);
    assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    let tiny = Windows { low: 0..0, ..WINDOWS };
    root.insert(slot(10, 0), Probe::function()).unwrap();
    assert_eq!(root.assign_bars(&tiny).unwrap_err().slot, slot(10, 0));
}

#[test]
fn the_earliest_deadline_comes_first() {
    let mut bench = Bench::default();
    let mut root = bus();
    for (place, time) in [(slot(1, 0), 50), (slot(2, 0), 20)] {
        let function = root.function_mut(place).unwrap();
        bench.call(|context| function.bar_write(context, 0, 16, &[time]));
    }
    assert_eq!(root.next_deadline(), Some(Time::from_nanos(20)));
    assert_eq!(root.due(Time::from_nanos(19)), None);
    assert_eq!(root.due(Time::from_nanos(100)), Some(slot(2, 0)));
}

#[test]
fn a_saved_state_comes_back() {
    let mut bench = Bench::default();
    let mut root = bus();
    bench.call(|context| root.ecam_write(context, ecam(2, 0, 4), &[6]));
    let state = root.save();
    let mut other = bus();
    other.restore(&state).unwrap();
    assert_eq!(other.save(), state);
    assert_eq!(other.route(0xc000_1004, 4).map(|place| place.slot), Some(slot(2, 0)));
    assert!(Root::new().restore(&state).is_err());
}

proptest! {
    #[test]
    fn no_access_panics(
        accesses in prop::collection::vec((0_u64..0x60_0000, prop::collection::vec(any::<u8>(), 1..9)), 0..60),
    ) {
        let mut bench = Bench::default();
        let mut root = bus_with_port(&mut bench);
        for (offset, mut data) in accesses {
            let port = 0xcf8 + (offset % 8) as u16;
            bench.call(|context| {
                root.ecam_write(context, offset, &data);
                root.port_write(context, port, &data);
                root.memory_write(context, offset, &data);
            });
            root.ecam_read(offset, &mut data);
            root.port_read(port, &mut data);
        }
    }
}

/// The bus with a root port in front of device 1, whose bus is number 5 and whose window is 0xc100_0000.
fn bus_with_port(bench: &mut Bench) -> Root {
    let mut root = bus();
    assert!(root.insert_port(slot(1, 0)));
    for (register, bytes) in [(0x18, &[0, 5, 5][..]), (0x20, &[0, 0xc1, 0, 0xc1]), (4, &[6])] {
        bench.call(|context| root.ecam_write(context, ecam(1, 0, register), bytes));
    }
    root
}

#[test]
fn a_function_behind_a_port_is_alone_on_its_bus() {
    let mut bench = Bench::default();
    let mut root = bus_with_port(&mut bench);
    let behind = |device, function| 5 << 20 | ecam(device, function, 0);
    assert_eq!(read(&mut root, ecam(1, 0, 0)), 0x000c_1b36, "the port");
    assert_eq!(read(&mut root, behind(0, 0)), 0x0042_1ae0);
    for nowhere in [behind(1, 0), behind(0, 1), 6 << 20] {
        assert_eq!(read(&mut root, nowhere), u32::MAX);
    }
    let address = 0x8005_0000_u32;
    bench.call(|context| root.port_write(context, 0xcf8, &address.to_le_bytes()));
    let mut data = [0xff; 2];
    root.port_read(0xcfe, &mut data);
    assert_eq!(data, [0x42, 0]);
    assert!(!root.insert_port(slot(1, 0)) && !root.insert_port(slot(2, 0)) && !root.insert_port(slot(0, 0)));
    root.insert(slot(1, 1), Probe::function()).unwrap_err();
}

#[test]
fn a_port_forwards_what_lies_in_its_windows() {
    let mut bench = Bench::default();
    let mut root = bus_with_port(&mut bench);
    let function = 5 << 20;
    bench.call(|context| root.ecam_write(context, function + 4, &[6]));
    for (address, reached) in [(0xc100_2000_u32, true), (0xc200_2000, false)] {
        bench.call(|context| root.ecam_write(context, function + 0x18, &address.to_le_bytes()));
        let place = reached.then_some(Place { slot: slot(1, 0), bar: 2, offset: 4 });
        assert_eq!(root.route(u64::from(address) + 4, 4), place);
    }
}

#[test]
fn a_function_masters_the_bus_only_through_an_open_port() {
    let mut bench = Bench::default();
    let mut root = bus_with_port(&mut bench);
    bench.call(|context| root.ecam_write(context, 5 << 20 | 4, &[6]));
    let mut stores = |root: &mut Root, command: u8| {
        bench.call(|context| root.ecam_write(context, ecam(1, 0, 4), &[command]));
        let function = root.function_mut(slot(1, 0)).unwrap();
        bench.call(|context| function.bar_write(context, 0, 8, &[0, 0x10]));
        function.device().counters()[0].1 == 1
    };
    assert!(stores(&mut root, 6));
    assert!(!stores(&mut root, 2), "the port's bus mastering is off");
    assert!(stores(&mut root, 4));
}

#[test]
fn a_reset_of_the_bus_behind_a_port_resets_the_function() {
    let mut bench = Bench::default();
    let mut root = bus_with_port(&mut bench);
    let command = 5 << 20 | 4;
    bench.call(|context| root.ecam_write(context, command, &[6]));
    bench.call(|context| root.ecam_write(context, ecam(1, 0, 0x3e), &[0x40, 0]));
    assert_eq!(read(&mut root, command) & 6, 0);
}

#[test]
fn a_port_stays_when_its_function_goes_and_its_state_is_saved() {
    let mut bench = Bench::default();
    let mut root = bus_with_port(&mut bench);
    let state = root.save();
    let mut other = bus();
    assert!(other.restore(&state).is_err(), "it has no port");
    assert!(other.insert_port(slot(1, 0)));
    other.restore(&state).unwrap();
    assert_eq!(other.save(), state);

    let function = bench.call(|context| root.remove(context, slot(1, 0))).unwrap();
    assert_eq!(read(&mut root, 5 << 20), u32::MAX);
    assert_eq!(read(&mut root, ecam(1, 0, 0)), 0x000c_1b36);
    assert_eq!(root.free_slot(), Some(slot(3, 0)));
    root.insert(slot(1, 0), function).unwrap();
    assert_eq!(read(&mut root, 5 << 20), 0x0042_1ae0);
}
