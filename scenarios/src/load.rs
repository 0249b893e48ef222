//! Finding and reading scenario files.

use std::ops::Range;
use std::path::{Path, PathBuf};

use miette::{Diagnostic, NamedSource, SourceSpan};
use thiserror::Error;

use crate::model::{Scenario, Step};

/// The scenario files that `paths` name: files as they are, directories by their `*.toml`, sorted, except those
/// that start with an underscore or a dot, and a `Cargo.toml`.
///
/// # Errors
/// When a path does not exist or cannot be listed, or nothing is found.
pub fn discover(paths: &[PathBuf]) -> Result<Vec<PathBuf>, LoadError> {
    let mut found = Vec::new();
    for path in paths {
        let unreadable = |source| LoadError::Unreadable { path: path.clone(), source };
        if path.is_dir() {
            let mut inside = Vec::new();
            for entry in path.read_dir().map_err(unreadable)? {
                let entry = entry.map_err(unreadable)?.path();
                if is_scenario(&entry) {
                    inside.push(entry);
                }
            }
            inside.sort();
            if inside.is_empty() {
                return Err(LoadError::NothingThere { path: path.clone() });
            }
            found.extend(inside);
        } else {
            path.metadata().map_err(unreadable)?;
            found.push(path.clone());
        }
    }
    Ok(found)
}

fn is_scenario(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".toml") && !name.starts_with(['_', '.']) && name != "Cargo.toml"
}

/// Reads and checks one scenario file.
///
/// # Errors
/// When it cannot be read, is not TOML, has unknown or missing fields, or contradicts itself.
pub fn load(path: &Path) -> Result<Scenario, LoadError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| LoadError::Unreadable { path: path.to_owned(), source })?;
    parse(path, &text)
}

/// Checks the text of the scenario file that `path` names.
///
/// # Errors
/// As [`load`].
pub fn parse(path: &Path, text: &str) -> Result<Scenario, LoadError> {
    let mistake = |span: Option<Range<usize>>, message: String, help: &str| {
        LoadError::mistake(path, text, span.unwrap_or(0..0), message, help)
    };
    let mut scenario: Scenario = toml::from_str(text).map_err(|error| {
        mistake(
            error.span(),
            error.message().to_owned(),
            "the fields of a scenario are described in scenarios/README.md",
        )
    })?;
    scenario.path = path.to_owned();
    scenario.text = text.to_owned();
    if scenario.name.is_empty() {
        scenario.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    }
    for nic in &scenario.nics {
        if !nic.get_ref().get("kind").is_some_and(toml::Value::is_str) {
            return Err(mistake(Some(nic.span()), "a NIC needs a kind".into(), "add kind = \"gve\""));
        }
    }
    for step in &scenario.steps {
        check_step(&scenario, step.get_ref())
            .map_err(|(message, help)| mistake(Some(step.span()), message, help))?;
    }
    for counter in &scenario.expect.counters {
        let bounds = counter.get_ref();
        if bounds.equals.is_none() && bounds.at_least.is_none() && bounds.at_most.is_none() {
            let message = format!("nothing is expected of the counter {}", bounds.name);
            return Err(mistake(Some(counter.span()), message, "add equals, at_least or at_most"));
        }
    }
    Ok(scenario)
}

fn check_step(scenario: &Scenario, step: &Step) -> Result<(), (String, &'static str)> {
    let kinds = usize::from(step.run.is_some())
        + usize::from(step.stream.is_some())
        + usize::from(!step.parallel.is_empty());
    if kinds != 1 {
        return Err((
            format!("a step has exactly one of run, stream and parallel; this one has {kinds}"),
            "split it, or put the parts into parallel = [...]",
        ));
    }
    if step.run.is_none()
        && (step.namespace.is_some() || !step.json.is_empty() || !step.output_contains.is_empty())
    {
        return Err((
            "namespace, json and output_contains go with run".into(),
            "move them to a step with run",
        ));
    }
    for expectation in &step.json {
        if !expectation.at.is_empty() && !expectation.at.starts_with('/') {
            return Err((
                format!("{} is not a JSON pointer", expectation.at),
                "write it like /0/tso_max_size (RFC 6901)",
            ));
        }
        if expectation.equals.is_none() && expectation.at_least.is_none() && expectation.at_most.is_none() {
            return Err((
                format!("nothing is expected at {}", expectation.at),
                "add equals, at_least or at_most",
            ));
        }
    }
    let mut namespaces: Vec<&String> = step.namespace.iter().collect();
    if let Some(stream) = &step.stream {
        namespaces.extend([&stream.from, &stream.to]);
        for size in [&stream.bytes, &stream.write] {
            if parse_size(size).is_none_or(|bytes| bytes == 0) {
                return Err((format!("{size} is not a size"), "write a number with K, M or G, such as 64M"));
            }
        }
    }
    for name in namespaces {
        if !scenario.namespaces.contains_key(name) {
            return Err((format!("there is no namespace {name}"), "declare it as [namespace.NAME]"));
        }
    }
    step.parallel.iter().try_for_each(|step| check_step(scenario, step))
}

