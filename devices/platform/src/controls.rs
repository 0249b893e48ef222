//! Ports whose only use is to reset, leave or not disturb the machine.

use nicvisor_core::io::IoDevice;
use nicvisor_core::{Context, PowerEvent};
use serde::{Deserialize, Serialize};

use crate::access::{read_bytes, value, write_bytes};

/// The reset control register at port 0xcf9.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetControl {
    value: u8,
}

impl IoDevice for ResetControl {
    fn read(&mut self, _context: &mut Context<'_>, _offset: u64, data: &mut [u8]) {
        data.fill(self.value);
    }

    fn write(&mut self, context: &mut Context<'_>, _offset: u64, data: &[u8]) {
        let new = value(data) as u8;
        if new & RESET_CPU != 0 && self.value & RESET_CPU == 0 {
            context.effects.power = Some(PowerEvent::Reset);
        }
        self.value = new & (RESET_SYSTEM | RESET_CPU);
    }

    fn reset(&mut self, _context: &mut Context<'_>) {
        *self = ResetControl::default();
    }
}

/// System control port A, 0x92: fast reset and the A20 gate (which is always open here).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FastControl {
    value: u8,
}

impl IoDevice for FastControl {
    fn read(&mut self, _context: &mut Context<'_>, _offset: u64, data: &mut [u8]) {
        data.fill(self.value | FAST_A20);
    }

    fn write(&mut self, context: &mut Context<'_>, _offset: u64, data: &[u8]) {
        let new = value(data) as u8;
        if new & FAST_RESET != 0 && self.value & FAST_RESET == 0 {
            context.effects.power = Some(PowerEvent::Reset);
        }
        self.value = new;
    }

    fn reset(&mut self, _context: &mut Context<'_>) {
        *self = FastControl::default();
    }
}

/// The keyboard controller at ports 0x60 and 0x64, without a keyboard: its reset line and its self test.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyboardController {
    command_byte: u8,
    /// The command whose operand the next write to the data port is.
    waiting: Option<u8>,
    output: Option<u8>,
}

impl KeyboardController {
    fn command(&mut self, context: &mut Context<'_>, command: u8) {
        self.waiting = None;
        match command {
            0x20 => self.output = Some(self.command_byte),
            0x60 | 0xd1 => self.waiting = Some(command),
            0xaa => self.output = Some(SELF_TEST_PASSED),
            0xab => self.output = Some(PORT_TEST_PASSED),
            0xd0 => self.output = Some(OUTPUT_PORT_RESET | OUTPUT_PORT_A20),
            // Pulse of output lines; line 0 is the CPUs' reset.
            0xf0..=0xff if command & 1 == 0 => context.effects.power = Some(PowerEvent::Reset),
            _ => {}
        }
    }

    fn operand(&mut self, context: &mut Context<'_>, value: u8) {
        match self.waiting.take() {
            Some(0x60) => self.command_byte = value,
            Some(0xd1) if value & OUTPUT_PORT_RESET == 0 => context.effects.power = Some(PowerEvent::Reset),
            _ => {}
        }
    }
}

/// Offset 0 is the data port, offset 4 the status and command port.
impl IoDevice for KeyboardController {
    fn read(&mut self, _context: &mut Context<'_>, offset: u64, data: &mut [u8]) {
        read_bytes(offset, data, |position| match position {
            0 => self.output.take().unwrap_or(0),
            4 => u8::from(self.output.is_some()) | STATUS_SYSTEM,
            _ => 0xff,
        });
    }

    fn write(&mut self, context: &mut Context<'_>, offset: u64, data: &[u8]) {
        write_bytes(offset, data, |position, value| match position {
            0 => self.operand(context, value),
            4 => self.command(context, value),
            _ => {}
        });
    }

    fn reset(&mut self, _context: &mut Context<'_>) {
        *self = KeyboardController::default();
    }
}

/// The debug-exit port 0xf4 of QEMU's convention: writing `n` ends the run with status `2 * n + 1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DebugExit;

impl IoDevice for DebugExit {
    fn read(&mut self, _context: &mut Context<'_>, _offset: u64, data: &mut [u8]) {
        data.fill(0);
    }

    fn write(&mut self, context: &mut Context<'_>, _offset: u64, data: &[u8]) {
        let status = (value(data) as u32) << 1 | 1;
        context.effects.power = Some(PowerEvent::DebugExit(status));
    }

    fn reset(&mut self, _context: &mut Context<'_>) {}
}

const RESET_SYSTEM: u8 = 1 << 1;
const RESET_CPU: u8 = 1 << 2;
const FAST_RESET: u8 = 1 << 0;
const FAST_A20: u8 = 1 << 1;
const STATUS_SYSTEM: u8 = 1 << 2;
const SELF_TEST_PASSED: u8 = 0x55;
const PORT_TEST_PASSED: u8 = 0x00;
const OUTPUT_PORT_RESET: u8 = 1 << 0;
const OUTPUT_PORT_A20: u8 = 1 << 1;

#[cfg(test)]
mod tests {
    use super::*;
    use nicvisor_core::testing::Bench;

    fn write(device: &mut dyn IoDevice, offset: u64, data: &[u8]) -> Option<PowerEvent> {
        let mut bench = Bench::default();
        bench.call(|context| device.write(context, offset, data));
        bench.take_effects().power
    }

    #[test]
    fn reset_needs_the_rising_bit() {
        let mut control = ResetControl::default();
        assert_eq!(write(&mut control, 0, &[2]), None);
        assert_eq!(write(&mut control, 0, &[6]), Some(PowerEvent::Reset));
        assert_eq!(write(&mut FastControl::default(), 0, &[2]), None);
        assert_eq!(write(&mut FastControl::default(), 0, &[1]), Some(PowerEvent::Reset));
    }

    #[test]
    fn the_keyboard_controller_resets_and_answers() {
        let mut bench = Bench::default();
        let mut keyboard = KeyboardController::default();
        assert_eq!(write(&mut keyboard, 4, &[0xfe]), Some(PowerEvent::Reset));
        assert_eq!(write(&mut keyboard, 4, &[0xaa]), None);
        let mut data = [0];
        bench.call(|context| keyboard.read(context, 4, &mut data));
        assert_eq!(data, [STATUS_SYSTEM | 1]);
        bench.call(|context| keyboard.read(context, 0, &mut data));
        assert_eq!(data, [SELF_TEST_PASSED]);
        write(&mut keyboard, 4, &[0xd1]);
        assert_eq!(write(&mut keyboard, 0, &[0xfe]), Some(PowerEvent::Reset));
    }

    #[test]
    fn debug_exit_follows_the_convention() {
        assert_eq!(write(&mut DebugExit, 0, &[0x10, 0, 0, 0]), Some(PowerEvent::DebugExit(0x21)));
    }
}
