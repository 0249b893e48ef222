//! A scenario that a program puts together is the one that a file says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nicvisor_core::fault::{CommandFault, Condition, EventRequest, Fault, Lift, Uses, Value};
use nicvisor_core::pci::Slot;
use nicvisor_core::{Duration, EventKind};
use scenarios::build::{Builder, Nic};
use scenarios::load::parse;
use scenarios::model::{
    Bound, CaptureSwitch, CounterExpectation, Device, DeviceKind, EventWait, Expect, ExpectedEndingKind,
    FramesExpectation, Guest, JsonExpectation, LinkChange, LinkSpec, LogExpectation, Measure, Namespace,
    Signal, SizeMeasure, Stage, Step, Stream, Table, Wait,
};
use scenarios::{LoadError, Scenario, Sources};

/// What a file says, apart from where it says it.
fn read(text: &str) -> Scenario {
    let mut scenario = match parse(Path::new("both.toml"), text, &[]) {
        Ok(mut scenarios) => scenarios.remove(0),
        Err(LoadError::Mistake(mistake)) => panic!("{}", mistake.one_line()),
        Err(other) => panic!("{other}"),
    };
    scenario.path = PathBuf::new();
    scenario.sources = Arc::new(Sources::default());
    scenario
}

#[track_caller]
fn same(builder: Builder, text: &str) {
    let built = match builder.build() {
        Ok(built) => built,
        Err(LoadError::Mistake(mistake)) => panic!("{}", mistake.one_line()),
        Err(other) => panic!("{other}"),
    };
    assert_eq!(built, read(text));
}

#[test]
fn machines_and_networks_are_those_of_a_file() {
    let text = r#"
description = "Machines."
[[guest]]
name = "client"
cpus = 1
memory = "512M"
append = "loglevel=7"
modules = ["bonding"]
edits = ["edits/a.toml"]
timeout = "10m"
[[guest]]
name = "server"
kernel = "debian:7.3"
[link.lan]
delay = "25us"
bandwidth = "100G"
loss = "0.1%"
duplicate = 0.002
reorder = "1%"
reorder_delay = "1ms"
mtu = 9000
queue = "1M"
seed = 7
[[nic]]
kind = "gve"
mtu = 1500
guest = "client"
[[nic]]
kind = "mana"
guest = "server"
[namespace.left]
guest = "client"
interface = "eth0"
addresses = ["192.0.2.1/24", "2001:db8::1/64"]
mtu = 1500
gso_max_size = 185000
gro_max_size = 65536
gro_ipv4_max_size = 65536
features = { tx-udp_tnl-segmentation = false }
device = [
    { name = "vx0", kind = "vxlan", id = 7, remote = "192.0.2.2", local = "192.0.2.1", port = 4790,
      options = "udpcsum", addresses = ["10.0.0.1/24"], mtu = 1400, gso_max_size = 70000, gso_ipv4_max_size = 70000 },
    { name = "v5", kind = "vlan", id = 5 },
]
[namespace.right]
guest = "server"
interface = "eth0"
[[step]]
run = "true"
"#;
    let vxlan = Device::new(DeviceKind::Vxlan, "vx0", 7).remote("192.0.2.2").local("192.0.2.1").port(4790);
    let left = Namespace::of("eth0")
        .in_guest("client")
        .address("192.0.2.1/24")
        .address("2001:db8::1/64")
        .mtu(1500)
        .gso(185_000, false)
        .gro(65_536, true)
        .feature("tx-udp_tnl-segmentation", false)
        .device(vxlan.options("udpcsum").address("10.0.0.1/24").mtu(1400).gso(70_000, true))
        .device(Device::new(DeviceKind::Vlan, "v5", 5));
    let client = Guest::named("client").cpus(1).memory(512 << 20).append("loglevel=7").module("bonding");
    let lan = LinkSpec::default()
        .delay(Duration::from_micros(25))
        .bandwidth(100_000_000_000)
        .loss(1000)
        .duplicate(2000)
        .reorder(10_000, Duration::from_millis(1));
    let builder = Scenario::builder("both", "Machines.")
        .guest(client.edit("edits/a.toml").timeout(Duration::from_secs(600)))
        .guest(Guest::named("server").kernel("debian:7.3"))
        .link("lan", lan.mtu(9000).queue(1 << 20).seed(7))
        .nic(Nic::new("gve").option("mtu", 1500).in_guest("client"))
        .nic(Nic::new("mana").in_guest("server"))
        .namespace("left", left)
        .namespace("right", Namespace::of("eth0").in_guest("server"))
        .step(Step::run("true"));
    same(builder, text);
}

