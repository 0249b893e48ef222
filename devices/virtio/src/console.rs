//! The console device with named ports (virtio 1.2, section 5.3): byte streams between guest and host.
//!
//! Queues 0 and 1 belong to port 0, 2 and 3 to control messages, 2n + 2 and 2n + 3 to port n. The first of
//! each pair carries bytes to the guest.

use std::collections::VecDeque;

use nicvisor_core::RestoreError;
use nicvisor_core::{Fate, Frame, HostMessage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::device::{Kind, VirtioDevice};
use crate::queue::Queues;

/// A console with one or more ports. Each port's number is its channel for the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Console {
    ports: Vec<ConsolePort>,
    /// Control messages that wait for a buffer of the driver's.
    control: VecDeque<Vec<u8>>,
}

/// One port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsolePort {
    number: u16,
    name: String,
    /// Whether a program in the guest has the port open. Linux throws away what comes before.
    open: bool,
    input: VecDeque<u8>,
    received: u64,
    sent: u64,
}

impl ConsolePort {
    /// Port `number`, which the guest finds under `name` in `/sys/class/virtio-ports`.
    pub fn new(number: u16, name: impl Into<String>) -> ConsolePort {
        ConsolePort { number, name: name.into(), open: false, input: VecDeque::new(), received: 0, sent: 0 }
    }
}

impl Console {
    /// A console with `ports`, whose numbers differ and are below 31.
    pub fn new(ports: Vec<ConsolePort>) -> Console {
        Console { ports, control: VecDeque::new() }
    }

    /// A console with the one port that the guest's agent talks over.
    pub fn for_agent() -> Console {
        Console::new(vec![ConsolePort::new(AGENT_PORT, AGENT_PORT_NAME)])
    }

    /// Bytes from the host that the guest has not taken yet.
    pub fn queued(&self, port: u16) -> usize {
        self.port(port).map_or(0, |port| port.input.len())
    }

    fn port(&self, number: u16) -> Option<&ConsolePort> {
        self.ports.iter().find(|port| port.number == number)
    }

    /// As many ports as the highest number makes necessary.
    fn port_limit(&self) -> u16 {
        self.ports.iter().map(|port| port.number + 1).max().unwrap_or(1)
    }

    /// Moves waiting bytes into the buffers that the driver has provided for `number`.
    fn fill(&mut self, queues: &mut Queues<'_, '_>, number: u16) {
        let Some(port) = self.ports.iter_mut().find(|port| port.number == number && port.open) else {
            return;
        };
        let queue = input_queue(number);
        let mut delivered = false;
        while !port.input.is_empty() {
            let Some(chain) = queues.pop(queue) else { break };
            let Some(written) = chain.write(port.input.make_contiguous()) else { return queues.fail() };
            port.input.drain(..written);
            port.received += written as u64;
            queues.complete(queue, &chain, written as u32);
            delivered = true;
        }
        if delivered {
            queues.interrupt(queue);
        }
    }

    /// Hands what the guest wrote to `number` to the host.
    fn drain(&mut self, queues: &mut Queues<'_, '_>, number: u16) {
        let queue = output_queue(number);
        let mut taken = false;
        while let Some(chain) = queues.pop(queue) {
            let Some(bytes) = chain.read(LARGEST_WRITE) else { return queues.fail() };
            queues.complete(queue, &chain, 0);
            taken = true;
            if let Some(port) = self.ports.iter_mut().find(|port| port.number == number) {
                port.sent += bytes.len() as u64;
                queues.context.effects.host.push(HostMessage { channel: number, bytes });
            }
        }
        if taken {
            queues.interrupt(queue);
        }
    }

    fn drain_control(&mut self, queues: &mut Queues<'_, '_>) {
        let mut taken = false;
        while let Some(chain) = queues.pop(CONTROL_OUTPUT) {
            let Some(bytes) = chain.read(LARGEST_WRITE) else { return queues.fail() };
            queues.complete(CONTROL_OUTPUT, &chain, 0);
            taken = true;
            if let Some(message) = Control::parse(&bytes) {
                self.handle(queues, message);
            }
        }
        if taken {
            queues.interrupt(CONTROL_OUTPUT);
        }
        self.fill_control(queues);
    }

    fn fill_control(&mut self, queues: &mut Queues<'_, '_>) {
        let mut delivered = false;
        while let Some(message) = self.control.front() {
            let Some(chain) = queues.pop(CONTROL_INPUT) else { break };
            let Some(written) = chain.write(message) else { return queues.fail() };
            queues.complete(CONTROL_INPUT, &chain, written as u32);
            self.control.pop_front();
            delivered = true;
        }
        if delivered {
            queues.interrupt(CONTROL_INPUT);
        }
    }

    fn handle(&mut self, queues: &mut Queues<'_, '_>, message: Control) {
        match message {
            Control { event: event::DEVICE_READY, value: 1, .. } => {
                for number in self.ports.iter().map(|port| port.number).collect::<Vec<_>>() {
                    self.send(Control { port: number.into(), event: event::PORT_ADD, value: 1 }, b"");
                }
            }
            Control { port, event: event::PORT_READY, value: 1 } => {
                let name = self.ports.iter().find(|known| u32::from(known.number) == port);
                if let Some(name) = name.map(|known| known.name.clone()) {
                    self.send(Control { port, event: event::PORT_NAME, value: 1 }, name.as_bytes());
                    self.send(Control { port, event: event::PORT_OPEN, value: 1 }, b"");
                }
            }
            Control { port, event: event::PORT_OPEN, value } => {
                let known = self.ports.iter_mut().find(|known| u32::from(known.number) == port);
                if let Some(number) = known.map(|known| {
                    known.open = value != 0;
                    known.number
                }) {
                    self.fill(queues, number);
                }
            }
            _ => {}
        }
    }

