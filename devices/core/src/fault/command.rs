//! What becomes of commands.

use serde::{Deserialize, Serialize};

use super::conditions::{Edits, Tests, all_hold, edit_all, edits, tests};
use super::uses::Trigger;
use super::{CommandFault, FaultError, FaultPoints, Fields, FieldsMut, Span};
use crate::{Duration, Time};

/// The faults that wait for commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandFaults {
    pub(super) rules: Vec<CommandRule>,
}

/// A [`CommandFault`] with its names resolved, and how often it was used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CommandRule {
    pub(super) trigger: Trigger,
    channel: String,
    command: String,
    tests: Tests,
    status: Option<u64>,
    take_effect: bool,
    delay: Option<Span>,
    drop: bool,
    duplicate: u32,
    rewrite: Edits,
}

/// What to do with a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandAction {
    /// Whether to do it.
    pub execute: bool,
    /// The status to answer with instead of its own.
    pub status: Option<u64>,
    /// When to do it and answer. [`Span::Forever`] is until faults are lifted.
    pub delay: Span,
    /// How many answers to give.
    pub answers: u32,
    /// Labels of the faults that made it so.
    pub faults: Vec<String>,
    rewrite: Edits,
}

impl Default for CommandAction {
    /// Nothing out of the ordinary.
    fn default() -> CommandAction {
        CommandAction {
            execute: true,
            status: None,
            delay: Span::For(Duration::ZERO),
            answers: 1,
            faults: Vec::new(),
            rewrite: Vec::new(),
        }
    }
}

impl CommandAction {
    /// Changes the fields of an answer.
    pub fn rewrite(&self, answer: &mut dyn FieldsMut) {
        edit_all(&self.rewrite, answer);
    }

    /// When to do the command and answer it; `None` for not before faults are lifted.
    pub fn due(&self, now: Time) -> Option<Time> {
        self.delay.end(now)
    }

    fn add(&mut self, rule: &CommandRule) {
        self.faults.push(rule.trigger.label.clone());
        self.execute &= rule.take_effect || (rule.status.is_none() && !rule.drop);
        self.status = rule.status.or(self.status);
        self.delay = match (self.delay, rule.delay) {
            (delay, None) => delay,
            (Span::For(first), Some(Span::For(second))) => Span::For(first.saturating_add(second)),
            _ => Span::Forever,
        };
        self.answers = if rule.drop { 0 } else { self.answers.saturating_add(rule.duplicate) };
        self.rewrite.extend(rule.rewrite.iter().cloned());
    }
}

impl CommandFaults {
    /// The driver gives `command` by `channel`, with the fields of `request`: what to do with it.
    pub fn command(
        &mut self,
        now: Time,
        channel: &str,
        command: &str,
        request: &dyn Fields,
    ) -> CommandAction {
        let mut action = CommandAction::default();
        for rule in &mut self.rules {
            let meant = rule.command == command && rule.channel == channel;
            if meant && all_hold(&rule.tests, request) && rule.trigger.fires(now) {
                action.add(rule);
            }
        }
        action
    }

    pub(super) fn inject(
        &mut self,
        now: Time,
        points: &FaultPoints,
        fault: &CommandFault,
        label: String,
    ) -> Result<(), FaultError> {
        let (channel, command) = points.command(fault.channel.as_deref(), &fault.name)?;
        if let Some(problem) = fault.uses.problem() {
            return Err(FaultError::Contradiction(format!("{}: {problem}", fault.name)));
        }
        if fault.drop && (fault.duplicate != 0 || fault.fail.is_some() || !fault.rewrite.is_empty()) {
            let message =
                format!("{}: an answer that is dropped can have nothing else done to it", fault.name);
            return Err(FaultError::Contradiction(message));
        }
        if fault.duplicate > MOST_DUPLICATES {
            let message = format!("{}: at most {MOST_DUPLICATES} duplicates of an answer", fault.name);
            return Err(FaultError::Contradiction(message));
        }
        let answer = format!("the answer to {}", fault.name);
        self.rules.push(CommandRule {
            trigger: Trigger::new(label, fault.uses, fault.lasts, now),
            channel: channel.name.clone().into(),
            command: command.name.clone().into(),
            tests: tests(&fault.conditions, &command.request, &fault.name)?,
            status: fault.fail.as_ref().map(|status| channel.status.resolve(status)).transpose()?,
            take_effect: fault.take_effect,
            delay: fault.delay,
            drop: fault.drop,
            duplicate: fault.duplicate,
            rewrite: edits(&fault.rewrite, &command.answer, &answer)?,
        });
        Ok(())
    }
}

