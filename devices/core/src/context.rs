//! The two sides of a call into a device model: what it is given, and what it wants done.

use nicvisor_memory::GuestRam;
use serde::{Deserialize, Serialize};

use crate::{DeviceEvent, DeviceId, Dma, EventKind, EventKinds, Fate, Finding, Frame, FrameId, Rule, Time};

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

    /// Calls a device behind the one that was called, in its own name: a bus that is reached through something
    /// else does so. What the device wants done is kept apart, in [`Effects::nested`].
    pub fn on_behalf<R>(&mut self, device: DeviceId, call: impl FnOnce(&mut Context<'_>) -> R) -> R {
        let mut own = Effects { wanted: self.effects.wanted, ..Effects::default() };
        let result = call(&mut Context { now: self.now, dma: self.dma, effects: &mut own });
        if !own.is_empty() {
            self.effects.nested.push((device, own));
        }
        result
    }

    /// Asks for the device's interrupt number `vector`: an index into its MSI-X table, or a channel of VMBus.
    pub fn raise(&mut self, vector: u16) {
        self.effects.vectors.push(vector);
    }

    /// Puts a frame on the link of the device's port number `port`. The id that is returned stands for the one
    /// that the frame will get, in findings of the same call.
    pub fn transmit(&mut self, port: u16, bytes: Vec<u8>) -> FrameId {
        self.effects.frames.push((port, Frame::new(bytes)));
        FrameId::provisional(self.effects.frames.len() - 1)
    }

    /// Lets frames for port number `port`, which is bonded with another device's, arrive there or here.
    pub fn switch_path(&mut self, port: u16, path: DataPath) {
        self.effects.paths.push((port, path));
    }

    /// Has the machine take the device away from the guest, after this call: the guest has agreed to that.
    pub fn leave(&mut self) {
        self.effects.leave = true;
    }

    /// Has the bus offer the guest `count` more channels of this VMBus device.
    pub fn offer_sub_channels(&mut self, count: u16) {
        self.effects.sub_channels = self.effects.sub_channels.saturating_add(count);
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

    /// How many findings there are so far, for [`Self::concern`].
    pub fn findings(&self) -> usize {
        self.effects.findings.len()
    }

    /// Says that the findings behind the first `earlier` ones are about `frame`, unless they name another: a
    /// packet is checked before its frames leave.
    pub fn concern(&mut self, earlier: usize, frame: FrameId) {
        for finding in self.effects.findings.iter_mut().skip(earlier) {
            finding.frame.get_or_insert(frame);
        }
    }

    /// Tells that the faults with these labels changed something.
    pub fn observe_faults(&mut self, labels: &[String]) {
        for label in labels {
            self.observe(EventKind::Fault, || DeviceEvent::new(EventKind::Fault, label.clone()));
        }
    }

    /// Tells what the guest did, if anybody wants to know: `complete` is not called otherwise.
    pub fn observe(&mut self, kind: EventKind, complete: impl FnOnce() -> DeviceEvent) {
        if self.effects.wanted.contains(kind) {
            let event = complete();
            debug_assert_eq!(event.kind, kind, "the event is of the kind that was announced");
            self.effects.events.push(event);
        }
    }
}

/// What a device model wants done, in order within each kind. The machine empties it after every call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effects {
    /// Interrupts to raise, by index into the device's MSI-X table or by channel. The bus part of the device
    /// ([`crate::pci::Function`] on PCI) turns them into [`Self::messages`] or leaves them pending where masked.
    pub vectors: Vec<u16>,
    /// Message-signalled interrupts to deliver.
    pub messages: Vec<MsiMessage>,
    /// Level changes of wired interrupt lines.
    pub lines: Vec<InterruptLine>,
    /// Frames to put on links, with the device's port number.
    pub frames: Vec<(u16, Frame)>,
    /// What became of frames that the device was given.
    pub fates: Vec<(FrameId, Fate)>,
    /// Which of two bonded ports gets the frames from now on, with the device's port number.
    pub paths: Vec<(u16, DataPath)>,
    /// How many more channels the guest shall be offered; for the bus part of a VMBus device.
    pub sub_channels: u16,
    /// The device is to be unplugged.
    pub leave: bool,
    /// Broken rules.
    pub findings: Vec<Finding>,
    /// What the guest did, as far as it is [`Self::wanted`].
    pub events: Vec<DeviceEvent>,
    /// Bytes for the host side of a device that has one (a console).
    pub host: Vec<HostMessage>,
    /// The machine is to be switched off or reset.
    pub power: Option<PowerEvent>,
    /// What devices behind the one that was called want done, each in its own name, in order.
    pub nested: Vec<(DeviceId, Effects)>,
    /// Which events somebody wants to know; set by the machine, not an effect.
    pub wanted: EventKinds,
}

