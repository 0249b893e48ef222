//! Samples of the traffic over virtual time.

use nicvisor_core::{Duration, Time};

use crate::lab::Lab;
use crate::outcome::{TrafficSample, TrafficSeries};

/// Takes samples at intervals that double whenever there are too many: a run of any length has some hundreds.
pub(super) struct Sampler {
    interval: Duration,
    next: Time,
    series: Vec<TrafficSeries>,
}

impl Sampler {
    pub(super) fn new(lab: &dyn Lab) -> Sampler {
        Sampler { interval: FIRST_INTERVAL, next: lab.now(), series: Vec::new() }
    }

    /// When the next sample is due.
    pub(super) fn next(&self) -> Time {
        self.next
    }

    /// Takes a sample if one is due.
    pub(super) fn sample(&mut self, lab: &dyn Lab) {
        let now = lab.now();
        if now < self.next {
            return;
        }
        for port in lab.traffic() {
            let sample =
                TrafficSample { time: now, sent_bytes: port.sent_bytes, received_bytes: port.received_bytes };
            match self.series.iter_mut().find(|series| series.port == port.port) {
                Some(series) => add(&mut series.samples, sample),
                None => self.series.push(TrafficSeries { port: port.port, samples: vec![sample] }),
            }
        }
        if self.series.iter().any(|series| series.samples.len() > MOST_SAMPLES) {
            self.thin_out();
        }
        self.next = now + self.interval;
    }

    fn thin_out(&mut self) {
        self.interval *= 2;
        for series in &mut self.series {
            let mut keep = [true, false].into_iter().cycle();
            series.samples.retain(|_| keep.next().unwrap_or(true));
        }
    }

    pub(super) fn into_series(self) -> Vec<TrafficSeries> {
        self.series
    }
}

/// Of a stretch without traffic only its ends are kept.
fn add(samples: &mut Vec<TrafficSample>, sample: TrafficSample) {
    let same = |other: &TrafficSample| {
        (other.sent_bytes, other.received_bytes) == (sample.sent_bytes, sample.received_bytes)
    };
    if let [.., before, last] = samples.as_mut_slice()
        && same(before)
        && same(last)
    {
        last.time = sample.time;
    } else {
        samples.push(sample);
    }
}

const FIRST_INTERVAL: Duration = Duration::from_millis(1);
const MOST_SAMPLES: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_stretches_are_kept_by_their_ends() {
        let sample = |time, bytes| TrafficSample {
            time: Time::from_nanos(time),
            sent_bytes: bytes,
            received_bytes: 0,
        };
        let mut samples = Vec::new();
        for (time, bytes) in [(0, 0), (1, 0), (2, 0), (3, 5), (4, 5), (5, 5), (6, 5), (7, 9)] {
            add(&mut samples, sample(time, bytes));
        }
        let expected = [(0, 0), (2, 0), (3, 5), (6, 5), (7, 9)].map(|(time, bytes)| sample(time, bytes));
        assert_eq!(samples, expected);
    }
}
