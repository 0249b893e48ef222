//! Links between ports: a learning switch each, with delay, bandwidth and faults, driven by the machine's time.
//!
//! A device's frame is [injected](Medium::inject) at its port. There it is checked by the rules, gets its
//! [`FrameId`] and enters the [`Ledger`]; the link decides which ports it goes to and when it is there; the
//! machine asks for the [next deadline](Medium::next_deadline), [polls](Medium::poll) and hands the frames that
//! are due to their devices; and the devices say later what became of them ([`Medium::settle`]).

mod bond;
mod ledger;
mod link;
mod medium;
mod random;
mod shared;
mod transit;

pub use ledger::{Balance, Ledger, Place, Totals};
pub use link::{Faults, LinkConfig, PerMillion};
pub use medium::{Injected, Medium};
pub use random::Random;
pub use shared::{NetworkGuard, SharedMedium};

use std::borrow::Cow;
use std::collections::BTreeMap;

use nicvisor_core::{DataPath, DropReason, Fate, Finding, Frame, FrameId, Time};
use serde::{Deserialize, Serialize};

use crate::check::{check_wire, evidence};
use crate::parse::parse;
use crate::stats::PortCounters;
use crate::wire::EthernetHeader;
use bond::Bonds;
use link::Link;
use transit::{InTransit, Transit};

/// Names a link of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LinkId(pub u32);

/// Names a port of a network: the place where one port of one device is plugged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PortId(pub u32);

/// Names who takes the frames that arrive at a port: one machine of those that share the network, or an end on
/// the host. Each lives by its own clock, and takes only its own frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Station(pub u32);

/// All links, their ports, and the frames on them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    links: Vec<Link>,
    ports: Vec<Port>,
    /// Frames under way, by the station that they go to.
    transit: BTreeMap<Station, Transit>,
    stations: u32,
    bonds: Bonds,
    ledger: Ledger,
    breaches: BTreeMap<Cow<'static, str>, u64>,
}

/// A change of a network that is in use, which does not come from its devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// A port is connected to its link, or pulled out of it.
    Port {
        /// The port.
        port: PortId,
        /// Whether it is connected.
        up: bool,
    },
    /// A whole link comes up or goes down.
    Link {
        /// The link.
        link: LinkId,
        /// Its state.
        up: bool,
    },
    /// A link gets other settings; frames already on it keep their times.
    Configure {
        /// The link.
        link: LinkId,
        /// All of its settings.
        config: LinkConfig,
    },
}

/// One port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Port {
    name: String,
    link: LinkId,
    station: Station,
    up: bool,
    counters: PortCounters,
    /// When the port has put its last frame on the link.
    sender_free: Time,
    /// When the link has put its last frame to the port.
    receiver_free: Time,
    /// Bytes under way to the port.
    queued: usize,
}

impl Network {
    /// A network without links.
    pub fn new() -> Network {
        Network::default()
    }

    /// Adds a link without ports.
    pub fn add_link(&mut self, config: LinkConfig) -> LinkId {
        self.links.push(Link::new(config));
        LinkId(self.links.len() as u32 - 1)
    }

    /// The link of that name.
    pub fn find_link(&self, name: &str) -> Option<LinkId> {
        let position = self.links.iter().position(|link| link.config.name == name)?;
        Some(LinkId(position as u32))
    }

    /// A station that no port belongs to yet. The first is [`Station::default`].
    pub fn add_station(&mut self) -> Station {
        self.stations += 1;
        Station(self.stations - 1)
    }

    /// Adds a port of `station` to a link; its name is the one that captures and reports show.
    ///
    /// # Panics
    /// When `link` is not a link of this network.
    pub fn add_port(&mut self, station: Station, link: LinkId, name: impl Into<String>) -> PortId {
        assert!((link.0 as usize) < self.links.len(), "no link {link:?}");
        self.ports.push(Port {
            name: name.into(),
            link,
            station,
            up: true,
            counters: PortCounters::default(),
            sender_free: Time::ZERO,
            receiver_free: Time::ZERO,
            queued: 0,
        });
        PortId(self.ports.len() as u32 - 1)
    }

