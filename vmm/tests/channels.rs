//! Devices on a hypervisor's own bus, and devices that come and go: what the machine makes of them.

mod channel_bus;
mod echo;

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use channel_bus::{CALL_PORT, Courier, Exchange, FRAME, WAKES_AFTER};
use nicvisor::boot::layout;
use nicvisor::machine::{
    Input, InputError, InterruptSink, Machine, MachineConfig, MachineError, PlugError, UNPLUGGED,
};
use nicvisor_core::fault::{EventRequest, Fault};
use nicvisor_core::pci::Slot;
use nicvisor_core::{DataPath, DeviceId, Duration, EventKind, EventKinds, InterruptLine, MsiMessage, Time};
use nicvisor_net::network::{LinkConfig, LinkId, Network, SharedMedium};
use vm_memory::{Bytes, GuestAddress};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 0x99];
const WINDOW: u64 = layout::HYPERVISOR_WINDOW_START + 0x1000;
const RING: u64 = 0x5000;

/// Interrupts for the guest, by the low byte of the message.
#[derive(Clone, Debug, Default)]
struct Interrupts(Arc<Mutex<Vec<u32>>>);

impl InterruptSink for Interrupts {
    fn message(&mut self, message: MsiMessage) {
        self.0.lock().unwrap().push(message.data);
    }

    fn set_line(&mut self, _line: InterruptLine) {}
}

/// A machine with a courier on its own bus and something that returns frames on PCI.
struct Fixture {
    machine: Machine,
    interrupts: Interrupts,
    link: LinkId,
    courier: DeviceId,
    echo: DeviceId,
    bus: DeviceId,
    now: Time,
}

impl Fixture {
    fn new() -> Fixture {
        let config = MachineConfig { memory: 4 << 20, ..MachineConfig::default() };
        let mut machine = Machine::new(config, SharedMedium::new(Network::new())).unwrap();
        let interrupts = Interrupts::default();
        machine.set_interrupt_sink(Box::new(interrupts.clone()));
        let bus = machine.set_hypervisor("exchange", Box::new(Exchange::default()));
        let link = machine.network().add_link(LinkConfig::named("lan"));
        let echo = machine.add_device("echo0", Box::new(echo::Echo), link).unwrap();
        let device = Box::new(Courier::new(MAC, WINDOW));
        let courier = machine.add_channel_device(Time::ZERO, "courier0", device, link).unwrap();
        Fixture { machine, interrupts, link, courier, echo, bus, now: Time::ZERO }
    }

    /// With the courier's channel open.
    fn open() -> Fixture {
        let mut fixture = Fixture::new();
        assert_eq!(fixture.call(0), 0);
        fixture
    }

    fn call(&mut self, operation: u64) -> u64 {
        let mut registers = [0; 16];
        registers[0] = operation;
        registers[1] = RING >> 12;
        registers[3] = u64::from(self.courier.0);
        assert!(self.machine.hypercall(self.now, 0, CALL_PORT, &mut registers));
        registers[0]
    }

    /// Sends a frame through the courier's ring.
    fn send(&mut self, destination: [u8; 6]) {
        let frame = [&destination[..], &MAC, &[0x88, 0xb5], &[3; FRAME - 14]].concat();
        self.machine.ram().write_slice(&frame, GuestAddress(RING)).unwrap();
        assert_eq!(self.call(1), 0);
    }

    fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(due) = self.machine.next_deadline().filter(|due| *due <= end) {
            self.now = due;
            self.machine.advance(due);
        }
        self.now = end;
    }

    /// What lies in the ring to the guest.
    fn received(&self) -> Vec<u8> {
        let mut frame = vec![0; FRAME];
        self.machine.ram().read_slice(&mut frame, GuestAddress(RING + 0x800)).unwrap();
        frame
    }

    fn interrupts(&self) -> Vec<u32> {
        std::mem::take(&mut self.interrupts.0.lock().unwrap())
    }

    #[track_caller]
    fn input(&mut self, input: Input) {
        self.machine.input(self.now, input).unwrap();
    }

    #[track_caller]
    fn refused(&mut self, input: Input, expected: impl Into<InputError> + Debug) {
        assert_eq!(self.machine.input(self.now, input), Err(expected.into()));
    }

    #[track_caller]
    fn close(mut self) {
        self.machine.close(self.now);
        let ledger = self.machine.network().ledger().clone();
        assert!(ledger.balance().is_balanced(), "{:?}", ledger.balance());
    }
}

