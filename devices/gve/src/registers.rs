//! BAR0: the register file (`gve_register.h`). All registers are big-endian.
//!
//! The admin queue comes into being in one of two ways. With PCI revision 0 the driver writes the queue's page
//! number, and takes the device back by writing zero. With revision 1 it writes length and base address and
//! then the run bit of the driver status, and takes the device back with the reset bit there. The device
//! accepts both ways whatever its revision, as old drivers know only the first.

use std::ops::Range;

use bitflags::bitflags;
use nicvisor_core::Context;
use serde::{Deserialize, Serialize};

use crate::admin::AdminRing;
use crate::device::{Gve, PREVIOUS_ADMIN};
use crate::faults::REGISTERS;
use crate::rules;

bitflags! {
    /// `enum gve_device_status_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct DeviceStatus: u32 {
        /// The device wants to be reset.
        const RESET = 1 << 1;
        /// The link is up.
        const LINK = 1 << 2;
        /// The device wants the driver to update its part of the statistics report.
        const REPORT_STATS = 1 << 3;
        /// The reset that the driver asked for is done.
        const DEVICE_IS_RESET = 1 << 4;
    }
}

/// The registers that keep what the driver writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Registers {
    pub(crate) device_status: DeviceStatus,
    driver_status: u32,
    admin_pfn: u32,
    admin_base: u64,
    admin_length: u16,
    /// The driver's version, a byte at a time (`gve_write_version`).
    version: String,
}

impl Gve {
    /// The driver reads from BAR0.
    pub(crate) fn read_register(&mut self, context: &Context<'_>, offset: u64, data: &mut [u8]) {
        let mut file = [0; FILE_SIZE];
        let registers = &self.state.registers;
        let mut put = |offset: u64, value: u32| {
            file[offset as usize..offset as usize + 4].copy_from_slice(&value.to_be_bytes());
        };
        put(DEVICE_STATUS, registers.device_status.bits());
        put(DRIVER_STATUS, registers.driver_status);
        put(MAX_TX_QUEUES, self.config.max_queues.into());
        put(MAX_RX_QUEUES, self.config.max_queues.into());
        put(ADMIN_PFN, registers.admin_pfn);
        put(ADMIN_EVENT_COUNTER, self.state.admin.counter);
        put(ADMIN_BASE_HI, (registers.admin_base >> 32) as u32);
        put(ADMIN_BASE_LO, registers.admin_base as u32);
        put(ADMIN_LENGTH, u32::from(registers.admin_length) << 16);
        let accessed = offset as usize..offset as usize + data.len();
        self.override_registers(context, &accessed, &mut file);
        if let Some(bytes) = file.get(accessed) {
            data.copy_from_slice(bytes);
        }
    }

    /// Changes what faults change of the registers that the driver reads.
    fn override_registers(&mut self, context: &Context<'_>, accessed: &Range<usize>, file: &mut [u8]) {
        let overrides = &mut self.state.faults.overrides;
        if overrides.is_empty() {
            return;
        }
        for (name, register) in REGISTERS {
            let place = register.place();
            if place.start < accessed.end
                && accessed.start < place.end
                && let Some(value) = register.read(file)
            {
                register.write(file, overrides.apply(context.now, name, value));
            }
        }
    }

    /// The driver writes to BAR0.
    pub(crate) fn write_register(&mut self, context: &mut Context<'_>, offset: u64, data: &[u8]) {
        match (offset, data) {
            (DRIVER_VERSION, &[byte]) => self.state.registers.write_version(byte),
            (ADMIN_LENGTH, &[high, low]) => {
                self.state.registers.admin_length = u16::from_be_bytes([high, low]);
            }
            (_, &[a, b, c, d]) if offset.is_multiple_of(4) => {
                self.write_word(context, offset, u32::from_be_bytes([a, b, c, d]));
            }
            _ => self.unexpected_access(context, offset, data),
        }
    }

    fn write_word(&mut self, context: &mut Context<'_>, offset: u64, value: u32) {
        let registers = &mut self.state.registers;
        match offset {
            DRIVER_STATUS => self.write_driver_status(context, value),
            ADMIN_PFN => {
                registers.admin_pfn = value;
                match value {
                    0 => self.driver_reset(context),
                    _ => self.start_admin(context, u64::from(value) << 12, ADMIN_PAGE),
                }
            }
            ADMIN_DOORBELL => self.run_admin(context, value),
            ADMIN_BASE_HI => {
                registers.admin_base = u64::from(value) << 32 | registers.admin_base & 0xffff_ffff
            }
            ADMIN_BASE_LO => registers.admin_base = registers.admin_base >> 32 << 32 | u64::from(value),
            _ => self.unexpected_access(context, offset, &value.to_be_bytes()),
        }
    }