    /// Makes one port of two on the same link: frames for one MAC that both have arrive at one of them only,
    /// at `own` first. Frames that both send come from the same place.
    pub fn bond(&mut self, own: PortId, partner: PortId) {
        self.bonds.add(own, partner);
    }

    /// Says at which port of its bond the frames for `own` arrive from now on. Nothing for a port that is not in
    /// a bond, or is not the first of it.
    pub fn switch_path(&mut self, own: PortId, path: DataPath) {
        self.bonds.switch(own, path);
    }

    /// The device behind `port` is gone: its bond forgets that frames were to arrive there.
    pub fn vacate(&mut self, port: PortId) {
        self.bonds.forget(port);
    }

    /// Where the frames for `own` arrive that are sent now; `None` for a port that is not the first of a bond.
    pub fn path(&self, own: PortId) -> Option<DataPath> {
        self.bonds.path(own)
    }

    /// All ports, in the order in which they were added.
    pub fn ports(&self) -> impl Iterator<Item = PortId> + use<> {
        (0..self.ports.len() as u32).map(PortId)
    }

    /// A port's name; empty for a port that does not exist.
    pub fn port_name(&self, port: PortId) -> &str {
        self.ports.get(port.0 as usize).map_or("", |port| &port.name)
    }

    /// A port's counters.
    pub fn counters(&self, port: PortId) -> Option<&PortCounters> {
        self.ports.get(port.0 as usize).map(|port| &port.counters)
    }

    /// A link's settings.
    pub fn link(&self, link: LinkId) -> Option<&LinkConfig> {
        self.links.get(link.0 as usize).map(|link| &link.config)
    }

    /// A link's settings, to be changed; frames already on it keep their times.
    pub fn link_mut(&mut self, link: LinkId) -> Option<&mut LinkConfig> {
        self.links.get_mut(link.0 as usize).map(|link| &mut link.config)
    }

    /// Does a change from outside. The ports whose state changes by that are returned: their devices must be told.
    pub fn change(&mut self, change: &Change) -> Vec<PortId> {
        match change {
            Change::Port { port, up } => Vec::from_iter(self.set_port(*port, *up).then_some(*port)),
            Change::Link { link, up } => self.set_link(*link, *up),
            Change::Configure { link, config } => {
                if let Some(link) = self.links.get_mut(link.0 as usize) {
                    link.config = config.clone();
                }
                Vec::new()
            }
        }
    }

    /// Takes a whole link up or down. The ports whose state changes by that are returned: their devices must be
    /// told.
    pub fn set_link(&mut self, link: LinkId, up: bool) -> Vec<PortId> {
        let before: Vec<_> = self.ports().map(|port| self.is_up(port)).collect();
        if let Some(link) = self.links.get_mut(link.0 as usize) {
            link.up = up;
        }
        self.ports()
            .zip(before)
            .filter(|(port, before)| self.is_up(*port) != *before)
            .map(|(port, _)| port)
            .collect()
    }

    /// Plugs or unplugs one port. Whether its state changes by that is returned: its device must be told.
    pub fn set_port(&mut self, port: PortId, up: bool) -> bool {
        let before = self.is_up(port);
        if let Some(port) = self.ports.get_mut(port.0 as usize) {
            port.up = up;
        }
        self.is_up(port) != before
    }

    /// Whether the port is plugged in and its link is up.
    pub fn is_up(&self, port: PortId) -> bool {
        self.ports.get(port.0 as usize).is_some_and(|port| port.up && self.links[port.link.0 as usize].up)
    }

