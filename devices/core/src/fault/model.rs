//! Faults as scenarios say them. Field docs here are the documentation of the scenario file.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Change, Condition, Span, Uses, Value};

/// Something to be done to a driver. See the [module](super) for how it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Commands of the driver are treated differently.
    Command(CommandFault),
    /// Completions are written differently.
    Completion(CompletionFault),
    /// A value that the driver reads is another one.
    Override(OverrideFault),
    /// The device does something now.
    Event(EventRequest),
    /// Faults end.
    Lift(Lift),
}

/// What is done to a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(extend("required" = ["name"]))]
pub struct CommandFault {
    /// The command, by the name that the driver's header gives it.
    pub name: String,
    /// The channel it comes by; needed only where two channels have a command of that name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Fields of the request that have to be so.
    #[serde(rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub conditions: BTreeMap<String, Condition>,
    /// Which uses are hit.
    pub uses: Uses,
    /// How long the fault is there; until it is lifted if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lasts: Option<Span>,
    /// Its name, to lift it by and for reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The answer's status instead of success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail: Option<Value>,
    /// Do the command although its answer says that it failed, or is dropped.
    pub take_effect: bool,
    /// Answer so much later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// Never answer.
    pub drop: bool,
    /// Answer so many times more.
    pub duplicate: u32,
    /// Fields of the answer that are changed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rewrite: BTreeMap<String, Change>,
}

/// What is done to a completion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(extend("required" = ["queue"]))]
pub struct CompletionFault {
    /// The queue: its kind and number (`tx 3`), or only the kind for all of them (`tx`).
    pub queue: String,
    /// Fields of the completion that have to be so.
    #[serde(rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub conditions: BTreeMap<String, Condition>,
    /// Which completions are hit.
    pub uses: Uses,
    /// How long the fault is there; until it is lifted if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lasts: Option<Span>,
    /// Its name, to lift it by and for reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Stop the queue here for so long: completions behind this one wait as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<Span>,
    /// Write it so much later; others overtake it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// Never write it.
    pub drop: bool,
    /// Write it so many times more, at once. More than the ring has entries overflow it.
    pub duplicate: u32,
    /// Write one more behind it with these changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insert: Option<BTreeMap<String, Change>>,
    /// Collect several before any is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<Batch>,
    /// Fields that are changed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rewrite: BTreeMap<String, Change>,
    /// What becomes of the interrupt for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupt: Option<InterruptFault>,
}

/// Several completions written at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Batch {
    /// How many.
    pub entries: u32,
    /// In which order.
    #[serde(default)]
    pub order: Order,
    /// After so long they are written even if they are fewer.
    #[serde(default = "Batch::default_flush")]
    pub flush_after: Span,
}

impl Batch {
    fn default_flush() -> Span {
        Span::For(crate::Duration::from_millis(10))
    }
}

/// The order of completions in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// As they came.
    #[default]
    Kept,
    /// The last first.
    Reversed,
    /// Every second, then the others.
    Interleaved,
}

/// What becomes of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InterruptFault {
    /// None is raised.
    Suppress,
    /// The one with this index into the device's table is raised instead.
    Vector(u16),
}

/// A value that the driver reads is changed on its way, or a ring index where the device uses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OverrideFault {
    /// The value, by the name that the device gives it; a ring index of one queue as in `tx 3.tail`.
    pub name: String,
    /// What the driver gets to see, or the device uses.
    pub value: Change,
    /// Which reads or uses are hit.
    #[serde(default)]
    pub uses: Uses,
    /// How long the fault is there; until it is lifted if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts: Option<Span>,
    /// Its name, to lift it by and for reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// Something that the device does now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EventRequest {
    /// The event, by the name that the device gives it.
    pub name: String,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, Value>,
}

/// The end of faults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Lift {
    /// The label of the fault to end; all of them if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}
