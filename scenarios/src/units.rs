//! Sizes, durations, rates and shares as people write them.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use nicvisor_core::Duration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Value, json};

/// A number of bytes: a number, possibly as text with K, M or G (powers of 1024), such as `"64M"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A stretch of time: text with ns, us, ms, s, m or h, such as `"50us"` or `"1.5s"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// Bits a second: a number, possibly as text with K, M, G or T (powers of 1000), such as `"10G"`; 0 takes no
/// time at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BitRate(pub u64);

/// A share of all frames, from 0 to 1, as a number or as text with `%`, such as `"0.1%"`. Kept in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(pub u32);

/// A size in bytes: a number, possibly followed by K, M or G (powers of 1024).
pub fn parse_size(text: &str) -> Option<u64> {
    let (number, factor) = split(text.trim(), &[("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30)])?;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// A duration: a number followed by ns, us, ms, s, m or h. The number may have a fraction.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let units = [("ns", 1), ("us", 1000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let longer = [("m", 60_000_000_000), ("h", 3_600_000_000_000)];
    let (number, factor) = units.into_iter().chain(longer).find_map(|(unit, factor)| {
        let number = text.trim().strip_suffix(unit)?;
        number.ends_with(|last: char| last.is_ascii_digit()).then_some((number, factor))
    })?;
    scaled(number, factor).map(Duration::from_nanos)
}

fn parse_bit_rate(text: &str) -> Option<u64> {
    let units = [("K", 1000), ("M", 1_000_000), ("G", 1_000_000_000), ("T", 1_000_000_000_000)];
    let (number, factor) = split(text.trim(), &units)?;
    scaled(number, factor)
}

fn parse_share(text: &str) -> Option<u32> {
    let (number, millionths) = match text.trim().strip_suffix('%') {
        Some(percent) => (percent, 10_000),
        None => (text, 1_000_000),
    };
    scaled(number.trim(), millionths)
        .and_then(|parts| u32::try_from(parts).ok())
        .filter(|parts| *parts <= 1_000_000)
}

/// The number before a unit, and the unit's factor; upper and lower case are the same.
fn split<'a>(text: &'a str, units: &[(&str, u64)]) -> Option<(&'a str, u64)> {
    let last = text.chars().last()?;
    if last.is_ascii_digit() {
        return Some((text, 1));
    }
    let (_, factor) = units.iter().find(|(unit, _)| unit.eq_ignore_ascii_case(&last.to_string()))?;
    Some((&text[..text.len() - last.len_utf8()], *factor))
}

/// `number`, which may have a fraction, times `factor`, exactly: what is less than one is cut off.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 18 {
        return None;
    }
    let parts = fraction.parse::<u64>().unwrap_or(0);
    let below = u128::from(parts) * u128::from(factor) / 10u128.pow(fraction.len() as u32);
    whole.parse::<u64>().ok()?.checked_mul(factor)?.checked_add(u64::try_from(below).ok()?)
}

impl fmt::Display for Span {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.0)
    }
}

/// What the file format has for a unit, and how it is read.
trait Unit: Sized {
    const EXPECTED: &'static str;
    /// A regular expression for the texts that are read, as JSON Schema has them.
    const PATTERN: &'static str;
    /// What numbers are read, in JSON Schema.
    fn numbers() -> Option<Value> {
        None
    }
    fn of_text(text: &str) -> Option<Self>;
    fn of_integer(_number: u64) -> Option<Self> {
        None
    }
    fn of_float(_number: f64) -> Option<Self> {
        None
    }
}

impl Unit for Size {
    const EXPECTED: &'static str = "a size: a number with K, M or G, such as \"64M\"";
    const PATTERN: &'static str = r"^\s*[0-9]+[KMGkmg]?\s*$";
    fn numbers() -> Option<Value> {
        Some(json!({ "type": "integer", "minimum": 0 }))
    }
    fn of_text(text: &str) -> Option<Size> {
        parse_size(text).map(Size)
    }
    fn of_integer(number: u64) -> Option<Size> {
        Some(Size(number))
    }
}

