//! The texts that a scenario was read from, and mistakes in them.
//!
//! A scenario may come from several files (includes). All their texts share one numbering of bytes: the first
//! byte of a file comes after the last one of the file before, so one span says which file as well as where.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use miette::{Diagnostic, NamedSource, SourceSpan};
use thiserror::Error;

/// The texts of a scenario file and all that it includes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    files: Vec<SourceFile>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SourceFile {
    path: PathBuf,
    text: String,
    /// Number of the first byte.
    base: usize,
}

impl Sources {
    /// Adds a file and returns the number of its first byte.
    pub(crate) fn add(&mut self, path: &Path, text: &str) -> usize {
        // One apart, so that a span at the end of a file is not one at the start of the next.
        let base = self.files.last().map_or(0, |last| last.base + last.text.len() + 1);
        self.files.push(SourceFile { path: path.to_owned(), text: text.to_owned(), base });
        base
    }

    fn file(&self, position: usize) -> Option<&SourceFile> {
        self.files.iter().rev().find(|file| file.base <= position)
    }

    /// A mistake at `span`.
    pub fn mistake(
        &self,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> LoadError {
        let (path, text, base) = match self.file(span.start) {
            Some(file) => (file.path.as_path(), file.text.as_str(), file.base),
            // A scenario that was made by a program has no text.
            None => (Path::new("scenario"), "", 0),
        };
        let start = (span.start - base).min(text.len());
        let end = span.end.saturating_sub(base).clamp(start, text.len());
        LoadError::Mistake(Box::new(Mistake {
            message: message.into(),
            help: help.into(),
            source_code: NamedSource::new(path.to_string_lossy(), text.to_owned()),
            span: (start..end).into(),
        }))
    }
}

/// Why a scenario could not be read.
#[derive(Debug, Error, Diagnostic)]
pub enum LoadError {
    /// The file or directory cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A directory without scenarios.
    #[error("no scenario (*.toml) in {}", path.display())]
    NothingThere {
        /// Which.
        path: PathBuf,
    },
    /// Two scenarios that reports could not tell apart.
    #[error("two scenarios are called {name}: {} and {}; give one of them another name", first.display(), second.display())]
    SameName {
        /// The name of both.
        name: String,
        /// One file.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// The file is wrong.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Mistake(Box<Mistake>),
}

/// Something wrong in a scenario file.
#[derive(Debug, Error, Diagnostic)]
#[error("{message}")]
#[diagnostic(help("{help}"))]
pub struct Mistake {
    /// What.
    message: String,
    /// What to do.
    help: String,
    /// The file.
    #[source_code]
    source_code: NamedSource<String>,
    /// Where in it.
    #[label("here")]
    span: SourceSpan,
}

impl Mistake {
    /// Line and column, counted from 1; columns are characters.
    pub fn position(&self) -> (usize, usize) {
        let before = self.source_code.inner().get(..self.span.offset()).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    /// One line: `FILE:LINE:COLUMN: MESSAGE (HELP)`.
    pub fn one_line(&self) -> impl fmt::Display + '_ {
        let (line, column) = self.position();
        format!("{}:{line}:{column}: {} ({})", self.source_code.name(), self.message, self.help)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_says_which_file_and_where_in_it() {
        let mut sources = Sources::default();
        let first = sources.add(Path::new("a.toml"), "x = 1\n");
        let second = sources.add(Path::new("b.toml"), "y = 2\nü = 3\n");
        assert_eq!(first, 0);
        let at = second + "y = 2\nü".len() + 1;
        let LoadError::Mistake(mistake) = sources.mistake(at..at + 1, "wrong", "right") else { panic!() };
        assert_eq!(mistake.one_line().to_string(), "b.toml:2:3: wrong (right)");
        let LoadError::Mistake(end) = sources.mistake(5..5, "wrong", "right") else { panic!() };
        assert_eq!(end.position(), (1, 6));
    }
}
