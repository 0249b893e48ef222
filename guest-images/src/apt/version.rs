//! The order of Debian versions (Debian Policy, section 5.6.12).

use std::cmp::Ordering;

/// Compares two versions.
pub(crate) fn compare(left: &str, right: &str) -> Ordering {
    let (left_epoch, left) = split_epoch(left);
    let (right_epoch, right) = split_epoch(right);
    let (left, left_revision) = left.rsplit_once('-').unwrap_or((left, ""));
    let (right, right_revision) = right.rsplit_once('-').unwrap_or((right, ""));
    left_epoch
        .cmp(&right_epoch)
        .then_with(|| compare_part(left.as_bytes(), right.as_bytes()))
        .then_with(|| compare_part(left_revision.as_bytes(), right_revision.as_bytes()))
}

fn split_epoch(version: &str) -> (u64, &str) {
    match version.split_once(':') {
        Some((epoch, rest)) => (epoch.parse().unwrap_or(0), rest),
        None => (0, version),
    }
}

/// Non-digits and numbers alternate; numbers compare by value, the rest by a modified alphabet.
fn compare_part(mut left: &[u8], mut right: &[u8]) -> Ordering {
    while !left.is_empty() || !right.is_empty() {
        let (left_text, left_rest) = split(left, |byte| !byte.is_ascii_digit());
        let (right_text, right_rest) = split(right, |byte| !byte.is_ascii_digit());
        let (left_number, left_rest) = split(left_rest, u8::is_ascii_digit);
        let (right_number, right_rest) = split(right_rest, u8::is_ascii_digit);
        let order =
            compare_text(left_text, right_text).then_with(|| compare_numbers(left_number, right_number));
        if order.is_ne() {
            return order;
        }
        (left, right) = (left_rest, right_rest);
    }
    Ordering::Equal
}

fn split(bytes: &[u8], belongs: impl Fn(&u8) -> bool) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.iter().take_while(|byte| belongs(byte)).count())
}

fn compare_text(left: &[u8], right: &[u8]) -> Ordering {
    let length = left.len().max(right.len());
    let weights = |text: &[u8]| -> Vec<i32> { (0..length).map(|index| weight(text.get(index))).collect() };
    weights(left).cmp(&weights(right))
}

/// `~` sorts before the end of the text, letters before all other characters.
fn weight(byte: Option<&u8>) -> i32 {
    match byte {
        Some(b'~') => -1,
        None => 0,
        Some(byte) if byte.is_ascii_alphabetic() => i32::from(*byte),
        Some(byte) => i32::from(*byte) + 256,
    }
}

fn compare_numbers(left: &[u8], right: &[u8]) -> Ordering {
    let significant =
        |digits: &[u8]| digits.iter().copied().skip_while(|&digit| digit == b'0').collect::<Vec<u8>>();
    let (left, right) = (significant(left), significant(right));
    left.len().cmp(&right.len()).then(left.cmp(&right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_debians() {
        let ascending = [
            "1.0~rc1-1",
            "1.0-1",
            "1.0-1+b1",
            "1.0-2",
            "1.0a-1",
            "1.0+dfsg-1",
            "1.0.1-1",
            "1.2-1",
            "1.10-1",
            "1:0.5",
        ];
        for pair in ascending.windows(2) {
            assert_eq!(compare(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(compare(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
        assert_eq!(compare("6.12.117-1~deb12u1", "6.12.117-1"), Ordering::Less);
        assert_eq!(compare("6.12.9-1", "6.12.117-1"), Ordering::Less);
        assert_eq!(compare("1.01-1", "1.1-1"), Ordering::Equal);
    }
}
