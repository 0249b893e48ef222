//! Sizes and durations as people write them.

use std::str::FromStr;
use std::time::Duration;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size(pub(super) u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        scenarios::units::parse_size(text)
            .map(Size)
            .ok_or_else(|| format!("{text:?} is not a size: write a number with K, M or G, such as 512M"))
    }
}

/// A duration: a number with s, m or h.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let factor = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3600,
        _ => 0,
    };
    text.get(..text.len().saturating_sub(1))
        .and_then(|digits| digits.parse::<u64>().ok())
        .and_then(|number| number.checked_mul(factor))
        .filter(|seconds| *seconds > 0)
        .map(Duration::from_secs)
        .ok_or_else(|| format!("{text:?} is not a duration: write a number with s, m or h, such as 90s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(duration("2h").unwrap(), Duration::from_secs(7200));
        for wrong in ["", "s", "90", "0s", "-1s", "1d", "99999999999999999999s", "é"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
