//! What must hold at the end, and tables.

use super::{unplaced, unplaced_all};
use crate::model::{
    Bound, CounterExpectation, Expect, ExpectedEnding, ExpectedEndingKind, FramesExpectation, LogExpectation,
    SizeCount, Stage, Table,
};

impl Expect {
    /// A rule that must be found broken.
    #[must_use]
    pub fn finding(mut self, rule: impl Into<String>) -> Expect {
        self.findings.push(unplaced(rule));
        self
    }

    /// A rule that may be found broken.
    #[must_use]
    pub fn allowed_finding(mut self, rule: impl Into<String>) -> Expect {
        self.allowed_findings.push(unplaced(rule));
        self
    }

    /// A rule that must not be found broken although it is only a note.
    #[must_use]
    pub fn forbidden_finding(mut self, rule: impl Into<String>) -> Expect {
        self.forbidden_findings.push(unplaced(rule));
        self
    }

    /// A bound on a counter.
    #[must_use]
    pub fn counter(mut self, counter: CounterExpectation) -> Expect {
        self.counters.push(unplaced(counter));
        self
    }

    /// Bounds on the sizes of frames.
    #[must_use]
    pub fn frames(mut self, frames: FramesExpectation) -> Expect {
        self.frames.push(unplaced(frames));
        self
    }

    /// A relation between measurements and counters.
    #[must_use]
    pub fn relation(mut self, relation: impl Into<String>) -> Expect {
        self.relations.push(unplaced(relation));
        self
    }

    /// What a kernel's log must and must not have.
    #[must_use]
    pub fn log(mut self, log: LogExpectation) -> Expect {
        self.log.push(unplaced(log));
        self
    }

    /// Trouble that a kernel must report about itself, as a regular expression.
    #[must_use]
    pub fn trouble(mut self, pattern: impl Into<String>) -> Expect {
        self.trouble.push(unplaced(pattern));
        self
    }

    /// A guest goes down in this way.
    #[must_use]
    pub fn ending(self, kind: ExpectedEndingKind) -> Expect {
        Expect { ending: Some(ExpectedEnding { kind, message: None }), ..self }
    }

    /// A guest goes down in this way, with a message that matches.
    #[must_use]
    pub fn ending_with(self, kind: ExpectedEndingKind, message: impl Into<String>) -> Expect {
        Expect { ending: Some(ExpectedEnding { kind, message: Some(unplaced(message)) }), ..self }
    }
}

impl CounterExpectation {
    /// Begins the bounds of a counter; `*` in its name stands for any number.
    #[must_use]
    pub fn of(name: impl Into<String>) -> CounterExpectation {
        CounterExpectation { name: name.into(), ..CounterExpectation::default() }
    }

    /// It is exactly this.
    #[must_use]
    pub fn equals(self, value: u64) -> CounterExpectation {
        CounterExpectation { equals: Some(value), ..self }
    }

    /// It is at least this.
    #[must_use]
    pub fn at_least(self, bound: u64) -> CounterExpectation {
        CounterExpectation { at_least: Some(bound), ..self }
    }

    /// It is at most this.
    #[must_use]
    pub fn at_most(self, bound: u64) -> CounterExpectation {
        CounterExpectation { at_most: Some(bound), ..self }
    }
}

impl FramesExpectation {
    /// Begins the bounds on a port's frames.
    #[must_use]
    pub fn of(port: impl Into<String>, stage: Stage) -> FramesExpectation {
        FramesExpectation { port: port.into(), stage, ..FramesExpectation::default() }
    }

    /// How many there are.
    #[must_use]
    pub fn count(self, count: Bound) -> FramesExpectation {
        FramesExpectation { count: Some(count), ..self }
    }

    /// The size of the largest.
    #[must_use]
    pub fn largest(self, size: Bound) -> FramesExpectation {
        FramesExpectation { largest: Some(size), ..self }
    }

    /// The size of the smallest.
    #[must_use]
    pub fn smallest(self, size: Bound) -> FramesExpectation {
        FramesExpectation { smallest: Some(size), ..self }
    }

    /// How many are above a size.
    #[must_use]
    pub fn above(mut self, size: u32, count: Bound) -> FramesExpectation {
        self.above.push(SizeCount { size, count });
        self
    }
}

impl LogExpectation {
    /// A regular expression that a line must match.
    #[must_use]
    pub fn matches(pattern: impl Into<String>) -> LogExpectation {
        LogExpectation { matches: Some(unplaced(pattern)), ..LogExpectation::default() }
    }

    /// A regular expression that no line may match.
    #[must_use]
    pub fn lacks(pattern: impl Into<String>) -> LogExpectation {
        LogExpectation { lacks: Some(unplaced(pattern)), ..LogExpectation::default() }
    }

    /// The guest, where there are two.
    #[must_use]
    pub fn of_guest(self, guest: impl Into<String>) -> LogExpectation {
        LogExpectation { guest: Some(unplaced(guest)), ..self }
    }
}

impl Bound {
    /// Exactly this.
    #[must_use]
    pub fn exactly(value: f64) -> Bound {
        Bound { equals: Some(value), ..Bound::default() }
    }

    /// This or more.
    #[must_use]
    pub fn at_least(value: f64) -> Bound {
        Bound { at_least: Some(value), ..Bound::default() }
    }

    /// This or less.
    #[must_use]
    pub fn at_most(value: f64) -> Bound {
        Bound { at_most: Some(value), ..Bound::default() }
    }
}

impl Table {
    /// Begins a table with its headings, the first one that of the rows' names.
    #[must_use]
    pub fn new<C: Into<String>>(title: impl Into<String>, columns: impl IntoIterator<Item = C>) -> Table {
        let columns = columns.into_iter().map(Into::into).collect();
        Table { title: title.into(), columns, rows: Vec::new() }
    }

    /// Adds a row: its name, and an expression for each further column.
    #[must_use]
    pub fn row<C: Into<String>>(mut self, cells: impl IntoIterator<Item = C>) -> Table {
        self.rows.push(unplaced(unplaced_all::<String, C>(cells)));
        self
    }
}
