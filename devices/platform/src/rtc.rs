//! The MC146818 real-time clock and its battery-backed memory, at ports 0x70 and 0x71.

mod calendar;

use nicvisor_core::io::IoDevice;
use nicvisor_core::{Context, Duration, InterruptLine, Time};
use serde::{Deserialize, Serialize};

use crate::PlatformConfig;
use crate::access::{read_bytes, write_bytes};
use calendar::Calendar;

/// The clock. It shows a configured time at power-on and then follows the machine's time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rtc {
    index: u8,
    cells: Vec<u8>,
    /// What the clock shows at time zero, in seconds since 1970.
    start: i64,
    /// The time being set, while updates are halted.
    held: Option<Calendar>,
    /// The last second whose end was noticed, counted from time zero.
    second: u64,
    /// When the periodic interrupt comes next.
    periodic: Option<Time>,
    line: bool,
}

impl Rtc {
    /// Power-on state; the cells tell how much memory there is.
    pub fn new(config: &PlatformConfig) -> Rtc {
        let mut rtc = Rtc {
            index: 0,
            cells: vec![0; 128],
            start: i64::try_from(config.start_time).unwrap_or(0),
            held: None,
            second: 0,
            periodic: None,
            line: false,
        };
        rtc.cells[STATUS_A] = 0x26;
        rtc.cells[STATUS_B] = HOURS_24;
        rtc.describe_memory(config);
        rtc
    }

    fn describe_memory(&mut self, config: &PlatformConfig) {
        let above_1m = config.low_memory.saturating_sub(1 << 20) >> 10;
        let above_16m = config.low_memory.saturating_sub(16 << 20) >> 16;
        let high = (config.high_memory >> 16).to_le_bytes();
        self.set_cells(0x15, &640_u16.to_le_bytes());
        self.set_cells(0x17, &clamped(above_1m));
        self.set_cells(0x30, &clamped(above_1m));
        self.set_cells(0x34, &clamped(above_16m));
        self.set_cells(0x5b, &high[..3]);
    }

    fn set_cells(&mut self, first: usize, bytes: &[u8]) {
        self.cells[first..first + bytes.len()].copy_from_slice(bytes);
    }

    fn read_cell(&mut self, now: Time) -> u8 {
        let index = usize::from(self.index);
        match index {
            SECONDS..=YEAR | CENTURY if !ALARMS.contains(&index) => self.field(index, self.calendar(now)),
            STATUS_A => self.cells[STATUS_A] | if self.updating(now) { UPDATE_IN_PROGRESS } else { 0 },
            STATUS_C => std::mem::take(&mut self.cells[STATUS_C]),
            STATUS_D => MEMORY_AND_TIME_VALID,
            _ => self.cells[index],
        }
    }

    fn write_cell(&mut self, now: Time, value: u8) {
        let index = usize::from(self.index);
        match index {
            SECONDS..=YEAR | CENTURY if !ALARMS.contains(&index) => self.set_field(now, index, value),
            STATUS_A => {
                self.cells[STATUS_A] = value & !UPDATE_IN_PROGRESS;
                self.start_periodic(now);
            }
            STATUS_B => self.set_control(now, value),
            STATUS_C | STATUS_D => {}
            _ => self.cells[index] = value,
        }
    }

    fn set_control(&mut self, now: Time, value: u8) {
        let halt = value & HALT_UPDATES != 0;
        if halt && self.held.is_none() {
            self.held = Some(self.calendar(now));
        }
        self.cells[STATUS_B] = value;
        if !halt && let Some(calendar) = self.held.take() {
            self.show(now, calendar);
        }
        self.start_periodic(now);
    }

    fn start_periodic(&mut self, now: Time) {
        let wanted = self.cells[STATUS_B] & PERIODIC != 0;
        self.periodic = self.period().filter(|_| wanted).map(|period| now + period);
    }

    /// The calendar as software sees it.
    fn calendar(&self, now: Time) -> Calendar {
        self.held
            .unwrap_or_else(|| Calendar::from_seconds(self.start.saturating_add(whole_seconds(now) as i64)))
    }

    fn show(&mut self, now: Time, calendar: Calendar) {
        self.start = calendar.to_seconds() - whole_seconds(now) as i64;
    }

