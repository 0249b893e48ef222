//! From a tree to typed data, with serde.

use std::fmt;
use std::ops::Range;
use std::vec::IntoIter;

use serde::de::{self, DeserializeOwned, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_spanned::de::{SpannedDeserializer, is_spanned};

use super::{Key, Kind, Table, Value, Wrong, nearest};

/// Takes `table`, which stands at `span`, as a `T`.
pub(crate) fn decode<T: DeserializeOwned>(table: Table, span: Range<usize>) -> Result<T, Wrong> {
    let value = Value { span: span.clone(), kind: Kind::Table(table) };
    T::deserialize(Decoder(value)).map_err(|error| {
        let Error { span: place, message, help } = error;
        let help = help.unwrap_or_else(|| "scenarios/README.md describes all fields".into());
        Wrong::new(place.unwrap_or(span), message, help)
    })
}

/// What serde says, and where.
#[derive(Debug)]
struct Error {
    span: Option<Range<usize>>,
    message: String,
    help: Option<String>,
}

impl Error {
    fn at(mut self, span: &Range<usize>) -> Error {
        self.span.get_or_insert_with(|| span.clone());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Error {
        Error { span: None, message: message.to_string(), help: None }
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Error {
        let help = match nearest(field, expected.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None if expected.is_empty() => "nothing can be set here".into(),
            None => format!("these can be set here: {}", expected.join(", ")),
        };
        Error { span: None, message: format!("there is no field `{field}` here"), help: Some(help) }
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Error {
        let help = format!("write one of {}", expected.join(", "));
        Error { span: None, message: format!("`{variant}` is not known here"), help: Some(help) }
    }

    fn missing_field(field: &'static str) -> Error {
        let help = format!("add {field} = ...");
        Error { span: None, message: format!("the field `{field}` is missing"), help: Some(help) }
    }

    fn invalid_type(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> Error {
        let message = format!("this is {found}, not {}", in_words(expected));
        Error { span: None, message, help: None }
    }

    fn invalid_value(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> Error {
        let message = format!("{found} is not {}", in_words(expected));
        Error { span: None, message, help: None }
    }
}

/// What is expected, for people who do not think of Rust.
fn in_words(expected: &dyn de::Expected) -> String {
    let text = expected.to_string();
    let bits = |bits: u32| format!("a whole number from 0 to {}", u64::MAX >> (64 - bits));
    match text.as_str() {
        "u8" => bits(8),
        "u16" => bits(16),
        "u32" => bits(32),
        "u64" | "usize" => "a whole number from 0 on".into(),
        "i32" | "i64" => "a whole number".into(),
        "f32" | "f64" => "a number".into(),
        _ => text,
    }
}

struct Decoder(Value);

impl<'de> de::Deserializer<'de> for Decoder {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let Decoder(Value { span, kind }) = self;
        match kind {
            Kind::Text(text) => visitor.visit_string(text),
            Kind::Integer(number) => visitor.visit_i64(number),
            Kind::Float(number) => visitor.visit_f64(number),
            Kind::Boolean(value) => visitor.visit_bool(value),
            Kind::List(items) => visitor.visit_seq(Items(items.into_iter())),
            Kind::Table(table) => visitor.visit_map(Entries { rest: table.0.into_iter(), value: None }),
        }
        .map_err(|error: Error| error.at(&span))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if is_spanned(name) {
            let span = self.0.span.clone();
            return visitor.visit_map(SpannedDeserializer::new(self, span));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Value { span, kind } = self.0;
        match kind {
            Kind::Text(text) => visitor.visit_enum(text.into_deserializer()),
            Kind::Table(table) if table.0.len() == 1 => {
                let entries = Entries { rest: table.0.into_iter(), value: None };
                visitor.visit_enum(de::value::MapAccessDeserializer::new(entries))
            }
            _ => Err(de::Error::custom(format!("this is not a {name}"))),
        }
        .map_err(|error: Error| error.at(&span))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map identifier ignored_any
    }
}

impl IntoDeserializer<'_, Error> for Decoder {
    type Deserializer = Decoder;

    fn into_deserializer(self) -> Decoder {
        self
    }
}

struct Items(IntoIter<Value>);

impl<'de> de::SeqAccess<'de> for Items {
    type Error = Error;

    fn next_element_seed<T: de::DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(value) = self.0.next() else { return Ok(None) };
        let span = value.span.clone();
        seed.deserialize(Decoder(value)).map(Some).map_err(|error| error.at(&span))
    }
}

struct Entries {
    rest: IntoIter<(Key, Value)>,
    value: Option<Value>,
}

impl<'de> de::MapAccess<'de> for Entries {
    type Error = Error;

    fn next_key_seed<K: de::DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some(value);
        let span = key.span.clone();
        let key = Decoder(Value { span: key.span, kind: Kind::Text(key.name) });
        seed.deserialize(key).map(Some).map_err(|error| error.at(&span))
    }

    fn next_value_seed<V: de::DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let Some(value) = self.value.take() else {
            return Err(de::Error::custom("a value was asked for before its key"));
        };
        let span = value.span.clone();
        seed.deserialize(Decoder(value)).map_err(|error| error.at(&span))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use toml::Spanned;

    use super::super::parse;
    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        name: Spanned<String>,
        #[serde(default)]
        numbers: Vec<u16>,
        share: Option<f64>,
        #[serde(default)]
        rest: BTreeMap<String, Spanned<bool>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        inner: Vec<Spanned<Inner>>,
    }

    fn outer(text: &str) -> Result<Outer, Wrong> {
        decode(parse(text, 0).unwrap(), 0..text.len())
    }

    #[test]
    fn data_is_taken_with_its_places() {
        let text = "[[inner]]\nname = 'x'\nnumbers = [1, 2]\nshare = 0.5\nrest = { on = true }\n";
        let outer = outer(text).unwrap();
        let inner = outer.inner[0].get_ref();
        assert_eq!(&text[inner.name.span()], "'x'");
        assert_eq!(&text[inner.rest["on"].span()], "true");
        assert_eq!((inner.numbers.as_slice(), inner.share), (&[1, 2][..], Some(0.5)));
    }

    #[test]
    fn what_does_not_fit_is_refused_at_its_place() {
        let refused = |text: &str| {
            let wrong = outer(text).unwrap_err();
            (wrong.message, text[wrong.span].to_owned(), wrong.help)
        };
        let (message, place, help) = refused("[[inner]]\nname = 'x'\nnumbrs = [1]\n");
        assert_eq!(
            (message.as_str(), place.as_str(), help.as_str()),
            ("there is no field `numbrs` here", "numbrs", "did you mean `numbers`?")
        );
        let (message, place, _) = refused("[[inner]]\nname = 'x'\nnumbers = [1, -2]\n");
        assert_eq!(
            (message.as_str(), place.as_str()),
            ("integer `-2` is not a whole number from 0 to 65535", "-2")
        );
        let (message, place, _) = refused("[[inner]]\nname = 7\n");
        assert_eq!((message.as_str(), place.as_str()), ("this is integer `7`, not a string", "7"));
        let (message, place, _) = refused("[[inner]]\n");
        assert_eq!((message.as_str(), place.as_str()), ("the field `name` is missing", "[[inner]]"));
    }
}
