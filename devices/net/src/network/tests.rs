use nicvisor_core::Duration;
use proptest::prelude::*;

use super::*;
use crate::parse::IpVersion;
use crate::testing::Packet;

/// A frame that no rule objects to, from station to station; station 255 is everyone.
fn frame(from: u8, to: u8, payload_len: usize) -> Vec<u8> {
    let mut bytes = Packet::new(IpVersion::V6, payload_len).build();
    let destination = if to == 255 { [0xff; 6] } else { [2, 0, 0, 0, 0, to] };
    bytes[..6].copy_from_slice(&destination);
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, from]);
    bytes
}

fn network(config: LinkConfig, ports: u32) -> (Network, Vec<PortId>) {
    let mut network = Network::new();
    let link = network.add_link(config);
    let ports = (0..ports).map(|number| network.add_port(STATION, link, format!("p{number}"))).collect();
    (network, ports)
}

const STATION: Station = Station(0);
const LATER: Time = Time::from_nanos(1_000_000_000_000);

fn receivers(network: &mut Network) -> Vec<PortId> {
    let due = network.poll(STATION, LATER);
    due.iter().for_each(|(_, frame)| network.settle(frame.id, &Fate::Delivered));
    due.into_iter().map(|(port, _)| port).collect()
}

#[test]
fn the_switch_learns_where_addresses_are() {
    let (mut network, ports) = network(LinkConfig::default(), 4);
    network.inject(ports[0], frame(10, 11, 0), Time::ZERO);
    assert_eq!(receivers(&mut network), ports[1..], "unknown: to all others");
    network.inject(ports[1], frame(11, 10, 0), Time::ZERO);
    assert_eq!(receivers(&mut network), [ports[0]], "learnt");
    network.inject(ports[0], frame(10, 11, 0), Time::ZERO);
    assert_eq!(receivers(&mut network), [ports[1]]);
    network.inject(ports[0], frame(10, 255, 0), Time::ZERO);
    assert_eq!(receivers(&mut network), ports[1..], "broadcast");
    let own = network.inject(ports[1], frame(11, 11, 0), Time::ZERO);
    assert_eq!(own.dropped, Some(DropReason::FILTERED));
    assert!(network.ledger().balance().is_balanced());
    assert_eq!(network.ledger().totals().copied, 4);
}

#[test]
fn a_frame_takes_wire_time_and_delay() {
    let config = LinkConfig { bandwidth: 1_000_000_000, ..LinkConfig::default() };
    let (mut network, ports) = network(config, 2);
    let now = Time::from_nanos(1000);
    let bytes = frame(1, 2, 1000);
    let wire_time = Duration::from_nanos((bytes.len() as u64 + 24) * 8);
    network.inject(ports[0], bytes.clone(), now);
    network.inject(ports[0], bytes, now);
    let first = now + wire_time + Duration::from_micros(2);
    assert_eq!(network.next_deadline(STATION), Some(first));
    assert!(network.poll(STATION, Time::from_nanos(first.as_nanos() - 1)).is_empty());
    assert_eq!(network.poll(STATION, first).len(), 1);
    assert_eq!(network.next_deadline(STATION), Some(first + wire_time));
}

#[test]
fn two_senders_share_the_bandwidth_to_a_receiver() {
    let config = LinkConfig { bandwidth: 1_000_000_000, ..LinkConfig::default() };
    let (mut network, ports) = network(config, 3);
    for (station, sender) in [(1, ports[0]), (2, ports[1])] {
        for _ in 0..10 {
            network.inject(sender, frame(station, 255, 1000), Time::ZERO);
        }
    }
    let wire_time = network.link(LinkId(0)).unwrap().wire_time(frame(0, 255, 1000).len());
    let mut last = Time::ZERO;
    let mut arrivals = 0;
    while let Some(next) = network.next_deadline(STATION) {
        for (port, _) in network.poll(STATION, next) {
            if port == ports[2] {
                arrivals += 1;
                last = next;
            }
        }
    }
    assert_eq!(arrivals, 20);
    assert_eq!(last, Time::ZERO + wire_time * 20 + Duration::from_micros(2));
}