    /// The account of all frames.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// How often each wire rule was broken, including the breaches that were too many to report.
    pub fn breaches(&self) -> &BTreeMap<Cow<'static, str>, u64> {
        &self.breaches
    }

    /// The run is over: what is still on the links is dropped as [`END_OF_RUN`]. Devices must have been reset
    /// before, so that they settle what they hold; then whatever [`Ledger::balance`] calls missing was lost.
    pub fn close(&mut self) {
        for transit in self.transit.values_mut().flat_map(Transit::take_all) {
            self.ledger.settle(transit.frame.id, &Fate::Dropped(END_OF_RUN));
        }
        self.ports.iter_mut().for_each(|port| port.queued = 0);
    }

    /// Checks a frame by the wire rules. Breaches of a rule beyond the first [`REPORTED_BREACHES`] are only
    /// counted: a driver that gets every checksum wrong must not fill the host's memory with evidence.
    fn check(&mut self, frame: &Frame, mtu: usize, now: Time) -> Vec<Finding> {
        let mut findings = Vec::new();
        for breach in check_wire(&frame.bytes, mtu) {
            let count = self.breaches.entry(Cow::Borrowed(breach.rule.id)).or_default();
            *count += 1;
            if *count <= REPORTED_BREACHES {
                let mut finding = breach.into_finding(now);
                finding.packet = evidence(&frame.bytes);
                finding.frame = Some(frame.id);
                findings.push(finding);
            }
        }
        findings
    }

    /// Why the link would not take the frame at all.
    fn refusal(&self, port: PortId, bytes: &[u8], mtu: usize) -> Option<DropReason> {
        if !self.is_up(port) {
            return Some(LINK_DOWN);
        }
        if bytes.len() < EthernetHeader::LEN {
            return Some(DropReason::MALFORMED);
        }
        (bytes.len() - parse(bytes).network_offset > mtu).then_some(DropReason::TOO_LONG)
    }

    /// Decides where and when a frame goes that the link has taken. Returns why it goes nowhere, if so.
    fn forward(&mut self, port: PortId, frame: Frame, now: Time) -> Option<DropReason> {
        let link_id = self.ports[port.0 as usize].link;
        let link = &mut self.links[link_id.0 as usize];
        let (source, destination) = addresses(&frame.bytes);
        link.learn(source, port);
        let wire_time = link.config.wire_time(frame.bytes.len());
        let sender = &mut self.ports[port.0 as usize];
        sender.sender_free = sender.sender_free.max(now) + wire_time;
        let arrival = sender.sender_free + link.config.delay;
        let Some(faults) = link.faults() else { return Some(LOST) };

        let known = link.lookup(destination);
        let mut receivers = match known.map(|known| self.receiver(known)) {
            Some(known) if self.bonds.are_one(known, port) => return Some(DropReason::FILTERED),
            Some(known) if self.is_up(known) => vec![known],
            _ => self.others(port, link_id),
        };
        if faults.duplicate {
            receivers.extend_from_within(..);
        }
        let mut copies = Copies { original: Some(frame.id), bytes: frame.bytes };
        if receivers.is_empty() {
            return Some(DropReason::NO_RECEIVER);
        }
        let last = receivers.len() - 1;
        for (index, receiver) in receivers.into_iter().enumerate() {
            let copy = copies.take(index == last, &mut self.ledger, port, now);
            let link = &self.links[link_id.0 as usize];
            let to = &mut self.ports[receiver.0 as usize];
            if to.queued + copy.bytes.len() > link.config.queue_bytes {
                self.ledger.settle(copy.id, &Fate::Dropped(QUEUE_FULL));
                continue;
            }
            let due = match faults.held_back {
                true => arrival + link.config.faults.reorder_delay,
                false => {
                    to.receiver_free = arrival.max(to.receiver_free + wire_time);
                    to.receiver_free
                }
            };
            to.queued += copy.bytes.len();
            self.transit.entry(to.station).or_default().insert(due, receiver, copy);
        }
        None
    }

    /// All ports of a link at which a frame from `port` arrives that is for everybody.
    fn others(&self, port: PortId, link: LinkId) -> Vec<PortId> {
        let here = |other: &PortId| self.on_link(*other, link) && self.receiver(*other) == *other;
        self.ports().filter(|other| here(other) && !self.bonds.are_one(*other, port)).collect()
    }

    /// Which port of `port`'s bond gets the frames.
    fn receiver(&self, port: PortId) -> PortId {
        self.bonds.receiver(port, |partner| self.is_up(partner))
    }

    fn on_link(&self, port: PortId, link: LinkId) -> bool {
        self.is_up(port) && self.ports[port.0 as usize].link == link
    }
}

