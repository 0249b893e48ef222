//! Everything of a PC that is not on PCI, as one object that finds the device for an access.

use nicvisor_core::io::IoDevice;
use nicvisor_core::{Context, Effects, Time};
use serde::{Deserialize, Serialize};

use crate::access::{read_bytes, write_bytes};
use crate::{
    AcpiPm, DebugExit, FastControl, FirmwareConfig, InterruptFabric, KeyboardController, PM_BASE, PM_LENGTH,
    Pit, PlatformConfig, ResetControl, Rtc, Serial, TestDevice,
};

/// The platform devices of one machine. Serialising it saves the whole state.
///
/// Interrupt lines that its devices change reach the interrupt controllers within the call. For other devices
/// the machine calls [`Self::route_interrupts`] with what they left in the effects.
#[derive(Debug, Serialize, Deserialize)]
pub struct Platform {
    /// The interrupt controllers.
    pub interrupts: InterruptFabric,
    /// The serial port, for input from the host.
    pub serial: Serial,
    /// ACPI power management, for the power button.
    pub acpi: AcpiPm,
    pit: Pit,
    rtc: Rtc,
    keyboard: KeyboardController,
    reset_control: ResetControl,
    fast_control: FastControl,
    debug_exit: DebugExit,
    firmware_config: FirmwareConfig,
    test_device: Option<TestDevice>,
    /// The interrupt controllers are somebody else's: see [`Platform::leave_interrupts_to_machine`].
    interrupts_elsewhere: bool,
    config: PlatformConfig,
}

impl Platform {
    /// Power-on state.
    pub fn new(config: PlatformConfig) -> Platform {
        Platform {
            interrupts: InterruptFabric::new(config.cpus, config.tsc_hz),
            serial: Serial::new(),
            acpi: AcpiPm::default(),
            pit: Pit::default(),
            rtc: Rtc::new(&config),
            keyboard: KeyboardController::default(),
            reset_control: ResetControl::default(),
            fast_control: FastControl::default(),
            debug_exit: DebugExit,
            firmware_config: FirmwareConfig::new(&config),
            test_device: config.test_device.then(TestDevice::new),
            interrupts_elsewhere: false,
            config,
        }
    }

    /// The time-stamp counter at `now`.
    #[inline]
    pub fn tsc(&self, now: Time) -> u64 {
        let nanoseconds = now.as_nanos();
        if self.config.tsc_hz == 1_000_000_000 {
            return nanoseconds;
        }
        (u128::from(nanoseconds) * u128::from(self.config.tsc_hz) / 1_000_000_000) as u64
    }

    /// The guest reads `data.len()` bytes from I/O port `port`; `data` comes filled with ones. Returns whether
    /// a device answered. (PCI's ports 0xcf8 and 0xcfc to 0xcff are not here; 0xcf9, one byte wide, is.)
    pub fn port_read(&mut self, context: &mut Context<'_>, port: u16, data: &mut [u8]) -> bool {
        let known = match port {
            0x20 | 0x21 | 0xa0 | 0xa1 | 0x4d0 | 0x4d1 => {
                read_bytes(port.into(), data, |port| self.interrupts.pic_read(port as u16));
                true
            }
            POST | DELAY => {
                data.fill(0);
                true
            }
            _ => match self.device(port, data.len()) {
                Some((device, base)) => {
                    device.read(context, u64::from(port - base), data);
                    true
                }
                None => {
                    let test = self.test_device.as_mut();
                    test.is_some_and(|device| device.port_read(port, data))
                }
            },
        };
        self.route_interrupts(context.effects);
        known
    }

    /// The guest writes `data` to I/O port `port`. Returns whether a device took it.
    pub fn port_write(&mut self, context: &mut Context<'_>, port: u16, data: &[u8]) -> bool {
        let known = match port {
            0x20 | 0x21 | 0xa0 | 0xa1 | 0x4d0 | 0x4d1 => {
                write_bytes(port.into(), data, |port, value| self.interrupts.pic_write(port as u16, value));
                true
            }
            POST | DELAY => true,
            _ => match self.device(port, data.len()) {
                Some((device, base)) => {
                    device.write(context, u64::from(port - base), data);
                    true
                }
                None => {
                    let test = self.test_device.as_mut();
                    test.is_some_and(|device| device.port_write(context, port, data))
                }
            },
        };
        self.route_interrupts(context.effects);
        known
    }

