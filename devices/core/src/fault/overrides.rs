//! Values that are not what they are.

use serde::{Deserialize, Serialize};

use super::conditions::Edit;
use super::uses::Trigger;
use super::{FaultError, FaultPoints, FieldsMut, OverrideFault};
use crate::Time;

/// The values that the driver gets to see changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overrides {
    pub(super) rules: Vec<OverrideRule>,
}

/// An [`OverrideFault`] with its names resolved, and how often it was used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OverrideRule {
    pub(super) trigger: Trigger,
    name: String,
    /// Only of the queue with this number.
    queue: Option<u32>,
    bits: u8,
    edit: Edit,
}

impl Overrides {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The driver looks at `name`, which is `value`: what it gets to see.
    pub fn apply(&mut self, now: Time, name: &str, value: u64) -> u64 {
        self.apply_where(now, value, |rule| rule.name == name)
    }

    /// The ring index `name` (such as `tx.tail`) of queue number `queue` is about to be used, which is `value`: what
    /// is to be used.
    pub fn apply_to_queue(&mut self, now: Time, name: &str, queue: u32, value: u64) -> u64 {
        let is_meant =
            |rule: &OverrideRule| rule.name == name && rule.queue.is_none_or(|number| number == queue);
        self.apply_where(now, value, is_meant)
    }

    fn apply_where(&mut self, now: Time, value: u64, is_meant: impl Fn(&OverrideRule) -> bool) -> u64 {
        self.rules.iter_mut().filter(|rule| is_meant(rule)).fold(value, |value, rule| {
            match rule.trigger.fires(now) {
                true => rule.edit.apply(value, rule.bits),
                false => value,
            }
        })
    }

    /// The driver looks at all of `fields` at once.
    pub fn apply_all(&mut self, now: Time, fields: &mut dyn FieldsMut) {
        for rule in &mut self.rules {
            if let Some(value) = fields.field(&rule.name)
                && rule.trigger.fires(now)
            {
                fields.set_field(&rule.name, rule.edit.apply(value, rule.bits));
            }
        }
    }

    pub(super) fn inject(
        &mut self,
        now: Time,
        points: &FaultPoints,
        fault: &OverrideFault,
        label: String,
    ) -> Result<(), FaultError> {
        let (point, queue) = points.override_point(&fault.name)?;
        if let Some(problem) = fault.uses.problem() {
            return Err(FaultError::Contradiction(format!("{}: {problem}", fault.name)));
        }
        self.rules.push(OverrideRule {
            trigger: Trigger::new(label, fault.uses, fault.lasts, now),
            name: point.value.name.to_string(),
            queue,
            bits: point.value.bits,
            edit: Edit::of(&fault.value, &point.value)?,
        });
        Ok(())
    }
}
