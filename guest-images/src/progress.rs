//! What is shown while something takes its time.

use std::io::{self, IsTerminal, Write};
use std::sync::{LazyLock, Once};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle as BarStyle};

/// How progress is shown on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgressStyle {
    /// A bar on a terminal, plain lines elsewhere.
    #[default]
    Auto,
    /// Plain lines.
    Plain,
    /// Nothing.
    Silent,
}

/// All bars that this process shows on its terminal. Those of one group know of each other, those of two would be
/// drawn over each other: who shows more than what is fetched and built adds it here, and prints past it.
pub fn bars() -> &'static MultiProgress {
    static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);
    &BARS
}

impl ProgressStyle {
    /// Starts showing one piece of work.
    pub(crate) fn start(self, what: &str) -> Task {
        match self {
            ProgressStyle::Silent => Task::hidden(),
            ProgressStyle::Auto if io::stderr().is_terminal() => {
                let bar = bars().add(ProgressBar::new(STEPS));
                if let Ok(style) = BarStyle::with_template("{spinner} {wide_msg} {elapsed:>4}") {
                    bar.set_style(style);
                }
                bar.set_message(what.to_owned());
                bar.enable_steady_tick(std::time::Duration::from_millis(200));
                Task { bar: Some(bar), measured: Once::new() }
            }
            ProgressStyle::Auto | ProgressStyle::Plain => {
                // Nobody is left to tell if standard error is closed.
                let _ = writeln!(io::stderr(), "{what}");
                Task::hidden()
            }
        }
    }
}

/// One piece of work, shown until it is dropped.
pub(crate) struct Task {
    bar: Option<ProgressBar>,
    /// Done when it is known how far it has got: until then there is nothing to draw but that it goes on.
    measured: Once,
}

impl Task {
    fn hidden() -> Task {
        Task { bar: None, measured: Once::new() }
    }

    /// How far it has got, from 0 to 100.
    pub(crate) fn percent(&self, percent: f64) {
        if let Some(bar) = &self.bar {
            self.measured.call_once(|| {
                let template = "{spinner} {wide_msg} {bar:16} {percent:>3}% {elapsed:>4}";
                if let Ok(style) = BarStyle::with_template(template) {
                    bar.set_style(style);
                }
            });
            bar.set_position((percent.clamp(0.0, 100.0) * (STEPS as f64) / 100.0) as u64);
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            bars().remove(bar);
        }
    }
}

const STEPS: u64 = 1000;