impl Medium for Network {
    fn inject(&mut self, port: PortId, bytes: Vec<u8>, now: Time) -> Injected {
        let id = self.ledger.enter(port, now);
        let frame = Frame { id, bytes };
        let Some(sender) = self.ports.get_mut(port.0 as usize) else {
            self.ledger.settle(id, &Fate::Dropped(NO_PORT));
            return Injected { id, findings: Vec::new(), dropped: Some(NO_PORT) };
        };
        sender.counters.sent(&frame.bytes);
        let mtu = self.links[sender.link.0 as usize].config.mtu;
        let findings = self.check(&frame, mtu, now);
        let dropped = match self.refusal(port, &frame.bytes, mtu) {
            Some(reason) => Some(reason),
            None => self.forward(port, frame, now),
        };
        if let Some(reason) = &dropped {
            self.ledger.settle(id, &Fate::Dropped(reason.clone()));
        }
        Injected { id, findings, dropped }
    }

    fn poll(&mut self, station: Station, now: Time) -> Vec<(PortId, Frame)> {
        let mut due = Vec::new();
        let arrived = |transit: &mut BTreeMap<Station, Transit>| transit.get_mut(&station)?.take_due(now);
        while let Some(InTransit { receiver, frame, .. }) = arrived(&mut self.transit) {
            let up = self.is_up(receiver);
            let port = &mut self.ports[receiver.0 as usize];
            port.queued = port.queued.saturating_sub(frame.bytes.len());
            if up {
                port.counters.received(frame.bytes.len());
                self.ledger.hand_over(frame.id, receiver, now);
                due.push((receiver, frame));
            } else {
                self.ledger.settle(frame.id, &Fate::Dropped(LINK_DOWN));
            }
        }
        due
    }

    fn next_deadline(&self, station: Station) -> Option<Time> {
        self.transit.get(&station)?.next_deadline()
    }

    fn settle(&mut self, frame: FrameId, fate: &Fate) {
        self.ledger.settle(frame, fate);
    }

    fn network(&self) -> &Network {
        self
    }

    fn network_mut(&mut self) -> &mut Network {
        self
    }
}

/// Makes the copies of a frame for several receivers; the first keeps the frame's id.
struct Copies {
    original: Option<FrameId>,
    bytes: Vec<u8>,
}

impl Copies {
    fn take(&mut self, last: bool, ledger: &mut Ledger, port: PortId, now: Time) -> Frame {
        let id = self.original.take().unwrap_or_else(|| ledger.copy(port, now));
        let bytes = if last { std::mem::take(&mut self.bytes) } else { self.bytes.clone() };
        Frame { id, bytes }
    }
}

/// Source and destination address of a frame that has a whole Ethernet header.
fn addresses(bytes: &[u8]) -> ([u8; 6], [u8; 6]) {
    crate::wire::view::<EthernetHeader>(bytes, 0)
        .map_or(([0; 6], [0xff; 6]), |header| (header.source, header.destination))
}

/// The port is unplugged or its link is down.
pub const LINK_DOWN: DropReason = DropReason(Cow::Borrowed("link down"));
/// The link was told to lose some frames.
pub const LOST: DropReason = DropReason(Cow::Borrowed("lost on the link"));
/// Too many bytes are already under way to the receiver.
pub const QUEUE_FULL: DropReason = DropReason(Cow::Borrowed("link queue full"));
/// The run ended with the frame on the link.
pub const END_OF_RUN: DropReason = DropReason(Cow::Borrowed("end of run"));
/// The device's port is not plugged into any link.
pub const NO_PORT: DropReason = DropReason(Cow::Borrowed("port not connected"));
/// How many breaches of one rule are reported with their evidence.
pub const REPORTED_BREACHES: u64 = 100;

#[cfg(test)]
mod tests;
