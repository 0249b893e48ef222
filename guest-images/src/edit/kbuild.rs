//! Running the kernel's own build for one module.

use std::{
    env,
    ffi::OsString,
    path::Path,
    process::{Command, Stdio},
    thread,
};

use super::headers::Headers;
use crate::ImageError;

/// Builds the module whose source and Makefile are in `directory`. On failure the error is what make and the
/// compiler said.
///
/// `shown` is what the directory is called in the module's messages, so that the same source always makes the
/// same module.
pub(super) fn make(headers: &Headers, directory: &Path, shown: &str) -> Result<(), Failure> {
    for path in [directory, &headers.build] {
        if path.to_string_lossy().contains([' ', ':', '\t', '\'', '"', '$', '#']) {
            let reason =
                format!("the kernel's build cannot work in a directory of such a name: {}", path.display());
            return Err(Failure::Environment(ImageError::cache(path)(std::io::Error::other(reason))));
        }
    }
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    let here = directory.display();
    let mut command = program(headers, "make");
    command.arg("-C").arg(&headers.build);
    command.args([format!("M={here}"), format!("-j{jobs}"), "modules".into()]);
    command.arg(format!("KCFLAGS=-ffile-prefix-map={here}/={shown}/"));
    // Before all other directories, so that an edited header takes the place of the kernel's.
    command.arg(format!("NOSTDINC_FLAGS=-nostdinc -I{here}/include"));
    run(command)
}

/// Removes what only a debugger needs.
pub(super) fn strip(headers: &Headers, module: &Path) -> Result<(), Failure> {
    let mut command = program(headers, "strip");
    command.arg("--strip-debug").arg(module);
    run(command)
}

/// Why a step of the build did not succeed.
#[derive(Debug)]
pub(super) enum Failure {
    /// It ran, and said this.
    Said(String),
    /// It could not be run.
    Environment(ImageError),
}

fn program(headers: &Headers, name: &'static str) -> Command {
    let Some(programs) = &headers.toolchain.programs else {
        return Command::new(name);
    };
    let path = match name {
        "make" => programs.join(name),
        _ => programs.join(format!("x86_64-linux-gnu-{name}")),
    };
    let mut search = OsString::from(programs);
    search.push(":");
    search.push(env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()));
    let mut command = Command::new(path);
    // Variables such as CC, CFLAGS or MAKEFLAGS would change what is built.
    command.env_clear().env("PATH", search).env("HOME", "/");
    command.envs(env::var_os("TMPDIR").map(|directory| ("TMPDIR", directory)));
    command
}

fn run(mut command: Command) -> Result<(), Failure> {
    command.env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output().map_err(|error| {
        let program = command.get_program().to_string_lossy().into_owned();
        Failure::Environment(match error.kind() {
            std::io::ErrorKind::NotFound if program == "make" => {
                ImageError::MissingTool { tool: "make", package: "make" }
            }
            _ => ImageError::cache(Path::new(&program))(error),
        })
    })?;
    tracing::debug!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stdout));
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stderr, output.stdout].concat();
    Err(Failure::Said(String::from_utf8_lossy(&said).into_owned()))
}

/// The part of a failed build's output that tells what is wrong.
pub(super) fn excerpt(said: &str, directory: &Path, shown: &str) -> String {
    let said = said.replace(&format!("{}/", directory.display()), "").replace(&format!("{shown}/"), "");
    let lines: Vec<&str> = said.lines().filter(|line| !line.starts_with("make")).collect();
    let signs = ["error:", "ERROR:", "undefined!", "fatal", "No rule", "cannot"];
    let mut kept = Vec::new();
    let mut until = 0;
    for (index, line) in lines.iter().enumerate() {
        if signs.iter().any(|sign| line.contains(sign)) {
            // The compiler shows the line, and a mark below it.
            until = index + 3;
        }
        if index < until {
            kept.push(*line);
        }
    }
    if kept.is_empty() {
        kept = said.lines().rev().take(MOST_LINES).collect();
        kept.reverse();
    }
    if kept.len() > MOST_LINES {
        kept.truncate(MOST_LINES);
        kept.push("...");
    }
    kept.join("\n")
}

const MOST_LINES: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compilers_words_are_found_among_makes() {
        let said = "make: Entering directory '/x'\n  CC [M]  /tmp/b/gve_main.o\n/tmp/b/gve_main.c: In function 'f':\n\
            /tmp/b/gve_main.c:7:2: error: 'one' undeclared\n    7 |  one();\n      |  ^~~\n\
            make[2]: *** [/tmp/b/gve_main.o] Error 1\n";
        let short = excerpt(said, Path::new("/tmp/b"), "drivers/gve");
        assert_eq!(short, "gve_main.c:7:2: error: 'one' undeclared\n    7 |  one();\n      |  ^~~");
    }

    #[test]
    fn an_excerpt_is_never_empty_and_never_long() {
        assert_eq!(excerpt("make: *** Stop.", Path::new("/b"), "x"), "make: *** Stop.");
        let long = "a.c:1: error: x\n".repeat(100);
        assert_eq!(excerpt(&long, Path::new("/b"), "x").lines().count(), MOST_LINES + 1);
    }
}
