//! What a device says that can be done to it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{Fault, FaultError, FaultState, Value, WireField};

/// Everything about a device that faults and events can name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultPoints {
    /// Ways by which the driver gives commands.
    pub channels: Vec<Channel>,
    /// Kinds of queues with completions.
    pub queues: Vec<QueuePoint>,
    /// Values that the driver reads, and ring indices.
    pub overrides: Vec<OverridePoint>,
    /// What the device can be told to do.
    pub events: Vec<EventPoint>,
}

/// A way by which the driver gives commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    /// Its name.
    pub name: Cow<'static, str>,
    /// How an answer says how it went: the names are what `fail` takes.
    pub status: Field,
    /// The commands.
    pub commands: Vec<CommandPoint>,
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandPoint {
    /// The driver's name for it.
    pub name: Cow<'static, str>,
    /// Fields of the request, for `where`.
    pub request: Vec<Field>,
    /// Fields of the answer, for `rewrite`.
    pub answer: Vec<Field>,
}

/// A kind of queue with completions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePoint {
    /// Its kind, such as `tx`.
    pub kind: Cow<'static, str>,
    /// How many there can be; they are numbered from 0.
    pub count: u32,
    /// Fields of a completion.
    pub fields: Vec<Field>,
}

/// A value that the driver reads, or a ring index that the device uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverridePoint {
    /// What it is and its name, such as `register.device_status`.
    #[serde(flatten)]
    pub value: Field,
    /// Of a ring index, whose name (`tx.tail`) starts with a kind of queue: how many of these there can be. `tx 3.tail`
    /// is that of one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
}

impl OverridePoint {
    /// A value that the device has once.
    pub fn new(value: Field) -> OverridePoint {
        OverridePoint { value, queues: None }
    }

    /// A ring index that each of `queues` queues has.
    pub fn of_queues(value: Field, queues: u32) -> OverridePoint {
        OverridePoint { value, queues: Some(queues) }
    }
}

/// Something that the device can be told to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventPoint {
    /// Its name.
    pub name: Cow<'static, str>,
    /// What happens then, in one line.
    pub meaning: Cow<'static, str>,
    /// Its arguments.
    pub arguments: Vec<Argument>,
}

/// An argument of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argument {
    /// What can be given.
    #[serde(flatten)]
    pub value: Field,
    /// What it is if left out; it has to be given where this is `None`.
    pub default: Option<u64>,
}

/// A named number of some bits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// The driver's name for it.
    pub name: Cow<'static, str>,
    /// Width in bits, 1 to 64.
    pub bits: u8,
    /// Names of some of its values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<(Cow<'static, str>, u64)>,
}

impl Field {
    /// A field of `bits` bits.
    pub fn new(name: impl Into<Cow<'static, str>>, bits: u8) -> Field {
        Field { name: name.into(), bits: bits.clamp(1, 64), values: Vec::new() }
    }

