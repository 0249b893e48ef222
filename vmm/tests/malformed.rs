//! Scenario files that are wrong: each must be refused with exactly the message beside it.
//!
//! `malformed/NAME.txt` is what the program says about `malformed/NAME.toml`. With `NICVISOR_UPDATE=1` the
//! messages are written instead of compared: read the difference before you commit it.

use std::path::{Path, PathBuf};
use std::process::Command;

fn scenarios(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .filter(|path| !path.file_name().unwrap().to_str().unwrap().starts_with('_'))
        .collect();
    files.sort();
    files
}

/// What the program says about `file`, and its exit status.
fn judge(directory: &Path, file: &Path) -> (String, Option<i32>) {
    let output = Command::new(env!("CARGO_BIN_EXE_nicvisor"))
        .args(["test", "--list"])
        .arg(file.file_name().unwrap())
        .current_dir(directory)
        .env("NO_COLOR", "1")
        .env_remove("NICVISOR_LOG")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    // The list of all rules grows with every device.
    let text = match text.split_once(RULES) {
        Some((before, _)) => format!("{before}{RULES} ..."),
        None => text,
    };
    (text.lines().map(|line| line.trim_end().to_owned() + "\n").collect(), output.status.code())
}

#[test]
fn every_malformed_scenario_is_refused_with_its_message() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/malformed");
    let files = scenarios(&directory);
    assert!(files.len() >= 40, "only {} files", files.len());
    let update = std::env::var_os("NICVISOR_UPDATE").is_some();
    let mut wrong = Vec::new();
    for file in files {
        let (message, status) = judge(&directory, &file);
        let expected = file.with_extension("txt");
        if status != Some(2) {
            wrong.push(format!("{}: status {status:?}\n{message}", file.display()));
        } else if update {
            std::fs::write(&expected, &message).unwrap();
        } else if std::fs::read_to_string(&expected).unwrap_or_default() != message {
            wrong.push(format!("{} is not what is said:\n{message}", expected.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const RULES: &str = "the rules are";
