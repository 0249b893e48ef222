//! What the guest did to a device, for scenarios that wait for it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fault::{Condition, FaultError, FaultPoints, Field, Fields};

/// One thing that the guest did, or that happened to a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceEvent {
    /// What kind of thing.
    pub kind: EventKind,
    /// What it is about: a command, a queue such as `tx 0`, the label of a fault, a state.
    pub name: Cow<'static, str>,
    /// What else is known. For a command: the fields of its request, and `status`.
    pub fields: Vec<(Cow<'static, str>, u64)>,
}

/// Kinds of events, and what their names and fields are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// The driver gave a command, and the device has answered. Also those that a fault spoilt.
    Command,
    /// The driver created the queue of that name.
    QueueCreated,
    /// The driver destroyed the queue of that name.
    QueueDestroyed,
    /// The driver rang a doorbell of that name and wrote `value`.
    Doorbell,
    /// The link of `port` is `up` or not.
    Link,
    /// The device is in another state: `reset`, or a name of the device's own.
    State,
    /// The fault with that label changed something.
    Fault,
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventKinds(u16);

impl EventKinds {
    /// No kind.
    pub const NONE: EventKinds = EventKinds(0);
    /// Every kind.
    pub const ALL: EventKinds = EventKinds(u16::MAX);

    /// This set and one kind more.
    #[must_use]
    pub const fn with(self, kind: EventKind) -> EventKinds {
        EventKinds(self.0 | 1 << kind as u16)
    }

    /// Whether the kind is in the set.
    pub const fn contains(self, kind: EventKind) -> bool {
        self.0 & 1 << kind as u16 != 0
    }
}

impl DeviceEvent {
    /// An event without fields.
    pub fn new(kind: EventKind, name: impl Into<Cow<'static, str>>) -> DeviceEvent {
        DeviceEvent { kind, name: name.into(), fields: Vec::new() }
    }

    /// The same with a field more.
    #[must_use]
    pub fn with(mut self, field: impl Into<Cow<'static, str>>, value: impl Into<u64>) -> DeviceEvent {
        self.fields.push((field.into(), value.into()));
        self
    }
}

impl Fields for DeviceEvent {
    fn field(&self, name: &str) -> Option<u64> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| *value)
    }
}

/// Which events are meant, as scenarios write it:
/// `{ kind = "command", name = "CREATE_TX_QUEUE", where = { queue_id = 1 } }`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EventPattern {
    /// The kind.
    pub kind: EventKind,
    /// The name; any if left out. `tx` is every TX queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the fields have to be.
    #[serde(default, rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub conditions: BTreeMap<String, Condition>,
}

/// An [`EventPattern`] with its names resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventFilter {
    kind: EventKind,
    name: Option<String>,
    tests: crate::fault::Tests,
}

impl EventPattern {
    /// The pattern for a device with these points.
    ///
    /// # Errors
    /// When it names a command, queue or field that the device does not have: it would never match.
    pub fn resolve(&self, points: &FaultPoints) -> Result<EventFilter, FaultError> {
        let name = self.name.as_deref();
        let fields = match self.kind {
            EventKind::Command => match name {
                Some(name) => points.request_fields(name)?,
                None => vec![Field::new("status", 64)],
            },
            EventKind::QueueCreated | EventKind::QueueDestroyed => {
                name.map_or(Ok(()), |name| points.check_queue(name))?;
                vec![Field::new("id", 32)]
            }
            EventKind::Doorbell => vec![Field::new("value", 64)],
            EventKind::Link => vec![Field::new("port", 16), Field::new("up", 1)],
            EventKind::State | EventKind::Fault => Vec::new(),
        };
        let what = name.map_or_else(|| format!("a {:?} event", self.kind), str::to_owned);
        let tests = crate::fault::resolve_conditions(&self.conditions, &fields, &what)?;
        Ok(EventFilter { kind: self.kind, name: self.name.clone(), tests })
    }
}

impl EventFilter {
    /// The kind that it can match.
    pub fn kind(&self) -> EventKind {
        self.kind
    }

    /// Whether `event` is meant.
    pub fn matches(&self, event: &DeviceEvent) -> bool {
        let is_named = |name: &str| {
            let rest = event.name.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        event.kind == self.kind
            && self.name.as_deref().is_none_or(is_named)
            && crate::fault::all_hold(&self.tests, event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::testing::points;

    fn filter(text: &str) -> Result<EventFilter, FaultError> {
        toml::from_str::<EventPattern>(text).unwrap().resolve(&points())
    }

    fn matches(text: &str, event: &DeviceEvent) -> bool {
        filter(text).unwrap().matches(event)
    }

    #[test]
    fn patterns_select_by_kind_name_and_fields() {
        let event =
            DeviceEvent::new(EventKind::Command, "CREATE").with("queue_id", 1_u8).with("status", 7_u8);
        assert!(matches("kind = 'command'", &event));
        assert!(matches("kind = 'command'\nname = 'CREATE'", &event));
        assert!(matches("kind = 'command'\nname = 'CREATE'\nwhere = { status = 'INTERNAL_ERROR' }", &event));
        assert!(!matches("kind = 'command'\nname = 'CREATE'\nwhere = { queue_id = 2 }", &event));
        assert!(!matches("kind = 'state'", &event));
    }

    #[test]
    fn a_kind_of_queue_stands_for_all_of_them() {
        let event = DeviceEvent::new(EventKind::QueueCreated, "tx 2").with("id", 2_u8);
        assert!(matches("kind = 'queue-created'\nname = 'tx'", &event));
        assert!(matches("kind = 'queue-created'\nname = 'tx 2'", &event));
        assert!(!matches("kind = 'queue-created'\nname = 'tx 1'", &event));
        let other = DeviceEvent::new(EventKind::QueueCreated, "txe 2");
        assert!(!matches("kind = 'queue-created'\nname = 'tx'", &other));
    }

    #[test]
    fn what_can_never_happen_is_refused() {
        for (text, complaint) in [
            ("kind = 'command'\nname = 'CRATE'", "did you mean \"CREATE\"?"),
            ("kind = 'command'\nname = 'CREATE'\nwhere = { queue = 1 }", "queue_id"),
            ("kind = 'queue-created'\nname = 'tx 9'", "tx 0 to tx 3"),
            ("kind = 'link'\nwhere = { down = true }", "there are: port, up"),
        ] {
            let message = filter(text).unwrap_err().to_string();
            assert!(message.contains(complaint), "{message}");
        }
    }

    #[test]
    fn a_set_holds_its_kinds() {
        let kinds = EventKinds::NONE.with(EventKind::Command).with(EventKind::Fault);
        assert!(kinds.contains(EventKind::Command) && kinds.contains(EventKind::Fault));
        assert!(!kinds.contains(EventKind::Doorbell));
        assert!(EventKinds::ALL.contains(EventKind::Doorbell));
    }
}