/// Two ports in two namespaces, as the tests below use them.
const PORTS: &str = r#"
description = "Steps."
[[nic]]
kind = "gve"
[[nic]]
kind = "gve"
[namespace.left]
interface = "eth0"
[namespace.right]
interface = "eth1"
"#;

fn ports() -> Builder {
    Scenario::builder("both", "Steps.")
        .nic(Nic::new("gve"))
        .nic(Nic::new("gve"))
        .namespace("left", Namespace::of("eth0"))
        .namespace("right", Namespace::of("eth1"))
}

#[test]
fn commands_and_streams_are_those_of_a_file() {
    let text = r#"
[[step]]
name = "what is offered"
run = "ip -json link show eth0"
namespace = "left"
status = [0, 1]
output_contains = ["eth0"]
output_lacks = ["eth1"]
json = [{ at = "0.mtu", equals = 1500, exists = true }, { at = "/0/x", at_least = 1, at_most = 2.5 }]
repeat = 3
timeout = "5s"
measure = { mtu = "0.mtu", packets = { counter = "gve0.tx_packets", during = true } }
[[step]]
run = "uname -r"
guest = "guest"
[[step]]
stream = { from = "left", to = "right", address = "2001:db8::2", bytes = "64M", port = 7, write = "64K", seed = 6 }
[[step]]
run = "server"
background = "server"
[[step]]
parallel = [{ run = "a" }, { sequence = [{ run = "b" }, { run = "c" }] }]
[[step]]
stop = { job = "server", signal = "INT" }
[[step]]
measure = { largest = { port = "gve0", stage = "handed", sizes = "largest" } }
"#;
    let offered = Step::run("ip -json link show eth0")
        .named("what is offered")
        .in_namespace("left")
        .status([0, 1])
        .output_contains("eth0")
        .output_lacks("eth1")
        .json(JsonExpectation::at("0.mtu").equals(1500).exists(true))
        .json(JsonExpectation::at("/0/x").at_least(1.0).at_most(2.5))
        .repeat(3)
        .timeout(Duration::from_secs(5))
        .measure("mtu", Measure::json("0.mtu"))
        .measure("packets", Measure::counter("gve0.tx_packets").during());
    let stream = Stream::new("left", "right", "2001:db8::2", 64 << 20).port(7).write(64 << 10).seed(6);
    let largest = Measure::sizes("gve0", Stage::Handed, SizeMeasure::Largest);
    let builder = ports()
        .step(offered)
        .step(Step::run("uname -r").in_guest("guest"))
        .step(Step::stream(stream))
        .step(Step::run("server").in_background("server"))
        .step(Step::parallel([Step::run("a"), Step::sequence([Step::run("b"), Step::run("c")])]))
        .step(Step::stop("server", Signal::Interrupt))
        .step(Step::measurement("largest", largest));
    same(builder, &format!("{PORTS}{text}"));
}

