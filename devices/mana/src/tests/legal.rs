//! Whatever a driver does within the rules, nothing is found and nothing is lost.

use nicvisor_core::{Device, Fate, KernelVersion, Profile};
use nicvisor_net::parse::{IpVersion, parse};
use nicvisor_net::testing::{Packet, seed};
use proptest::prelude::*;

use super::{RECEIVER, broken, config};
use crate::config::{Enforcement, FunctionKind};
use crate::testing::{Driver, Offload, Send, Setup};
use crate::vport::Coalescing;
use crate::{Config, testing};

/// What a driver and its peers do.
#[derive(Clone, Debug)]
enum Act {
    Send {
        queue: usize,
        v6: bool,
        payload: usize,
        mss: u16,
        checksum: bool,
        vlan: Option<u16>,
        suppress: bool,
    },
    Arrive {
        v6: bool,
        payload: usize,
        port: u16,
        vlan: Option<u16>,
    },
    Completed(usize),
    Received(usize),
    Post(usize),
    Fence(usize),
    TestEvent(usize),
    Time(u64),
    Reopen,
    Restore,
}

const QUEUES: usize = 2;

fn act() -> impl Strategy<Value = Act> {
    let queue = 0..QUEUES;
    prop_oneof![
        6 => (queue.clone(), any::<bool>(), 1..60_000_usize, 100..1400_u16, any::<bool>(), any::<Option<u16>>(), any::<bool>())
            .prop_map(|(queue, v6, payload, mss, checksum, vlan, suppress)| Act::Send {
                queue, v6, payload, mss, checksum, vlan, suppress,
            }),
        6 => (any::<bool>(), 0..1400_usize, any::<u16>(), proptest::option::of(0..4096_u16))
            .prop_map(|(v6, payload, port, vlan)| Act::Arrive { v6, payload, port, vlan }),
        3 => queue.clone().prop_map(Act::Completed),
        3 => queue.clone().prop_map(Act::Received),
        3 => queue.clone().prop_map(Act::Post),
        1 => queue.clone().prop_map(Act::Fence),
        1 => queue.prop_map(Act::TestEvent),
        2 => (0..20_000_u64).prop_map(Act::Time),
        1 => Just(Act::Reopen),
        1 => Just(Act::Restore),
    ]
}

/// What went in at one end has to come out at the other.
#[derive(Debug, Default)]
struct Tally {
    /// Frames that arrived, were settled as delivered or otherwise, and came out of the driver's buffers.
    arrived: u64,
    delivered: u64,
    dropped: u64,
    received: u64,
    /// Packets whose completion was wanted, and completions.
    sent: u64,
    completed: u64,
    /// Bytes of payload that the driver handed over, and that left.
    handed: u64,
    left: u64,
}

impl Tally {
    /// Takes the effects of what was done, in which no rule may be broken.
    fn settle(&mut self, driver: &mut Driver) {
        let effects = driver.effects();
        assert_eq!(broken(&effects), Vec::<&str>::new());
        let delivered = effects.fates.iter().filter(|(_, fate)| *fate == Fate::Delivered).count() as u64;
        self.delivered += delivered;
        self.dropped += effects.fates.len() as u64 - delivered;
        let payload = |bytes: &[u8]| (bytes.len() - parse(bytes).payload) as u64;
        self.left += effects.frames.iter().map(|(_, frame)| payload(&frame.bytes)).sum::<u64>();
    }

    /// Takes the vPort apart, once everything that it got is completed.
    fn close(&mut self, driver: &mut Driver) {
        driver.steer(0, false, Coalescing::Off);
        (0..QUEUES).for_each(|queue| driver.fence(0, queue));
        self.drain(driver);
        driver.close();
    }

    /// Takes everything that the device completed.
    fn drain(&mut self, driver: &mut Driver) {
        for queue in 0..QUEUES {
            self.completed += driver.completed(0, queue).len() as u64;
            self.received += driver.received(0, queue).len() as u64;
        }
    }

    fn assert_balanced(&self) {
        assert_eq!(self.delivered + self.dropped, self.arrived, "every frame has one fate: {self:?}");
        assert_eq!(self.delivered, self.received, "{self:?}");
        assert_eq!((self.sent, self.handed), (self.completed, self.left), "{self:?}");
    }
}