/// A size in bytes: a number, possibly followed by K, M or G (powers of 1024).
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, shift) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 10),
        (at, 'm' | 'M') => (&text[..at], 20),
        (at, 'g' | 'G') => (&text[..at], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Why a scenario could not be read.
#[derive(Debug, Error, Diagnostic)]
pub enum LoadError {
    /// The file or directory cannot be read.
    #[error("cannot read {}", path.display())]
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
    /// The file is wrong.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Mistake(Box<Mistake>),
}

impl LoadError {
    fn mistake(path: &Path, text: &str, span: Range<usize>, message: String, help: &str) -> LoadError {
        LoadError::Mistake(Box::new(Mistake {
            message,
            help: help.to_owned(),
            source_code: NamedSource::new(path.to_string_lossy(), text.to_owned()),
            span: span.into(),
        }))
    }
}

impl Scenario {
    /// A mistake at `span` of the file, found by somebody who knows more about what stands there.
    pub fn mistake(&self, span: Range<usize>, message: String, help: &str) -> LoadError {
        LoadError::mistake(&self.path, &self.text, span, message, help)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
description = "one command"
[[step]]
run = "true"
"#;

    fn mistake(text: &str) -> (String, usize) {
        match parse(Path::new("bad.toml"), text).unwrap_err() {
            LoadError::Mistake(mistake) => {
                let line = text[..mistake.span.offset()].matches('\n').count() + 1;
                (mistake.message, line)
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn the_name_comes_from_the_file() {
        assert_eq!(parse(Path::new("a/b-c.toml"), GOOD).unwrap().name, "b-c");
    }

    #[test]
    fn mistakes_name_their_line() {
        assert_eq!(mistake("description = 'x'\nstep = [{ run = 'a', colour = 1 }]").1, 2);
        let (message, line) = mistake("description = 'x'\n\n[[step]]\nrun = 'a'\nnamespace = 'left'\n");
        assert_eq!((message.as_str(), line), ("there is no namespace left", 3));
        let (message, line) = mistake("description = 'x'\n[[nic]]\nmtu = 1500\n[[step]]\nrun = 'a'\n");
        assert_eq!((message.as_str(), line), ("a NIC needs a kind", 2));
        let (message, _) = mistake("description = 'x'\n[[step]]\nname = 'empty'\n");
        assert!(message.contains("exactly one of"), "{message}");
        let (message, _) =
            mistake("description = 'x'\n[[step]]\nrun = 'a'\njson = [{at = 'x', equals = 1}]\n");
        assert_eq!(message, "x is not a JSON pointer");
        let (message, line) =
            mistake("description = 'x'\n[[step]]\nrun = 'a'\n[[expect.counter]]\nname = 'gve0.x'\n");
        assert_eq!((message.as_str(), line), ("nothing is expected of the counter gve0.x", 4));
    }

    #[test]
    fn a_directory_is_its_scenarios_in_order() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["b.toml", "a.toml", "_part.toml", ".hidden.toml", "Cargo.toml", "notes.md"] {
            std::fs::write(directory.path().join(name), GOOD).unwrap();
        }
        let found = discover(&[directory.path().to_owned()]).unwrap();
        let names: Vec<_> = found.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["a.toml", "b.toml"]);
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("64M"), Some(64 << 20));
        assert_eq!(parse_size("1500"), Some(1500));
        for wrong in ["", "M", "1T", "-1", "99999999999G", "1é"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }
}
