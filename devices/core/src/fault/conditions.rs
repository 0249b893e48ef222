//! Conditions and changes with all names resolved to numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::points::find_field;
use super::{Change, Condition, FaultError, Field, Fields, FieldsMut, Within};

/// What one field has to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Test {
    field: String,
    mask: u64,
    least: u64,
    most: u64,
    not: Option<u64>,
}

impl Test {
    fn holds(&self, fields: &dyn Fields) -> bool {
        let Some(value) = fields.field(&self.field) else { return false };
        let value = value & self.mask;
        (self.least..=self.most).contains(&value) && self.not != Some(value)
    }
}

/// What has to hold of several fields.
pub(crate) type Tests = Vec<Test>;

/// Whether all hold.
pub(crate) fn all_hold(tests: &[Test], fields: &dyn Fields) -> bool {
    tests.iter().all(|test| test.holds(fields))
}

/// Resolves `conditions` on the `fields` of `what`.
pub(crate) fn tests(
    conditions: &BTreeMap<String, Condition>,
    fields: &[Field],
    what: &str,
) -> Result<Tests, FaultError> {
    let test = |(name, condition): (&String, &Condition)| {
        let field = find_field(fields, || format!("field of {what}"), name)?;
        let within = match condition {
            Condition::Equals(value) => Within { equals: Some(value.clone()), ..Within::default() },
            Condition::Within(within) => within.clone(),
        };
        let number = |value: &Option<_>| value.as_ref().map(|value| field.resolve(value)).transpose();
        let equals = number(&within.equals)?;
        let least = number(&within.at_least)?.unwrap_or(0);
        let most = number(&within.at_most)?.unwrap_or(u64::MAX);
        Ok(Test {
            field: name.clone(),
            mask: number(&within.mask)?.unwrap_or(u64::MAX),
            least: equals.unwrap_or(least),
            most: equals.unwrap_or(most),
            not: number(&within.not)?,
        })
    };
    conditions.iter().map(test).collect()
}

/// What is done to a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Edit {
    Set(u64),
    Add(u64),
    Xor(u64),
}

impl Edit {
    pub(super) fn of(change: &Change, field: &Field) -> Result<Edit, FaultError> {
        Ok(match change {
            Change::Set(value) => Edit::Set(field.resolve(value)?),
            Change::Add { add } => Edit::Add(field.resolve(add)?),
            Change::Xor { xor } => Edit::Xor(field.resolve(xor)?),
        })
    }

    /// The result in a field of `bits` bits.
    pub(super) fn apply(self, value: u64, bits: u8) -> u64 {
        let value = match self {
            Edit::Set(new) => new,
            Edit::Add(summand) => value.wrapping_add(summand),
            Edit::Xor(inverted) => value ^ inverted,
        };
        value & super::fields::mask(bits)
    }
}

/// What is done to several fields.
pub(super) type Edits = Vec<(String, Edit)>;

/// Resolves `changes` to the `fields` of `what`.
pub(super) fn edits(
    changes: &BTreeMap<String, Change>,
    fields: &[Field],
    what: &str,
) -> Result<Edits, FaultError> {
    let edit = |(name, change): (&String, &Change)| {
        let field = find_field(fields, || format!("field of {what}"), name)?;
        Ok((name.clone(), Edit::of(change, field)?))
    };
    changes.iter().map(edit).collect()
}

/// Carries `edits` out on the fields that there are.
pub(super) fn edit_all(edits: &[(String, Edit)], fields: &mut dyn FieldsMut) {
    for (name, edit) in edits {
        if let (Some(value), Some(bits)) = (fields.field(name), fields.field_bits(name)) {
            fields.set_field(name, edit.apply(value, bits));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Value, WireField, WireView};

    fn holds(condition: Condition, value: u64) -> bool {
        let fields = [Field::new("f", 8).named(&[("two", 2)])];
        let tests = super::tests(&[("f".to_owned(), condition)].into(), &fields, "it").unwrap();
        all_hold(&tests, &[("f", value)])
    }

    #[test]
    fn conditions_compare_masked_fields() {
        assert!(holds(Condition::Equals("two".into()), 2));
        assert!(!holds(Condition::Equals("two".into()), 3));
        let value = |number: u64| Some(Value::Number(number));
        let bits = Within { mask: value(0xf0), equals: value(0x10), ..Within::default() };
        assert!(holds(Condition::Within(bits.clone()), 0x1f));
        assert!(!holds(Condition::Within(bits), 0x2f));
        let range = Within { at_least: value(3), at_most: value(5), not: value(4), ..Within::default() };
        let inside: Vec<_> = (0..8).filter(|value| holds(Condition::Within(range.clone()), *value)).collect();
        assert_eq!(inside, [3, 5]);
    }

    #[test]
    fn a_field_that_the_structure_at_hand_lacks_fulfils_no_condition() {
        let test = Test { field: "f".into(), mask: u64::MAX, least: 0, most: u64::MAX, not: None };
        assert!(!all_hold(&[test], &crate::fault::NoFields));
    }

    #[test]
    fn edits_stay_within_their_field() {
        const LAYOUT: [WireField; 2] =
            [WireField::little("a", 0, 1).at_bits(0, 4), WireField::little("b", 0, 1).at_bits(4, 4)];
        let changes = [
            ("a".to_owned(), Change::Add { add: 9.into() }),
            ("b".to_owned(), Change::Xor { xor: 0xf.into() }),
        ];
        let edits = super::edits(&changes.into(), &Field::of(&LAYOUT), "it").unwrap();
        let mut bytes = [0x5a];
        edit_all(&edits, &mut WireView::new(&LAYOUT, &mut bytes));
        assert_eq!(bytes, [0xa3]);
    }
}
