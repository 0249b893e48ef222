//! All faults of one device.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::points::find_field;
use super::uses::Trigger;
use super::{CommandFaults, CompletionFaults, EventRequest, Fault, FaultError, FaultPoints, Lift, Overrides};
use crate::Time;

/// The faults that a device has been given and that have not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultState {
    /// Those that wait for commands.
    pub commands: CommandFaults,
    /// Those that wait for completions.
    pub completions: CompletionFaults,
    /// Those that change values.
    pub overrides: Overrides,
    /// How many were ever injected: names those without a label.
    injected: u64,
}

/// What injecting a fault asks of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Injected {
    /// Nothing: the fault waits for its use.
    Armed,
    /// Faults were lifted: queues may have something to write ([`super::Shaper::lifted`]), commands may be due.
    Lifted,
    /// Do this now.
    Event {
        /// The event.
        name: String,
        /// All of its arguments, by name.
        arguments: BTreeMap<String, u64>,
    },
}

/// What a fault has seen so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultStatus {
    /// Its label.
    pub label: String,
    /// How many uses it saw that fulfilled its conditions.
    pub seen: u64,
    /// How many of them it changed. A scenario whose fault never hit anything has tested nothing.
    pub hit: u64,
}

impl FaultState {
    /// Takes a fault in.
    ///
    /// # Errors
    /// When the fault names something that is not among `points`, or contradicts itself.
    pub fn inject(&mut self, now: Time, points: &FaultPoints, fault: &Fault) -> Result<Injected, FaultError> {
        match fault {
            Fault::Command(fault) => {
                let label = self.label(&fault.label)?;
                self.commands.inject(now, points, fault, label)?;
            }
            Fault::Completion(fault) => {
                let label = self.label(&fault.label)?;
                self.completions.inject(now, points, fault, label)?;
            }
            Fault::Override(fault) => {
                let label = self.label(&fault.label)?;
                self.overrides.inject(now, points, fault, label)?;
            }
            Fault::Event(request) => return event(points, request),
            Fault::Lift(lift) => return self.lift(lift),
        }
        self.injected += 1;
        Ok(Injected::Armed)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.triggers().next().is_none()
    }

    /// What each fault has seen, in the order in which they were injected within each kind.
    pub fn status(&self) -> Vec<FaultStatus> {
        let status = |trigger: &Trigger| FaultStatus {
            label: trigger.label.clone(),
            seen: trigger.seen,
            hit: trigger.hit,
        };
        self.triggers().map(status).collect()
    }

    fn triggers(&self) -> impl Iterator<Item = &Trigger> + Clone {
        let commands = self.commands.rules.iter().map(|rule| &rule.trigger);
        let completions = self.completions.rules.iter().map(|rule| &rule.trigger);
        let overrides = self.overrides.rules.iter().map(|rule| &rule.trigger);
        commands.chain(completions).chain(overrides)
    }

    /// The label of a new fault.
    fn label(&self, given: &Option<String>) -> Result<String, FaultError> {
        if self.triggers().count() >= MOST_FAULTS {
            return Err(FaultError::TooMany(MOST_FAULTS));
        }
        let Some(label) = given else { return Ok(format!("fault-{}", self.injected + 1)) };
        match self.triggers().any(|trigger| trigger.label == *label) {
            true => {
                Err(FaultError::Contradiction(format!("there is already a fault with the label {label:?}")))
            }
            false => Ok(label.clone()),
        }
    }

    fn lift(&mut self, lift: &Lift) -> Result<Injected, FaultError> {
        if let Some(label) = &lift.label {
            let labels = self.triggers().map(|trigger| &*trigger.label);
            FaultError::find(|| "fault with the label".to_owned(), label, labels)?;
        }
        let stays = |trigger: &Trigger| lift.label.as_ref().is_some_and(|label| *label != trigger.label);
        self.commands.rules.retain(|rule| stays(&rule.trigger));
        self.completions.rules.retain(|rule| stays(&rule.trigger));
        self.overrides.rules.retain(|rule| stays(&rule.trigger));
        Ok(Injected::Lifted)
    }
}

/// An event with its arguments resolved.
fn event(points: &FaultPoints, request: &EventRequest) -> Result<Injected, FaultError> {
    let point = points.event(&request.name)?;
    let fields: Vec<_> = point.arguments.iter().map(|argument| argument.value.clone()).collect();
    let mut arguments = BTreeMap::new();
    for (name, value) in &request.arguments {
        let field = find_field(&fields, || format!("argument of {}", point.name), name)?;
        arguments.insert(name.clone(), field.resolve(value)?);
    }
    for argument in &point.arguments {
        let name = &*argument.value.name;
        if arguments.contains_key(name) {
            continue;
        }
        let missing =
            || FaultError::MissingArgument { event: request.name.clone(), argument: name.to_owned() };
        arguments.insert(name.to_owned(), argument.default.ok_or_else(missing)?);
    }
    Ok(Injected::Event { name: request.name.clone(), arguments })
}