#[test]
fn a_call_that_wakes_a_device_puts_its_frame_on_the_network_in_its_name() {
    let mut fixture = Fixture::open();
    fixture.send(PEER);
    fixture.pass(Duration::from_millis(1));
    // The other device has returned it: to the courier, through its ring, with its interrupt.
    let returned = fixture.received();
    assert_eq!((&returned[..6], &returned[6..12], &returned[14..]), (&MAC[..], &PEER[..], &[3; 50][..]));
    assert_eq!(fixture.interrupts(), [0x40]);
    let port = fixture.machine.device_ports(fixture.courier)[0];
    assert_eq!(fixture.machine.network().port_name(port), "courier0");
    assert_eq!(fixture.machine.network().counters(port).unwrap().sent_frames, 1);
    fixture.send([0; 6]);
    let findings = fixture.machine.take_findings();
    assert!(
        findings.iter().any(|finding| finding.rule == "test-no-destination" && finding.device == "courier0")
    );
    fixture.close();
}

#[test]
fn deadlines_and_faults_reach_a_device_on_the_bus() {
    let mut fixture = Fixture::open();
    assert_eq!(fixture.machine.next_deadline(), Some(Time::ZERO + WAKES_AFTER));
    fixture.pass(WAKES_AFTER);
    assert_eq!(fixture.interrupts(), [0x41]);
    let request = EventRequest { name: "anything".into(), arguments: Default::default() };
    let device = fixture.machine.find_device("courier0").unwrap();
    fixture.input(Input::Fault { device, fault: Box::new(Fault::Event(request)) });
    assert_eq!(fixture.interrupts(), [0x42]);
    fixture.close();
}

#[test]
fn memory_that_is_nobody_elses_is_offered_to_the_devices_on_the_bus() {
    let mut fixture = Fixture::open();
    let mut data = [0xff; 4];
    fixture.machine.read_memory(fixture.now, 0, WINDOW, &mut data);
    assert_eq!(data, [0x5a; 4]);
    let mut elsewhere = [0xff; 4];
    fixture.machine.read_memory(fixture.now, 0, WINDOW + 0x1000, &mut elsewhere);
    assert_eq!(elsewhere, [0xff; 4]);
    assert_eq!(fixture.machine.doorbells(), [WINDOW]);
    let before = fixture.machine.activity();
    fixture.machine.write_memory(fixture.now, 0, WINDOW, &[1; 4]);
    assert!(fixture.machine.activity() > before);
    let port = fixture.machine.device_ports(fixture.courier)[0];
    assert_eq!(fixture.machine.network().counters(port).unwrap().sent_frames, 1);
    fixture.close();
}

#[test]
fn a_device_moves_the_data_path_to_the_port_it_is_bonded_with() {
    let mut fixture = Fixture::open();
    let link = fixture.link;
    let (own, partner) = {
        let ports = [fixture.courier, fixture.echo].map(|id| fixture.machine.device_ports(id)[0]);
        (ports[0], ports[1])
    };
    fixture.machine.bond(fixture.now, own, partner);
    let peer = fixture.machine.add_device("peer0", Box::new(echo::Echo), link).unwrap();
    // To everybody: the peer returns it to the courier's address, which is the pair's.
    fixture.send([0xff; 6]);
    assert_eq!(fixture.machine.network().path(own), Some(DataPath::Partner));
    let before = fixture.machine.network().counters(partner).unwrap().received_frames;
    fixture.pass(Duration::from_micros(50));
    assert!(fixture.machine.network().counters(partner).unwrap().received_frames > before);
    assert_eq!(fixture.received(), [0; FRAME]);
    // Without the partner the frames come back to the courier.
    fixture.input(Input::Unplug { device: fixture.echo });
    fixture.send(PEER);
    fixture.pass(Duration::from_micros(50));
    assert_eq!(fixture.received()[..6], MAC);
    assert!(fixture.machine.is_plugged_in(peer));
    // The device was told, and one that comes again gets nothing until it is said again.
    fixture.input(Input::Plug { device: fixture.echo, slot: None });
    assert_eq!(fixture.machine.network().path(own), Some(DataPath::Own));
    let told = fixture.machine.device(fixture.courier).unwrap().counters();
    assert_eq!(told, [("partner_came".to_owned(), 2), ("partner_went".to_owned(), 1)]);
    fixture.close();
}

#[test]
fn a_device_asks_to_be_taken_away() {
    let mut fixture = Fixture::open();
    fixture.send([0xfe; 6]);
    assert!(!fixture.machine.is_plugged_in(fixture.courier));
    fixture.close();
}

