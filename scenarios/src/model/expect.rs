//! What must hold at the end.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use toml::Spanned;

use super::Bound;
use crate::schema::either::Either;
use crate::schema::rules;

/// What must hold at the end of a scenario. That the frame ledger balances is always expected.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Rules that must be found broken, by id. Any *other* finding of severity error fails the scenario.
    #[serde(default)]
    #[schemars(schema_with = "rule_ids")]
    pub findings: Vec<Spanned<String>>,
    /// Rules that may be found broken.
    #[serde(default)]
    #[schemars(schema_with = "rule_ids")]
    pub allowed_findings: Vec<Spanned<String>>,
    /// Rules that must not be found broken although they are only notes.
    #[serde(default)]
    #[schemars(schema_with = "rule_ids")]
    pub forbidden_findings: Vec<Spanned<String>>,
    /// Device and link counters.
    #[serde(default, rename = "counter")]
    #[schemars(with = "Vec<CounterExpectation>")]
    pub counters: Vec<Spanned<CounterExpectation>>,
    /// Sizes of frames.
    #[serde(default)]
    #[schemars(with = "Vec<FramesExpectation>")]
    pub frames: Vec<Spanned<FramesExpectation>>,
    /// Relations between measurements and counters, such as `"rr_80k >= 1.1 * rr_64k"`.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub relations: Vec<Spanned<String>>,
    /// What the log of a guest's kernel must and must not have: all of it, whatever the console shows.
    #[serde(default)]
    #[schemars(with = "Vec<LogExpectation>")]
    pub log: Vec<Spanned<LogExpectation>>,
    /// Trouble that a guest's kernel must report about itself (warning, oops, stall), as regular expressions:
    /// each must match a report, and a report that none matches fails the scenario. Without any, no trouble may
    /// be reported.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub trouble: Vec<Spanned<String>>,
    /// How a guest goes down before the end, if it is expected to: a buggy kernel, shown to be buggy.
    pub ending: Option<ExpectedEnding>,
}

/// The rules are the program's: it puts their ids in.
fn rule_ids(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "$ref": "#/$defs/Rule" } })
}

/// A bound on a counter.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[schemars(transform = rules::counter_expectation)]
#[serde(deny_unknown_fields)]
pub struct CounterExpectation {
    /// The counter, such as `gve0.tx_packets`; `*` stands for any number: `gve*.tx_packets` is the sum.
    pub name: String,
    /// Exact value.
    pub equals: Option<u64>,
    /// Smallest value allowed.
    pub at_least: Option<u64>,
    /// Largest value allowed.
    pub at_most: Option<u64>,
}

impl CounterExpectation {
    /// The bounds.
    pub fn bound(&self) -> Bound {
        let number = |value: Option<u64>| value.map(|value| value as f64);
        Bound { equals: number(self.equals), at_least: number(self.at_least), at_most: number(self.at_most) }
    }
}

/// Where frames are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Packets that the driver hands to the device, before segmentation.
    Handed,
    /// Frames that the device puts on its link.
    #[default]
    Wire,
}

impl fmt::Display for Stage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Stage::Handed => "handed to the device",
            Stage::Wire => "on the wire",
        })
    }
}

/// Bounds on the sizes of a port's frames, in bytes with their Ethernet header.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[schemars(transform = rules::frames_expectation)]
#[serde(deny_unknown_fields)]
pub struct FramesExpectation {
    /// The port, such as `gve0`; `gve*` are all of them together.
    pub port: String,
    /// Where they are looked at.
    #[serde(default)]
    pub stage: Stage,
    /// How many there are.
    pub count: Option<Bound>,
    /// The largest.
    pub largest: Option<Bound>,
    /// The smallest.
    pub smallest: Option<Bound>,
    /// How many are above a size.
    #[serde(default)]
    pub above: Vec<SizeCount>,
}

/// How many frames are above a size.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SizeCount {
    /// The size in bytes; frames of this size do not count.
    pub size: u32,
    /// How many there must be.
    pub count: Bound,
}

/// What a kernel's log must and must not have.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[schemars(transform = rules::log_expectation)]
#[serde(deny_unknown_fields)]
pub struct LogExpectation {
    /// The guest, where there are two.
    #[schemars(with = "Option<String>")]
    pub guest: Option<Spanned<String>>,
    /// A regular expression that a line must match.
    #[schemars(with = "Option<String>")]
    pub matches: Option<Spanned<String>>,
    /// A regular expression that no line may match.
    #[schemars(with = "Option<String>")]
    pub lacks: Option<Spanned<String>>,
}

/// How a guest goes down: the kind alone, or a table with the kind and a message.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "Either<ExpectedEndingKind, EndingTable>")]
pub struct ExpectedEnding {
    /// How.
    pub kind: ExpectedEndingKind,
    /// A regular expression that the panic's message (or the log's end) must match.
    pub message: Option<Spanned<String>>,
}

/// Ways in which a guest goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExpectedEndingKind {
    /// Its kernel panics.
    Panic,
    /// It makes no progress any more.
    Stuck,
    /// It powers off.
    PowerOff,
    /// It restarts.
    Reset,
}

impl fmt::Display for ExpectedEndingKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            ExpectedEndingKind::Panic => "panics",
            ExpectedEndingKind::Stuck => "gets stuck",
            ExpectedEndingKind::PowerOff => "powers off",
            ExpectedEndingKind::Reset => "restarts",
        })
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EndingTable {
    /// How.
    kind: ExpectedEndingKind,
    /// A regular expression that the panic's message must match.
    #[schemars(with = "Option<String>")]
    message: Option<Spanned<String>>,
}

impl<'de> Deserialize<'de> for ExpectedEnding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ExpectedEnding, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = ExpectedEnding;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("panic, stuck, power-off or reset, or a table with that kind and a message")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<ExpectedEnding, E> {
                let kind = ExpectedEndingKind::deserialize(de::value::StrDeserializer::<E>::new(text))?;
                Ok(ExpectedEnding { kind, message: None })
            }
            fn visit_map<M: de::MapAccess<'de>>(self, map: M) -> Result<ExpectedEnding, M::Error> {
                let table = EndingTable::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(ExpectedEnding { kind: table.kind, message: table.message })
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// A table to be shown with the results.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Headings, the first one that of the rows' names.
    #[schemars(length(min = 1))]
    pub columns: Vec<String>,
    /// Rows: a name and then an expression over measurements for each further column.
    #[schemars(with = "Vec<Vec<String>>")]
    pub rows: Vec<Spanned<Vec<Spanned<String>>>>,
}
