//! BIG TCP over two gve ports, as a program: one scenario for each MTU, and what came of them in numbers.
//!
//! `cargo run --example big_tcp` boots a stock Debian kernel for each (it is fetched on first use), sends a stream of
//! which both ends know every byte with packets of up to 185,000 bytes, and fails if a byte is wrong, a rule is broken
//! or a frame on the wire is too long.

use nicvisor::Trial;
use scenarios::build::Nic;
use scenarios::model::{
    Bound, CounterExpectation, Expect, FramesExpectation, JsonExpectation, Measure, Namespace, SizeMeasure,
    Stage, Step, Stream,
};
use scenarios::{LoadError, Scenario, Verdict, report};

fn main() -> miette::Result<()> {
    // What a file does with a matrix, a program does with a loop.
    let scenarios = [1500, 9000].into_iter().map(big_tcp).collect::<Result<Vec<_>, _>>()?;
    let outcomes = Trial::new().run(&scenarios)?;
    for outcome in &outcomes {
        print!("{}", report::human(outcome));
        let largest = outcome.values("largest").unwrap_or_default();
        println!("the largest packet handed to the device had {largest:?} bytes");
    }
    match outcomes.iter().all(|outcome| outcome.verdict == Verdict::Pass) {
        true => Ok(()),
        false => Err(miette::miette!("not all scenarios passed")),
    }
}

fn big_tcp(mtu: u32) -> Result<Scenario, LoadError> {
    let namespace =
        |interface: &str, address: &str| Namespace::of(interface).address(address).mtu(mtu).gso(GSO, false);
    Scenario::builder(format!("big-tcp-{mtu}"), "gve sends packets above 64 KiB, which arrive unchanged.")
        .kernel("debian:6.12")
        .nic(Nic::new("gve").option("mtu", mtu))
        .nic(Nic::new("gve").option("mtu", mtu))
        .namespace("left", namespace("eth0", "2001:db8::1/64"))
        .namespace("right", namespace("eth1", "2001:db8::2/64").gro(GSO, false))
        .step(
            Step::run("ip -json -details link show dev eth0")
                .named("what the driver offers")
                .in_namespace("left")
                .json(JsonExpectation::at("/0/tso_max_size").equals(262_143))
                .json(JsonExpectation::at("/0/gso_max_size").equals(GSO)),
        )
        .step(
            Step::stream(Stream::new("left", "right", "2001:db8::2", 8 << 20).seed(6))
                .measure("largest", Measure::sizes("gve0", Stage::Handed, SizeMeasure::Largest)),
        )
        .expect(
            Expect::default()
                .counter(CounterExpectation::of("gve0.tx_ipv6_above_64k").at_least(20))
                .counter(CounterExpectation::of("gve0.tx_dropped").equals(0))
                .frames(
                    FramesExpectation::of("gve*", Stage::Wire).largest(Bound::exactly(f64::from(mtu + 14))),
                ),
        )
        .build()
}

const GSO: u32 = 185_000;