    fn write_driver_status(&mut self, context: &mut Context<'_>, value: u32) {
        let registers = &mut self.state.registers;
        registers.driver_status = value;
        if value & DRIVER_RESET != 0 {
            self.driver_reset(context);
            self.state.registers.device_status |= DeviceStatus::DEVICE_IS_RESET;
        } else if value & DRIVER_RUN != 0 {
            let (base, length) = (registers.admin_base, registers.admin_length);
            self.start_admin(context, base, length);
        }
    }

    fn start_admin(&mut self, context: &mut Context<'_>, address: u64, length: u16) {
        let entries = length / ADMIN_ENTRY;
        let usable = entries.is_power_of_two() && length.is_multiple_of(ADMIN_ENTRY);
        let reachable = context.dma.is_memory(address, length.into());
        if self.state.admin.ring.is_some() || !usable || !reachable {
            let running = if self.state.admin.ring.is_some() { "while one is running" } else { "" };
            let message = format!("admin queue of {length} bytes at {address:#x} {running}");
            rules::report(&self.config, context, &rules::ADMIN_SETUP, message, |_| ());
        }
        if !usable || !reachable {
            return;
        }
        self.state.registers.device_status -= DeviceStatus::DEVICE_IS_RESET | DeviceStatus::RESET;
        self.state.admin.ring = Some(AdminRing { address, entries });
        self.state.admin.restart();
    }

    /// The driver takes the device back, whatever state it is in.
    fn driver_reset(&mut self, context: &mut Context<'_>) {
        let leftovers = self.state.leftovers();
        if !leftovers.is_empty() {
            let message = format!("reset by the driver with {leftovers} in place");
            rules::report(&self.config, context, &rules::RESET_LEFTOVER, message, |_| ());
        }
        self.stop(context);
    }

    fn unexpected_access(&self, context: &mut Context<'_>, offset: u64, data: &[u8]) {
        let message = format!("write of {} bytes at {offset:#x} of the registers", data.len());
        let value = data.to_vec();
        rules::report(&self.config, context, &rules::REGISTER_ACCESS, message, |finding| {
            finding.descriptor = value;
        });
    }
}

impl Registers {
    /// Registers at power-on, with the link's state.
    pub(crate) fn power_on(link: DeviceStatus) -> Registers {
        Registers { device_status: link & DeviceStatus::LINK, ..Registers::default() }
    }

    /// The registers of a device that somebody has set up, in either way.
    pub(crate) fn hand_over(&mut self) {
        self.admin_pfn = (PREVIOUS_ADMIN >> 12) as u32;
        self.driver_status = DRIVER_RUN;
    }

    /// What a reset by the driver leaves: the link's state and the version that the driver wrote.
    pub(crate) fn after_reset(&self) -> Registers {
        Registers {
            device_status: self.device_status & DeviceStatus::LINK,
            driver_status: self.driver_status,
            version: self.version.clone(),
            ..Registers::default()
        }
    }

    /// Each load of the driver writes its version anew, ended by a newline.
    fn write_version(&mut self, byte: u8) {
        if self.version.ends_with('\n') {
            self.version.clear();
        }
        if self.version.len() < MAX_VERSION {
            self.version.push(char::from(byte & 0x7f));
        }
    }
}

/// Size of BAR0.
pub(crate) const BAR_SIZE: u64 = 4096;
/// Bytes of the register file, rounded up.
const FILE_SIZE: usize = 48;
const DEVICE_STATUS: u64 = 0x00;
const DRIVER_STATUS: u64 = 0x04;
const MAX_TX_QUEUES: u64 = 0x08;
const MAX_RX_QUEUES: u64 = 0x0c;
const ADMIN_PFN: u64 = 0x10;
const ADMIN_DOORBELL: u64 = 0x14;
const ADMIN_EVENT_COUNTER: u64 = 0x18;
const DRIVER_VERSION: u64 = 0x1f;
const ADMIN_BASE_HI: u64 = 0x20;
const ADMIN_BASE_LO: u64 = 0x24;
const ADMIN_LENGTH: u64 = 0x28;
/// `GVE_DRIVER_STATUS_RUN_MASK`.
const DRIVER_RUN: u32 = 1 << 0;
/// `GVE_DRIVER_STATUS_RESET_MASK`.
const DRIVER_RESET: u32 = 1 << 1;
/// Bytes of an admin queue entry.
const ADMIN_ENTRY: u16 = 64;
/// A queue that is given by its page number is one page long.
const ADMIN_PAGE: u16 = 4096;
const MAX_VERSION: usize = 32;
