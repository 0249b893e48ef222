//! What is done.

use std::collections::BTreeMap;
use std::fmt;

use nicvisor_core::fault::{
    CommandFault, CompletionFault, Condition, EventRequest, Fault, Lift, OverrideFault,
};
use nicvisor_core::{EventKind, EventPattern};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

use super::network::LinkChange;
use super::plug::{Plug, Unplug};
use super::{Bound, Stage};
use crate::schema::either::Either;
use crate::schema::rules;
use crate::units::{Size, Span};

/// One step. Exactly one of `run`, `stream`, `parallel`, `sequence`, `wait`, `stop`, `link`, `fault`, `unplug`, `plug`,
/// `capture` is given, or `measure` alone.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[schemars(transform = rules::step)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Name in results; made from the step if left out.
    pub name: Option<String>,
    /// A shell command in the guest.
    #[schemars(with = "Option<String>")]
    pub run: Option<Spanned<String>>,
    /// A verified TCP stream between two namespaces.
    #[schemars(with = "Option<Stream>")]
    pub stream: Option<Spanned<Stream>>,
    /// Steps done at the same time; the next step waits for all of them.
    #[serde(default)]
    #[schemars(with = "Vec<Step>")]
    pub parallel: Vec<Spanned<Step>>,
    /// Steps done in order, to be one of the `parallel` ones.
    #[serde(default)]
    #[schemars(with = "Vec<Step>")]
    pub sequence: Vec<Spanned<Step>>,
    /// Wait until something has happened.
    #[schemars(with = "Option<Wait>")]
    pub wait: Option<Spanned<Wait>>,
    /// End a background command with a signal.
    #[schemars(with = "Option<Stop>")]
    pub stop: Option<Spanned<Stop>>,
    /// Change a link, or pull a port's cable.
    #[schemars(with = "Option<LinkChange>")]
    pub link: Option<Spanned<LinkChange>>,
    /// Let a device do what its driver does not expect.
    #[schemars(with = "Option<FaultStep>")]
    pub fault: Option<Spanned<FaultStep>>,
    /// Take a device away from its guest.
    #[schemars(with = "Option<Unplug>")]
    pub unplug: Option<Spanned<Unplug>>,
    /// Give a device back to its guest.
    #[schemars(with = "Option<Plug>")]
    pub plug: Option<Spanned<Plug>>,
    /// Begin or end a stretch of time whose frames are captured. With such a step, nothing else is.
    pub capture: Option<CaptureSwitch>,
    /// Numbers to be kept under a name, for relations and tables: from the JSON output of `run` or `stream`, or
    /// from counters.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, Measure>", extend("propertyNames" = { "pattern": rules::WORD }))]
    pub measure: BTreeMap<String, Spanned<Measure>>,
    /// The guest that `run` is done in, where there are two; that of the namespace if one is given.
    #[schemars(with = "Option<String>")]
    pub guest: Option<Spanned<String>>,
    /// The namespace that `run` is done in.
    #[schemars(with = "Option<String>")]
    pub namespace: Option<Spanned<String>>,
    /// Do not wait for `run` to end but go on; `wait` and `stop` call it by this name.
    #[schemars(with = "Option<String>", regex(pattern = rules::NAME))]
    pub background: Option<Spanned<String>>,
    /// How often `run` or `stream` is done, one after the other; all measurements are kept.
    #[schemars(with = "Option<u32>", range(min = 1, max = 1000))]
    pub repeat: Option<Spanned<u32>>,
    /// The longest that it may take in guest time; 10 minutes if left out, 60 seconds for `wait`.
    pub timeout: Option<Span>,
    /// Exit status that `run` must end with, or a list of those allowed.
    pub status: Option<Statuses>,
    /// Text that the output of `run` must contain.
    #[serde(default)]
    pub output_contains: Vec<String>,
    /// Text that the output of `run` must not contain.
    #[serde(default)]
    pub output_lacks: Vec<String>,
    /// What the output of `run`, taken as JSON, must have.
    #[serde(default)]
    #[schemars(with = "Vec<JsonExpectation>")]
    pub json: Vec<Spanned<JsonExpectation>>,
}

/// A value in JSON output.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[schemars(transform = rules::json_expectation)]
#[serde(deny_unknown_fields)]
pub struct JsonExpectation {
    /// Where: a JSON pointer (RFC 6901) such as `/0/tso_max_size`, or a path such as `0.tso_max_size`.
    #[schemars(regex(pattern = rules::PLACE))]
    pub at: String,
    /// The value that must stand there, exactly.
    pub equals: Option<serde_json::Value>,
    /// Smallest number allowed there.
    pub at_least: Option<f64>,
    /// Largest number allowed there.
    pub at_most: Option<f64>,
    /// Whether anything stands there at all.
    pub exists: Option<bool>,
}

