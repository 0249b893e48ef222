//! Throughput over virtual time, as inline SVG, with the steps in it.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

use super::timeline::Mark;
use crate::outcome::TrafficSeries;

/// What each port sent over time, all in one chart, and where the steps begin.
pub(super) fn throughput(traffic: &[TrafficSeries], marks: &[Mark<'_>]) -> Markup {
    let samples =
        || traffic.iter().flat_map(|port| &port.samples).map(|sample| seconds(sample.time.as_nanos()));
    let (first, last) = (samples().fold(f64::INFINITY, f64::min), samples().fold(0.0, f64::max));
    let series: Vec<(&str, Vec<f64>)> = traffic
        .iter()
        .map(|port| (port.port.as_str(), rates(port, first, last)))
        .filter(|(_, rates)| rates.iter().any(|rate| *rate > 0.0))
        .collect();
    let highest = series.iter().flat_map(|(_, rates)| rates).copied().fold(0.0, f64::max);
    if highest <= 0.0 {
        return html! {};
    }
    let names: Vec<&str> = series.iter().map(|(name, _)| *name).collect();
    let frame = Frame { first, last, highest };
    html! {
        h3 { "Sent over virtual time" }
        figure {
            (legend(&names, !marks.is_empty()))
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label="throughput over time" {
                (frame.axes())
                (frame.marks(marks))
                @for (index, (_, rates)) in series.iter().enumerate() {
                    polyline class=(format!("line s{}", index % COLOURS)) points=(frame.points(rates)) {}
                }
            }
        }
    }
}

/// Bits a second in each of [`BINS`] equal parts of the time from `first` to `last`, in seconds.
fn rates(port: &TrafficSeries, first: f64, last: f64) -> Vec<f64> {
    let width = (last - first) / BINS as f64;
    if width.is_nan() || width <= 0.0 {
        return Vec::new();
    }
    let sent: Vec<f64> = (0..=BINS).map(|edge| sent_until(port, first + width * edge as f64)).collect();
    sent.windows(2).map(|pair| (pair[1] - pair[0]).max(0.0) * 8.0 / width).collect()
}

/// Bytes sent until a time: between two samples as if evenly.
fn sent_until(port: &TrafficSeries, time: f64) -> f64 {
    let after = port.samples.partition_point(|sample| seconds(sample.time.as_nanos()) <= time);
    let bytes = |index: usize| port.samples.get(index).map(|sample| sample.sent_bytes as f64);
    let Some(before) = after.checked_sub(1) else { return bytes(0).unwrap_or(0.0) };
    let (Some(from), Some(to)) = (bytes(before), bytes(after)) else { return bytes(before).unwrap_or(0.0) };
    let at = |index: usize| seconds(port.samples[index].time.as_nanos());
    from + (to - from) * (time - at(before)) / (at(after) - at(before))
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// A chart's area in data units.
struct Frame {
    first: f64,
    last: f64,
    highest: f64,
}

impl Frame {
    fn x(&self, time: f64) -> f64 {
        LEFT + (time - self.first) / (self.last - self.first) * (RIGHT - LEFT)
    }

    fn y(&self, rate: f64) -> f64 {
        BOTTOM - rate / self.highest * (BOTTOM - TOP)
    }

    fn axes(&self) -> Markup {
        let (rates, times) = (ticks(0.0, self.highest, 5), ticks(self.first, self.last, 12));
        html! {
            @for rate in &rates {
                @let y = rounded(self.y(*rate));
                line class="grid" x1=(LEFT) y1=(y) x2=(RIGHT) y2=(y) {}
                text x=(LEFT - 6.0) y=(rounded(self.y(*rate) + 3.5)) text-anchor="end" { (bits(*rate)) }
            }
            @for time in &times {
                @let x = rounded(self.x(*time));
                line class="axis" x1=(x) y1=(BOTTOM) x2=(x) y2=(BOTTOM + 4.0) {}
                text x=(x) y=(BOTTOM + 15.0) text-anchor="middle" { (time_label(*time, &times)) }
            }
            line class="axis" x1=(LEFT) y1=(BOTTOM) x2=(RIGHT) y2=(BOTTOM) {}
        }
    }

    /// A line for each step, with its number where there is room.
    fn marks(&self, marks: &[Mark<'_>]) -> Markup {
        let mut free = f64::NEG_INFINITY;
        let within = marks.iter().filter(|mark| (self.first..=self.last).contains(&mark.seconds()));
        let placed: Vec<(&Mark<'_>, f64, bool)> = within
            .map(|mark| {
                let x = self.x(mark.seconds());
                let numbered = x >= free;
                free = if numbered { x + NUMBER_WIDTH } else { free };
                (mark, x, numbered)
            })
            .collect();
        html! {
            @for (mark, x, numbered) in &placed {
                line class=(if mark.is_change { "mark change" } else { "mark" })
                    x1=(rounded(*x)) y1=(TOP - 4.0) x2=(rounded(*x)) y2=(BOTTOM) { title { (mark.title) } }
                @if *numbered {
                    text x=(rounded(*x + 2.0)) y=(TOP - 1.0) { (mark.number) }
                }
            }
        }
    }

    /// Level over each part.
    fn points(&self, rates: &[f64]) -> String {
        let mut points = String::new();
        let width = (RIGHT - LEFT) / rates.len() as f64;
        for (bin, rate) in rates.iter().enumerate() {
            let (left, y) = (LEFT + width * bin as f64, self.y(*rate));
            let _ = write!(points, "{left:.1},{y:.1} {:.1},{y:.1} ", left + width);
        }
        points
    }
}

/// Round numbers from `first` to `last`, at most about `most` of them.
fn ticks(first: f64, last: f64, most: usize) -> Vec<f64> {
    let rough = (last - first) / most as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(rough);
    let (from, to) = ((first / step - 1e-9).ceil() as i64, (last / step + 1e-9).floor() as i64);
    (from..=to).map(|number| number as f64 * step).collect()
}

/// With as many digits as tell the ticks apart.
fn time_label(time: f64, ticks: &[f64]) -> String {
    let step = ticks.windows(2).map(|pair| pair[1] - pair[0]).next().unwrap_or(1.0);
    let (factor, unit) = if step < 0.01 { (1e3, "ms") } else { (1.0, "s") };
    let digits = (-(step * factor * 1.001).log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{:.digits$} {unit}", time * factor)
}

fn rounded(number: f64) -> PreEscaped<String> {
    PreEscaped(format!("{number:.1}"))
}

fn legend(names: &[&str], with_steps: bool) -> Markup {
    html! {
        div class="legend" {
            @for (index, name) in names.iter().enumerate() {
                span {
                    svg viewBox="0 0 10 10" {
                        rect class=(format!("f{}", index % COLOURS)) width="10" height="10" {}
                    }
                    (name)
                }
            }
            @if with_steps { span { "upright lines with numbers: steps of the time line" } }
        }
    }
}

fn bits(rate: f64) -> String {
    let (factor, unit) = match rate {
        rate if rate >= 1e9 => (1e9, "Gb/s"),
        rate if rate >= 1e6 => (1e6, "Mb/s"),
        rate if rate >= 1e3 => (1e3, "kb/s"),
        _ => (1.0, "b/s"),
    };
    let number = rate / factor;
    if number.fract().abs() < 1e-6 { format!("{number:.0} {unit}") } else { format!("{number:.1} {unit}") }
}

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 230.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 12.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = HEIGHT - 20.0;
/// Of the number of a step.
const NUMBER_WIDTH: f64 = 13.0;
const COLOURS: usize = 4;
/// As many parts as can be told apart in the picture.
const BINS: usize = 420;

#[cfg(test)]
mod tests {
    use nicvisor_core::Time;

    use super::*;
    use crate::outcome::TrafficSample;

    fn series(samples: &[(u64, u64)]) -> TrafficSeries {
        let sample = |(time, sent_bytes): &(u64, u64)| TrafficSample {
            time: Time::from_nanos(*time),
            sent_bytes: *sent_bytes,
            received_bytes: 0,
        };
        TrafficSeries { port: "gve0".into(), samples: samples.iter().map(sample).collect() }
    }

    #[test]
    fn what_was_sent_is_spread_over_the_time_in_which_it_was() {
        let port = series(&[(0, 0), (500_000_000, 1_000), (500_000_000, 1_500), (1_000_000_000, 1_500)]);
        let rates = rates(&port, 0.0, 1.0);
        let whole: f64 = rates.iter().map(|rate| rate / 8.0 / BINS as f64).sum();
        assert!((whole - 1_500.0).abs() < 1e-6, "{whole}");
        assert!((rates[0] - 16_000.0).abs() < 1e-6, "{}", rates[0]);
        assert_eq!(rates[BINS - 1], 0.0);
        assert!(self::rates(&series(&[(5, 7)]), 5e-9, 5e-9).is_empty());
    }

    #[test]
    fn a_counter_that_begins_anew_is_no_negative_rate() {
        let port = series(&[(0, 5_000), (500_000_000, 0), (1_000_000_000, 1_000)]);
        assert!(rates(&port, 0.0, 1.0).iter().all(|rate| *rate >= 0.0));
    }

    #[test]
    fn ticks_are_round_and_labelled_with_what_tells_them_apart() {
        assert_eq!(ticks(0.0, 10.0, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        let times = ticks(0.912, 0.934, 8);
        let labels: Vec<String> = times.iter().map(|time| time_label(*time, &times)).collect();
        assert_eq!(labels, ["915 ms", "920 ms", "925 ms", "930 ms"]);
        assert_eq!(time_label(1.2, &ticks(0.0, 2.0, 8)), "1.2 s");
        assert_eq!(["2 Gb/s", "1.5 Mb/s", "0 b/s"], [2e9, 1.5e6, 0.0].map(bits));
    }
}
