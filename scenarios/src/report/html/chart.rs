//! Charts as inline SVG: throughput over virtual time, and histograms of frame sizes.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};
use nicvisor_core::Sizes;

use super::section::grouped;
use crate::lab::PortSizes;
use crate::outcome::TrafficSeries;

/// What each port sent over time, all in one chart.
pub(super) fn throughput(traffic: &[TrafficSeries]) -> Markup {
    let series: Vec<(&str, Vec<(f64, f64)>)> = traffic
        .iter()
        .map(|port| (port.port.as_str(), rates(port)))
        .filter(|(_, rates)| !rates.is_empty())
        .collect();
    let highest = series.iter().flat_map(|(_, rates)| rates).map(|(_, rate)| *rate).fold(0.0, f64::max);
    if highest <= 0.0 {
        return html! {};
    }
    let times = || series.iter().flat_map(|(_, rates)| rates).map(|(time, _)| *time);
    let (first, last) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
    let frame = Frame { first, last: last.max(first + 1e-9), highest };
    let names: Vec<&str> = series.iter().map(|(name, _)| *name).collect();
    html! {
        h3 { "Sent over virtual time" }
        figure {
            (legend(&names))
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label="throughput over time" {
                (frame.axes())
                @for (index, (_, rates)) in series.iter().enumerate() {
                    polyline class=(format!("line s{}", index % COLOURS)) points=(frame.points(rates)) {}
                }
            }
        }
    }
}

/// Bits a second between each sample and the one before, at the later one's time in seconds.
fn rates(port: &TrafficSeries) -> Vec<(f64, f64)> {
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    let pairs = port.samples.windows(2).filter(|pair| pair[1].time > pair[0].time);
    pairs
        .map(|pair| {
            let time = seconds(pair[1].time.as_nanos());
            let bytes = pair[1].sent_bytes.saturating_sub(pair[0].sent_bytes) as f64;
            (time, bytes * 8.0 / (time - seconds(pair[0].time.as_nanos())))
        })
        .collect()
}

/// A chart's area in data units.
struct Frame {
    first: f64,
    last: f64,
    highest: f64,
}

impl Frame {
    fn axes(&self) -> Markup {
        let bottom = HEIGHT - BOTTOM;
        html! {
            line class="axis" x1=(LEFT) y1=(bottom) x2=(WIDTH) y2=(bottom) {}
            line class="axis" x1=(LEFT) y1="6" x2=(LEFT) y2=(bottom) {}
            text x=(LEFT - 5.0) y="14" text-anchor="end" { (bits(self.highest)) }
            text x=(LEFT - 5.0) y=(bottom) text-anchor="end" { "0" }
            text x=(LEFT) y=(HEIGHT - 4.0) { (format!("{:.3} s", self.first)) }
            text x=(WIDTH) y=(HEIGHT - 4.0) text-anchor="end" { (format!("{:.3} s", self.last)) }
        }
    }

    fn points(&self, rates: &[(f64, f64)]) -> String {
        let mut points = String::new();
        for (time, rate) in rates {
            let x = LEFT + (time - self.first) / (self.last - self.first) * (WIDTH - LEFT);
            let y = HEIGHT - BOTTOM - rate / self.highest * (HEIGHT - BOTTOM - 8.0);
            let _ = write!(points, "{x:.1},{y:.1} ");
        }
        points
    }
}

/// A histogram for each port: what the driver handed over, and what went out.
pub(super) fn sizes(ports: &[PortSizes]) -> Markup {
    let charts: Vec<(String, &Sizes)> = ports
        .iter()
        .flat_map(|port| {
            let handed =
                port.handed.as_ref().map(|sizes| (format!("{}, handed to the device", port.port), sizes));
            handed.into_iter().chain([(format!("{}, on the wire", port.port), &port.wire)])
        })
        .filter(|(_, sizes)| sizes.count() > 0)
        .collect();
    html! {
        @if !charts.is_empty() {
            h3 { "Sizes of frames" }
            div class="charts" {
                @for (title, sizes) in charts { (histogram(&title, sizes)) }
            }
        }
    }
}

fn histogram(title: &str, sizes: &Sizes) -> Markup {
    let most = sizes.by_bits.iter().copied().max().unwrap_or(0).max(1);
    let first = sizes.by_bits.iter().position(|count| *count > 0).unwrap_or(0);
    let bars: Vec<(usize, u64)> = sizes.by_bits.iter().copied().enumerate().skip(first).collect();
    let (rows, size) = (bars.len() as f64, |bits: usize| (1u64 << bits.min(63)) - 1);
    html! {
        figure {
            figcaption {
                (title) ": " (grouped(sizes.count())) " from "
                (grouped(sizes.smallest().unwrap_or(0))) " to " (grouped(sizes.largest().unwrap_or(0))) " bytes"
            }
            svg viewBox=(format!("0 0 {HISTOGRAM} {:.0}", rows * ROW)) role="img" aria-label=(title) {
                @for (row, (bits, count)) in bars.iter().enumerate() {
                    @let y = row as f64 * ROW;
                    text x=(LEFT + 26.0) y=(y + 11.0) text-anchor="end" { "up to " (grouped(size(*bits))) }
                    rect class="f0" x=(LEFT + 32.0) y=(y + 2.0) height=(ROW - 4.0)
                        width=(PreEscaped(format!("{:.1}", *count as f64 / most as f64 * BARS))) {}
                    text x=(LEFT + 37.0 + *count as f64 / most as f64 * BARS) y=(y + 11.0) {
                        @if *count > 0 { (grouped(*count)) }
                    }
                }
            }
        }
    }
}

fn legend(names: &[&str]) -> Markup {
    html! {
        div class="legend" { @for (index, name) in names.iter().enumerate() {
            span {
                svg viewBox="0 0 10 10" { rect class=(format!("f{}", index % COLOURS)) width="10" height="10" {} }
                (name)
            }
        } }
    }
}

fn bits(rate: f64) -> String {
    let (factor, unit) = match rate {
        rate if rate >= 1e9 => (1e9, "Gb/s"),
        rate if rate >= 1e6 => (1e6, "Mb/s"),
        _ => (1e3, "kb/s"),
    };
    format!("{:.1} {unit}", rate / factor)
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 170.0;
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 20.0;
const ROW: f64 = 15.0;
/// Histograms stand side by side: a narrower picture, so that their text is as large as the other chart's.
const HISTOGRAM: f64 = 360.0;
const BARS: f64 = HISTOGRAM - LEFT - 90.0;
const COLOURS: usize = 4;

#[cfg(test)]
mod tests {
    use nicvisor_core::Time;

    use super::*;
    use crate::outcome::TrafficSample;

    #[test]
    fn rates_are_differences_over_time() {
        let sample =
            |time, sent_bytes| TrafficSample { time: Time::from_nanos(time), sent_bytes, received_bytes: 0 };
        let samples = vec![
            sample(0, 0),
            sample(500_000_000, 1_000),
            sample(500_000_000, 1_500),
            sample(1_000_000_000, 1_000),
        ];
        let series = TrafficSeries { port: "gve0".into(), samples };
        assert_eq!(rates(&series), [(0.5, 16_000.0), (1.0, 0.0)]);
        assert_eq!(bits(16_000.0), "16.0 kb/s");
    }
}
