//! Finding and reading scenario files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::check;
use crate::matrix::Cases;
use crate::model::Scenario;
use crate::source::Sources;
use crate::tree::{self, Kind, Table, Value, Wrong};

pub use crate::source::{LoadError, Mistake};

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

/// Reads and checks one scenario file, with what it includes, and returns its cases: one for each point of its
/// matrix. `kernels` take the place of those that the file names, if there are any.
///
/// # Errors
/// When a file cannot be read, is not TOML, has unknown or missing fields, or contradicts itself.
pub fn load(path: &Path, kernels: &[String]) -> Result<Vec<Scenario>, LoadError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| LoadError::Unreadable { path: path.to_owned(), source })?;
    parse(path, &text, kernels)
}

/// Checks the text of the scenario file that `path` names.
///
/// # Errors
/// As [`load`].
pub fn parse(path: &Path, text: &str, kernels: &[String]) -> Result<Vec<Scenario>, LoadError> {
    let mut sources = Sources::default();
    let cases = read(path, text, &mut sources, &mut Vec::new())
        .and_then(|table| Cases::new(table, text.len(), kernels));
    let sources = Arc::new(sources);
    let mistake = |wrong: Wrong| sources.mistake(wrong.span, wrong.message, wrong.help);
    let cases = cases.map_err(mistake)?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut scenarios = Vec::new();
    for case in cases.iter() {
        let label = case.label();
        let in_case = |mut wrong: Wrong| {
            if !label.is_empty() {
                wrong.message.push_str(&format!(" (in the case {label})"));
            }
            sources.mistake(wrong.span, wrong.message, wrong.help)
        };
        let mut scenario = case.scenario().map_err(in_case)?;
        scenario.path = path.to_owned();
        scenario.sources = Arc::clone(&sources);
        if scenario.name.is_empty() {
            scenario.name = stem.clone().into_owned();
        }
        if !label.is_empty() {
            scenario.name.push_str(&format!("[{label}]"));
        }
        check::check(&scenario).map_err(in_case)?;
        scenarios.push(scenario);
    }
    Ok(scenarios)
}

/// Reads a file and lays it over what it includes.
fn read(path: &Path, text: &str, sources: &mut Sources, open: &mut Vec<PathBuf>) -> Result<Table, Wrong> {
    let base = sources.add(path, text);
    let mut own = tree::parse(text, base)?;
    open.push(path.canonicalize().unwrap_or_else(|_| path.to_owned()));
    let mut whole = Table::default();
    for include in includes(own.take("include"))? {
        let target = path.parent().unwrap_or(Path::new("")).join(include.text().unwrap_or_default());
        let wrong = |message: String| {
            Wrong::new(
                include.span.clone(),
                message,
                "paths start at the directory of the file that includes",
            )
        };
        if target.canonicalize().is_ok_and(|target| open.contains(&target)) {
            return Err(wrong(format!("{} includes itself", target.display())));
        }
        let text = std::fs::read_to_string(&target)
            .map_err(|error| wrong(format!("cannot read {}: {error}", target.display())))?;
        tree::merge(&mut whole, read(&target, &text, sources, open)?);
    }
    open.pop();
    tree::merge(&mut whole, own);
    Ok(whole)
}

fn includes(include: Option<Value>) -> Result<Vec<Value>, Wrong> {
    let Some(include) = include else { return Ok(Vec::new()) };
    let wrong = |span| Wrong::new(span, "include is a list of paths", "write include = [\"_common.toml\"]");
    match include.kind {
        Kind::List(items) => match items.iter().find(|item| item.text().is_none()) {
            Some(other) => Err(wrong(other.span.clone())),
            None => Ok(items),
        },
        _ => Err(wrong(include.span)),
    }
}

/// Whether reports can tell all of `scenarios` apart.
///
/// # Errors
/// Names two that have the same name, kernel and case.
pub fn check_names(scenarios: &[Scenario]) -> Result<(), LoadError> {
    for (index, scenario) in scenarios.iter().enumerate() {
        let same = |other: &&Scenario| other.name == scenario.name && other.kernel == scenario.kernel;
        if let Some(first) = scenarios[..index].iter().find(same) {
            return Err(LoadError::SameName {
                name: scenario.name.clone(),
                first: first.path.clone(),
                second: scenario.path.clone(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
description = "one command"
[[step]]
run = "true"
"#;

    fn mistake(path: &Path, text: &str) -> String {
        match parse(path, text, &[]).unwrap_err() {
            LoadError::Mistake(mistake) => mistake.one_line().to_string(),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn the_name_comes_from_the_file() {
        let scenarios = parse(Path::new("a/b-c.toml"), GOOD, &[]).unwrap();
        assert_eq!(scenarios.len(), 1);
        assert_eq!(scenarios[0].name, "b-c");
        assert_eq!(scenarios[0].kernel, "debian:6.12");
    }

    #[test]
    fn what_a_file_includes_comes_first() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        write("_nics.toml", "[[nic]]\nkind = 'gve'\n");
        write("_common.toml", "include = ['_nics.toml']\n[guest]\ncpus = 2\n[[step]]\nrun = 'first'\n");
        let text =
            "include = ['_common.toml']\ndescription = 'x'\n[guest]\ncpus = 4\n[[step]]\nrun = 'second'\n";
        let path = directory.path().join("own.toml");
        let scenario = &parse(&path, text, &[]).unwrap()[0];
        let runs: Vec<_> = scenario
            .steps
            .iter()
            .map(|step| step.get_ref().run.as_ref().unwrap().get_ref().as_str())
            .collect();
        assert_eq!(runs, ["first", "second"]);
        assert_eq!(*scenario.guest[0].get_ref().cpus.as_ref().unwrap().get_ref(), 4);
        assert_eq!(scenario.nics.len(), 1);
    }

    #[test]
    fn mistakes_in_included_files_are_told_there() {
        let directory = tempfile::tempdir().unwrap();
        let common = directory.path().join("_common.toml");
        std::fs::write(&common, "\n[guest]\ncups = 2\n").unwrap();
        let path = directory.path().join("own.toml");
        let text = format!("include = ['_common.toml']\n{GOOD}");
        assert_eq!(
            mistake(&path, &text),
            format!("{}:3:1: there is no field `cups` here (did you mean `cpus`?)", common.display())
        );
        std::fs::write(&common, "include = ['own.toml']\n").unwrap();
        std::fs::write(&path, &text).unwrap();
        assert!(mistake(&path, &text).contains("_common.toml:1:12: "));
        assert!(mistake(&path, "include = ['_none.toml']\n").contains("own.toml:1:12: cannot read"));
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
}