const MOST_FAULTS: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::testing::points;

    fn fault(text: &str) -> Fault {
        let table: toml::Table = toml::from_str(text).unwrap();
        table["fault"].clone().try_into().unwrap()
    }

    fn inject(state: &mut FaultState, text: &str) -> Result<Injected, FaultError> {
        state.inject(Time::ZERO, &points(), &fault(text))
    }

    #[test]
    fn faults_are_read_from_scenario_files() {
        let mut state = FaultState::default();
        for text in [
            r#"fault.command = { name = "CREATE", uses = { nth = 2 }, fail = "INTERNAL_ERROR", delay = "50ms" }"#,
            r#"fault.command = { name = "CREATE", where = { queue_id = 1 }, rewrite = { handle = -1 } }"#,
            r#"fault.completion = { queue = "tx 1", uses = { nth = 1 }, hold = "16s" }"#,
            r#"fault.completion = { queue = "tx", uses = { every = 3 }, insert = { tag = { xor = 1 } }, interrupt = "suppress" }"#,
            r#"fault.completion = { queue = "tx", batch = { entries = 4, order = "reversed" }, interrupt = { vector = 2 } }"#,
            r#"fault.override = { name = "register.status", value = { xor = 2 }, lasts = "5s" }"#,
        ] {
            assert_eq!(inject(&mut state, text).unwrap(), Injected::Armed, "{text}");
        }
        assert_eq!(state.status().len(), 6);
        assert_eq!(inject(&mut state, "fault.lift = {}").unwrap(), Injected::Lifted);
        assert!(state.is_empty());
    }

    #[test]
    fn a_mistake_in_a_fault_is_named() {
        for (text, complaint) in [
            (r#"fault.command = { name = "CREATE", often = 2 }"#, "unknown field `often`"),
            (r#"fault.commands = { name = "CREATE" }"#, "unknown variant `commands`"),
            (r#"fault.completion = { queue = "tx", hold = "16 moons" }"#, "is not a duration"),
            (r#"fault.override = { name = "x" }"#, "missing field `value`"),
        ] {
            let table: toml::Table = toml::from_str(text).unwrap();
            let message = table["fault"].clone().try_into::<Fault>().unwrap_err().to_string();
            assert!(message.contains(complaint), "{message}");
        }
        let mut state = FaultState::default();
        for (text, complaint) in [
            (r#"fault.completion = { queue = "rx" }"#, "there are: tx"),
            (r#"fault.completion = { queue = "tx 9", drop = true }"#, "tx 0 to tx 3"),
            (r#"fault.completion = { queue = "tx", drop = true, duplicate = 1 }"#, "dropped"),
            (r#"fault.completion = { queue = "tx", hold = "1s", delay = "1s" }"#, "only one of"),
            (r#"fault.completion = { queue = "tx", batch = { entries = 1 } }"#, "2 to 4096"),
            (r#"fault.completion = { queue = "tx", rewrite = { colour = 1 } }"#, "there are: tag, type"),
            (r#"fault.override = { name = "register.state", value = 0 }"#, "register.status"),
            (r#"fault.override = { name = "register.status", value = 256 }"#, "8 bits"),
            (r#"fault.event = { name = "link" }"#, "needs the argument up"),
            (r#"fault.event = { name = "link", arguments = { upp = 1 } }"#, "did you mean \"up\"?"),
            (r#"fault.lift = { label = "x" }"#, "this device has none"),
        ] {
            let message = inject(&mut state, text).unwrap_err().to_string();
            assert!(message.contains(complaint), "{message}");
        }
        assert!(state.is_empty());
    }

    #[test]
    fn one_fault_is_lifted_by_its_label() {
        let mut state = FaultState::default();
        let one = r#"fault.override = { name = "register.status", value = 1, label = "one" }"#;
        let two = r#"fault.override = { name = "register.status", value = { add = 4 }, label = "two" }"#;
        inject(&mut state, one).unwrap();
        inject(&mut state, two).unwrap();
        assert!(inject(&mut state, one).unwrap_err().to_string().contains("already"));
        assert_eq!(state.overrides.apply(Time::ZERO, "register.status", 9), 5);
        inject(&mut state, r#"fault.lift = { label = "one" }"#).unwrap();
        assert_eq!(state.overrides.apply(Time::ZERO, "register.status", 9), 13);
        let status = FaultStatus { label: "two".into(), seen: 2, hit: 2 };
        assert_eq!(state.status(), [status]);
    }

    #[test]
    fn a_ring_index_changes_for_the_queues_that_are_meant() {
        let mut state = FaultState::default();
        inject(&mut state, r#"fault.override = { name = "tx 1.tail", value = { add = 3 } }"#).unwrap();
        let tails = |state: &mut FaultState| {
            [0, 1].map(|queue| state.overrides.apply_to_queue(Time::ZERO, "tx.tail", queue, 0xfffe))
        };
        assert_eq!(tails(&mut state), [0xfffe, 1]);
        inject(&mut state, r#"fault.override = { name = "tx.tail", uses = { nth = 1 }, value = 7 }"#)
            .unwrap();
        assert_eq!(tails(&mut state), [7, 1]);
        assert_eq!(state.overrides.apply_to_queue(Time::ZERO, "rx.tail", 1, 5), 5);
    }

    #[test]
    fn an_event_gets_all_its_arguments() {
        let mut state = FaultState::default();
        let text = r#"fault.event = { name = "link", arguments = { up = false } }"#;
        let arguments = [("port".to_owned(), 0), ("up".to_owned(), 0)].into();
        assert_eq!(inject(&mut state, text).unwrap(), Injected::Event { name: "link".into(), arguments });
    }

    #[test]
    fn faults_survive_a_snapshot() {
        let mut state = FaultState::default();
        inject(&mut state, r#"fault.completion = { queue = "tx 1", uses = { nth = 1 }, hold = "16s" }"#)
            .unwrap();
        let saved = serde_json::to_value(&state).unwrap();
        assert_eq!(serde_json::from_value::<FaultState>(saved).unwrap(), state);
    }
}
