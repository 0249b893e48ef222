//! ACPI power management registers: events, sleep control and the power management timer (ACPI 6.5, 4.8.3).

use nicvisor_core::io::IoDevice;
use nicvisor_core::{Context, InterruptLine, PowerEvent};
use serde::{Deserialize, Serialize};

use crate::access::{read_bytes, write_bytes};

/// The PM1a event block (offset 0), PM1a control block (offset 4) and timer (offset 8).
///
/// The machine is always in ACPI mode: its tables name no SMI command port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcpiPm {
    status: u16,
    enable: u16,
    control: u16,
    asserted: bool,
}

impl AcpiPm {
    /// The power button is pressed: a guest that listens shuts down.
    pub fn press_power_button(&mut self, context: &mut Context<'_>) {
        self.status |= POWER_BUTTON;
        self.update_line(context);
    }

    fn byte(&self, context: &Context<'_>, offset: u64) -> u8 {
        let half = |word: u16| word.to_le_bytes()[(offset % 2) as usize];
        match offset {
            0 | 1 => half(self.status),
            2 | 3 => half(self.enable),
            4 | 5 => half(self.control | SCI_ENABLED),
            8..=11 => timer(context).to_le_bytes()[(offset - 8) as usize],
            _ => 0,
        }
    }

    fn set_byte(&mut self, context: &mut Context<'_>, offset: u64, value: u8) {
        let shift = 8 * (offset % 2) as u32;
        let value = u16::from(value) << shift;
        let kept = !(0xff << shift);
        match offset {
            0 | 1 => self.status &= !value,
            2 | 3 => self.enable = self.enable & kept | value & EVENTS,
            4 | 5 => {
                self.control = self.control & kept | value & !(SLEEP_ENABLE | SCI_ENABLED);
                if value & SLEEP_ENABLE != 0 && self.control >> 10 & 7 == u16::from(SLEEP_TYPE_OFF) {
                    context.effects.power = Some(PowerEvent::PowerOff);
                }
            }
            _ => {}
        }
    }

    fn update_line(&mut self, context: &mut Context<'_>) {
        let asserted = self.status & self.enable & EVENTS != 0;
        if asserted != self.asserted {
            self.asserted = asserted;
            context.effects.lines.push(InterruptLine { line: SCI, level: asserted });
        }
    }
}

impl IoDevice for AcpiPm {
    fn read(&mut self, context: &mut Context<'_>, offset: u64, data: &mut [u8]) {
        read_bytes(offset, data, |position| self.byte(context, position));
    }

    fn write(&mut self, context: &mut Context<'_>, offset: u64, data: &[u8]) {
        write_bytes(offset, data, |position, value| self.set_byte(context, position, value));
        self.update_line(context);
    }

    fn reset(&mut self, context: &mut Context<'_>) {
        *self = AcpiPm { asserted: self.asserted, ..AcpiPm::default() };
        self.update_line(context);
    }
}

/// The 32-bit timer at this moment.
fn timer(context: &Context<'_>) -> u32 {
    (u128::from(context.now.as_nanos()) * u128::from(PM_TIMER_HZ) / 1_000_000_000) as u32
}

/// First port of the registers: PM1a event block here, control block at +4, timer at +8.
pub const PM_BASE: u16 = 0x600;
/// Number of ports.
pub const PM_LENGTH: u16 = 12;
/// Ticks a second of the power management timer, which has 32 bits.
pub const PM_TIMER_HZ: u64 = 3_579_545;
/// The global system interrupt of ACPI events, level-triggered and active high.
pub const SCI: u32 = 9;
/// The sleep type that the `\_S5` object must name for PM1a.
pub const SLEEP_TYPE_OFF: u8 = 5;
const POWER_BUTTON: u16 = 1 << 8;
const TIMER_CARRY: u16 = 1 << 0;
const GLOBAL_LOCK: u16 = 1 << 5;
const CLOCK_ALARM: u16 = 1 << 10;
/// The events that can be enabled. Only the power button ever happens; but an operating system that enables
/// one reads it back.
const EVENTS: u16 = TIMER_CARRY | GLOBAL_LOCK | POWER_BUTTON | CLOCK_ALARM;
const SCI_ENABLED: u16 = 1 << 0;
const SLEEP_ENABLE: u16 = 1 << 13;

#[cfg(test)]
mod tests {
    use super::*;
    use nicvisor_core::Time;
    use nicvisor_core::testing::Bench;

    #[test]
    fn soft_off_needs_the_right_type_and_the_enable_bit() {
        let mut bench = Bench::default();
        let mut pm = AcpiPm::default();
        for value in [5 << 10, 0x2000 | 1 << 10] {
            bench.call(|context| pm.write(context, 4, &u16::to_le_bytes(value)));
            assert_eq!(bench.take_effects().power, None);
        }
        bench.call(|context| pm.write(context, 4, &u16::to_le_bytes(0x2000 | 5 << 10)));
        assert_eq!(bench.take_effects().power, Some(PowerEvent::PowerOff));
    }

    #[test]
    fn the_power_button_interrupts_until_acknowledged() {
        let mut bench = Bench::default();
        let mut pm = AcpiPm::default();
        bench.call(|context| pm.press_power_button(context));
        assert!(bench.take_effects().is_empty(), "not enabled");
        bench.call(|context| pm.write(context, 2, &POWER_BUTTON.to_le_bytes()));
        assert_eq!(bench.take_effects().lines, [InterruptLine { line: SCI, level: true }]);
        bench.call(|context| pm.write(context, 0, &POWER_BUTTON.to_le_bytes()));
        assert_eq!(bench.take_effects().lines, [InterruptLine { line: SCI, level: false }]);
    }

    #[test]
    fn linux_can_enable_the_clock_alarm() {
        let mut bench = Bench::default();
        let mut pm = AcpiPm::default();
        bench.call(|context| pm.write(context, 2, &CLOCK_ALARM.to_le_bytes()));
        let mut data = [0; 2];
        bench.call(|context| pm.read(context, 2, &mut data));
        assert_eq!(u16::from_le_bytes(data), CLOCK_ALARM);
    }

    #[test]
    fn the_timer_counts_time() {
        let mut bench = Bench { now: Time::from_nanos(2_000_000_000), ..Bench::default() };
        let mut data = [0; 4];
        bench.call(|context| AcpiPm::default().read(context, 8, &mut data));
        assert_eq!(u32::from_le_bytes(data), 2 * 3_579_545);
    }
}
