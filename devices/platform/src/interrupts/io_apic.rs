//! The I/O APIC (Intel 82093AA, with the end-of-interrupt register of its successors).

use serde::{Deserialize, Serialize};

use super::message::{Destination, Message, Mode};

/// 24 inputs and their redirection entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoApic {
    select: u8,
    id: u8,
    entries: [u64; INPUTS],
    /// Levels of the inputs.
    levels: u32,
}

impl IoApic {
    /// Power-on state: all inputs masked.
    pub fn new() -> IoApic {
        IoApic { select: 0, id: 0, entries: [MASKED; INPUTS], levels: 0 }
    }

    /// The redirection entry of `input`, for inspection.
    pub fn entry(&self, input: usize) -> Option<u64> {
        self.entries.get(input).copied()
    }

    /// Input `input` changes to `level`. Returns the interrupt that this sends.
    pub(super) fn set_level(&mut self, input: u32, level: bool) -> Option<Message> {
        let index = input as usize;
        let entry = *self.entries.get(index)?;
        let rises = level && self.levels >> input & 1 == 0;
        self.levels = self.levels & !(1 << input) | u32::from(level) << input;
        if entry & LEVEL_TRIGGERED != 0 {
            self.service_level(index)
        } else {
            // An edge while masked is lost.
            (rises && entry & MASKED == 0).then(|| message(entry))
        }
    }

    /// A handler of the level-triggered `vector` is done: inputs that are still asserted interrupt again.
    pub(super) fn end_of_interrupt(&mut self, vector: u8) -> Vec<Message> {
        let mut messages = Vec::new();
        for index in 0..INPUTS {
            let entry = &mut self.entries[index];
            if *entry as u8 == vector && *entry & LEVEL_TRIGGERED != 0 && *entry & REMOTE_IRR != 0 {
                *entry &= !REMOTE_IRR;
                messages.extend(self.service_level(index));
            }
        }
        messages
    }

    /// Reads the 32-bit register at `offset` of the memory page.
    pub(super) fn read(&self, offset: u64) -> u32 {
        match offset {
            SELECT => self.select.into(),
            WINDOW => match self.select {
                0 => u32::from(self.id) << 24,
                1 => VERSION | (INPUTS as u32 - 1) << 16,
                2 => u32::from(self.id) << 24,
                register => self.half_entry(register).unwrap_or(0),
            },
            _ => 0,
        }
    }

    /// Writes the 32-bit register at `offset` of the memory page. Returns the interrupts that this sends.
    pub(super) fn write(&mut self, offset: u64, value: u32) -> Vec<Message> {
        match offset {
            SELECT => self.select = value as u8,
            WINDOW if self.select == 0 => self.id = (value >> 24) as u8 & 0xf,
            WINDOW => return self.write_entry(value).into_iter().collect(),
            END_OF_INTERRUPT => return self.end_of_interrupt(value as u8),
            _ => {}
        }
        Vec::new()
    }

    fn half_entry(&self, register: u8) -> Option<u32> {
        let index = register.checked_sub(FIRST_ENTRY)?;
        let entry = self.entries.get(usize::from(index / 2))?;
        Some((entry >> (32 * (index % 2))) as u32)
    }

    fn write_entry(&mut self, value: u32) -> Option<Message> {
        let half = self.select.checked_sub(FIRST_ENTRY)?;
        let index = usize::from(half / 2);
        let entry = self.entries.get_mut(index)?;
        if half % 2 == 1 {
            *entry = *entry & 0xffff_ffff | u64::from(value) << 32;
            return None;
        }
        let kept = *entry & (0xffff_ffff_0000_0000 | READ_ONLY);
        *entry = kept | u64::from(value) & !READ_ONLY & 0x1_ffff;
        if *entry & LEVEL_TRIGGERED == 0 {
            // How software forgets an interrupt on I/O APICs without an end-of-interrupt register.
            *entry &= !REMOTE_IRR;
            return None;
        }
        self.service_level(index)
    }

    fn service_level(&mut self, index: usize) -> Option<Message> {
        let entry = &mut self.entries[index];
        let asserted = self.levels >> index & 1 != 0;
        let level_triggered = *entry & LEVEL_TRIGGERED != 0;
        if !asserted || !level_triggered || *entry & (MASKED | REMOTE_IRR) != 0 {
            return None;
        }
        *entry |= REMOTE_IRR;
        Some(message(*entry))
    }
}

impl Default for IoApic {
    fn default() -> Self {
        IoApic::new()
    }
}

fn message(entry: u64) -> Message {
    let id = (entry >> 56) as u32;
    Message {
        destination: if entry & LOGICAL != 0 { Destination::Logical(id) } else { Destination::Physical(id) },
        mode: Mode::from_bits((entry >> 8) as u32),
        vector: entry as u8,
        level: entry & LEVEL_TRIGGERED != 0,
    }
}

/// Where the I/O APIC's registers are.
pub const IO_APIC_BASE: u64 = 0xfec0_0000;
const INPUTS: usize = 24;
const SELECT: u64 = 0x00;
const WINDOW: u64 = 0x10;
const END_OF_INTERRUPT: u64 = 0x40;
const VERSION: u32 = 0x20;
const FIRST_ENTRY: u8 = 0x10;
const LOGICAL: u64 = 1 << 11;
const REMOTE_IRR: u64 = 1 << 14;
const LEVEL_TRIGGERED: u64 = 1 << 15;
const MASKED: u64 = 1 << 16;
/// Delivery status and remote IRR.
const READ_ONLY: u64 = 1 << 12 | REMOTE_IRR;
