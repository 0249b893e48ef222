//! Carries out the examples of scenarios/README.md, as a user does who copies them.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The examples as files of a directory of their own, with what they include.
fn examples(directory: &Path) -> Vec<PathBuf> {
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    for entry in scenarios.read_dir().unwrap().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with('_')) {
            std::fs::copy(entry.path(), directory.join(entry.file_name())).unwrap();
        }
    }
    let readme = std::fs::read_to_string(scenarios.join("README.md")).unwrap();
    let blocks = readme.split("```toml\n").skip(1).map(|block| block.split("```").next().unwrap());
    let written = blocks.enumerate().map(|(number, text)| {
        let path = directory.join(format!("example-{number}.toml"));
        std::fs::write(&path, text).unwrap();
        path
    });
    written.collect()
}

/// Fails with everything that the program said unless `count` scenarios passed and none did not.
#[track_caller]
fn expect_passes(arguments: &[&str], files: &[PathBuf], count: usize) {
    let output = Command::new(env!("CARGO_BIN_EXE_nicvisor"))
        .arg("test")
        .args(arguments)
        .args(files)
        .output()
        .unwrap();
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let all = format!("{count} passed, 0 failed\n");
    assert!(output.status.success() && stdout.ends_with(&all), "\n{stdout}\n--- stderr\n{stderr}");
}

#[test]
fn every_example_passes() {
    let directory = TempDir::new().unwrap();
    let is_matrix = |path: &PathBuf| std::fs::read_to_string(path).unwrap().contains("[matrix]");
    let (matrices, single): (Vec<_>, Vec<_>) = examples(directory.path()).into_iter().partition(is_matrix);
    assert!(single.len() >= 7 && matrices.len() == 1, "{single:?} {matrices:?}");
    expect_passes(&[], &single, single.len());
    // The other cases are this one with other numbers.
    expect_passes(&["--filter", "[mtu=9000,load=long] on debian:6.12"], &matrices, 1);
}
