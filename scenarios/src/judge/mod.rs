//! Whether what was seen is what was expected.

mod command;
mod end;
mod frames;

use crate::vocabulary::matches;

pub(crate) use command::{excerpt, judge_run, judge_stream, number_at};
pub(crate) use end::{broken_rules, judge_end, judge_ending, judge_interrupted, judge_tables};
pub(crate) use frames::{difference, measure_sizes, port_sizes};

/// The value of a counter; the sum where its name has a `*`. `None` if there is none.
pub(crate) fn counter_value(name: &str, counters: &[(String, u64)]) -> Option<u64> {
    let mut matching =
        counters.iter().filter(|(counter, _)| matches(name, counter)).map(|(_, value)| *value).peekable();
    matching.peek()?;
    Some(matching.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_sums_over_devices() {
        let counters =
            [("gve0.tx".to_string(), 3), ("gve12.tx".to_string(), 4), ("gve0.tx_bytes".to_string(), 100)];
        assert_eq!(counter_value("gve*.tx", &counters), Some(7));
        assert_eq!(counter_value("gve0.tx", &counters), Some(3));
        assert_eq!(counter_value("gve1.tx", &counters), None);
    }
}
