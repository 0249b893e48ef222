//! Histograms of frame sizes, as inline SVG.

use maud::{Markup, PreEscaped, html};
use nicvisor_core::Sizes;

use super::section::grouped;
use crate::lab::PortSizes;

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
            svg viewBox=(format!("0 0 {WIDTH} {:.0}", rows * ROW)) role="img" aria-label=(title) {
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

/// The labels stand to its left.
const LEFT: f64 = 64.0;
const ROW: f64 = 15.0;
/// Histograms stand side by side: a narrower picture, so that their text is as large as the other chart's.
const WIDTH: f64 = 360.0;
const BARS: f64 = WIDTH - LEFT - 90.0;