    fn field(&self, index: usize, calendar: Calendar) -> u8 {
        match index {
            SECONDS => self.encode(calendar.second),
            MINUTES => self.encode(calendar.minute),
            HOURS => self.encode_hour(calendar.hour),
            WEEKDAY => self.encode(calendar.weekday() + 1),
            DAY => self.encode(calendar.day),
            MONTH => self.encode(calendar.month),
            YEAR => self.encode((calendar.year % 100) as u8),
            _ => self.encode((calendar.year / 100 % 100) as u8),
        }
    }

    fn set_field(&mut self, now: Time, index: usize, value: u8) {
        let mut calendar = self.calendar(now);
        let number = self.decode(value);
        match index {
            SECONDS => calendar.second = number.min(59),
            MINUTES => calendar.minute = number.min(59),
            HOURS => calendar.hour = self.decode_hour(value).min(23),
            // Follows from the date.
            WEEKDAY => {}
            DAY => calendar.day = number.clamp(1, 31),
            MONTH => calendar.month = number.clamp(1, 12),
            YEAR => calendar.year = calendar.year / 100 * 100 + u16::from(number.min(99)),
            _ => calendar.year = calendar.year % 100 + u16::from(number.min(99)) * 100,
        }
        match &mut self.held {
            Some(held) => *held = calendar,
            None => self.show(now, calendar),
        }
    }

    fn encode(&self, number: u8) -> u8 {
        if self.cells[STATUS_B] & BINARY != 0 { number } else { ((number / 10) << 4) | (number % 10) }
    }

    fn decode(&self, value: u8) -> u8 {
        if self.cells[STATUS_B] & BINARY != 0 { value } else { (value >> 4) * 10 + (value & 15) }
    }

    fn encode_hour(&self, hour: u8) -> u8 {
        if self.cells[STATUS_B] & HOURS_24 != 0 {
            return self.encode(hour);
        }
        let half_day = (hour + 11) % 12 + 1;
        self.encode(half_day) | if hour >= 12 { AFTERNOON } else { 0 }
    }

    fn decode_hour(&self, value: u8) -> u8 {
        if self.cells[STATUS_B] & HOURS_24 != 0 {
            return self.decode(value);
        }
        let half_day = self.decode(value & !AFTERNOON) % 12;
        half_day + if value & AFTERNOON != 0 { 12 } else { 0 }
    }

    fn updating(&self, now: Time) -> bool {
        let into_second = now.as_nanos() % NANOSECONDS;
        self.held.is_none() && into_second >= NANOSECONDS - UPDATE_NANOSECONDS
    }

    /// Sets the flags of what has happened since the last look.
    fn catch_up(&mut self, now: Time) {
        let second = whole_seconds(now);
        if second > self.second && self.held.is_none() {
            self.cells[STATUS_C] |= UPDATE_ENDED;
            // A guest that has not looked for longer than a day has missed an alarm whatever it is set to.
            let missed = self.second + 1..=second;
            let recent = missed.rev().take(86_400);
            if self.cells[STATUS_B] & ALARM != 0 && recent.into_iter().any(|second| self.alarm_at(second)) {
                self.cells[STATUS_C] |= ALARM;
            }
        }
        self.second = second;
        if let (Some(next), Some(period)) = (self.periodic.filter(|&next| next <= now), self.period()) {
            self.cells[STATUS_C] |= PERIODIC;
            let late = now.since(next).as_nanos() % period.as_nanos();
            self.periodic = Some(now + (period - Duration::from_nanos(late as u64)));
        }
    }

    fn alarm_at(&self, second: u64) -> bool {
        let calendar = Calendar::from_seconds(self.start.saturating_add(second as i64));
        [(SECONDS, 1), (MINUTES, 3), (HOURS, 5)].iter().all(|&(field, alarm)| {
            let wanted = self.cells[alarm];
            wanted >= ANY_VALUE || wanted == self.field(field, calendar)
        })
    }

