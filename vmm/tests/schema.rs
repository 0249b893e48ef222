//! The JSON Schema that `nicvisor test --schema` prints agrees with what is read: it takes every scenario that is
//! right, and refuses every wrong one that a schema can know to be wrong.

use std::path::{Path, PathBuf};
use std::process::Command;

use jsonschema::Validator;
use serde_json::Value;

fn validator() -> Validator {
    let output = Command::new(env!("CARGO_BIN_EXE_nicvisor")).args(["test", "--schema"]).output().unwrap();
    assert!(output.status.success());
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

/// What the schema has against a file; nothing if it is not even TOML.
fn complaints(validator: &Validator, text: &str) -> Vec<String> {
    let Ok(value) = toml::from_str::<Value>(text) else { return Vec::new() };
    validator.iter_errors(&value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The files of a directory that end in `.toml`, sorted.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let is_scenario =
        |path: &PathBuf| path.extension().is_some_and(|end| end == "toml") && !path.ends_with("Cargo.toml");
    let mut files: Vec<PathBuf> = entries.filter(is_scenario).collect();
    files.sort();
    files
}

#[test]
fn every_scenario_of_the_project_is_taken_as_are_the_parts_for_including() {
    let validator = validator();
    let scenarios = repository().join("scenarios");
    let files = [files(&scenarios), files(&scenarios.join("slow"))].concat();
    assert!(files.len() >= 50, "only {} files", files.len());
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(complaints(&validator, &text), Vec::<String>::new(), "{}", path.display());
    }
}

#[test]
fn every_example_of_the_documentation_is_taken() {
    let validator = validator();
    let mut examples = 0;
    for page in ["README.md", "scenarios/README.md", "docs/cases.md", "docs/accel.md"] {
        let text = std::fs::read_to_string(repository().join(page)).unwrap();
        for block in text.split("```toml\n").skip(1) {
            let example = block.split("```").next().unwrap();
            assert!(toml::from_str::<Value>(example).is_ok(), "{page}: {example}");
            assert_eq!(complaints(&validator, example), Vec::<String>::new(), "{page}: {example}");
            examples += 1;
        }
    }
    assert!(examples >= 6, "only {examples} examples");
}

#[test]
fn wrong_scenarios_are_refused_unless_a_schema_cannot_know() {
    let validator = validator();
    let mut wrong = Vec::new();
    let files = files(&repository().join("vmm/tests/malformed"));
    for path in &files {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let complaints = complaints(&validator, &std::fs::read_to_string(path).unwrap());
        let beyond = BEYOND_A_SCHEMA.iter().find(|(other, _)| *other == name);
        match (complaints.is_empty(), beyond) {
            (true, None) => wrong.push(format!("{name} is taken")),
            (false, Some((_, reason))) => wrong.push(format!("{name} is refused ({reason}): {complaints:?}")),
            _ => {}
        }
    }
    for (name, _) in BEYOND_A_SCHEMA {
        if !files.iter().any(|path| path.file_stem().unwrap() == name) {
            wrong.push(format!("{name} is listed, but not there"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const NOT_TOML: &str = "it is not TOML, so there is nothing to be validated";
const NAMES: &str = "what a name refers to stands elsewhere in the file";
const GRAMMAR: &str = "the text has a grammar of its own";
const BROUGHT: &str = "an include, a variant or a default may bring what is missing";
const OPTIONS: &str = "the values of a NIC's options are the device's to judge";
const CALCULATED: &str = "numbers are calculated before they are compared";
const FILES: &str = "other files are looked at";
const PARAMETERS: &str = "what stands for a parameter is known in each case only";
const ORDER: &str = "steps are judged by those before them";
const EQUAL: &str = "values are compared with each other";

/// The malformed scenarios that a JSON Schema cannot know to be wrong, and why.
const BEYOND_A_SCHEMA: [(&str, &str); 49] = [
    ("bounds-swapped", EQUAL),
    ("calculation-too-large", GRAMMAR),
    ("capture-not-started", ORDER),
    ("capture-twice", ORDER),
    ("exclude-everything", EQUAL),
    ("exclude-unknown-axis", NAMES),
    ("exclude-unknown-value", EQUAL),
    ("fault-for-unknown-device", NAMES),
    ("fault-of-unknown-command", NAMES),
    ("guests-of-one-name", EQUAL),
    ("include-missing", FILES),
    ("interface-in-two-namespaces", EQUAL),
    ("key-twice", NOT_TOML),
    ("link-of-no-nic", NAMES),
    ("matrix-too-large", CALCULATED),
    ("mistake-in-include", FILES),
    ("mistake-in-one-case", PARAMETERS),
    ("namespace-of-no-nic", NAMES),
    ("namespace-without-interface", BROUGHT),
    ("nic-mtu", OPTIONS),
    ("nic-without-kind", BROUGHT),
    ("no-description", BROUGHT),
    ("no-steps", BROUGHT),
    ("not-toml", NOT_TOML),
    ("number-too-large", NOT_TOML),
    ("parameter-of-wrong-type", PARAMETERS),
    ("parameter-unclosed", GRAMMAR),
    ("regular-expression", GRAMMAR),
    ("relation-syntax", GRAMMAR),
    ("relation-unknown-name", NAMES),
    ("rule-forbidden-and-expected", EQUAL),
    ("same-mac-twice", EQUAL),
    ("stream-within-a-namespace", EQUAL),
    ("table-row", EQUAL),
    ("too-little-memory", CALCULATED),
    ("too-many-nics", NAMES),
    ("tunnel-without-end", BROUGHT),
    ("unclosed-text", NOT_TOML),
    ("unknown-counter", NAMES),
    ("unknown-guest", NAMES),
    ("unknown-link", NAMES),
    ("unknown-namespace", NAMES),
    ("unknown-parameter", NAMES),
    ("unknown-port", NAMES),
    ("unplug-unknown-device", NAMES),
    ("wait-for-later-command", NAMES),
    ("wait-for-unknown-command", NAMES),
    ("wait-for-unknown-counter", NAMES),
    ("wait-for-unknown-event", NAMES),
];
