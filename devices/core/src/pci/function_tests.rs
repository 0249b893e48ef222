use proptest::prelude::*;

use super::super::probe::{Probe, identity};
use super::*;
use crate::MsiMessage;
use crate::testing::Bench;

fn read(function: &Function, offset: u16, length: usize) -> u32 {
    let mut data = [0; 4];
    function.config_read(offset, &mut data[..length]);
    u32::from_le_bytes(data)
}

fn write(bench: &mut Bench, function: &mut Function, offset: u16, value: u32) -> bool {
    bench.call(|context| function.config_write(context, offset, &value.to_le_bytes()))
}

fn capability(function: &Function, id: u32) -> u16 {
    let mut offset = read(function, 0x34, 1) as u16;
    while offset != 0 && read(function, offset, 1) != id {
        offset = read(function, offset + 1, 1) as u16;
    }
    offset
}

/// A function with its MSI-X table open: vector 3 has data 0x33.
fn with_interrupts(bench: &mut Bench) -> Function {
    let mut function = Probe::function();
    write(bench, &mut function, 0x04, 0x6);
    let msix = capability(&function, 0x11);
    write(bench, &mut function, msix, 0x8000_0000);
    bench.call(|context| function.bar_write(context, 2, 0x30, &0xfee0_0000_u64.to_le_bytes()));
    bench.call(|context| function.bar_write(context, 2, 0x38, &0x33_u64.to_le_bytes()));
    function
}

#[test]
fn the_header_says_what_the_device_is() {
    let function = Probe::function();
    assert_eq!(read(&function, 0x00, 4), 0x0042_1ae0);
    assert_eq!(read(&function, 0x08, 4), 0x0200_0001);
    assert_eq!(read(&function, 0x2c, 4), 0x0058_1ae0);
    assert_eq!(read(&function, 0x06, 2), 0x10, "it has capabilities");
    let vendor = capability(&function, 0x09);
    assert_eq!(read(&function, vendor, 4) >> 16, 0x0106, "length, then the body");
    assert_eq!(read(&function, 0x100, 4), 0, "no extended capability");
}

#[test]
fn bars_tell_their_size_and_decode_where_they_are_put() {
    let mut bench = Bench::default();
    let mut function = Probe::function();
    for register in [0x10, 0x14, 0x18, 0x1c, 0x20] {
        assert!(write(&mut bench, &mut function, register, u32::MAX));
    }
    assert_eq!(read(&function, 0x10, 4), 0xffff_c00c);
    assert_eq!(read(&function, 0x14, 4), 0xffff_ffff);
    assert_eq!(read(&function, 0x18, 4), 0xffff_f000);
    assert_eq!(read(&function, 0x1c, 4), 0xffff_ffe0);
    assert_eq!(read(&function, 0x20, 4), 0);

    write(&mut bench, &mut function, 0x10, 0x8000_0000);
    write(&mut bench, &mut function, 0x14, 0x1);
    write(&mut bench, &mut function, 0x18, 0xd000_0000);
    write(&mut bench, &mut function, 0x1c, 0);
    assert_eq!(function.bar_ranges(), []);
    write(&mut bench, &mut function, 0x04, 0x2);
    let expected = [
        BarRange { address: 0x1_8000_0000, size: 0x4000, bar: 0 },
        BarRange { address: 0xd000_0000, size: 0x1000, bar: 2 },
    ];
    assert_eq!(function.bar_ranges(), expected);
    let power = capability(&function, 0x01);
    assert!(write(&mut bench, &mut function, power + 4, 0x3));
    assert_eq!(function.bar_ranges(), [], "asleep");
}

#[test]
fn raised_vectors_become_messages() {
    let mut bench = Bench::default();
    let mut function = with_interrupts(&mut bench);
    bench.call(|context| function.bar_write(context, 0, 0, &[3]));
    let effects = bench.take_effects();
    assert_eq!(effects.messages, [MsiMessage { address: 0xfee0_0000, data: 0x33 }]);
    assert!(effects.vectors.is_empty(), "translated");
    bench.call(|context| function.bar_write(context, 0, 0, &[200]));
    assert!(bench.take_effects().is_empty());
}