    /// Queues a message for the driver. One that lets them pile up does not read them anyway.
    fn send(&mut self, message: Control, text: &[u8]) {
        if self.control.len() < MOST_WAITING {
            self.control.push_back([&message.to_bytes(), text].concat());
        }
    }
}

impl VirtioDevice for Console {
    fn kind(&self) -> Kind {
        Kind { device_type: DEVICE_TYPE, class: CLASS }
    }

    fn features(&self) -> u64 {
        FEATURE_MULTIPORT
    }

    fn queue_sizes(&self) -> Vec<u16> {
        vec![QUEUE_SIZE; 2 * (usize::from(self.port_limit()) + 1)]
    }

    fn config_read(&self, offset: u64, data: &mut [u8]) {
        // Columns and rows (not offered), then the number of ports.
        let mut config = [0; 12];
        config[4..8].copy_from_slice(&u32::from(self.port_limit()).to_le_bytes());
        for (position, byte) in (offset as usize..).zip(data) {
            *byte = config.get(position).copied().unwrap_or(0);
        }
    }

    fn activate(&mut self, _queues: &mut Queues<'_, '_>, _features: u64) {}

    fn notify(&mut self, queues: &mut Queues<'_, '_>, queue: u16) {
        match queue {
            CONTROL_INPUT => self.fill_control(queues),
            CONTROL_OUTPUT => self.drain_control(queues),
            _ => {
                let number = if queue < CONTROL_INPUT { 0 } else { queue / 2 - 1 };
                if queue.is_multiple_of(2) { self.fill(queues, number) } else { self.drain(queues, number) }
            }
        }
    }

    fn receive(&mut self, queues: &mut Queues<'_, '_>, _port: u16, frame: Frame) {
        queues.context.settle(frame.id, Fate::Dropped(nicvisor_core::DropReason::NOT_READY));
    }

    fn host_input(&mut self, queues: &mut Queues<'_, '_>, channel: u16, bytes: &[u8]) {
        if let Some(port) = self.ports.iter_mut().find(|port| port.number == channel) {
            port.input.extend(bytes);
            self.fill(queues, channel);
        }
    }

    fn host_input_queued(&self, channel: u16) -> usize {
        self.queued(channel)
    }

    fn reset(&mut self, _queues: &mut Queues<'_, '_>) {
        // What the host has sent stays: it waits for the next driver.
        self.control.clear();
        self.ports.iter_mut().for_each(|port| port.open = false);
    }

    fn counters(&self) -> Vec<(String, u64)> {
        let counters = |port: &ConsolePort| {
            [
                (format!("port{}_to_guest_bytes", port.number), port.received),
                (format!("port{}_from_guest_bytes", port.number), port.sent),
            ]
        };
        self.ports.iter().flat_map(counters).collect()
    }

    fn save(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }

    fn restore(&mut self, state: &Value) -> Result<(), RestoreError> {
        let saved = Console::deserialize(state).map_err(|error| RestoreError(error.to_string()))?;
        let names = |console: &Console| {
            console.ports.iter().map(|port| (port.number, port.name.clone())).collect::<Vec<_>>()
        };
        if names(&saved) != names(self) {
            return Err(RestoreError("the consoles have different ports".into()));
        }
        *self = saved;
        Ok(())
    }
}

/// A control message (5.3.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Control {
    port: u32,
    event: u16,
    value: u16,
}

impl Control {
    fn parse(bytes: &[u8]) -> Option<Control> {
        let &[a, b, c, d, e, f, g, h, ..] = bytes else { return None };
        Some(Control {
            port: u32::from_le_bytes([a, b, c, d]),
            event: u16::from_le_bytes([e, f]),
            value: u16::from_le_bytes([g, h]),
        })
    }

    fn to_bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.port.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.event.to_le_bytes());
        bytes[6..].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }
}

fn input_queue(port: u16) -> u16 {
    if port == 0 { 0 } else { 2 * port + 2 }
}

fn output_queue(port: u16) -> u16 {
    input_queue(port) + 1
}

/// Control events (5.3.6.2).
mod event {
    pub(super) const DEVICE_READY: u16 = 0;
    pub(super) const PORT_ADD: u16 = 1;
    pub(super) const PORT_READY: u16 = 3;
    pub(super) const PORT_OPEN: u16 = 6;
    pub(super) const PORT_NAME: u16 = 7;
}

/// The agent's port number, which is its channel for the host.
pub const AGENT_PORT: u16 = 1;
/// The agent's port name in `/sys/class/virtio-ports/*/name`.
pub const AGENT_PORT_NAME: &str = "nicvisor.agent";
const DEVICE_TYPE: u16 = 3;
/// Simple communication controller, other.
const CLASS: u32 = 0x07_80_00;
const FEATURE_MULTIPORT: u64 = 1 << 1;
const CONTROL_INPUT: u16 = 2;
const CONTROL_OUTPUT: u16 = 3;
const QUEUE_SIZE: u16 = 128;
/// Far above what Linux puts into one chain; more is an attempt to exhaust us.
const LARGEST_WRITE: usize = 4 << 20;
const MOST_WAITING: usize = 256;

#[cfg(test)]
#[path = "console_tests.rs"]
mod tests;
