//! The scenario file, as data. Field docs here are the schema's documentation.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

/// One scenario file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Where it was read from; not part of the file.
    #[serde(skip)]
    pub path: PathBuf,
    /// The file's text, for messages about it; not part of the file.
    #[serde(skip)]
    pub text: String,
    /// Name in results; the file's name without `.toml` if left out.
    #[serde(default)]
    pub name: String,
    /// What is shown by it, in a sentence.
    pub description: String,
    /// The guest.
    #[serde(default)]
    pub guest: Guest,
    /// NICs in order: they become eth0, eth1, ... Each table has `kind` and that kind's options, the same as
    /// on the command line.
    #[serde(default, rename = "nic")]
    pub nics: Vec<Spanned<BTreeMap<String, toml::Value>>>,
    /// Network namespaces to set up before the first step, by name.
    #[serde(default, rename = "namespace")]
    pub namespaces: BTreeMap<String, Namespace>,
    /// What is done, in order.
    #[serde(rename = "step")]
    pub steps: Vec<Spanned<Step>>,
    /// What must hold at the end, besides what the steps expect.
    #[serde(default)]
    pub expect: Expect,
}

/// The machine and kernel under test.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guest {
    /// Kernels to run on unless the command line names some, such as `debian:6.12`.
    #[serde(default)]
    pub kernels: Vec<Spanned<String>>,
    /// Number of CPUs.
    pub cpus: Option<u32>,
    /// Memory, such as `1G`.
    pub memory: Option<Spanned<String>>,
    /// Appended to the kernel command line.
    #[serde(default)]
    pub append: String,
    /// Modules to load besides the NICs' drivers.
    #[serde(default)]
    pub modules: Vec<String>,
    /// The longest that the scenario may take in host time, such as `10m`.
    pub timeout: Option<Spanned<String>>,
}

/// A network namespace with one NIC in it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Namespace {
    /// The interface that is moved into it.
    pub interface: String,
    /// Addresses with prefix length.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// MTU to set.
    pub mtu: Option<u32>,
    /// `gso_max_size` to set: the largest IPv6 packet that the stack makes.
    pub gso_max_size: Option<u32>,
    /// `gso_ipv4_max_size` to set, the same for IPv4.
    pub gso_ipv4_max_size: Option<u32>,
    /// `gro_max_size` to set: the largest IPv6 packet that received frames are merged into.
    pub gro_max_size: Option<u32>,
    /// `gro_ipv4_max_size` to set, the same for IPv4.
    pub gro_ipv4_max_size: Option<u32>,
}

/// One step. Exactly one of `run`, `stream` and `parallel` is given.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Name in results; made from the step if left out.
    pub name: Option<String>,
    /// A shell command in the guest.
    pub run: Option<String>,
    /// A verified TCP stream between two namespaces.
    pub stream: Option<Stream>,
    /// Steps done at the same time; the next step waits for all of them.
    #[serde(default)]
    pub parallel: Vec<Step>,
    /// The namespace that `run` is done in.
    pub namespace: Option<String>,
    /// Exit status that `run` must end with.
    #[serde(default)]
    pub status: i32,
    /// Text that the output of `run` must contain.
    #[serde(default)]
    pub output_contains: Vec<String>,
    /// What the output of `run`, taken as JSON, must have.
    #[serde(default)]
    pub json: Vec<JsonExpectation>,
}

/// A value in JSON output.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JsonExpectation {
    /// Where: a JSON pointer (RFC 6901) such as `/0/tso_max_size`.
    pub at: String,
    /// The value that must stand there, exactly.
    pub equals: Option<serde_json::Value>,
    /// Smallest number allowed there.
    pub at_least: Option<f64>,
    /// Largest number allowed there.
    pub at_most: Option<f64>,
}

/// A TCP stream whose payload is a pseudo-random sequence that both ends know: the receiver compares every
/// byte and the hash of all.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// Namespace of the sender.
    pub from: String,
    /// Namespace of the receiver.
    pub to: String,
    /// The receiver's address.
    pub address: String,
    /// TCP port.
    #[serde(default = "default_port")]
    pub port: u16,
    /// Length of the payload, such as `64M`.
    pub bytes: String,
    /// Bytes handed to each `write`, such as `1M`.
    #[serde(default = "default_write")]
    pub write: String,
    /// Seed of the payload.
    #[serde(default)]
    pub seed: u64,
}

/// What must hold at the end of a scenario. That the frame ledger balances is always expected.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Rules that must be found broken, by id. Any *other* finding of severity error fails the scenario.
    #[serde(default)]
    pub findings: Vec<Spanned<String>>,
    /// Device and link counters.
    #[serde(default, rename = "counter")]
    pub counters: Vec<Spanned<CounterExpectation>>,
}

/// A bound on a counter.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CounterExpectation {
    /// The counter, such as `gve0.tx_packets`; `*` stands for any device: `gve*.tx_packets` is the sum.
    pub name: String,
    /// Exact value.
    pub equals: Option<u64>,
    /// Smallest value allowed.
    pub at_least: Option<u64>,
    /// Largest value allowed.
    pub at_most: Option<u64>,
}

fn default_port() -> u16 {
    5001
}

fn default_write() -> String {
    "1M".into()
}
