//! Pairs of ports that a switch takes for one: a synthetic port and the virtual function beside it.
//!
//! Both have the same MAC. The host side decides at which of them frames arrive; the guest asks for it (NVSP's
//! switch-data-path message), and a virtual function that goes away gives them back.

use nicvisor_core::DataPath;
use serde::{Deserialize, Serialize};

use super::PortId;

/// All pairs of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bonds(Vec<Bond>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Bond {
    own: PortId,
    partner: PortId,
    path: DataPath,
}

impl Bonds {
    /// Pairs two ports; an earlier pair of either is undone.
    pub(super) fn add(&mut self, own: PortId, partner: PortId) {
        self.0.retain(|bond| ![own, partner].iter().any(|port| bond.has(*port)));
        self.0.push(Bond { own, partner, path: DataPath::Own });
    }

    pub(super) fn switch(&mut self, own: PortId, path: DataPath) {
        if let Some(bond) = self.0.iter_mut().find(|bond| bond.own == own) {
            bond.path = path;
        }
    }

    pub(super) fn path(&self, own: PortId) -> Option<DataPath> {
        self.0.iter().find(|bond| bond.own == own).map(|bond| bond.path)
    }

    /// `port` is gone from its pair, not only down: who comes in its place gets frames when it is said again.
    pub(super) fn forget(&mut self, port: PortId) {
        if let Some(bond) = self.0.iter_mut().find(|bond| bond.partner == port) {
            bond.path = DataPath::Own;
        }
    }

    /// The port that gets the frames for `port`: `port` itself when it is in no pair.
    pub(super) fn receiver(&self, port: PortId, is_up: impl Fn(PortId) -> bool) -> PortId {
        match self.of(port) {
            Some(bond) if bond.path == DataPath::Partner && is_up(bond.partner) => bond.partner,
            Some(bond) => bond.own,
            None => port,
        }
    }

    /// Whether two ports are the same, or a pair.
    pub(super) fn are_one(&self, one: PortId, other: PortId) -> bool {
        one == other || self.of(one).is_some_and(|bond| bond.has(other))
    }

    fn of(&self, port: PortId) -> Option<&Bond> {
        self.0.iter().find(|bond| bond.has(port))
    }
}

impl Bond {
    fn has(&self, port: PortId) -> bool {
        self.own == port || self.partner == port
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LinkConfig, Medium, Network, Station};
    use super::*;
    use nicvisor_core::{DropReason, Time};

    const GUEST: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];
    const EVERYBODY: [u8; 6] = [0xff; 6];

    /// A pair and a peer on one link.
    struct Fixture {
        network: Network,
        own: PortId,
        partner: PortId,
        peer: PortId,
    }

    impl Fixture {
        fn new() -> Fixture {
            let mut network = Network::new();
            let station = network.add_station();
            let link = network.add_link(LinkConfig::named("lan"));
            let [own, partner, peer] =
                ["own", "partner", "peer"].map(|name| network.add_port(station, link, name));
            network.bond(own, partner);
            Fixture { network, own, partner, peer }
        }

        /// Sends a frame; the ports at which it arrives.
        fn send(&mut self, from: PortId, source: [u8; 6], destination: [u8; 6]) -> Vec<PortId> {
            let frame = [&destination[..], &source, &[0x88, 0xb5], &[0; 50]].concat();
            self.network.inject(from, frame, Time::ZERO);
            let arrived = self.network.poll(Station::default(), Time::from_nanos(1 << 40));
            arrived.into_iter().map(|(port, _)| port).collect()
        }
    }

    #[test]
    fn frames_for_the_pair_arrive_at_one_of_it_wherever_they_were_sent_from() {
        let mut fixture = Fixture::new();
        let Fixture { own, partner, peer, .. } = fixture;
        for (path, receiver) in [(DataPath::Own, own), (DataPath::Partner, partner), (DataPath::Own, own)] {
            fixture.network.switch_path(own, path);
            assert_eq!(fixture.network.path(own), Some(path));
            for learnt_from in [own, partner] {
                assert_eq!(fixture.send(learnt_from, GUEST, EVERYBODY), [peer]);
                assert_eq!(fixture.send(peer, PEER, GUEST), [receiver]);
                assert_eq!(fixture.send(peer, PEER, EVERYBODY), [receiver]);
            }
        }
    }

    #[test]
    fn a_partner_that_is_down_gives_the_frames_back_and_one_that_went_does_not_get_them_again() {
        let mut fixture = Fixture::new();
        let Fixture { own, partner, peer, .. } = fixture;
        fixture.network.switch_path(own, DataPath::Partner);
        fixture.network.set_port(partner, false);
        assert_eq!(fixture.send(peer, PEER, GUEST), [own]);
        fixture.network.set_port(partner, true);
        assert_eq!(fixture.send(peer, PEER, GUEST), [partner]);
        fixture.network.set_port(partner, false);
        fixture.network.vacate(partner);
        fixture.network.set_port(partner, true);
        assert_eq!(fixture.send(peer, PEER, GUEST), [own]);
    }

    #[test]
    fn what_the_pair_sends_to_itself_stays_away() {
        let mut fixture = Fixture::new();
        let Fixture { own, partner, .. } = fixture;
        fixture.send(own, GUEST, EVERYBODY);
        assert!(fixture.send(partner, PEER, GUEST).is_empty());
        let dropped = &fixture.network.ledger().totals().dropped;
        assert_eq!(dropped.get(&DropReason::FILTERED), Some(&1));
    }

    #[test]
    fn a_port_is_in_one_pair_only() {
        let mut fixture = Fixture::new();
        let Fixture { own, partner, peer, .. } = fixture;
        fixture.network.bond(partner, peer);
        assert_eq!(fixture.network.path(own), None);
        assert_eq!(fixture.network.path(partner), Some(DataPath::Own));
        fixture.network.switch_path(peer, DataPath::Partner);
        assert_eq!(fixture.network.path(partner), Some(DataPath::Own));
    }
}
