//! An interrupt on its way to the local APICs (Intel SDM vol. 3, 11.6 and 11.11).

use nicvisor_core::MsiMessage;

/// Whom an interrupt is for and what it does there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) destination: Destination,
    pub(super) mode: Mode,
    pub(super) vector: u8,
    pub(super) level: bool,
}

/// Which local APICs accept a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// The one with this id, or all.
    Physical(u32),
    /// Those whose logical id matches.
    Logical(u32),
    /// The CPU with this index.
    Only(usize),
    /// All but the CPU with this index.
    AllBut(usize),
    /// All.
    All,
}

/// What the message does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Fixed,
    LowestPriority,
    Nmi,
    Init,
    Startup,
    /// System management and reserved modes: nothing here listens to them.
    Other,
}

impl Mode {
    /// The three-bit delivery mode of message data, redirection entries and the interrupt command register.
    pub(super) fn from_bits(bits: u32) -> Mode {
        match bits & 7 {
            0 => Mode::Fixed,
            1 => Mode::LowestPriority,
            4 => Mode::Nmi,
            5 => Mode::Init,
            6 => Mode::Startup,
            _ => Mode::Other,
        }
    }
}

impl From<MsiMessage> for Message {
    fn from(message: MsiMessage) -> Message {
        let address = message.address as u32;
        let id = address >> 12 & 0xff;
        let logical = address & ADDRESS_LOGICAL != 0;
        let redirect = address & ADDRESS_REDIRECTION_HINT != 0;
        let mode = match Mode::from_bits(message.data >> 8) {
            Mode::Fixed if logical && redirect => Mode::LowestPriority,
            mode => mode,
        };
        Message {
            destination: if logical { Destination::Logical(id) } else { Destination::Physical(id) },
            mode,
            vector: message.data as u8,
            level: message.data & DATA_LEVEL_TRIGGERED != 0,
        }
    }
}

impl Message {
    /// What a write to the interrupt command register sends. In x2APIC mode the destination has 32 bits.
    pub(super) fn from_command(command: u64, sender: usize, x2apic: bool) -> Option<Message> {
        let low = command as u32;
        let mode = Mode::from_bits(low >> 8);
        let deassert = low & COMMAND_LEVEL_TRIGGERED != 0 && low & COMMAND_ASSERT == 0;
        if mode == Mode::Init && deassert {
            // Synchronises arbitration ids on old buses; does nothing since.
            return None;
        }
        let id = if x2apic { (command >> 32) as u32 } else { (command >> 56) as u32 };
        let destination = match low >> 18 & 3 {
            0 if low & COMMAND_LOGICAL != 0 => Destination::Logical(id),
            0 => Destination::Physical(id),
            1 => Destination::Only(sender),
            2 => Destination::All,
            _ => Destination::AllBut(sender),
        };
        Some(Message { destination, mode, vector: low as u8, level: false })
    }
}

/// The addresses that message-signalled interrupts are written to.
pub(super) const MESSAGE_ADDRESS: u64 = 0xfee0_0000;
pub(super) const MESSAGE_ADDRESS_MASK: u64 = 0xfff0_0000;
const ADDRESS_LOGICAL: u32 = 1 << 2;
const ADDRESS_REDIRECTION_HINT: u32 = 1 << 3;
const DATA_LEVEL_TRIGGERED: u32 = 1 << 15;
const COMMAND_LOGICAL: u32 = 1 << 11;
const COMMAND_ASSERT: u32 = 1 << 14;
const COMMAND_LEVEL_TRIGGERED: u32 = 1 << 15;
