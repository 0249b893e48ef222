//! How long something lasts, as scenarios write it.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Duration, Time};

/// A duration such as `"16s"` or `"1m 30s"`, or `"forever"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("pattern" = r"^(forever|\s*([0-9]+(\.[0-9]+)?\s*[A-Za-zµ]+\s*)+|0)$"))]
#[serde(try_from = "String", into = "String")]
pub enum Span {
    /// So long.
    For(Duration),
    /// Until the fault is lifted.
    Forever,
}

impl Span {
    /// When a span that starts now ends; `None` for never.
    pub fn end(self, now: Time) -> Option<Time> {
        match self {
            Span::For(duration) => Some(now + duration),
            Span::Forever => None,
        }
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        if text == FOREVER {
            return Ok(Span::Forever);
        }
        let wrong = |error| {
            format!("{text:?} is not a duration such as \"250us\", \"16s\" or \"{FOREVER}\": {error}")
        };
        humantime::parse_duration(text).map(Span::For).map_err(wrong)
    }
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Span, String> {
        text.parse()
    }
}

impl From<Span> for String {
    fn from(span: Span) -> String {
        match span {
            Span::For(duration) => humantime::format_duration(duration).to_string(),
            Span::Forever => FOREVER.to_owned(),
        }
    }
}

const FOREVER: &str = "forever";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_written_as_people_do() {
        let read = |text: &str| serde_json::from_value::<Span>(text.into());
        assert_eq!(read("16s").unwrap(), Span::For(Duration::from_secs(16)));
        assert_eq!(read("250us").unwrap(), Span::For(Duration::from_micros(250)));
        assert_eq!(read("forever").unwrap(), Span::Forever);
        let error = read("16").unwrap_err().to_string();
        assert!(error.contains("\"16\" is not a duration such as"), "{error}");
        assert_eq!(String::from(Span::For(Duration::from_millis(1500))), "1s 500ms");
    }
}
