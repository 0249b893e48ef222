use nicvisor_core::testing::Bench;
use proptest::prelude::*;

use super::*;

fn read(bench: &mut Bench, rtc: &mut Rtc, index: usize) -> u8 {
    let mut data = [0];
    bench.call(|context| {
        rtc.write(context, 0, &[index as u8]);
        rtc.read(context, 1, &mut data);
    });
    data[0]
}

fn write(bench: &mut Bench, rtc: &mut Rtc, index: usize, value: u8) {
    bench.call(|context| rtc.write(context, 0, &[index as u8, value]));
}

/// Lets the clock run for `seconds`, with its deadlines.
fn run(bench: &mut Bench, rtc: &mut Rtc, seconds: u64) {
    let end = bench.now + Duration::from_secs(seconds);
    while let Some(next) = rtc.next_deadline().filter(|&next| next <= end) {
        assert!(next > bench.now, "time must go on");
        bench.now = next;
        bench.call(|context| rtc.deadline(context));
    }
    bench.now = end;
}

#[test]
fn it_shows_the_configured_time_and_follows() {
    let mut bench = Bench::default();
    let config = PlatformConfig { start_time: 1_767_225_599, ..PlatformConfig::default() };
    let mut rtc = Rtc::new(&config);
    let date = |bench: &mut Bench, rtc: &mut Rtc| {
        [CENTURY, YEAR, MONTH, DAY, HOURS, MINUTES, SECONDS].map(|index| read(bench, rtc, index))
    };
    assert_eq!(date(&mut bench, &mut rtc), [0x20, 0x25, 0x12, 0x31, 0x23, 0x59, 0x59]);
    bench.advance(Duration::from_secs(1));
    assert_eq!(date(&mut bench, &mut rtc), [0x20, 0x26, 0x01, 0x01, 0, 0, 0]);
    write(&mut bench, &mut rtc, STATUS_B, BINARY);
    assert_eq!(date(&mut bench, &mut rtc), [20, 26, 1, 1, 12, 0, 0], "midnight on a 12-hour clock");
}

#[test]
fn it_can_be_set_field_by_field() {
    let mut bench = Bench::default();
    let mut rtc = Rtc::new(&PlatformConfig::default());
    bench.advance(Duration::from_secs(100));
    write(&mut bench, &mut rtc, STATUS_B, HALT_UPDATES | HOURS_24);
    for (index, value) in
        [(DAY, 0x29), (MONTH, 0x02), (YEAR, 0x24), (HOURS, 0x08), (MINUTES, 0x30), (SECONDS, 0x59)]
    {
        write(&mut bench, &mut rtc, index, value);
    }
    bench.advance(Duration::from_secs(10));
    write(&mut bench, &mut rtc, STATUS_B, HOURS_24);
    bench.advance(Duration::from_secs(1));
    let shown = [DAY, MONTH, YEAR, HOURS, MINUTES, SECONDS].map(|index| read(&mut bench, &mut rtc, index));
    assert_eq!(shown, [0x29, 0x02, 0x24, 0x08, 0x31, 0x00]);
}

#[test]
fn it_warns_before_it_changes() {
    let mut bench = Bench::default();
    let mut rtc = Rtc::new(&PlatformConfig::default());
    assert_eq!(read(&mut bench, &mut rtc, STATUS_A) & UPDATE_IN_PROGRESS, 0);
    bench.advance(Duration::from_micros(999_900));
    assert_eq!(read(&mut bench, &mut rtc, STATUS_A) & UPDATE_IN_PROGRESS, UPDATE_IN_PROGRESS);
}

#[test]
fn the_alarm_goes_off_once_and_is_acknowledged_by_reading() {
    let mut bench = Bench::default();
    let mut rtc = Rtc::new(&PlatformConfig::default());
    for (index, value) in [(1, 0x05), (3, 0xff), (5, 0xff), (STATUS_B, ALARM | HOURS_24)] {
        write(&mut bench, &mut rtc, index, value);
    }
    run(&mut bench, &mut rtc, 4);
    assert!(bench.take_effects().is_empty());
    run(&mut bench, &mut rtc, 1);
    assert_eq!(bench.take_effects().lines, [InterruptLine { line: LINE, level: true }]);
    assert_eq!(read(&mut bench, &mut rtc, STATUS_C), ALARM | UPDATE_ENDED | INTERRUPT_REQUESTED);
    assert_eq!(bench.take_effects().lines, [InterruptLine { line: LINE, level: false }]);
    assert_eq!(read(&mut bench, &mut rtc, STATUS_C), 0);
}

#[test]
fn the_periodic_interrupt_keeps_its_rate() {
    let mut bench = Bench::default();
    let mut rtc = Rtc::new(&PlatformConfig::default());
    write(&mut bench, &mut rtc, STATUS_A, 0x2f);
    write(&mut bench, &mut rtc, STATUS_B, PERIODIC | HOURS_24);
    let mut interrupts = 0;
    while bench.now.as_nanos() < 10_000_000_000 {
        bench.now = rtc.next_deadline().unwrap();
        bench.call(|context| rtc.deadline(context));
        interrupts += u32::from(read(&mut bench, &mut rtc, STATUS_C) & PERIODIC != 0);
    }
    assert_eq!(interrupts, 20, "two a second");
}

#[test]
fn the_cells_tell_the_memory() {
    let mut bench = Bench::default();
    let config =
        PlatformConfig { low_memory: 0xc000_0000, high_memory: 13 << 30, ..PlatformConfig::default() };
    let mut rtc = Rtc::new(&config);
    let mut word = |index| {
        u16::from(read(&mut bench, &mut rtc, index)) | u16::from(read(&mut bench, &mut rtc, index + 1)) << 8
    };
    assert_eq!(u64::from(word(0x34)) << 16, 0xc000_0000 - (16 << 20));
    assert_eq!(word(0x30), u16::MAX);
    assert_eq!(u64::from(word(0x5c)) << 24, 13 << 30);
}

proptest! {
    #[test]
    fn nothing_panics(
        steps in prop::collection::vec((any::<u8>(), any::<u8>(), 0_u64..5_000_000_000), 0..80),
    ) {
        let mut bench = Bench::default();
        let mut rtc = Rtc::new(&PlatformConfig::default());
        for (index, value, pause) in steps {
            bench.advance(Duration::from_nanos(pause));
            write(&mut bench, &mut rtc, usize::from(index), value);
            read(&mut bench, &mut rtc, usize::from(value));
            bench.call(|context| rtc.deadline(context));
            prop_assert!(rtc.next_deadline().is_none_or(|next| next > bench.now));
        }
    }
}