    fn update_line(&mut self, context: &mut Context<'_>) {
        let wanted = self.cells[STATUS_C] & self.cells[STATUS_B] & (PERIODIC | ALARM | UPDATE_ENDED) != 0;
        if wanted {
            self.cells[STATUS_C] |= INTERRUPT_REQUESTED;
        }
        if wanted != self.line {
            self.line = wanted;
            context.effects.lines.push(InterruptLine { line: LINE, level: wanted });
        }
    }

    fn period(&self) -> Option<Duration> {
        let shift = match self.cells[STATUS_A] & 15 {
            0 => return None,
            rate @ 1..=2 => u32::from(rate) + 6,
            rate => u32::from(rate) - 1,
        };
        Some(Duration::from_nanos((NANOSECONDS << shift) / 32_768))
    }
}

/// Offset 0 selects a cell, offset 1 is its value.
impl IoDevice for Rtc {
    fn read(&mut self, context: &mut Context<'_>, offset: u64, data: &mut [u8]) {
        self.catch_up(context.now);
        self.update_line(context);
        read_bytes(offset, data, |position| match position {
            1 => self.read_cell(context.now),
            _ => 0xff,
        });
        self.update_line(context);
    }

    fn write(&mut self, context: &mut Context<'_>, offset: u64, data: &[u8]) {
        self.catch_up(context.now);
        write_bytes(offset, data, |position, value| match position {
            // Bit 7 masks NMI on hardware and is no part of the index.
            0 => self.index = value & 0x7f,
            1 => self.write_cell(context.now, value),
            _ => {}
        });
        self.update_line(context);
    }

    fn next_deadline(&self) -> Option<Time> {
        let ticks = self.cells[STATUS_B] & (ALARM | UPDATE_ENDED) != 0 && self.held.is_none() && !self.line;
        let second = ticks.then(|| Time::from_nanos((self.second + 1).saturating_mul(NANOSECONDS)));
        second.into_iter().chain(self.periodic.filter(|_| !self.line)).min()
    }

    fn deadline(&mut self, context: &mut Context<'_>) {
        self.catch_up(context.now);
        self.update_line(context);
    }

    fn reset(&mut self, context: &mut Context<'_>) {
        // The battery keeps the clock and the cells; reset only takes the interrupts away.
        self.index = 0;
        self.cells[STATUS_B] &= !(PERIODIC | ALARM | UPDATE_ENDED);
        self.cells[STATUS_C] = 0;
        self.periodic = None;
        self.update_line(context);
    }
}

fn whole_seconds(now: Time) -> u64 {
    now.as_nanos() / NANOSECONDS
}

fn clamped(value: u64) -> [u8; 2] {
    u16::try_from(value).unwrap_or(u16::MAX).to_le_bytes()
}

/// The cell that holds the century, for the ACPI tables.
pub const CMOS_CENTURY: u8 = 0x32;
const LINE: u32 = 8;
const NANOSECONDS: u64 = 1_000_000_000;
/// How long before the end of a second the clock warns that it is about to change.
const UPDATE_NANOSECONDS: u64 = 244_000;

const SECONDS: usize = 0;
const MINUTES: usize = 2;
const HOURS: usize = 4;
const WEEKDAY: usize = 6;
const DAY: usize = 7;
const MONTH: usize = 8;
const YEAR: usize = 9;
const ALARMS: [usize; 3] = [1, 3, 5];
const STATUS_A: usize = 10;
const STATUS_B: usize = 11;
const STATUS_C: usize = 12;
const STATUS_D: usize = 13;
const CENTURY: usize = CMOS_CENTURY as usize;

const UPDATE_IN_PROGRESS: u8 = 1 << 7;
const HALT_UPDATES: u8 = 1 << 7;
/// The three interrupts: enable bits in status B, flags in status C.
const PERIODIC: u8 = 1 << 6;
const ALARM: u8 = 1 << 5;
const UPDATE_ENDED: u8 = 1 << 4;
const INTERRUPT_REQUESTED: u8 = 1 << 7;
const BINARY: u8 = 1 << 2;
const HOURS_24: u8 = 1 << 1;
const AFTERNOON: u8 = 1 << 7;
const MEMORY_AND_TIME_VALID: u8 = 1 << 7;
/// Alarm values from here on match every time.
const ANY_VALUE: u8 = 0xc0;

#[cfg(test)]
#[path = "rtc_tests.rs"]
mod tests;
