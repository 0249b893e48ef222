//! What is printed: one line of JSON.

use std::fmt::Write;
use std::time::Duration;

use crate::control;

/// A JSON object under construction.
pub(crate) struct Object {
    text: String,
}

impl Object {
    pub(crate) fn new(kind: &str) -> Object {
        Object { text: format!("{{\"kind\": \"{kind}\"") }
    }

    pub(crate) fn number(mut self, name: &str, value: u64) -> Object {
        let _ = write!(self.text, ", \"{name}\": {value}");
        self
    }

    /// With three digits after the point for microseconds, six for seconds: what a nanosecond clock has.
    pub(crate) fn fraction(mut self, name: &str, value: f64, digits: usize) -> Object {
        let _ = write!(self.text, ", \"{name}\": {value:.digits$}");
        self
    }

    pub(crate) fn truth(mut self, name: &str, value: bool) -> Object {
        let _ = write!(self.text, ", \"{name}\": {value}");
        self
    }

    /// JSON that is already text.
    pub(crate) fn object(mut self, name: &str, value: &str) -> Object {
        let _ = write!(self.text, ", \"{name}\": {value}");
        self
    }

    /// What the other side has seen.
    pub(crate) fn server(self, result: &control::Result) -> Object {
        self.number("received_bytes", result.bytes)
            .number("server_reads", result.reads)
            .fraction("server_user_seconds", result.user_microseconds as f64 / 1e6, 6)
            .fraction("server_system_seconds", result.system_microseconds as f64 / 1e6, 6)
    }

    /// Processor time of this side between two looks at it.
    pub(crate) fn processor(self, before: (f64, f64), after: (f64, f64)) -> Object {
        self.fraction("user_seconds", after.0 - before.0, 6).fraction("system_seconds", after.1 - before.1, 6)
    }

    pub(crate) fn finish(mut self) -> String {
        self.text.push('}');
        self.text
    }
}

/// A number of something a second.
pub(crate) fn rate(count: f64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count / time.as_secs_f64() }
}

/// Least, mean, percentiles and most of some times, as JSON in microseconds. A percentile is the least time that
/// so many of the times do not exceed.
pub(crate) fn latencies(times: &mut [u64]) -> String {
    times.sort_unstable();
    let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1e3;
    let percentile = |percent: usize| {
        let rank = (times.len() * percent).div_ceil(100).max(1);
        times.get(rank - 1).copied().map_or(0.0, microseconds)
    };
    let sum: u64 = times.iter().sum();
    let mean = sum as f64 / times.len().max(1) as f64 / 1e3;
    let at = |time: Option<&u64>| time.copied().map_or(0.0, microseconds);
    let mut object = String::new();
    let _ = write!(
        object,
        "{{\"min\": {:.3}, \"mean\": {mean:.3}, \"p50\": {:.3}, \"p90\": {:.3}, \"p99\": {:.3}, \"max\": {:.3}}}",
        at(times.first()),
        percentile(50),
        percentile(90),
        percentile(99),
        at(times.last())
    );
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_times_themselves() {
        let mut times: Vec<u64> = (1..=200).rev().map(|time| time * 1000).collect();
        let text = latencies(&mut times);
        assert_eq!(
            text,
            "{\"min\": 1.000, \"mean\": 100.500, \"p50\": 100.000, \"p90\": 180.000, \"p99\": 198.000, \"max\": 200.000}"
        );
        assert!(latencies(&mut [7500]).contains("\"p99\": 7.500"));
        assert!(latencies(&mut []).contains("\"mean\": 0.000"));
    }

    #[test]
    fn an_object_is_one_line() {
        let text =
            Object::new("rr").number("flows", 2).truth("verified", true).fraction("x", 1.0, 2).finish();
        assert_eq!(text, "{\"kind\": \"rr\", \"flows\": 2, \"verified\": true, \"x\": 1.00}");
    }
}