impl Unit for Span {
    const EXPECTED: &'static str = "a duration: a number with ns, us, ms, s, m or h, such as \"50us\"";
    const PATTERN: &'static str = r"^\s*[0-9]+(\.[0-9]*)?(ns|us|ms|s|m|h)\s*$";
    fn of_text(text: &str) -> Option<Span> {
        parse_duration(text).map(Span)
    }
}

impl Unit for BitRate {
    const EXPECTED: &'static str = "bits a second: a number with K, M, G or T, such as \"10G\"";
    const PATTERN: &'static str = r"^\s*[0-9]+(\.[0-9]*)?[KMGTkmgt]?\s*$";
    fn numbers() -> Option<Value> {
        Some(json!({ "type": "integer", "minimum": 0 }))
    }
    fn of_text(text: &str) -> Option<BitRate> {
        parse_bit_rate(text).map(BitRate)
    }
    fn of_integer(number: u64) -> Option<BitRate> {
        Some(BitRate(number))
    }
}

impl Unit for Share {
    const EXPECTED: &'static str = "a share between 0 and 1, or text such as \"0.1%\"";
    const PATTERN: &'static str =
        r"^\s*(0*(100(\.0*)?|[0-9]{1,2}(\.[0-9]*)?)\s*%|0*[01](\.0*)?|0+\.[0-9]+)\s*$";
    fn numbers() -> Option<Value> {
        Some(json!({ "type": "number", "minimum": 0, "maximum": 1 }))
    }
    fn of_text(text: &str) -> Option<Share> {
        parse_share(text).map(Share)
    }
    fn of_integer(number: u64) -> Option<Share> {
        Share::of_float(number as f64)
    }
    fn of_float(number: f64) -> Option<Share> {
        (0.0..=1.0).contains(&number).then(|| Share((number * 1e6).round() as u32))
    }
}

struct UnitVisitor<T>(PhantomData<T>);

impl<T: Unit> de::Visitor<'_> for UnitVisitor<T> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::of_text(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        let unexpected = de::Unexpected::Signed(number);
        u64::try_from(number).ok().and_then(T::of_integer).ok_or_else(|| E::invalid_value(unexpected, &self))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        T::of_integer(number).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        T::of_float(number).ok_or_else(|| E::invalid_value(de::Unexpected::Float(number), &self))
    }
}

macro_rules! units {
    ($($unit:ident),*) => {$(
        impl JsonSchema for $unit {
            fn schema_name() -> Cow<'static, str> {
                stringify!($unit).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let text = json!({ "type": "string", "pattern": <$unit as Unit>::PATTERN });
                let choices: Vec<Value> = <$unit as Unit>::numbers().into_iter().chain([text]).collect();
                json_schema!({ "description": <$unit as Unit>::EXPECTED, "anyOf": choices })
            }
        }

        impl<'de> Deserialize<'de> for $unit {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(UnitVisitor(PhantomData))
            }
        }
    )*};
}

units!(Size, Span, BitRate, Share);

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{}ns", self.0.as_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("64M"), Some(64 << 20));
        assert_eq!(parse_size("64k"), Some(64 << 10));
        assert_eq!(parse_size("1500"), Some(1500));
        for wrong in ["", "M", "1T", "-1", "99999999999G", "1é", "1.5M"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("50us"), Some(Duration::from_micros(50)));
        assert_eq!(parse_duration("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2h"), Some(Duration::from_secs(7200)));
        assert_eq!(parse_duration("0.5ns"), Some(Duration::ZERO));
        for wrong in ["", "s", "5", "-1s", "1d", "1 s", "1e3s", ".5s", "99999999999999999999s"] {
            assert_eq!(parse_duration(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn rates_and_shares() {
        assert_eq!(parse_bit_rate("2.5G"), Some(2_500_000_000));
        assert_eq!(parse_bit_rate("0"), Some(0));
        assert_eq!(parse_bit_rate("fast"), None);
        assert_eq!(parse_share("0.1%"), Some(1000));
        assert_eq!(parse_share("0.25"), Some(250_000));
        assert_eq!(parse_share("100%"), Some(1_000_000));
        assert_eq!(parse_share("101%"), None);
        assert_eq!(Share::of_float(1.5), None);
    }
}