    /// CPU `cpu` reads memory at `address`; `data` comes filled with ones. Returns whether a device answered.
    pub fn memory_read(
        &mut self,
        context: &mut Context<'_>,
        cpu: usize,
        address: u64,
        data: &mut [u8],
    ) -> bool {
        self.interrupts.memory_read(cpu, context.now, address, data)
            || self.test_device.as_mut().is_some_and(|device| device.memory_read(address, data))
    }

    /// CPU `cpu` writes memory at `address`. Returns whether a device took it.
    pub fn memory_write(&mut self, context: &mut Context<'_>, cpu: usize, address: u64, data: &[u8]) -> bool {
        self.interrupts.memory_write(cpu, context.now, address, data)
            || self.test_device.as_mut().is_some_and(|device| device.memory_write(address, data))
    }

    /// The machine has other interrupt controllers: from now on interrupts stay in the effects, for the machine
    /// to deliver.
    pub fn leave_interrupts_to_machine(&mut self) {
        self.interrupts_elsewhere = true;
    }

    /// Delivers the wired and message-signalled interrupts that a device left in `effects`.
    pub fn route_interrupts(&mut self, effects: &mut Effects) {
        if self.interrupts_elsewhere {
            return;
        }
        for line in effects.lines.drain(..) {
            self.interrupts.set_line(line.line, line.level);
        }
        for message in effects.messages.drain(..) {
            self.interrupts.deliver(message);
        }
    }

    /// Bytes for the serial port.
    pub fn serial_input(&mut self, context: &mut Context<'_>, bytes: &[u8]) {
        self.serial.host_input(context, bytes);
        self.route_interrupts(context.effects);
    }

    /// The power button is pressed.
    pub fn press_power_button(&mut self, context: &mut Context<'_>) {
        self.acpi.press_power_button(context);
        self.route_interrupts(context.effects);
    }

    /// When [`Self::deadline`] wants to be called, if nothing else happens before.
    pub fn next_deadline(&self) -> Option<Time> {
        let deadlines = [self.interrupts.next_deadline(), self.pit.next_deadline(), self.rtc.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// It is now at or after [`Self::next_deadline`].
    pub fn deadline(&mut self, context: &mut Context<'_>) {
        self.interrupts.fire_timers(context.now);
        self.pit.deadline(context);
        self.rtc.deadline(context);
        self.route_interrupts(context.effects);
    }

    /// Machine reset. The real-time clock goes on; everything else is as after power-on.
    pub fn reset(&mut self, context: &mut Context<'_>) {
        let fresh = Platform::new(self.config.clone());
        let rtc = std::mem::replace(&mut self.rtc, Rtc::new(&self.config));
        *self = Platform { rtc, interrupts_elsewhere: self.interrupts_elsewhere, ..fresh };
        self.rtc.reset(context);
        self.route_interrupts(context.effects);
    }

    /// The device at `port`, and the port that is its offset 0.
    fn device(&mut self, port: u16, length: usize) -> Option<(&mut dyn IoDevice, u16)> {
        Some(match port {
            0x40..=0x43 | PORT_B => (&mut self.pit, 0x40),
            0x60 | 0x64 => (&mut self.keyboard, 0x60),
            0x70 | 0x71 => (&mut self.rtc, 0x70),
            0x92 => (&mut self.fast_control, 0x92),
            0xf4..=0xf7 => (&mut self.debug_exit, 0xf4),
            0x3f8..=0x3ff => (&mut self.serial, 0x3f8),
            0x510 | 0x511 => (&mut self.firmware_config, 0x510),
            PM_BASE..=PM_LAST => (&mut self.acpi, PM_BASE),
            0xcf9 if length == 1 => (&mut self.reset_control, 0xcf9),
            _ => return None,
        })
    }
}

const PM_LAST: u16 = PM_BASE + PM_LENGTH - 1;
const PORT_B: u16 = 0x61;
/// Diagnostic codes of firmware; kernels write here to wait.
const POST: u16 = 0x80;
/// The other port that kernels write to for that.
const DELAY: u16 = 0xed;

#[cfg(test)]
#[path = "platform_tests.rs"]
mod tests;
