//! A cable is pulled in the middle of a stream, between two guests with kernels of their own.
//!
//! `cargo run --example unplugged` shows how steps wait for what happened before they act: the port goes down once a
//! hundred frames have crossed the link, and comes up again when the driver has noticed. The stream must arrive
//! unchanged all the same. With an argument, `cargo run --example unplugged -- DIRECTORY` leaves captures, logs and
//! a page about the run there.

use nicvisor::Trial;
use nicvisor_core::Duration;
use scenarios::build::Nic;
use scenarios::model::{Guest, LinkChange, LinkSpec, Namespace, Step, Stream, Wait};
use scenarios::{LoadError, Scenario, Verdict, report};

fn main() -> miette::Result<()> {
    let mut trial = Trial::new().seed(7);
    if let Some(directory) = std::env::args_os().nth(1) {
        trial = trial.report(directory);
    }
    let outcomes = trial.run(&[unplugged()?])?;
    outcomes.iter().for_each(|outcome| print!("{}", report::human(outcome)));
    match outcomes.iter().all(|outcome| outcome.verdict == Verdict::Pass) {
        true => Ok(()),
        false => Err(miette::miette!("the scenario did not pass")),
    }
}

fn unplugged() -> Result<Scenario, LoadError> {
    let guest = |name: &str, kernel: &str| {
        Guest::named(name).kernel(kernel).cpus(1).memory(512 << 20).append("loglevel=7")
    };
    let pulled = Step::sequence([
        Step::wait(Wait::frames_from("gve0", 100)).timeout(SOON),
        Step::link(LinkChange::port("gve0", false)),
        Step::wait(Wait::log("Device link is down").of_guest("client")).timeout(SOON),
        Step::link(LinkChange::port("gve0", true)),
        Step::wait(Wait::log("Device link is up").of_guest("client")).timeout(SOON),
    ]);
    Scenario::builder("unplugged", "A stream survives that a cable is pulled and put back.")
        .guest(guest("client", "debian:6.12"))
        .guest(guest("server", "debian:6.1"))
        .link("lan", LinkSpec::default().delay(Duration::from_micros(25)).bandwidth(10_000_000_000))
        .nic(Nic::new("gve").in_guest("client"))
        .nic(Nic::new("gve").in_guest("server"))
        .namespace("left", Namespace::of("eth0").in_guest("client").address("192.0.2.1/24"))
        .namespace("right", Namespace::of("eth0").in_guest("server").address("192.0.2.2/24"))
        .step(Step::parallel([Step::stream(Stream::new("left", "right", "192.0.2.2", 8 << 20)), pulled]))
        .build()
}

const SOON: Duration = Duration::from_secs(5);