#[test]
fn links_do_not_touch_each_other() {
    let (mut network, ports) = network(LinkConfig::named("one"), 2);
    let other = network.add_link(LinkConfig::named("other"));
    let lonely = network.add_port(STATION, other, "lonely");
    network.inject(ports[0], frame(1, 255, 0), Time::ZERO);
    assert_eq!(receivers(&mut network), [ports[1]]);
    assert_eq!(network.inject(lonely, frame(3, 1, 0), Time::ZERO).dropped, Some(DropReason::NO_RECEIVER));
    assert_eq!(network.find_link("other"), Some(other));
}

#[test]
fn frames_to_and_from_a_port_that_is_down_are_dropped() {
    let (mut network, ports) = network(LinkConfig::default(), 2);
    network.inject(ports[0], frame(1, 2, 0), Time::ZERO);
    assert_eq!(network.set_link(LinkId(0), false), ports);
    assert!(!network.set_port(ports[1], false), "it was down with its link already");
    assert!(receivers(&mut network).is_empty());
    assert_eq!(network.inject(ports[0], frame(1, 2, 0), Time::ZERO).dropped, Some(LINK_DOWN));
    assert_eq!(network.set_link(LinkId(0), true), [ports[0]]);
    assert!(network.set_port(ports[1], true));
    network.inject(ports[0], frame(1, 2, 0), Time::ZERO);
    assert_eq!(receivers(&mut network), [ports[1]]);
    assert_eq!(network.ledger().totals().dropped[&LINK_DOWN], 2);
    assert!(network.ledger().balance().is_balanced());
}

#[test]
fn a_frame_above_the_mtu_is_dropped_with_a_finding_and_jumbo_frames_pass_where_allowed() {
    let (mut network, ports) = network(LinkConfig::default(), 2);
    let long = frame(1, 2, 9000 - 60);
    let injected = network.inject(ports[0], long.clone(), Time::ZERO);
    assert_eq!(injected.dropped, Some(DropReason::TOO_LONG));
    assert_eq!(injected.findings[0].rule, "net-wire-mtu");
    assert_eq!(injected.findings[0].frame, Some(injected.id));
    network.link_mut(LinkId(0)).unwrap().mtu = 9000;
    let injected = network.inject(ports[0], long, Time::ZERO);
    assert_eq!((injected.dropped, injected.findings), (None, vec![]));
}

#[test]
fn evidence_of_repeated_breaches_is_bounded_but_all_are_counted() {
    let (mut network, ports) = network(LinkConfig::default(), 2);
    let mut bytes = frame(1, 2, 50);
    bytes[90] ^= 1;
    let reported: usize = (0..2 * REPORTED_BREACHES)
        .map(|_| network.inject(ports[0], bytes.clone(), Time::ZERO).findings.len())
        .sum();
    assert_eq!(reported as u64, REPORTED_BREACHES);
    assert_eq!(network.breaches()["net-wire-checksum"], 2 * REPORTED_BREACHES);
}

#[test]
fn a_full_queue_drops() {
    let (mut network, ports) = network(LinkConfig { queue_bytes: 2500, ..LinkConfig::default() }, 2);
    for _ in 0..3 {
        network.inject(ports[0], frame(1, 2, 1000), Time::ZERO);
    }
    assert_eq!(receivers(&mut network).len(), 2);
    assert_eq!(network.ledger().totals().dropped[&QUEUE_FULL], 1);
    network.inject(ports[0], frame(1, 2, 1000), LATER);
    assert_eq!(network.ledger().totals().dropped[&QUEUE_FULL], 1, "there is room again");
}

#[test]
fn what_is_on_the_link_at_the_end_is_accounted_for_and_what_a_device_swallows_is_missing() {
    let (mut network, ports) = network(LinkConfig::default(), 2);
    network.inject(ports[0], frame(1, 2, 0), Time::ZERO);
    let swallowed = network.poll(STATION, LATER)[0].1.id;
    network.inject(ports[0], frame(1, 2, 0), LATER);
    network.close();
    let balance = network.ledger().balance();
    assert_eq!(balance.missing, [(swallowed, Place::Device { port: ports[1], since: LATER })]);
    assert_eq!(network.ledger().totals().dropped[&END_OF_RUN], 1);
}

