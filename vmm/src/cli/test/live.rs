//! What is going on, as it goes on: bars on a terminal, lines elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use scenarios::Progress;

use super::super::failure::Failure;
use super::super::report::say;

/// Where progress is shown.
pub(super) struct Live {
    /// `None` where standard error is no terminal.
    bars: Option<MultiProgress>,
    /// Whether nothing is shown at all.
    silent: bool,
}

/// The progress of one scenario.
pub(super) struct Line<'a> {
    name: String,
    bar: Option<(ProgressBar, &'a MultiProgress)>,
    silent: bool,
}

impl Live {
    pub(super) fn new() -> Live {
        Live { bars: std::io::stderr().is_terminal().then(MultiProgress::new), silent: false }
    }

    /// Shows nothing.
    pub(super) fn silent() -> Live {
        Live { bars: None, silent: true }
    }

    /// Begins to show a scenario.
    pub(super) fn line(&self, name: String) -> Line<'_> {
        let bar = self.bars.as_ref().map(|bars| {
            let bar = bars.add(
                ProgressBar::new_spinner().with_style(
                    ProgressStyle::with_template("{spinner} {prefix}: {wide_msg} ({elapsed})")
                        .expect("a constant template"),
                ),
            );
            bar.set_prefix(name.clone());
            bar.enable_steady_tick(Duration::from_millis(200));
            (bar, bars)
        });
        Line { name, bar, silent: self.silent }
    }

    /// Writes a result to standard output, past the bars.
    pub(super) fn say(&self, text: &str) -> Result<(), Failure> {
        match &self.bars {
            _ if self.silent => Ok(()),
            Some(bars) => bars.suspend(|| say(text)),
            None => say(text),
        }
    }

    pub(super) fn finish(&self) {
        if let Some(bars) = &self.bars {
            let _ = bars.clear();
        }
    }
}

impl Line<'_> {
    /// Shows what is done before the first step.
    pub(super) fn show(&self, what: &str) {
        match &self.bar {
            Some((bar, _)) => bar.set_message(what.to_owned()),
            None => self.print(&format!("{}: {what}", self.name)),
        }
    }

    /// Shows a step that begins, or how one has ended.
    pub(super) fn step(&self, progress: &Progress<'_>) {
        match (progress, &self.bar) {
            (Progress::Begins { step }, Some((bar, _))) => bar.set_message((*step).to_owned()),
            (Progress::Begins { .. }, None) => {}
            (Progress::Ended { step, failures, took }, bar) => {
                let result = match failures {
                    [] => "ok".into(),
                    [first, ..] => format!("NOT: {}", first.name),
                };
                let text = format!("{}: {step}: {result} ({took:.1?})", self.name);
                match bar {
                    // Only what went wrong is worth more than a moment there.
                    Some((_, bars)) if !failures.is_empty() => drop(bars.println(text)),
                    Some(_) => {}
                    None => self.print(&text),
                }
            }
        }
    }

    fn print(&self, text: &str) {
        if !self.silent {
            eprintln!("{text}");
        }
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        if let Some((bar, bars)) = &self.bar {
            bar.finish_and_clear();
            bars.remove(bar);
        }
    }
}
