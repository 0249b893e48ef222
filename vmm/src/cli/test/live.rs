//! What is going on, as it goes on: bars on a terminal, lines elsewhere.

use std::io::IsTerminal;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use guest_images::bars;
use indicatif::{ProgressBar, ProgressStyle};
use scenarios::{Outcome, Progress, Tally};

use super::super::failure::Failure;
use super::super::report::say;
use super::super::terminal::Mode;

/// Where progress is shown.
pub(super) struct Live {
    /// What all scenarios together have come to; `None` where standard error is no terminal.
    all: Option<ProgressBar>,
    failed: AtomicUsize,
    /// Whether nothing is shown at all.
    silent: bool,
    introduced: Once,
    _mode: Option<Mode>,
}

/// The progress of one scenario.
pub(super) struct Line {
    name: String,
    bar: Option<ProgressBar>,
    silent: bool,
}

impl Live {
    /// Shows `count` scenarios.
    pub(super) fn new(count: usize) -> Live {
        let all = std::io::stderr().is_terminal().then(|| {
            let bar =
                ProgressBar::new(count as u64).with_style(style("{pos} of {len} done{msg} ({elapsed})"));
            let bar = bars().add(bar);
            bar.enable_steady_tick(Duration::from_secs(1));
            bar
        });
        let mode = all.is_some().then(Mode::without_control_characters);
        Live { all, failed: AtomicUsize::new(0), silent: false, introduced: Once::new(), _mode: mode }
    }

    /// Shows nothing.
    pub(super) fn silent() -> Live {
        Live { all: None, failed: AtomicUsize::new(0), silent: true, introduced: Once::new(), _mode: None }
    }

    /// Says what guests run on, the first time.
    pub(super) fn introduce(&self, lines: &[String]) {
        self.introduced.call_once(|| lines.iter().for_each(|line| self.print(line)));
    }

    /// Begins to show a scenario.
    pub(super) fn line(&self, name: String) -> Line {
        let bar = self.all.as_ref().map(|all| {
            let bar = ProgressBar::new_spinner().with_style(style("{spinner} {wide_msg} {elapsed:>4}"));
            let bar = bars().insert_before(all, bar);
            bar.set_message(name.clone());
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Line { name, bar, silent: self.silent }
    }

    /// Counts a scenario that is over.
    pub(super) fn ended(&self, outcome: &Outcome) {
        let failed = Tally::of([outcome]).failed;
        let failed = self.failed.fetch_add(failed, Ordering::Relaxed) + failed;
        if let Some(all) = &self.all {
            all.inc(1);
            if failed > 0 {
                all.set_message(format!(", {failed} failed"));
            }
        }
    }

    /// Writes a result to standard output, past the bars.
    pub(super) fn say(&self, text: &str) -> Result<(), Failure> {
        match &self.all {
            _ if self.silent => Ok(()),
            Some(_) => bars().suspend(|| say(text)),
            None => say(text),
        }
    }

    fn print(&self, text: &str) {
        match &self.all {
            _ if self.silent => {}
            Some(_) => bars().suspend(|| complain!("{text}")),
            None => complain!("{text}"),
        }
    }

    /// Leaves the terminal as it was.
    pub(super) fn finish(&self) {
        if let Some(all) = &self.all {
            all.finish_and_clear();
            bars().remove(all);
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Line {
    /// Shows what is done before the first step.
    pub(super) fn show(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(format!("{}: {what}", self.name)),
            None => self.print(&format!("{}: {what}", self.name)),
        }
    }

    /// Shows a step that begins, or how one has ended.
    pub(super) fn step(&self, progress: &Progress<'_>) {
        match (progress, &self.bar) {
            (Progress::Begins { step }, Some(bar)) => bar.set_message(format!("{}: {step}", self.name)),
            (Progress::Begins { .. }, None) => {}
            (Progress::Ended { step, failures, took }, bar) => {
                let result = match failures {
                    [] => "ok".into(),
                    [first, ..] => format!("NOT: {}", first.name),
                };
                let text = format!("{}: {step}: {result} ({took:.1?})", self.name);
                match bar {
                    // Only what went wrong is worth more than a moment there.
                    Some(_) if !failures.is_empty() => bars().suspend(|| complain!("{text}")),
                    Some(_) => {}
                    None => self.print(&text),
                }
            }
        }
    }

    fn print(&self, text: &str) {
        if !self.silent {
            complain!("{text}");
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            bars().remove(bar);
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a constant template")
}