/// A TCP stream whose payload is a pseudo-random sequence that both ends know: the receiver compares every
/// byte and the hash of all.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// Namespace of the sender.
    pub from: String,
    /// Namespace of the receiver.
    pub to: String,
    /// The receiver's address.
    #[schemars(regex(pattern = rules::ADDRESS))]
    pub address: String,
    /// TCP port.
    #[serde(default = "default_port")]
    pub port: u16,
    /// Length of the payload, such as `64M`.
    #[schemars(extend("not" = { "enum": [0, "0"] }))]
    pub bytes: Size,
    /// Bytes handed to each `write`, such as `1M`.
    #[serde(default = "default_write")]
    pub write: Size,
    /// Seed of the payload.
    #[serde(default)]
    pub seed: u64,
}

impl Stream {
    /// The TCP port where none is named.
    pub const PORT: u16 = 5001;
    /// Bytes handed to each `write` where nothing is said.
    pub const WRITE: u64 = 1 << 20;
}

/// What is waited for: exactly one thing.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[schemars(transform = rules::wait)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// The end of a background command, or with `output`, whose output.
    #[schemars(with = "Option<String>")]
    pub job: Option<Spanned<String>>,
    /// A text in the output of any command, or of `job`, since it was started: a marker.
    pub output: Option<String>,
    /// A text in a line of the log of a guest's kernel, since power-on, whatever the console shows of it.
    pub log: Option<String>,
    /// The guest whose log it is, where there are two.
    #[schemars(with = "Option<String>")]
    pub guest: Option<Spanned<String>>,
    /// Something that a device saw or did.
    pub event: Option<EventWait>,
    /// Frames on a link, from now on.
    pub frames: Option<FrameWait>,
    /// A counter's value.
    pub counter: Option<CounterWait>,
    /// Guest time to pass.
    pub time: Option<Span>,
}

/// Something that a driver did, or that happened to a device; `nicvisor faults` lists the names.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventWait {
    /// The device, such as `gve0`.
    #[schemars(with = "String")]
    pub device: Spanned<String>,
    /// `command`, `queue-created`, `queue-destroyed`, `doorbell`, `link`, `state` or `fault`.
    pub kind: EventKind,
    /// The command, the queue, the fault's label; any if left out.
    pub name: Option<String>,
    /// What fields have to be.
    #[serde(default, rename = "where")]
    pub conditions: BTreeMap<String, Condition>,
    /// How many of them, from the start of the first step.
    #[serde(default = "one")]
    pub count: u64,
}

impl EventWait {
    /// Which events are meant.
    pub fn pattern(&self) -> EventPattern {
        EventPattern { kind: self.kind, name: self.name.clone(), conditions: self.conditions.clone() }
    }
}

/// A fault for a device, or an event that it is to make: exactly one of `command`, `completion`, `override`,
/// `event` and `lift`. `nicvisor faults` lists the names.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[schemars(transform = rules::fault)]
#[serde(deny_unknown_fields)]
pub struct FaultStep {
    /// The device, such as `gve0`.
    #[schemars(with = "String")]
    pub device: Spanned<String>,
    /// Commands of the driver are treated differently.
    pub command: Option<CommandFault>,
    /// Completions are written differently.
    pub completion: Option<CompletionFault>,
    /// A value that the driver reads is another one.
    #[serde(rename = "override")]
    pub overridden: Option<OverrideFault>,
    /// The device does something now.
    pub event: Option<EventRequest>,
    /// Faults end.
    pub lift: Option<Lift>,
}

impl FaultStep {
    /// The faults that are said here; there must be exactly one.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        faults.extend(self.command.clone().map(Fault::Command));
        faults.extend(self.completion.clone().map(Fault::Completion));
        faults.extend(self.overridden.clone().map(Fault::Override));
        faults.extend(self.event.clone().map(Fault::Event));
        faults.extend(self.lift.clone().map(Fault::Lift));
        faults
    }
}

/// A number of frames.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FrameWait {
    /// The port that sends them, such as `gve0`; all ports if left out.
    #[schemars(with = "Option<String>")]
    pub from: Option<Spanned<String>>,
    /// How many.
    pub count: u64,
}