    /// Names for some of its values.
    #[must_use]
    pub fn named(mut self, values: &[(&'static str, u64)]) -> Field {
        self.values = values.iter().map(|(name, value)| (Cow::Borrowed(*name), *value)).collect();
        self
    }

    /// What the fields of a wire structure are.
    pub fn of(layout: &[WireField]) -> Vec<Field> {
        layout.iter().map(WireField::describe).collect()
    }

    /// The number that `value` stands for here.
    pub(super) fn resolve(&self, value: &Value) -> Result<u64, FaultError> {
        match value {
            Value::Number(number) => self.fit(*number),
            Value::Name(name) => {
                let known = self.values.iter().map(|(name, _)| &**name);
                let what = || format!("value of {}", self.name);
                let position = FaultError::find(what, name, known)?;
                Ok(self.values[position].1)
            }
        }
    }

    /// Numbers that do not fit are mistakes; negative ones that do lose their upper bits.
    fn fit(&self, number: u64) -> Result<u64, FaultError> {
        let mask = super::fields::mask(self.bits);
        let negative = (number as i64) < 0 && number as i64 >= -1_i64 << (self.bits - 1);
        match number & mask == number || negative {
            true => Ok(number & mask),
            false => Err(FaultError::TooLarge { field: self.name.clone().into(), number, bits: self.bits }),
        }
    }
}

impl FaultPoints {
    /// Why a device with none of these points cannot take `fault`.
    pub(crate) fn refusal(&self, fault: &Fault) -> FaultError {
        let mut state = FaultState::default();
        match state.inject(crate::Time::ZERO, self, fault) {
            Err(error) => error,
            Ok(_) => FaultError::NotNow("this device takes no faults".to_owned()),
        }
    }

    /// The channel and the command of that name.
    pub(super) fn command(
        &self,
        channel: Option<&str>,
        name: &str,
    ) -> Result<(&Channel, &CommandPoint), FaultError> {
        if let Some(channel) = channel {
            let names = self.channels.iter().map(|channel| &*channel.name);
            let position = FaultError::find(|| "command channel".to_owned(), channel, names)?;
            let channel = &self.channels[position];
            let names = channel.commands.iter().map(|command| &*command.name);
            let position = FaultError::find(|| format!("command of {}", channel.name), name, names)?;
            return Ok((channel, &channel.commands[position]));
        }
        let commands =
            || self.channels.iter().flat_map(|channel| std::iter::repeat(channel).zip(&channel.commands));
        let names = commands().map(|(_, command)| &*command.name);
        let position = FaultError::find(|| "command".to_owned(), name, names)?;
        let channels: Vec<_> = commands()
            .filter(|(_, command)| command.name == name)
            .map(|(channel, _)| channel.name.to_string())
            .collect();
        match commands().nth(position) {
            Some(found) if channels.len() == 1 => Ok(found),
            _ => Err(FaultError::Ambiguous { command: name.to_owned(), channels: channels.join(", ") }),
        }
    }

    /// The kind of queue and its number that `selector` (`tx 3`, or `tx` for all) means.
    pub(super) fn queue(&self, selector: &str) -> Result<(&QueuePoint, Option<u32>), FaultError> {
        let (kind, number) = match selector.split_once(' ') {
            Some((kind, number)) => (kind, Some(number)),
            None => (selector, None),
        };
        let kinds = self.queues.iter().map(|queue| &*queue.kind);
        let position = FaultError::find(|| "kind of queue".to_owned(), kind, kinds)?;
        let queue = &self.queues[position];
        let Some(number) = number else { return Ok((queue, None)) };
        match number.parse().ok().filter(|number| *number < queue.count) {
            Some(number) => Ok((queue, Some(number))),
            None => Err(FaultError::QueueNumber {
                kind: kind.to_owned(),
                number: number.to_owned(),
                count: queue.count,
            }),
        }
    }

    /// The fields that a command is observed with.
    pub(crate) fn request_fields(&self, command: &str) -> Result<Vec<Field>, FaultError> {
        let commands = self.channels.iter().flat_map(|channel| &channel.commands);
        let names = commands.map(|command| &*command.name);
        FaultError::find(|| "command".to_owned(), command, names)?;
        let mut fields = Vec::new();
        for channel in &self.channels {
            for point in channel.commands.iter().filter(|point| point.name == command) {
                fields.extend(point.request.iter().cloned());
                fields.push(channel.status.clone());
            }
        }
        Ok(fields)
    }

    /// Whether there is such a queue.
    pub(crate) fn check_queue(&self, selector: &str) -> Result<(), FaultError> {
        self.queue(selector).map(|_| ())
    }

    /// The value of this name, and the number of the queue that it means (`tx 3.tail`) where it means only one.
    pub(super) fn override_point(&self, name: &str) -> Result<(&OverridePoint, Option<u32>), FaultError> {
        let (general, queue) = match numbered(name) {
            Some((kind, number, index)) => (format!("{kind}.{index}"), Some((kind, number))),
            None => (name.to_owned(), None),
        };
        let known: Vec<&OverridePoint> =
            self.overrides.iter().filter(|point| queue.is_none() || point.queues.is_some()).collect();
        let names = known.iter().map(|point| &*point.value.name);
        let position = FaultError::find(|| "value to override".to_owned(), &general, names)?;
        let point = known[position];
        let Some((kind, number)) = queue else { return Ok((point, None)) };
        let count = point.queues.unwrap_or(0);
        match number.parse().ok().filter(|number| *number < count) {
            Some(number) => Ok((point, Some(number))),
            None => Err(FaultError::QueueNumber { kind: kind.to_owned(), number: number.to_owned(), count }),
        }
    }

    pub(super) fn event(&self, name: &str) -> Result<&EventPoint, FaultError> {
        let names = self.events.iter().map(|point| &*point.name);
        let position = FaultError::find(|| "event".to_owned(), name, names)?;
        Ok(&self.events[position])
    }
}

/// The parts of a name such as `tx 3.tail`.
fn numbered(name: &str) -> Option<(&str, &str, &str)> {
    let (kind, rest) = name.split_once(' ')?;
    let (number, index) = rest.split_once('.')?;
    Some((kind, number, index))
}

/// The field of that name.
pub(super) fn find_field<'a>(
    fields: &'a [Field],
    what: impl FnOnce() -> String,
    name: &str,
) -> Result<&'a Field, FaultError> {
    let position = FaultError::find(what, name, fields.iter().map(|field| &*field.name))?;
    Ok(&fields[position])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(name: &'static str, commands: &[&'static str]) -> Channel {
        let command = |name: &&'static str| CommandPoint {
            name: Cow::Borrowed(*name),
            request: Vec::new(),
            answer: Vec::new(),
        };
        let commands = commands.iter().map(command).collect();
        Channel { name: name.into(), status: Field::new("status", 32), commands }
    }

    fn points() -> FaultPoints {
        FaultPoints {
            channels: vec![channel("admin", &["OPEN", "CLOSE"]), channel("messages", &["OPEN", "SEND"])],
            queues: vec![QueuePoint { kind: "tx".into(), count: 4, fields: Vec::new() }],
            overrides: vec![
                OverridePoint::new(Field::new("register.status", 8)),
                OverridePoint::of_queues(Field::new("tx.tail", 16), 4),
            ],
            ..FaultPoints::default()
        }
    }

    #[test]
    fn numbers_have_to_fit_their_field() {
        let field = Field::new("f", 4).named(&[("seven", 7)]);
        let resolve = |value: Value| field.resolve(&value);
        assert_eq!(resolve(15.into()).unwrap(), 15);
        assert_eq!(resolve((-1_i64 as u64).into()).unwrap(), 15);
        assert_eq!(resolve((-8_i64 as u64).into()).unwrap(), 8);
        assert_eq!(resolve("seven".into()).unwrap(), 7);
        for wrong in [16.into(), (-9_i64 as u64).into(), "eight".into()] {
            assert!(resolve(wrong).is_err());
        }
        assert_eq!(Field::new("f", 64).fit(u64::MAX).unwrap(), u64::MAX);
    }

    #[test]
    fn a_command_is_found_by_its_name_alone_where_that_is_enough() {
        let points = points();
        let (channel, command) = points.command(None, "SEND").unwrap();
        assert_eq!((&*channel.name, &*command.name), ("messages", "SEND"));
        assert_eq!(points.command(Some("admin"), "OPEN").unwrap().0.name, "admin");
        let message = points.command(None, "OPEN").unwrap_err().to_string();
        assert!(message.contains("admin, messages"), "{message}");
        let message = points.command(None, "CLOZE").unwrap_err().to_string();
        assert!(message.contains("did you mean \"CLOSE\"?") && message.contains("SEND"), "{message}");
        assert!(points.command(Some("admin"), "SEND").is_err());
    }

    #[test]
    fn a_ring_index_is_that_of_one_queue_or_of_all() {
        let points = points();
        assert_eq!(points.override_point("tx.tail").unwrap().1, None);
        let (point, queue) = points.override_point("tx 3.tail").unwrap();
        assert_eq!((&*point.value.name, queue), ("tx.tail", Some(3)));
        for (wrong, complaint) in [
            ("tx 4.tail", "use tx 0 to tx 3"),
            ("tx x.tail", "use tx 0 to tx 3"),
            ("tx 3.tale", "did you mean \"tx.tail\"?"),
            ("rx 0.tail", "there are: tx.tail"),
            ("register 0.status", "there are: tx.tail"),
            ("tx.tale", "there are: register.status, tx.tail"),
        ] {
            let message = points.override_point(wrong).unwrap_err().to_string();
            assert!(message.contains(complaint), "{wrong}: {message}");
        }
        assert!(FaultPoints::default().override_point("tx 0.tail").is_err());
    }

    #[test]
    fn a_queue_is_selected_by_kind_and_number() {
        let points = points();
        assert_eq!(points.queue("tx").unwrap().1, None);
        assert_eq!(points.queue("tx 3").unwrap().1, Some(3));
        for wrong in ["tx 4", "tx -1", "tx all", "rx 0", ""] {
            assert!(points.queue(wrong).is_err(), "{wrong}");
        }
    }
}
