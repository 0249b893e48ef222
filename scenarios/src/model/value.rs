//! Bounds on numbers.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

use crate::schema::either::Either;

/// What a number must be: a number alone (exactly that), or a table of bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema)]
#[schemars(with = "Either<f64, Table>")]
pub struct Bound {
    /// Exactly this.
    pub equals: Option<f64>,
    /// This or more.
    pub at_least: Option<f64>,
    /// This or less.
    pub at_most: Option<f64>,
}

impl Bound {
    /// Whether nothing is demanded.
    pub fn is_empty(&self) -> bool {
        *self == Bound::default()
    }

    /// Whether any number can be within.
    pub fn is_possible(&self) -> bool {
        let least = self.at_least.unwrap_or(f64::NEG_INFINITY);
        let most = self.at_most.unwrap_or(f64::INFINITY);
        least <= most && self.equals.is_none_or(|wanted| (least..=most).contains(&wanted))
    }

    /// Whether `value` is within.
    pub fn holds(&self, value: f64) -> bool {
        self.equals.is_none_or(|wanted| value == wanted)
            && self.at_least.is_none_or(|bound| value >= bound)
            && self.at_most.is_none_or(|bound| value <= bound)
    }
}

/// `is 5`, `is at least 3 and is at most 7`.
impl fmt::Display for Bound {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.equals.map(|value| format!("is {value}")));
        parts.extend(self.at_least.map(|value| format!("is at least {value}")));
        parts.extend(self.at_most.map(|value| format!("is at most {value}")));
        out.write_str(&parts.join(" and "))
    }
}

impl<'de> Deserialize<'de> for Bound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bound, D::Error> {
        deserializer.deserialize_any(BoundVisitor)
    }
}

struct BoundVisitor;

impl<'de> de::Visitor<'de> for BoundVisitor {
    type Value = Bound;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a number or a table with equals, at_least or at_most")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Bound, E> {
        self.visit_f64(number as f64)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Bound, E> {
        self.visit_f64(number as f64)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Bound, E> {
        Ok(Bound { equals: Some(number), ..Bound::default() })
    }

    fn visit_map<M: de::MapAccess<'de>>(self, map: M) -> Result<Bound, M::Error> {
        let Table { equals, at_least, at_most } =
            Table::deserialize(de::value::MapAccessDeserializer::new(map))?;
        let bound = Bound { equals, at_least, at_most };
        if bound.is_empty() {
            return Err(de::Error::custom("nothing is expected: add equals, at_least or at_most"));
        }
        Ok(bound)
    }
}

/// The long form.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend("minProperties" = 1))]
#[serde(deny_unknown_fields)]
struct Table {
    /// Exactly this.
    equals: Option<f64>,
    /// This or more.
    at_least: Option<f64>,
    /// This or less.
    at_most: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Holder {
        bound: Bound,
    }

    #[test]
    fn a_number_alone_is_exact() {
        let bound = |text: &str| toml::from_str::<Holder>(text).map(|holder| holder.bound);
        let exact = bound("bound = 5").unwrap();
        assert!(exact.holds(5.0) && !exact.holds(5.5));
        let within = bound("bound = { at_least = 3, at_most = 7 }").unwrap();
        assert!(within.holds(3.0) && within.holds(7.0) && !within.holds(8.0));
        assert_eq!(within.to_string(), "is at least 3 and is at most 7");
        assert!(
            within.is_possible() && !bound("bound = { at_least = 7, at_most = 3 }").unwrap().is_possible()
        );
        assert!(!bound("bound = { equals = 2, at_least = 3 }").unwrap().is_possible());
        assert!(bound("bound = {}").is_err());
        assert!(bound("bound = { more_than = 1 }").is_err());
        assert!(bound("bound = 'five'").is_err());
    }
}