#[test]
fn waits_links_and_faults_are_those_of_a_file() {
    let text = r#"
[[step]]
run = "pings"
background = "pings"
[[step]]
wait = { output = "seq=5", job = "pings" }
[[step]]
wait = { output = "ready" }
[[step]]
wait = { log = "link is up", guest = "guest" }
[[step]]
wait = { event = { device = "gve0", kind = "command", name = "CREATE_TX_QUEUE", where = { queue_id = 1 }, count = 2 } }
[[step]]
wait = { frames = { from = "gve0", count = 10 } }
[[step]]
wait = { frames = { count = 20 } }
[[step]]
wait = { counter = { name = "gve*.tx_packets", at_least = 7 } }
[[step]]
wait = { counter = { name = "gve0.tx_packets", more = 8 } }
[[step]]
wait = { time = "100ms" }
[[step]]
capture = "start"
[[step]]
link = { port = "gve1", up = false }
[[step]]
link = { name = "lan", up = true }
[[step]]
link = { name = "lan", set = { delay = "1ms" } }
[[step]]
capture = "stop"
[[step]]
fault = { device = "gve0", command = { name = "CREATE_TX_QUEUE", uses = { nth = 2 }, fail = "INTERNAL", label = "no" } }
[[step]]
fault = { device = "gve0", event = { name = "reset-request" } }
[[step]]
fault = { device = "gve0", lift = { label = "no" } }
[[step]]
unplug = { device = "gve1" }
[[step]]
plug = { device = "gve1" }
[[step]]
plug = { device = "gve1", slot = "00:1f.7" }
[[step]]
wait = { job = "pings" }
"#;
    let created = EventWait::new("gve0", EventKind::Command).named("CREATE_TX_QUEUE").count(2);
    let one: BTreeMap<String, Condition> = toml::from_str("queue_id = 1").unwrap();
    let refusal = CommandFault {
        name: "CREATE_TX_QUEUE".into(),
        uses: Uses { nth: Some(2), ..Uses::default() },
        fail: Some(Value::Name("INTERNAL".into())),
        label: Some("no".into()),
        ..CommandFault::default()
    };
    let reset = EventRequest { name: "reset-request".into(), arguments: BTreeMap::new() };
    let waits = [
        Wait::output_of("pings", "seq=5"),
        Wait::output("ready"),
        Wait::log("link is up").of_guest("guest"),
        Wait::event(created.condition("queue_id", one["queue_id"].clone())),
        Wait::frames_from("gve0", 10),
        Wait::frames(20),
        Wait::counter("gve*.tx_packets", 7),
        Wait::growth("gve0.tx_packets", 8),
        Wait::time(Duration::from_millis(100)),
    ];
    let mut builder = ports().step(Step::run("pings").in_background("pings"));
    for wait in waits {
        builder = builder.step(Step::wait(wait));
    }
    let slower = LinkSpec::default().delay(Duration::from_millis(1));
    let builder = builder
        .step(Step::capture(CaptureSwitch::Start))
        .step(Step::link(LinkChange::port("gve1", false)))
        .step(Step::link(LinkChange::link("lan", true)))
        .step(Step::link(LinkChange::settings("lan", slower)))
        .step(Step::capture(CaptureSwitch::Stop))
        .step(Step::fault("gve0", Fault::Command(refusal)))
        .step(Step::fault("gve0", Fault::Event(reset)))
        .step(Step::fault("gve0", Fault::Lift(Lift { label: Some("no".into()) })))
        .step(Step::unplug("gve1"))
        .step(Step::plug("gve1"))
        .step(Step::plug_into("gve1", Slot { device: 31, function: 7 }))
        .step(Step::wait(Wait::job("pings")));
    same(builder, &format!("{PORTS}{text}"));
}

#[test]
fn expectations_and_tables_are_those_of_a_file() {
    let text = r#"
[[step]]
run = "a"
measure = { before = "before", after = "after" }
[expect]
findings = ["a"]
allowed_findings = ["b"]
forbidden_findings = ["c"]
counter = [{ name = "gve0.x", equals = 0 }, { name = "gve*.y", at_least = 1, at_most = 2 }]
relations = ["after >= before"]
log = [{ matches = "gve", guest = "guest" }, { lacks = "timeout" }]
trouble = ["WARNING"]
ending = { kind = "panic", message = "mana" }
[[expect.frames]]
port = "gve0"
stage = "handed"
count = { at_least = 1 }
largest = { at_most = 185000 }
smallest = 60
above = [{ size = 65536, count = 0 }]
[[table]]
title = "t"
columns = ["", "x"]
rows = [["before", "before"], ["after", "after"]]
"#;
    let frames = FramesExpectation::of("gve0", Stage::Handed)
        .count(Bound::at_least(1.0))
        .largest(Bound::at_most(185_000.0))
        .smallest(Bound::exactly(60.0))
        .above(65_536, Bound::exactly(0.0));
    let expect = Expect::default()
        .finding("a")
        .allowed_finding("b")
        .forbidden_finding("c")
        .counter(CounterExpectation::of("gve0.x").equals(0))
        .counter(CounterExpectation::of("gve*.y").at_least(1).at_most(2))
        .frames(frames)
        .relation("after >= before")
        .log(LogExpectation::matches("gve").of_guest("guest"))
        .log(LogExpectation::lacks("timeout"))
        .trouble("WARNING")
        .ending_with(ExpectedEndingKind::Panic, "mana");
    let measuring =
        Step::run("a").measure("before", Measure::json("before")).measure("after", Measure::json("after"));
    let table = Table::new("t", ["", "x"]).row(["before", "before"]).row(["after", "after"]);
    let builder = ports().step(measuring).expect(expect).table(table);
    same(builder, &format!("{PORTS}{text}"));
    let panic = Expect::default().ending(ExpectedEndingKind::Panic);
    let builder = ports().step(Step::run("a")).expect(panic);
    same(builder, &format!("{PORTS}[[step]]\nrun = 'a'\n[expect]\nending = 'panic'\n"));
}

#[test]
fn a_program_is_told_its_mistakes_as_a_file_is() {
    let refused = |builder: Builder| match builder.build() {
        Err(LoadError::Mistake(mistake)) => mistake.one_line().to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        refused(ports().step(Step::run("a").in_namespace("lift"))),
        "scenario:1:1: there is no namespace lift (did you mean left?)"
    );
    assert_eq!(refused(ports()), "scenario:1:1: the scenario does nothing (add a [[step]])");
}