impl Effects {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.vectors.is_empty()
            && self.messages.is_empty()
            && self.lines.is_empty()
            && self.frames.is_empty()
            && self.fates.is_empty()
            && self.paths.is_empty()
            && self.sub_channels == 0
            && !self.leave
            && self.findings.is_empty()
            && self.events.is_empty()
            && self.host.is_empty()
            && self.power.is_none()
            && self.nested.is_empty()
    }
}

/// Where the frames for a bonded port arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataPath {
    /// At the port itself: the synthetic one.
    #[default]
    Own,
    /// At the port that it is bonded with, as long as that is plugged in: the virtual function's.
    Partner,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Bench;

    const RULE: Rule = Rule { id: "test", title: "", meaning: "", source: "", severity: Severity::Note };

    #[test]
    fn findings_name_the_frame_that_they_are_about() {
        let mut bench = Bench::default();
        bench.call(|context| {
            context.report(&RULE, "of an earlier packet", |_| ());
            let earlier = context.findings();
            context.report(&RULE, "of this one", |_| ());
            context.report(&RULE, "of another", |finding| finding.frame = Some(FrameId(9)));
            context.transmit(0, vec![1]);
            let frame = context.transmit(0, vec![2]);
            context.concern(earlier, frame);
            context.report(&RULE, "of a frame that never was", |finding| {
                finding.frame = Some(FrameId::provisional(7));
            });
        });
        let ids = [FrameId(20), FrameId(21)];
        let findings = bench.effects.findings.iter();
        let frames: Vec<_> = findings.map(|finding| finding.frame?.resolve(&ids)).collect();
        assert_eq!(frames, [None, Some(FrameId(21)), Some(FrameId(9)), None]);
    }

    #[test]
    fn what_a_device_behind_another_wants_done_stays_its_own() {
        let mut bench = Bench::default();
        bench.effects.wanted = EventKinds::NONE.with(EventKind::State);
        bench.call(|context| {
            context.transmit(0, vec![1]);
            context.on_behalf(DeviceId(4), |context| {
                let frame = context.transmit(0, vec![2]);
                context.report(&RULE, "of its frame", |finding| finding.frame = Some(frame));
                context.observe(EventKind::State, || DeviceEvent::new(EventKind::State, "up"));
            });
            context.on_behalf(DeviceId(5), |_| ());
        });
        let effects = bench.take_effects();
        assert_eq!(effects.frames.len(), 1);
        assert!(effects.findings.is_empty() && effects.events.is_empty());
        let [(DeviceId(4), nested)] = &effects.nested[..] else { panic!("{:?}", effects.nested) };
        assert_eq!(nested.frames[0].1.bytes, [2]);
        assert_eq!(nested.findings[0].frame.unwrap().resolve(&[FrameId(8)]), Some(FrameId(8)));
        assert_eq!(nested.events.len(), 1);
    }

    #[test]
    fn events_that_nobody_wants_are_not_made() {
        let mut bench = Bench::default();
        bench.effects.wanted = EventKinds::NONE.with(EventKind::State);
        bench.call(|context| {
            context.observe(EventKind::Command, || unreachable!("not wanted"));
            context.observe(EventKind::State, || DeviceEvent::new(EventKind::State, "reset"));
        });
        assert_eq!(bench.take_effects().events, [DeviceEvent::new(EventKind::State, "reset")]);
        assert!(bench.effects.is_empty());
        assert!(bench.effects.wanted.contains(EventKind::State));
    }
}
