//! The 8254 interval timer and system control port B (0x61), which gates its channel 2.

use nicvisor_core::io::IoDevice;
use nicvisor_core::{Context, Duration, InterruptLine, Time};
use serde::{Deserialize, Serialize};

use crate::access::{read_bytes, write_bytes};

/// Three counters. Channel 0 interrupts; channel 2 is only looked at.
///
/// Offsets are ports relative to 0x40: the counters and the command register at 0 to 3, port B at 0x21.
/// Counting in BCD is not offered: nothing has used it for decades.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pit {
    channels: [Channel; 3],
    speaker: bool,
    /// When channel 0 interrupts next.
    next: Option<Time>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Channel {
    mode: Mode,
    access: Access,
    reload: Reload,
    /// When counting began; none before a count is written.
    started: Option<Time>,
    /// Ticks counted when the gate closed, while it is closed.
    stopped: Option<u64>,
    low_byte: Option<u8>,
    high_next: bool,
    latched: Option<u16>,
    latched_status: Option<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Mode {
    #[default]
    TerminalCount,
    OneShot,
    RateGenerator,
    SquareWave,
    SoftwareStrobe,
    HardwareStrobe,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Access {
    Low,
    High,
    #[default]
    Both,
}

/// The count to start from: 1 to 65536.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Reload(u32);

impl Default for Reload {
    fn default() -> Self {
        Reload(0x1_0000)
    }
}

impl Pit {
    /// A write to the command register.
    fn command(&mut self, now: Time, value: u8) {
        match usize::from(value >> 6) {
            3 => self.read_back(now, value),
            index if value & 0x30 == 0 => self.channels[index].latch(now),
            index => {
                self.channels[index].configure(value);
                if index == 0 {
                    self.next = None;
                }
            }
        }
    }

    fn read_back(&mut self, now: Time, value: u8) {
        for (index, channel) in self.channels.iter_mut().enumerate() {
            if value >> (index + 1) & 1 == 0 {
                continue;
            }
            if value & 0x20 == 0 {
                channel.latch(now);
            }
            if value & 0x10 == 0 && channel.latched_status.is_none() {
                channel.latched_status = Some(channel.status(now));
            }
        }
    }

    fn write_count(&mut self, now: Time, index: usize, value: u8) {
        let loaded = self.channels[index].write(now, value);
        if loaded && index == 0 {
            self.next = self.channels[0].next_interrupt(now);
        }
    }

    fn port_b(&self, now: Time) -> u8 {
        let channel = &self.channels[2];
        let refresh = (now.as_nanos() / REFRESH_NANOSECONDS) & 1 != 0;
        u8::from(channel.gate())
            | u8::from(self.speaker) << 1
            | u8::from(refresh) << 4
            | u8::from(channel.output(now)) << 5
    }
}

impl IoDevice for Pit {
    fn read(&mut self, context: &mut Context<'_>, offset: u64, data: &mut [u8]) {
        let now = context.now;
        read_bytes(offset, data, |position| match position {
            0..=2 => self.channels[position as usize].read(now),
            PORT_B => self.port_b(now),
            _ => 0xff,
        });
    }

    fn write(&mut self, context: &mut Context<'_>, offset: u64, data: &[u8]) {
        let now = context.now;
        write_bytes(offset, data, |position, value| match position {
            0..=2 => self.write_count(now, position as usize, value),
            3 => self.command(now, value),
            PORT_B => {
                self.channels[2].set_gate(now, value & 1 != 0);
                self.speaker = value & 2 != 0;
            }
            _ => {}
        });
    }

    fn next_deadline(&self) -> Option<Time> {
        self.next
    }

    fn deadline(&mut self, context: &mut Context<'_>) {
        if self.next.is_some_and(|next| next <= context.now) {
            self.next = self.channels[0].following_interrupt(context.now);
            for level in [true, false] {
                context.effects.lines.push(InterruptLine { line: LINE, level });
            }
        }
    }

    fn reset(&mut self, _context: &mut Context<'_>) {
        *self = Pit::default();
    }
}

impl Channel {
    fn configure(&mut self, value: u8) {
        let gate_closed = self.stopped.is_some();
        *self = Channel {
            mode: match value >> 1 & 7 {
                0 => Mode::TerminalCount,
                1 => Mode::OneShot,
                2 | 6 => Mode::RateGenerator,
                3 | 7 => Mode::SquareWave,
                4 => Mode::SoftwareStrobe,
                _ => Mode::HardwareStrobe,
            },
            access: match value >> 4 & 3 {
                1 => Access::Low,
                2 => Access::High,
                _ => Access::Both,
            },
            stopped: gate_closed.then_some(0),
            ..Channel::default()
        };
    }

    /// A byte of a new count. Returns whether the count is complete.
    fn write(&mut self, now: Time, value: u8) -> bool {
        let count = match (self.access, self.low_byte.take()) {
            (Access::Low, _) => u32::from(value),
            (Access::High, _) => u32::from(value) << 8,
            (Access::Both, Some(low)) => u32::from(low) | u32::from(value) << 8,
            (Access::Both, None) => {
                self.low_byte = Some(value);
                return false;
            }
        };
        self.reload = if count == 0 { Reload::default() } else { Reload(count) };
        self.started = Some(now);
        if self.stopped.is_some() {
            self.stopped = Some(0);
        }
        true
    }

    fn read(&mut self, now: Time) -> u8 {
        if let Some(status) = self.latched_status.take() {
            return status;
        }
        let [low, high] = self.latched.unwrap_or_else(|| self.count(now)).to_le_bytes();
        let (byte, done) = match self.access {
            Access::Low => (low, true),
            Access::High => (high, true),
            Access::Both if self.high_next => (high, true),
            Access::Both => (low, false),
        };
        self.high_next = !done;
        if done {
            self.latched = None;
        }
        byte
    }

    fn latch(&mut self, now: Time) {
        if self.latched.is_none() {
            self.latched = Some(self.count(now));
        }
    }

    fn status(&self, now: Time) -> u8 {
        let access = match self.access {
            Access::Low => 1,
            Access::High => 2,
            Access::Both => 3,
        };
        let null_count = self.started.is_none();
        u8::from(self.output(now)) << 7 | u8::from(null_count) << 6 | access << 4 | (self.mode as u8) << 1
    }

    fn gate(&self) -> bool {
        self.stopped.is_none()
    }

    fn set_gate(&mut self, now: Time, open: bool) {
        match (self.stopped, open) {
            (None, false) => self.stopped = Some(self.ticks(now)),
            (Some(ticks), true) => {
                self.stopped = None;
                let continues = matches!(self.mode, Mode::TerminalCount | Mode::SoftwareStrobe);
                let counted = if continues { duration(ticks) } else { Duration::ZERO };
                // Counting goes on as if it had begun that much earlier; all modes but two start over.
                self.started =
                    self.started.map(|_| Time::from_nanos(now.since(Time::ZERO + counted).as_nanos() as u64));
            }
            _ => {}
        }
    }

    /// Ticks since counting began.
    fn ticks(&self, now: Time) -> u64 {
        if let Some(ticks) = self.stopped {
            return ticks;
        }
        let elapsed = self.started.map_or(0, |started| now.since(started).as_nanos());
        u64::try_from(elapsed * u128::from(PIT_HZ) / 1_000_000_000).unwrap_or(u64::MAX)
    }

    fn count(&self, now: Time) -> u16 {
        let reload = u64::from(self.reload.0);
        let ticks = self.ticks(now);
        let count = match self.mode {
            Mode::RateGenerator => reload - ticks % reload,
            // Counts down by two, twice each period.
            Mode::SquareWave => (reload - ticks.wrapping_mul(2) % reload) & !1,
            _ => reload.wrapping_sub(ticks),
        };
        count as u16
    }

    fn output(&self, now: Time) -> bool {
        let reload = u64::from(self.reload.0);
        let ticks = self.ticks(now);
        if self.started.is_none() {
            return self.mode != Mode::TerminalCount;
        }
        match self.mode {
            Mode::TerminalCount | Mode::OneShot => ticks >= reload,
            Mode::RateGenerator => ticks % reload != reload - 1,
            Mode::SquareWave => ticks % reload < reload.div_ceil(2),
            Mode::SoftwareStrobe | Mode::HardwareStrobe => ticks != reload,
        }
    }

    /// When a count written at `now` interrupts for the first time.
    fn next_interrupt(&self, now: Time) -> Option<Time> {
        let waits_for_gate = matches!(self.mode, Mode::OneShot | Mode::HardwareStrobe);
        (!waits_for_gate).then(|| now + duration(self.reload.0.into()))
    }

    /// When it interrupts again after it did at or before `now`.
    fn following_interrupt(&self, now: Time) -> Option<Time> {
        let started = self.started?;
        let periodic = matches!(self.mode, Mode::RateGenerator | Mode::SquareWave);
        let reload = u64::from(self.reload.0);
        let period = self.ticks(now) / reload + 1;
        let next = started + duration(period * reload);
        // Rounding must not bring back a time that has come already.
        let late = next <= now;
        periodic.then(|| if late { started + duration((period + 1) * reload) } else { next })
    }
}

/// The time that `ticks` take, rounded up.
fn duration(ticks: u64) -> Duration {
    let nanoseconds = (u128::from(ticks) * 1_000_000_000).div_ceil(u128::from(PIT_HZ));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// Ticks a second.
pub const PIT_HZ: u64 = 1_193_182;
/// GSI of channel 0: IRQ 0, overridden to input 2.
const LINE: u32 = 2;
const PORT_B: u64 = 0x21;
/// Half a period of the memory refresh signal that port B shows.
const REFRESH_NANOSECONDS: u64 = 15_085;

#[cfg(test)]
mod tests {
    use super::*;
    use nicvisor_core::testing::Bench;
    use proptest::prelude::*;

    fn write(bench: &mut Bench, pit: &mut Pit, offset: u64, value: u8) {
        bench.call(|context| pit.write(context, offset, &[value]));
    }

    fn read(bench: &mut Bench, pit: &mut Pit, offset: u64) -> u8 {
        let mut data = [0];
        bench.call(|context| pit.read(context, offset, &mut data));
        data[0]
    }

    #[test]
    fn linux_calibrates_with_channel_two() {
        let mut bench = Bench::default();
        let mut pit = Pit::default();
        write(&mut bench, &mut pit, PORT_B, 1);
        write(&mut bench, &mut pit, 3, 0xb0);
        // 50 ms.
        let count = (PIT_HZ / 20) as u16;
        for byte in count.to_le_bytes() {
            write(&mut bench, &mut pit, 2, byte);
        }
        bench.advance(Duration::from_micros(49_990));
        assert_eq!(read(&mut bench, &mut pit, PORT_B) & 0x20, 0);
        bench.advance(Duration::from_micros(20));
        assert_eq!(read(&mut bench, &mut pit, PORT_B) & 0x20, 0x20);
    }

    #[test]
    fn a_closed_gate_stops_the_count() {
        let mut bench = Bench::default();
        let mut pit = Pit::default();
        write(&mut bench, &mut pit, PORT_B, 1);
        write(&mut bench, &mut pit, 3, 0xb0);
        write(&mut bench, &mut pit, 2, 0xff);
        write(&mut bench, &mut pit, 2, 0xff);
        bench.advance(Duration::from_millis(10));
        write(&mut bench, &mut pit, PORT_B, 0);
        let before = pit.channels[2].count(bench.now);
        bench.advance(Duration::from_millis(10));
        assert_eq!(pit.channels[2].count(bench.now), before);
        write(&mut bench, &mut pit, PORT_B, 1);
        bench.advance(Duration::from_millis(10));
        let counted = u64::from(before - pit.channels[2].count(bench.now));
        assert!(counted.abs_diff(PIT_HZ / 100) <= 1, "{counted}");
    }

    #[test]
    fn channel_zero_interrupts_at_its_rate() {
        let mut bench = Bench::default();
        let mut pit = Pit::default();
        write(&mut bench, &mut pit, 3, 0x34);
        let count = (PIT_HZ / 1000) as u16;
        for byte in count.to_le_bytes() {
            write(&mut bench, &mut pit, 0, byte);
        }
        let mut interrupts = 0;
        while let Some(next) = pit.next_deadline().filter(|next| next.as_nanos() < 1_000_000_000) {
            assert!(next > bench.now, "time must go on");
            bench.now = next;
            bench.call(|context| pit.deadline(context));
            interrupts += bench.take_effects().lines.iter().filter(|line| line.level).count();
        }
        assert!((999..=1001).contains(&interrupts), "{interrupts}");
    }

    #[test]
    fn a_single_shot_interrupts_once() {
        let mut bench = Bench::default();
        let mut pit = Pit::default();
        write(&mut bench, &mut pit, 3, 0x38);
        write(&mut bench, &mut pit, 0, 100);
        assert_eq!(pit.next_deadline(), None, "half a count");
        write(&mut bench, &mut pit, 0, 0);
        bench.now = pit.next_deadline().unwrap();
        bench.call(|context| pit.deadline(context));
        assert_eq!(bench.take_effects().lines.len(), 2);
        assert_eq!(pit.next_deadline(), None);
    }

    proptest! {
        #[test]
        fn nothing_panics_and_deadlines_advance(
            steps in prop::collection::vec((any::<bool>(), 0_u64..0x24, any::<u8>(), 0_u64..100_000_000), 0..100),
        ) {
            let mut bench = Bench::default();
            let mut pit = Pit::default();
            for (is_write, offset, value, pause) in steps {
                bench.advance(Duration::from_nanos(pause));
                if is_write {
                    write(&mut bench, &mut pit, offset, value);
                } else {
                    read(&mut bench, &mut pit, offset);
                }
                bench.call(|context| pit.deadline(context));
                prop_assert!(pit.next_deadline().is_none_or(|next| next > bench.now));
            }
        }
    }
}