fn perform(driver: &mut Driver, setup: Setup, act: Act, tally: &mut Tally) {
    match act {
        Act::Send { queue, v6, payload, mss, checksum, vlan, suppress } => {
            if driver.ports[0].send[queue].work.room() < 1024 {
                tally.completed += driver.completed(0, queue).len() as u64;
            }
            if driver.ports[0].send[queue].work.room() >= 1024 {
                tally.sent += u64::from(!suppress);
                tally.handed += send(driver, queue, v6, payload, mss, checksum, vlan, suppress);
            }
        }
        Act::Arrive { v6, payload, port, vlan } => {
            let packet = Packet { ports: (port, 80), vlan, ..Packet::new(version(v6), payload) };
            tally.arrived += 1;
            driver.harness.arrive(0, tally.arrived, packet.build());
        }
        Act::Completed(queue) => tally.completed += driver.completed(0, queue).len() as u64,
        Act::Received(queue) => tally.received += driver.received(0, queue).len() as u64,
        Act::Post(queue) => driver.post(0, queue),
        Act::Fence(queue) => driver.fence(0, queue),
        Act::TestEvent(queue) => _ = driver.test_event(0, queue),
        Act::Time(nanoseconds) => driver.harness.advance(std::time::Duration::from_nanos(nanoseconds)),
        Act::Reopen => {
            tally.close(driver);
            driver.open(setup);
        }
        Act::Restore => {
            let state = driver.harness.device.save();
            driver.harness.device.restore(&state).unwrap();
        }
    }
}

fn kernel() -> impl Strategy<Value = KernelVersion> {
    (6..8_u32, 1..20_u32).prop_map(|(major, minor)| KernelVersion { major, minor })
}

fn profile() -> impl Strategy<Value = Profile> {
    prop_oneof![Just(Profile::Current), Just(Profile::Announced), kernel().prop_map(Profile::Linux)]
}

fn version(v6: bool) -> IpVersion {
    if v6 { IpVersion::V6 } else { IpVersion::V4 }
}

/// Sends a packet. Bytes of its payload.
#[expect(clippy::too_many_arguments, reason = "the fields of one act")]
fn send(
    driver: &mut Driver,
    queue: usize,
    v6: bool,
    payload: usize,
    mss: u16,
    checksum: bool,
    vlan: Option<u16>,
    suppress: bool,
) -> u64 {
    let payload = if checksum { payload % 1400 } else { payload };
    let packet = Packet::new(version(v6), payload);
    let mut bytes = packet.build();
    seed(&mut bytes, !checksum);
    let send = if checksum {
        Send { offload: Offload::Checksum, ..Send::plain(&bytes) }
    } else {
        Send::lso(&bytes, packet.header_len(), mss)
    };
    driver.send(0, queue, &Send { vlan, suppress, ..send });
    payload as u64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_legal_breaks_a_rule(
        acts in proptest::collection::vec(act(), 1..80), four: bool, physical: bool, profile in profile(),
        kernel in kernel(),
    ) {
        let coalescing = if four { Coalescing::Four } else { Coalescing::Off };
        let enforcement = Enforcement { source_address: false, ..Enforcement::default() };
        let setup = Setup { queues: QUEUES, coalescing, ..Setup::default() };
        let function = if physical { FunctionKind::Pf } else { FunctionKind::Vf };
        let config = Config { enforcement, function, profile, ..config(RECEIVER) };
        let mut driver = Driver { kernel, ..Driver::new(config).unwrap() };
        driver.open(setup);
        let mut tally = Tally::default();
        for act in acts {
            perform(&mut driver, setup, act, &mut tally);
            tally.settle(&mut driver);
        }
        tally.close(&mut driver);
        prop_assert!(driver.channel.destroy(&mut driver.harness));
        tally.settle(&mut driver);
        tally.assert_balanced();
    }
}

#[test]
fn several_vports_keep_their_frames_apart() {
    let mut driver = Driver::new(Config { ports: 3, ..config(RECEIVER) }).unwrap();
    (0..3).for_each(|_| driver.open(Setup { queues: 1, ..Setup::default() }));
    for port in 0..3 {
        let mut bytes = Packet::new(IpVersion::V4, 100 + port).build();
        bytes[..6].copy_from_slice(&driver.ports[port].mac);
        driver.harness.arrive(port as u16, port as u64, bytes.clone());
        bytes[6..12].copy_from_slice(&driver.ports[port].mac);
        driver.send(port, 0, &Send::plain(&bytes));
        assert_eq!(driver.completed(port, 0).len(), 1);
    }
    for port in 0..3 {
        assert_eq!(driver.received(port, 0)[0].bytes.len(), 154 + port);
    }
    let effects = driver.effects();
    let ports: Vec<_> = effects.frames.iter().map(|(port, _)| *port).collect();
    assert_eq!(ports, [0, 1, 2]);
    assert!(effects.fates.iter().all(|(_, fate)| *fate == Fate::Delivered));
    assert_eq!(broken(&effects), Vec::<&str>::new());
    (0..3).for_each(|_| driver.close());
    assert_eq!(broken(&driver.effects()), Vec::<&str>::new());
}

#[test]
fn the_entry_points_of_fuzzing_take_anything() {
    let input: Vec<u8> = (0..2000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    testing::exercise_channel(&input);
    testing::exercise_send_ring(&input);
    testing::exercise_receive_ring(&input);
    testing::exercise_doorbells(&input);
}
