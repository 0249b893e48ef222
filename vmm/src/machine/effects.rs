//! Carrying out what devices want.

use nicvisor_core::pci::Slot;
use nicvisor_core::{DeviceEvent, DeviceId, Effects, Frame, FrameId, HostMessage, Time};
use nicvisor_net::network::PortId;

use super::Machine;

/// Bytes from the guest for the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostOutput {
    /// From the serial port.
    Serial(Vec<u8>),
    /// From a device with a host side, such as a console port.
    Device {
        /// The device.
        device: DeviceId,
        /// The device's channel.
        channel: u16,
        /// The bytes.
        bytes: Vec<u8>,
    },
}

/// Something that the guest did to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// When.
    pub time: Time,
    /// The device.
    pub device: DeviceId,
    /// What.
    pub event: DeviceEvent,
}

/// Whose effects are carried out.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Platform,
    Device(DeviceId),
    /// A function that is not a device of the machine: the host bridge.
    Bus,
}

impl Machine {
    /// Carries out what the last call into a device asked for.
    pub(super) fn carry_out(&mut self, source: Source, now: Time) {
        if self.effects.is_empty() {
            return;
        }
        let mut effects = std::mem::take(&mut self.effects);
        self.carry_out_for(source, &mut effects, now);
        // Keep the allocations.
        self.effects = effects;
        while let Some(id) = self.leaving.pop() {
            // One that is gone already has what it wants.
            let _ = self.unplug(now, id);
        }
    }

    fn carry_out_for(&mut self, source: Source, effects: &mut Effects, now: Time) {
        self.route_interrupts(effects);
        let mut ids = Vec::new();
        for (index, frame) in effects.frames.drain(..) {
            ids.push(self.transmit(source, index, frame, now).unwrap_or(FrameId::UNASSIGNED));
        }
        for (frame, fate) in effects.fates.drain(..) {
            self.medium.settle(frame, &fate);
        }
        for (index, path) in effects.paths.drain(..) {
            if let Some(port) = self.port(source, index) {
                self.medium.network().switch_path(port, path);
            }
        }
        for mut finding in effects.findings.drain(..) {
            finding.device = self.name(source).to_owned();
            let frame = finding.frame.and_then(|frame| frame.resolve(&ids));
            finding.frame = frame.filter(|frame| *frame != FrameId::UNASSIGNED);
            self.medium.record_finding(&finding);
            self.findings.push(finding);
        }
        for event in effects.events.drain(..) {
            self.events.extend(observed(source, now, event));
        }
        for message in effects.host.drain(..) {
            self.activity += 1;
            self.output.extend(host_output(source, message));
        }
        if let Some(power) = effects.power.take() {
            self.power = Some(power);
        }
        if std::mem::take(&mut effects.leave)
            && let Source::Device(id) = source
        {
            self.leaving.push(id);
        }
        for (device, mut nested) in effects.nested.drain(..) {
            self.carry_out_for(Source::Device(device), &mut nested, now);
        }
    }

    /// Whose effects those of the function in `slot` are.
    pub(super) fn in_slot(&self, slot: Slot) -> Source {
        self.slots.get(&slot).map_or(Source::Bus, |id| Source::Device(*id))
    }

    /// Puts a frame of a device on its link; the id that it got there.
    fn transmit(&mut self, source: Source, index: u16, frame: Frame, now: Time) -> Option<FrameId> {
        let port = self.port(source, index)?;
        let injected = self.medium.inject(port, frame.bytes, now);
        for mut finding in injected.findings {
            finding.device = self.name(source).to_owned();
            self.findings.push(finding);
        }
        Some(injected.id)
    }

    /// The place on the network of a device's own port `index`.
    fn port(&self, source: Source, index: u16) -> Option<PortId> {
        let Source::Device(id) = source else { return None };
        self.devices.get(&id)?.ports.get(usize::from(index)).copied()
    }

    fn name(&self, source: Source) -> &str {
        match source {
            Source::Platform => "platform",
            Source::Bus => "bus",
            Source::Device(id) => self.devices.get(&id).map_or("", |device| &device.name),
        }
    }
}

fn observed(source: Source, time: Time, event: DeviceEvent) -> Option<Observed> {
    let Source::Device(device) = source else { return None };
    Some(Observed { time, device, event })
}

fn host_output(source: Source, message: HostMessage) -> Option<HostOutput> {
    let HostMessage { channel, bytes } = message;
    match source {
        Source::Platform => Some(HostOutput::Serial(bytes)),
        Source::Device(device) => Some(HostOutput::Device { device, channel, bytes }),
        Source::Bus => None,
    }
}
