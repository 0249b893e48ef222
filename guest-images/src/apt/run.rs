//! Running apt's programs, and reading what they say.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    process::{Command, Stdio},
    thread,
};

use crate::ImageError;

/// A command for one of apt's programs, speaking plain English.
pub(crate) fn tool(program: &'static str) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C.UTF-8").env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    command
}

/// Runs a command for what it prints.
pub(crate) fn output(command: &mut Command, what: &str) -> Result<String, ImageError> {
    let output = command.output().map_err(|error| cannot_run(command, error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(what, &String::from_utf8_lossy(&output.stderr)))
}

/// Runs a command that reports its progress on standard output in apt's `Status-Fd` format.
pub(crate) fn with_progress(
    command: &mut Command,
    what: &str,
    mut percent: impl FnMut(f64),
) -> Result<(), ImageError> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| cannot_run(command, error))?;
    let complaints = child.stderr.take().map(|mut stderr| {
        thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        })
    });
    for line in child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
        let Ok(line) = line else { break };
        if let Some(done) = parse_status(&line) {
            percent(done);
        } else {
            tracing::debug!("apt: {line}");
        }
    }
    let status = child.wait().map_err(|error| cannot_run(command, error))?;
    let complaints = complaints.and_then(|thread| thread.join().ok()).unwrap_or_default();
    if status.success() { Ok(()) } else { Err(failed(what, &complaints)) }
}

/// Unpacks the files of a package into a directory.
pub(crate) fn unpack(package: &Path, target: &Path) -> Result<(), ImageError> {
    fs::create_dir_all(target).map_err(ImageError::cache(target))?;
    let mut command = tool("dpkg-deb");
    command.arg("--extract").arg(package).arg(target);
    let output = command.output().map_err(|error| cannot_run(&command, error))?;
    if output.status.success() {
        return Ok(());
    }
    let complaints = String::from_utf8_lossy(&output.stderr);
    if says_disk_full(&complaints) {
        return Err(ImageError::DiskFull { path: target.to_owned() });
    }
    let name = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Err(ImageError::BadPackage { package: name, reason: complaints.trim().to_owned() })
}

/// `dlstatus:item:percent:description`
fn parse_status(line: &str) -> Option<f64> {
    line.strip_prefix("dlstatus:")?.split(':').nth(1)?.parse().ok()
}

/// Why a program could not be started, with the package to install if it is one of apt's.
pub(crate) fn cannot_run(command: &Command, error: io::Error) -> ImageError {
    let program = command.get_program().to_string_lossy().into_owned();
    if error.kind() == io::ErrorKind::NotFound {
        for (tool, package) in TOOLS {
            if program == tool {
                return ImageError::MissingTool { tool, package };
            }
        }
    }
    ImageError::Fetch { what: program, detail: error.to_string() }
}

fn failed(what: &str, complaints: &str) -> ImageError {
    if says_disk_full(complaints) {
        return ImageError::DiskFull { path: what.into() };
    }
    let detail: Vec<&str> =
        complaints.lines().filter(|line| !line.trim().is_empty()).take(MOST_COMPLAINTS).collect();
    ImageError::Fetch { what: wanted(what), detail: detail.join("\n") }
}

/// What is fetched, without the word for fetching.
pub(super) fn wanted(what: &str) -> String {
    ["fetching ", "fetch "].iter().find_map(|verb| what.strip_prefix(verb)).unwrap_or(what).to_owned()
}

fn says_disk_full(complaints: &str) -> bool {
    ["No space left on device", "Disk quota exceeded", "don't have enough free space"]
        .iter()
        .any(|sign| complaints.contains(sign))
}

const TOOLS: [(&str, &str); 4] =
    [("apt-get", "apt"), ("apt-cache", "apt"), ("apt-config", "apt"), ("dpkg-deb", "dpkg")];

const MOST_COMPLAINTS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_from_status_lines_only() {
        assert_eq!(parse_status("dlstatus:2:5.4151:Retrieving file 2 of 6"), Some(5.4151));
        assert_eq!(parse_status("Get:2 http://mirror.example/debian trixie/main amd64 ethtool"), None);
    }

    #[test]
    fn a_full_disk_is_told_from_other_failures() {
        let full = failed("lists", "E: Write error - write (28: No space left on device)\n");
        assert!(matches!(full, ImageError::DiskFull { .. }));
        let other = failed("fetching lists", "E: Temporary failure resolving 'mirror.example'\n");
        assert!(other.to_string().contains("cannot fetch lists") && other.to_string().contains("resolving"));
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_its_package() {
        let command = Command::new("apt-get");
        let error = cannot_run(&command, io::ErrorKind::NotFound.into());
        assert!(error.to_string().contains("apt-get") && error.is_environment(), "{error}");
    }
}
