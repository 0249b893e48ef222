//! Dates of the Gregorian calendar.

use serde::{Deserialize, Serialize};

/// A date and a time of day, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Calendar {
    pub(super) year: u16,
    /// 1 to 12.
    pub(super) month: u8,
    /// 1 to 31.
    pub(super) day: u8,
    pub(super) hour: u8,
    pub(super) minute: u8,
    pub(super) second: u8,
}

impl Calendar {
    /// The date `seconds` after the start of 1970, kept within the years 0 to 9999.
    pub(super) fn from_seconds(seconds: i64) -> Calendar {
        let seconds = seconds.clamp(-(EPOCH_DAYS * 86_400), LAST_SECOND);
        let days = seconds.div_euclid(86_400);
        let time = seconds.rem_euclid(86_400);
        let (year, mut day) = year_and_day(days + EPOCH_DAYS);
        let mut month = 1;
        while day >= month_length(year, month) {
            day -= month_length(year, month);
            month += 1;
        }
        Calendar {
            year: year as u16,
            month,
            day: day as u8 + 1,
            hour: (time / 3600) as u8,
            minute: (time / 60 % 60) as u8,
            second: (time % 60) as u8,
        }
    }

    /// Seconds since the start of 1970. A day past the end of its month counts into the next.
    pub(super) fn to_seconds(self) -> i64 {
        let time = i64::from(self.hour) * 3600 + i64::from(self.minute) * 60 + i64::from(self.second);
        self.days() * 86_400 + time
    }

    /// 0 for Sunday.
    pub(super) fn weekday(self) -> u8 {
        // The epoch was a Thursday.
        (self.days() + 4).rem_euclid(7) as u8
    }

    fn days(self) -> i64 {
        let year = i64::from(self.year);
        let months: i64 = (1..self.month).map(|month| month_length(year, month)).sum();
        days_before(year) + months + i64::from(self.day) - 1 - EPOCH_DAYS
    }
}

/// Days from the start of year 0 to the start of `year`.
fn days_before(year: i64) -> i64 {
    let last = year - 1;
    // Year 0 was a leap year.
    year * 365 + last.div_euclid(4) - last.div_euclid(100) + last.div_euclid(400) + 1
}

/// The year that contains the day `days` after the start of year 0, and the day's number in it.
fn year_and_day(days: i64) -> (i64, i64) {
    let mut year = days / 366;
    while days_before(year + 1) <= days {
        year += 1;
    }
    (year, days - days_before(year))
}

fn month_length(year: i64, month: u8) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days from the start of year 0 to the start of 1970.
const EPOCH_DAYS: i64 = 719_528;
/// The last second of the year 9999.
const LAST_SECOND: i64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_dates() {
        let date = |seconds| {
            let date = Calendar::from_seconds(seconds);
            (date.year, date.month, date.day, date.hour, date.minute, date.second, date.weekday())
        };
        assert_eq!(date(0), (1970, 1, 1, 0, 0, 0, 4));
        assert_eq!(date(951_827_696), (2000, 2, 29, 12, 34, 56, 2));
        assert_eq!(date(1_767_225_599), (2025, 12, 31, 23, 59, 59, 3));
        assert_eq!(date(4_107_542_400), (2100, 3, 1, 0, 0, 0, 1));
        assert_eq!(date(i64::MAX).0, 9999);
        assert_eq!(date(i64::MIN).0, 0);
    }

    proptest! {
        #[test]
        fn seconds_survive(seconds in -60_000_000_000_i64..250_000_000_000) {
            prop_assert_eq!(Calendar::from_seconds(seconds).to_seconds(), seconds);
        }
    }
}
