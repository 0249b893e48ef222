//! TOML as a tree in which every value knows where it stands in the [`Sources`](crate::source::Sources).
//!
//! Files are put together as trees, before anything of them is understood: includes are merged, defaults and
//! parameters filled in. What is wrong with a value can so be said at the place where it was written.

mod decode;
mod merge;
mod substitute;

use std::fmt;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub(crate) use decode::decode;
pub(crate) use merge::{fill, merge};
pub(crate) use substitute::{Parameters, substitute};

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    pub(crate) span: Range<usize>,
    pub(crate) kind: Kind,
}

/// What a value is. Dates are taken as text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    List(Vec<Value>),
    Table(Table),
}

/// A table: keys with their places, and values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table(pub(crate) Vec<(Key, Value)>);

/// A key and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) span: Range<usize>,
    pub(crate) name: String,
}

/// Something wrong at a place, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) span: Range<usize>,
    pub(crate) message: String,
    pub(crate) help: String,
}

impl Wrong {
    pub(crate) fn new(span: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> Wrong {
        Wrong { span, message: message.into(), help: help.into() }
    }
}

impl Table {
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(key, _)| key.name == name).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.0.iter_mut().find(|(key, _)| key.name == name).map(|(_, value)| value)
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(key, _)| key.name == name)?;
        Some(self.0.remove(at).1)
    }
}

impl Value {
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The tables that stand here: one, or a list of them.
    pub(crate) fn tables_mut(&mut self) -> Vec<&mut Table> {
        match &mut self.kind {
            Kind::Table(table) => vec![table],
            Kind::List(items) => items
                .iter_mut()
                .filter_map(|item| match &mut item.kind {
                    Kind::Table(table) => Some(table),
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        }
    }
}

/// Scalars as parameters show them in names and texts.
impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Text(text) => out.write_str(text),
            Kind::Integer(number) => write!(out, "{number}"),
            Kind::Float(number) => write!(out, "{number}"),
            Kind::Boolean(value) => write!(out, "{value}"),
            Kind::List(_) => out.write_str("[...]"),
            Kind::Table(_) => out.write_str("{...}"),
        }
    }
}

/// Reads `text`, whose first byte has the number `base`.
pub(crate) fn parse(text: &str, base: usize) -> Result<Table, Wrong> {
    let table = DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        Wrong::new(shift(&span, base), error.message(), "TOML is described at https://toml.io")
    })?;
    take_table(table.into_inner(), base)
}

fn take_table(table: DeTable<'_>, base: usize) -> Result<Table, Wrong> {
    let mut entries = Vec::with_capacity(table.len());
    for (key, value) in table {
        let key = Key { span: shift(&key.span(), base), name: key.into_inner().into_owned() };
        entries.push((key, take_value(value, base)?));
    }
    // As written: what is set up first should be what stands first.
    entries.sort_by_key(|(key, _)| key.span.start);
    Ok(Table(entries))
}

fn take_value(value: Spanned<DeValue<'_>>, base: usize) -> Result<Value, Wrong> {
    let span = shift(&value.span(), base);
    let number =
        |what: &str| Wrong::new(span.clone(), format!("{what} does not fit 64 bits"), "use a smaller one");
    let kind = match value.into_inner() {
        DeValue::String(text) => Kind::Text(text.into_owned()),
        DeValue::Integer(digits) => Kind::Integer(
            i64::from_str_radix(digits.as_str(), digits.radix()).map_err(|_| number(digits.as_str()))?,
        ),
        DeValue::Float(digits) => Kind::Float(digits.as_str().parse().map_err(|_| number(digits.as_str()))?),
        DeValue::Boolean(value) => Kind::Boolean(value),
        DeValue::Datetime(date) => {
            let message = format!("{date} is a date, and no field has one");
            return Err(Wrong::new(span, message, "write it in quotation marks if it is a text"));
        }
        DeValue::Array(items) => {
            Kind::List(items.into_iter().map(|item| take_value(item, base)).collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => Kind::Table(take_table(table, base)?),
    };
    Ok(Value { span, kind })
}

fn shift(span: &Range<usize>, by: usize) -> Range<usize> {
    span.start + by..span.end + by
}

/// The one of `known` that `word` was probably meant to be.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= 1 + word.len() / 4)
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_know_their_places_in_order_of_writing() {
        let table = parse("b = 1\n[a]\nc = [0x10, 'é']\n", 100).unwrap();
        let names: Vec<_> = table.0.iter().map(|(key, _)| key.name.as_str()).collect();
        assert_eq!(names, ["b", "a"]);
        assert_eq!(table.get("b").unwrap(), &Value { span: 104..105, kind: Kind::Integer(1) });
        let Kind::Table(a) = &table.get("a").unwrap().kind else { panic!() };
        let Kind::List(items) = &a.get("c").unwrap().kind else { panic!() };
        assert_eq!(items[0].kind, Kind::Integer(16));
        assert_eq!(items[1].text(), Some("é"));
    }

    #[test]
    fn what_is_no_toml_is_refused_at_its_place() {
        assert_eq!(parse("a = 1\nb = \n", 10).unwrap_err().span.start, 20);
        let wrong = parse("a = 99999999999999999999", 0).unwrap_err();
        assert_eq!(wrong.message, "99999999999999999999 does not fit 64 bits");
        assert_eq!(parse("a = 1979-05-27", 0).unwrap_err().span, 4..14);
    }

    #[test]
    fn misspellings_are_recognised() {
        assert_eq!(nearest("naemspace", ["name", "namespace"]), Some("namespace"));
        assert_eq!(nearest("colour", ["name", "namespace"]), None);
    }
}