/// A counter's value.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[schemars(transform = rules::counter_wait)]
#[serde(deny_unknown_fields)]
pub struct CounterWait {
    /// The counter, such as `gve0.tx_packets`; `*` stands for any number: `gve*.tx_packets` is the sum.
    #[schemars(with = "String")]
    pub name: Spanned<String>,
    /// Its value reaches this.
    pub at_least: Option<u64>,
    /// It grows by this from now on.
    pub more: Option<u64>,
}

/// A background command to be ended.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// The background command.
    #[schemars(with = "String")]
    pub job: Spanned<String>,
    /// The signal.
    #[serde(default)]
    pub signal: Signal,
}

/// Signals that end a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum Signal {
    /// Ctrl-C: programs that measure show what they have.
    #[serde(rename = "INT")]
    Interrupt,
    /// The polite one.
    #[default]
    #[serde(rename = "TERM")]
    Terminate,
    /// The one that cannot be ignored.
    #[serde(rename = "KILL")]
    Kill,
}

impl Signal {
    /// Linux's number for it.
    pub fn number(self) -> i32 {
        match self {
            Signal::Interrupt => 2,
            Signal::Kill => 9,
            Signal::Terminate => 15,
        }
    }
}

/// A stretch of captured time begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CaptureSwitch {
    /// From here on frames are captured.
    Start,
    /// From here on they are not.
    Stop,
}

/// Where a number comes from: a JSON pointer or path in the output of the step's `run` or `stream`, or a table
/// with `counter` or `frames`.
#[derive(Clone, Debug, PartialEq, JsonSchema)]
#[schemars(untagged)]
pub enum Measure {
    /// A number in the step's output.
    Json(String),
    /// A number from outside the guest.
    Source(MeasureSource),
}

/// A number from outside the guest.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[schemars(transform = rules::measure_source)]
#[serde(deny_unknown_fields)]
pub struct MeasureSource {
    /// A counter, as in `expect.counter`.
    pub counter: Option<String>,
    /// A port whose frame sizes are looked at, such as `gve0`.
    pub port: Option<String>,
    /// Which of the port's frames.
    #[serde(default)]
    pub stage: Stage,
    /// What of the sizes: `largest`, `smallest`, `count` or `mean`.
    pub sizes: Option<SizeMeasure>,
    /// Whether only what the step itself adds counts: of a counter its growth, of sizes those of new frames.
    #[serde(default)]
    pub during: bool,
}

/// A number about sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SizeMeasure {
    /// The largest.
    Largest,
    /// The smallest.
    Smallest,
    /// How many.
    Count,
    /// Their mean.
    Mean,
}

impl<'de> Deserialize<'de> for Measure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Measure, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Measure;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a place in the output, or a table with counter or port")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Measure, E> {
                Ok(Measure::Json(text.to_owned()))
            }
            fn visit_map<M: de::MapAccess<'de>>(self, map: M) -> Result<Measure, M::Error> {
                MeasureSource::deserialize(de::value::MapAccessDeserializer::new(map)).map(Measure::Source)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Exit statuses that are allowed: one, or a list.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "Either<u8, Vec<u8>>")]
pub struct Statuses(pub Vec<i32>);

impl Default for Statuses {
    fn default() -> Statuses {
        Statuses(vec![0])
    }
}

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Statuses, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Statuses;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an exit status from 0 to 255 or a list of them")
            }
            fn visit_i64<E: de::Error>(self, status: i64) -> Result<Statuses, E> {
                match u8::try_from(status) {
                    Ok(status) => Ok(Statuses(vec![status.into()])),
                    Err(_) => Err(E::invalid_value(de::Unexpected::Signed(status), &self)),
                }
            }
            fn visit_seq<S: de::SeqAccess<'de>>(self, mut seq: S) -> Result<Statuses, S::Error> {
                let mut statuses = Vec::new();
                while let Some(status) = seq.next_element::<u8>()? {
                    statuses.push(status.into());
                }
                Ok(Statuses(statuses))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl MeasureSource {
    /// Whether it says where the number comes from, exactly once.
    pub fn is_complete(&self) -> bool {
        matches!((&self.counter, &self.port, self.sizes), (Some(_), None, None) | (None, Some(_), Some(_)))
    }
}

impl JsonExpectation {
    /// The bounds on the number.
    pub fn bound(&self) -> Bound {
        Bound { equals: None, at_least: self.at_least, at_most: self.at_most }
    }
}

fn default_port() -> u16 {
    Stream::PORT
}

fn default_write() -> Size {
    Size(Stream::WRITE)
}

fn one() -> u64 {
    1
}