#[test]
fn no_message_leaves_without_bus_mastering() {
    let mut bench = Bench::default();
    let mut function = with_interrupts(&mut bench);
    write(&mut bench, &mut function, 0x04, 0x2);
    bench.call(|context| function.bar_write(context, 0, 0, &[3]));
    assert!(bench.take_effects().is_empty());
    write(&mut bench, &mut function, 0x04, 0x6);
    assert_eq!(bench.take_effects().messages.len(), 1);
}

#[test]
fn memory_is_out_of_reach_without_bus_mastering() {
    let mut bench = Bench::default();
    let mut function = Probe::function();
    for (command, reached) in [(0x2, 0), (0x6, 1)] {
        write(&mut bench, &mut function, 0x04, command);
        bench.call(|context| function.bar_write(context, 0, 8, &0x1000_u32.to_le_bytes()));
        assert_eq!(function.device().counters()[0].1, reached);
    }
}

#[test]
fn a_function_level_reset_starts_over() {
    let mut bench = Bench::default();
    let mut function = with_interrupts(&mut bench);
    write(&mut bench, &mut function, 0x18, 0xd000_0000);
    bench.call(|context| function.bar_write(context, 0, 0, &[7]));
    let express = capability(&function, 0x10);
    assert_ne!(read(&function, express + 4, 4) & 1 << 28, 0, "it says that it can");
    assert!(bench.call(|context| function.config_write(context, express + 8, &0xa810_u16.to_le_bytes())));
    assert_eq!(function.device().counters()[0].1, 0);
    assert_eq!(function.save(), Probe::function().save());
    assert_eq!(read(&function, express + 8, 2), 0x2810);
}

#[test]
fn accesses_outside_the_bars_reach_nobody() {
    let mut bench = Bench::default();
    let mut function = Probe::function();
    for (bar, offset) in [(0, 0x3ffd), (3, 0x1e), (1, 0), (9, 0), (0, u64::MAX)] {
        let mut data = [0xff; 4];
        bench.call(|context| function.bar_read(context, bar, offset, &mut data));
        assert_eq!(data, [0xff; 4]);
    }
    let mut data = [0xff; 4];
    bench.call(|context| function.bar_read(context, 3, 0x1c, &mut data));
    assert_eq!(data, [3; 4]);
}

#[test]
fn a_saved_state_comes_back() {
    let mut bench = Bench::default();
    let mut function = with_interrupts(&mut bench);
    bench.call(|context| function.bar_write(context, 0, 0, &[7]));
    let state = function.save();
    let mut other = Probe::function();
    other.restore(&state).unwrap();
    assert_eq!(other.save(), state);
    assert!(other.restore(&serde_json::json!({"registers": {}})).is_err());
    assert_eq!(other.save(), state);
}

#[test]
fn impossible_identities_are_refused() {
    let refused = |change: fn(&mut Identity)| {
        let mut identity = identity();
        change(&mut identity);
        Function::new(Box::new(Probe { identity, scratch: 0, wake: None })).unwrap_err()
    };
    refused(|identity| identity.bars[1].index = 1);
    refused(|identity| identity.bars[2].index = 6);
    refused(|identity| identity.bars[0].size = 0x3000);
    refused(|identity| identity.bars[2].size = 8);
    refused(|identity| identity.msix_vectors = 0);
    refused(|identity| identity.msix_vectors = 256);
    refused(|identity| identity.vendor_capabilities.push(vec![0; 200]));
}

proptest! {
    #[test]
    fn no_configuration_write_panics_or_changes_the_identity(
        writes in prop::collection::vec((0_u16..0x1010, prop::collection::vec(any::<u8>(), 1..9)), 0..60),
    ) {
        let mut bench = Bench::default();
        let mut function = Probe::function();
        let before = [0, 8, 0x2c, 0x34].map(|offset| read(&function, offset, 4));
        for (offset, mut data) in writes {
            let old = function.bar_ranges();
            let changed = bench.call(|context| function.config_write(context, offset, &data));
            prop_assert!(changed || old == function.bar_ranges(), "a change went unnoticed");
            function.config_read(offset, &mut data);
        }
        let after = [0, 8, 0x2c, 0x34].map(|offset| read(&function, offset, 4));
        prop_assert_eq!(before, after);
    }
}