#[test]
fn faults_hit_about_as_often_as_told_and_reordered_frames_are_overtaken() {
    let faults = Faults { loss: 100_000, duplicate: 50_000, reorder: 20_000, ..Faults::default() };
    let (mut network, ports) = network(LinkConfig { faults, seed: 3, ..LinkConfig::default() }, 2);
    for number in 0..10_000u64 {
        network.inject(ports[0], frame(1, 2, 0), Time::from_nanos(number * 1000));
    }
    let due = network.poll(STATION, LATER);
    let overtaken = due.windows(2).filter(|pair| pair[0].1.id > pair[1].1.id).count();
    assert!((100..400).contains(&overtaken), "{overtaken}");
    due.iter().for_each(|(_, frame)| network.settle(frame.id, &Fate::Delivered));
    let totals = network.ledger().totals();
    assert!((900..1100).contains(&totals.dropped[&LOST]), "{totals:?}");
    assert!((350..550).contains(&totals.copied), "{totals:?}");
    assert!(network.ledger().balance().is_balanced());
}

#[derive(Clone, Debug)]
enum Step {
    Inject { port: u32, to: u8, payload_len: usize, damage: Option<u8> },
    Poll,
    Link(bool),
    Port(u32, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let inject =
        (0u32..5, 0u8..6, 0usize..2000, any::<Option<u8>>()).prop_map(|(port, to, payload_len, damage)| {
            Step::Inject { port, to: if to == 5 { 255 } else { to }, payload_len, damage }
        });
    let step = prop_oneof![
        8 => inject,
        3 => Just(Step::Poll),
        1 => any::<bool>().prop_map(Step::Link),
        1 => (0u32..5, any::<bool>()).prop_map(|(port, up)| Step::Port(port, up)),
    ];
    proptest::collection::vec(step, 0..120)
}

/// Runs the steps, settling every frame; returns what arrived when, and the network at the end.
fn run(steps: &[Step], config: LinkConfig) -> (Vec<(Time, PortId, Frame)>, Network) {
    let (mut network, _) = network(config, 4);
    let mut now = Time::ZERO;
    let mut arrived = Vec::new();
    for step in steps {
        now += Duration::from_nanos(700);
        match *step {
            Step::Inject { port, to, payload_len, damage } => {
                let mut bytes = frame(port as u8, to, payload_len);
                if let Some(at) = damage {
                    bytes.truncate(at.into());
                }
                network.inject(PortId(port), bytes, now);
            }
            Step::Poll => {
                for (port, frame) in network.poll(STATION, now) {
                    network.settle(frame.id, &Fate::Delivered);
                    arrived.push((now, port, frame));
                }
            }
            Step::Link(up) => drop(network.set_link(LinkId(0), up)),
            Step::Port(port, up) => drop(network.set_port(PortId(port), up)),
        }
    }
    network.close();
    (arrived, network)
}

proptest! {
    #[test]
    fn every_frame_is_accounted_for_and_runs_repeat(
        steps in steps(), seed in any::<u64>(), loss in 0u32..500_000, duplicate in 0u32..500_000,
        reorder in 0u32..500_000, queue_bytes in 1000usize..50_000
    ) {
        let faults = Faults { loss, duplicate, reorder, ..Faults::default() };
        let config = LinkConfig { faults, seed, queue_bytes, ..LinkConfig::default() };
        let (arrived, network) = run(&steps, config.clone());
        prop_assert!(network.ledger().balance().is_balanced(), "{:?}", network.ledger());
        let totals = network.ledger().totals();
        prop_assert_eq!(totals.delivered, arrived.len() as u64);
        let received: u64 = network.ports().map(|port| network.counters(port).unwrap().received_frames).sum();
        prop_assert_eq!(received, totals.delivered);

        let (again, same) = run(&steps, config);
        prop_assert_eq!(arrived, again);
        let text = serde_json::to_string(&network).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Network>(&text).unwrap(), &same);
    }
}