/// Answers are kept in memory until the driver takes them.
const MOST_DUPLICATES: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::testing::points;
    use crate::fault::{Uses, WireView};

    fn inject(fault: CommandFault) -> Result<CommandFaults, FaultError> {
        let mut faults = CommandFaults::default();
        faults.inject(Time::ZERO, &points(), &fault, "it".into()).map(|()| faults)
    }

    fn create() -> CommandFault {
        CommandFault { name: "CREATE".into(), ..CommandFault::default() }
    }

    fn ask(faults: &mut CommandFaults, queue: u64) -> CommandAction {
        faults.command(Time::ZERO, "admin", "CREATE", &[("queue_id", queue)])
    }

    #[test]
    fn a_command_fails_where_its_fields_say_so() {
        let fault = CommandFault {
            conditions: [("queue_id".to_owned(), 3.into())].into(),
            uses: Uses::nth(2),
            fail: Some("INTERNAL_ERROR".into()),
            ..create()
        };
        let mut faults = inject(fault).unwrap();
        assert_eq!(ask(&mut faults, 3), CommandAction::default());
        assert_eq!(ask(&mut faults, 2), CommandAction::default());
        let action = ask(&mut faults, 3);
        assert_eq!((action.execute, action.status, action.answers), (false, Some(7), 1));
        assert_eq!(action.faults, ["it"]);
        assert_eq!(ask(&mut faults, 3), CommandAction::default());
    }

    #[test]
    fn faults_that_hit_the_same_command_add_up() {
        let delay = |seconds| Some(Span::For(Duration::from_secs(seconds)));
        let mut faults = inject(CommandFault { delay: delay(1), duplicate: 2, ..create() }).unwrap();
        let late = CommandFault { delay: delay(2), fail: Some(9.into()), take_effect: true, ..create() };
        faults.inject(Time::ZERO, &points(), &late, "late".into()).unwrap();
        let action = ask(&mut faults, 0);
        assert!(action.execute);
        assert_eq!((action.status, action.answers), (Some(9), 3));
        assert_eq!(action.due(Time::ZERO), Some(Time::from_nanos(3_000_000_000)));
        let drop = CommandFault { drop: true, delay: Some(Span::Forever), ..create() };
        faults.inject(Time::ZERO, &points(), &drop, "drop".into()).unwrap();
        let action = ask(&mut faults, 0);
        assert_eq!((action.execute, action.answers, action.due(Time::ZERO)), (false, 0, None));
    }

    #[test]
    fn an_answer_is_rewritten() {
        let rewrite = [("handle".to_owned(), u64::MAX.into())];
        let mut faults = inject(CommandFault { rewrite: rewrite.into(), ..create() }).unwrap();
        let mut answer = [0; 4];
        ask(&mut faults, 0).rewrite(&mut WireView::new(&crate::fault::testing::ANSWER, &mut answer));
        assert_eq!(answer, [0xff; 4]);
    }

    #[test]
    fn faults_that_name_what_is_not_there_are_refused() {
        let field = |name: &str| [(name.to_owned(), 1.into())].into();
        for (fault, complaint) in [
            (CommandFault { name: "CRATE".into(), ..create() }, "did you mean \"CREATE\""),
            (CommandFault { conditions: field("queue"), ..create() }, "field of CREATE \"queue\""),
            (CommandFault { fail: Some("BROKEN".into()), ..create() }, "INTERNAL_ERROR"),
            (CommandFault { drop: true, duplicate: 1, ..create() }, "dropped"),
            (CommandFault { duplicate: 5000, ..create() }, "at most 1024"),
            (CommandFault { uses: Uses::nth(0), ..create() }, "counted from 1"),
        ] {
            let message = inject(fault).unwrap_err().to_string();
            assert!(message.contains(complaint), "{message}");
        }
    }
}
