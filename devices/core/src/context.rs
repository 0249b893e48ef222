//! The two sides of a call into a device model: what it is given, and what it wants done.

use nicvisor_memory::GuestRam;
use serde::{Deserialize, Serialize};

use crate::{Dma, Fate, Finding, Frame, FrameId, Rule, Time};

/// What a device model is given with every call.
#[derive(Debug)]
pub struct Context<'a> {
    /// The machine's time of this call.
    pub now: Time,
    /// Guest memory as this device may reach it now.
    pub dma: Dma<'a>,
    /// Where the device leaves what it wants to happen.
    pub effects: &'a mut Effects,
}

impl<'a> Context<'a> {
    /// A context for a device that may (`bus_master`) or may not reach `memory`.
    pub fn new(now: Time, memory: &'a GuestRam, bus_master: bool, effects: &'a mut Effects) -> Self {
        Context { now, dma: Dma::new(memory, bus_master), effects }
    }

    /// Asks for the device's MSI-X interrupt `vector` (an index into its table, not a CPU vector).
    pub fn raise(&mut self, vector: u16) {
        self.effects.vectors.push(vector);
    }

    /// Puts a frame on the link of the device's port number `port`.
    pub fn transmit(&mut self, port: u16, bytes: Vec<u8>) {
        self.effects.frames.push((port, Frame::new(bytes)));
    }

    /// Says what became of a frame that the device was given.
    pub fn settle(&mut self, frame: FrameId, fate: Fate) {
        self.effects.fates.push((frame, fate));
    }

    /// Records that `rule` was broken. `complete` adds what the device knows: queue, descriptor, packet.
    pub fn report(&mut self, rule: &Rule, message: impl Into<String>, complete: impl FnOnce(&mut Finding)) {
        let mut finding = Finding::new(rule, self.now, message);
        complete(&mut finding);
        self.effects.findings.push(finding);
    }
}

/// What a device model wants done, in order within each kind. The machine empties it after every call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effects {
    /// MSI-X vectors to raise, by index into the device's table. [`crate::pci::Function`] turns them into
    /// [`Self::messages`] or leaves them pending where masked.
    pub vectors: Vec<u16>,
    /// Message-signalled interrupts to deliver.
    pub messages: Vec<MsiMessage>,
    /// Level changes of wired interrupt lines.
    pub lines: Vec<InterruptLine>,
    /// Frames to put on links, with the device's port number.
    pub frames: Vec<(u16, Frame)>,
    /// What became of frames that the device was given.
    pub fates: Vec<(FrameId, Fate)>,
    /// Broken rules.
    pub findings: Vec<Finding>,
    /// Bytes for the host side of a device that has one (a console).
    pub host: Vec<HostMessage>,
    /// The machine is to be switched off or reset.
    pub power: Option<PowerEvent>,
}

impl Effects {
    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        *self == Effects::default()
    }
}

/// What the guest wants to happen to the whole machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PowerEvent {
    /// Switch off (ACPI S5).
    PowerOff,
    /// Start over from power-on state.
    Reset,
    /// A test program ends with this exit status.
    DebugExit(u32),
}

/// A message-signalled interrupt: a 32-bit write that the interrupt controller catches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MsiMessage {
    /// Address, normally `0xfeexxxxx` (Intel SDM vol. 3, 11.11).
    pub address: u64,
    /// Vector, delivery mode and trigger mode.
    pub data: u32,
}

/// A level change of a wired interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptLine {
    /// Global system interrupt number (IO-APIC input).
    pub line: u32,
    /// The new level.
    pub level: bool,
}

/// Bytes from the guest for the host side of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostMessage {
    /// The device's channel (console port) number.
    pub channel: u16,
    /// The bytes.
    pub bytes: Vec<u8>,
}
