//! Values of fields as scenarios write them, and what can be asked of them and done to them.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A number; negative ones as 64-bit two's complement.
    Number(u64),
    /// A name that the device gives to a number.
    Name(String),
}

/// What is done to a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields, expecting = "a value, { add = value } or { xor = value }")]
pub enum Change {
    /// It becomes this.
    Set(Value),
    /// This is added, modulo the field's width.
    Add {
        /// The summand.
        add: Value,
    },
    /// These bits are inverted.
    Xor {
        /// The bits.
        xor: Value,
    },
}

/// What a field has to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a value or a table of mask, equals, not, at_least and at_most")]
pub enum Condition {
    /// Exactly this.
    Equals(Value),
    /// All of these hold.
    Within(Within),
}

/// Bounds on a field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Within {
    /// Bits that are looked at; all if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask: Option<Value>,
    /// What they have to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equals: Option<Value>,
    /// What they must not be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not: Option<Value>,
    /// Least value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<Value>,
    /// Largest value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<Value>,
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<&str> for Value {
    fn from(name: &str) -> Value {
        Value::Name(name.to_owned())
    }
}

impl<V: Into<Value>> From<V> for Change {
    fn from(value: V) -> Change {
        Change::Set(value.into())
    }
}

impl<V: Into<Value>> From<V> for Condition {
    fn from(value: V) -> Condition {
        Condition::Equals(value.into())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => write!(out, "{number:#x}"),
            Value::Name(name) => write!(out, "{name:?}"),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

impl JsonSchema for Value {
    fn schema_name() -> Cow<'static, str> {
        "Value".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let name_or_number = r"^([^0-9]|[0-9]+$|0x[0-9A-Fa-f]{1,16}$|$)";
        json_schema!({
            "description": "A number, which may be text such as \"0xff\", a boolean, or a name that the device gives to a number.",
            "anyOf": [
                { "type": ["integer", "boolean"] },
                { "type": "string", "pattern": name_or_number }
            ]
        })
    }
}

struct ValueVisitor;

impl Visitor<'_> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a number, true, false, or a name")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value as u64))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        if !text.starts_with(|first: char| first.is_ascii_digit()) {
            return Ok(Value::Name(text.to_owned()));
        }
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        let wrong = |_| E::custom(format!("{text:?} is not a number of at most 64 bits"));
        number.map(Value::Number).map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(json: &str) -> Value {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn numbers_names_and_truths_are_values() {
        assert_eq!(value("7"), Value::Number(7));
        assert_eq!(value("-1"), Value::Number(u64::MAX));
        assert_eq!(value("true"), Value::Number(1));
        assert_eq!(value("\"0xffffffffffffffff\""), Value::Number(u64::MAX));
        assert_eq!(value("\"packet\""), "packet".into());
        assert!(serde_json::from_str::<Value>("\"0xfffffffffffffffff\"").is_err());
        assert!(serde_json::from_str::<Value>("[]").is_err());
    }

    #[test]
    fn changes_and_conditions_are_told_apart_by_their_keys() {
        let change = |json| serde_json::from_str::<Change>(json);
        assert_eq!(change("3").unwrap(), 3.into());
        assert_eq!(change(r#"{"xor": 1}"#).unwrap(), Change::Xor { xor: 1.into() });
        let error = change(r#"{"subtract": 1}"#).unwrap_err().to_string();
        assert!(error.contains("{ add = value } or { xor = value }"), "{error}");
        let condition = |json| serde_json::from_str::<Condition>(json);
        assert_eq!(condition("3").unwrap(), 3.into());
        let within = Within { at_least: Some(2.into()), ..Within::default() };
        assert_eq!(condition(r#"{"at_least": 2}"#).unwrap(), Condition::Within(within));
        assert!(condition(r#"{"above": 2}"#).unwrap_err().to_string().contains("at_least"));
    }
}