#[test]
fn the_interface_itself_has_a_name_counters_faults_and_events() {
    let mut fixture = Fixture::open();
    let device = fixture.machine.find_device("exchange").unwrap();
    assert_eq!(device, fixture.bus);
    assert_eq!(fixture.machine.device(device).unwrap().counters(), [("offers".to_owned(), 1)]);
    fixture.machine.listen(EventKinds::NONE.with(EventKind::State));
    let request = EventRequest { name: "anything".into(), arguments: Default::default() };
    fixture.input(Input::Fault { device, fault: Box::new(Fault::Event(request)) });
    let events = fixture.machine.take_events();
    assert_eq!(events.iter().map(|event| event.device).collect::<Vec<_>>(), [device]);
    fixture.refused(Input::Unplug { device }, PlugError::Fixed("exchange".into()));
    fixture.close();
}

#[test]
fn a_device_that_is_unplugged_loses_its_frames_and_comes_back_as_new() {
    let mut fixture = Fixture::open();
    let device = fixture.courier;
    fixture.send(PEER);
    // The returned frame is under way when the device goes.
    fixture.pass(Duration::from_nanos(2_100));
    fixture.input(Input::Unplug { device });
    fixture.refused(Input::Unplug { device }, PlugError::PluggedOut("courier0".into()));
    fixture.pass(Duration::from_millis(1));
    assert_eq!(fixture.received(), [0; FRAME]);
    assert_eq!(fixture.call(1), 1, "there is nothing to signal");
    let totals = fixture.machine.network().ledger().totals().clone();
    assert_eq!(totals.dropped.values().sum::<u64>(), 1, "{totals:?}");
    // Still known by name, and its state can be looked at.
    assert_eq!(fixture.machine.find_device("courier0"), Ok(device));
    assert!(fixture.machine.device(device).is_some() && !fixture.machine.is_plugged_in(device));
    let slot = Some(Slot { device: 9, function: 0 });
    fixture.refused(Input::Plug { device, slot }, PlugError::NoSlot("courier0".into()));
    fixture.input(Input::Plug { device, slot: None });
    fixture.refused(Input::Plug { device, slot: None }, PlugError::PluggedIn("courier0".into()));
    assert_eq!(fixture.call(1), 0, "it takes signals, but has forgotten its rings");
    assert_eq!(fixture.call(0), 0);
    fixture.send(PEER);
    fixture.pass(Duration::from_millis(1));
    assert_eq!(fixture.received()[..6], MAC);
    fixture.close();
}

#[test]
fn a_frame_that_is_handed_over_to_an_empty_place_has_its_fate() {
    let mut fixture = Fixture::open();
    let (device, port) = (fixture.echo, fixture.machine.device_ports(fixture.echo)[0]);
    fixture.input(Input::Unplug { device });
    // Somebody has connected the empty port.
    fixture.input(Input::Port { port, up: true });
    fixture.send(PEER);
    fixture.pass(Duration::from_millis(1));
    assert_eq!(fixture.machine.network().ledger().totals().dropped.get(&UNPLUGGED), Some(&1));
    fixture.close();
}

#[test]
fn a_function_moves_between_slots_and_keeps_its_name() {
    let mut fixture = Fixture::new();
    let device = fixture.echo;
    let identity = |fixture: &mut Fixture, slot: u64| {
        let mut data = [0xff; 4];
        let address = layout::ECAM_START + (slot << 15);
        fixture.machine.read_memory(fixture.now, 0, address, &mut data);
        u32::from_le_bytes(data)
    };
    assert_eq!(identity(&mut fixture, 1), 0x0e00_1234);
    fixture.input(Input::Unplug { device });
    assert_eq!(identity(&mut fixture, 1), u32::MAX);
    let bridge = Slot { device: 0, function: 0 };
    let refusal = PlugError::Slot { name: "echo0".into(), slot: bridge };
    fixture.refused(Input::Plug { device, slot: Some(bridge) }, refusal);
    fixture.input(Input::Plug { device, slot: Some(Slot { device: 5, function: 0 }) });
    assert_eq!((identity(&mut fixture, 1), identity(&mut fixture, 5)), (u32::MAX, 0x0e00_1234));
    let unknown = DeviceId(99);
    fixture.refused(Input::Unplug { device: unknown }, PlugError::Unknown);
    fixture.refused(Input::Plug { device: unknown, slot: None }, PlugError::Unknown);
    fixture.close();
}

#[test]
fn a_machine_without_the_bus_refuses_its_devices() {
    let config = MachineConfig { memory: 4 << 20, ..MachineConfig::default() };
    let mut machine = Machine::new(config, SharedMedium::new(Network::new())).unwrap();
    let link = machine.network().add_link(LinkConfig::named("lan"));
    let device = Box::new(Courier::new(MAC, WINDOW));
    let error = machine.add_channel_device(Time::ZERO, "courier0", device, link).unwrap_err();
    assert!(matches!(error, MachineError::NoBus { .. }));
    assert!(error.to_string().contains("courier0"));
}
