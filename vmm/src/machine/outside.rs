//! Links that lead out of the program: the machine's side of [`crate::outside`].

use std::borrow::Cow;
use std::os::fd::RawFd;

use nicvisor_core::{DropReason, Duration, Fate, Frame, Time};
use nicvisor_net::network::{LinkId, PortId};

use super::{Input, Machine};
use crate::outside::{self, Wire};

impl Machine {
    /// Lets `link`, called `name`, lead out through `wire`.
    pub fn add_outside(&mut self, link: LinkId, name: &str, wire: Box<dyn Wire>) {
        let port = self.medium.network().add_port(self.station, link, name);
        self.outside.insert(port, wire);
    }

    /// Whether frames may come from outside: then time has to pass as on the wall, and no run is like another.
    #[inline]
    pub fn has_outside(&self) -> bool {
        !self.outside.is_empty()
    }

    /// What can be read when a frame has come. Changes as peers come and go.
    pub fn outside_descriptors(&self) -> Vec<RawFd> {
        outside::descriptors(self.wires())
    }

    /// Sleeps until a frame may have come, or for `longest`.
    pub fn wait_for_outside(&self, longest: Duration) {
        outside::wait(self.wires(), longest);
    }

    /// Puts the frames that have come on their links, a bounded number of them.
    pub fn receive_outside(&mut self, now: Time) {
        let mut arrived = Vec::new();
        for (port, wire) in &mut self.outside {
            let frames = std::iter::from_fn(|| wire.receive()).take(MOST_FRAMES_AT_ONCE);
            arrived.extend(frames.map(|bytes| Input::Frame { port: *port, bytes }));
        }
        for frame in arrived {
            // A frame is always possible.
            let _ = self.input(now, frame);
        }
    }

    /// Sends a frame out, if `port` is a way out; otherwise gives it back.
    pub(super) fn send_outside(&mut self, port: PortId, frame: Frame) -> Option<Frame> {
        let Some(wire) = self.outside.get_mut(&port) else { return Some(frame) };
        let fate = if wire.send(&frame.bytes) { Fate::Delivered } else { Fate::Dropped(NO_PEER) };
        self.medium.settle(frame.id, &fate);
        None
    }

    fn wires(&self) -> impl Iterator<Item = &dyn Wire> {
        self.outside.values().map(|wire| &**wire)
    }
}

/// Nobody outside took the frame.
pub const NO_PEER: DropReason = DropReason(Cow::Borrowed("nobody outside takes it"));
const MOST_FRAMES_AT_ONCE: usize = 64;

#[cfg(test)]
mod tests {
    use nicvisor_net::network::{LinkConfig, Network, SharedMedium};

    use super::*;
    use crate::machine::MachineConfig;

    /// A machine with nothing but a way out of its only link.
    fn machine(link: &str) -> Machine {
        let config = MachineConfig { memory: 4 << 20, ..MachineConfig::default() };
        let mut machine = Machine::new(config, SharedMedium::new(Network::new())).unwrap();
        let id = machine.network().add_link(LinkConfig::named(link));
        let wire = outside::open(link).unwrap().unwrap();
        machine.add_outside(id, link, wire);
        machine
    }

    #[test]
    fn frames_pass_between_two_machines_and_every_one_has_its_fate() {
        let directory = tempfile::tempdir().unwrap();
        let link = format!("stream:{}", directory.path().join("line").display());
        let [mut left, mut right] = [machine(&link), machine(&link)];
        let inside = |machine: &Machine| {
            let id = machine.network().find_link(&link).unwrap();
            machine.network().add_port(machine.station, id, "inside")
        };
        let (from, to) = (inside(&left), inside(&right));
        let frame = [&[0xff; 12][..], &[0x88, 0xb5], &[3; 60]].concat();
        left.medium.inject(from, frame.clone(), Time::ZERO);
        let later = Time::ZERO + Duration::from_secs(1);
        left.advance(later);
        right.wait_for_outside(Duration::from_secs(1));
        right.receive_outside(Time::ZERO);
        let arrived = right.medium.poll(right.station, later);
        assert_eq!(
            arrived.iter().map(|(port, frame)| (*port, &frame.bytes)).collect::<Vec<_>>(),
            [(to, &frame)]
        );
        right.medium.settle(arrived[0].1.id, &Fate::Delivered);
        drop(right);
        left.receive_outside(later);
        left.medium.inject(from, frame, later);
        left.advance(later + Duration::from_secs(1));
        let ledger = left.network().ledger().clone();
        assert!(ledger.balance().is_balanced());
        assert_eq!((ledger.totals().delivered, ledger.totals().dropped.get(&NO_PEER)), (1, Some(&1)));
    }
}
