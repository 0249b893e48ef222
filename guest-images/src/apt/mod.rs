//! apt with a configuration of our own.
//!
//! The system's apt is only read: which mirror it uses, how it reaches it (proxies), which keys it trusts. Lists
//! and packages go to directories of ours, so no privileges are needed and nothing of the system changes. apt
//! checks the archive's signature, and through it the hash of every list and package.

mod control;
mod run;
mod sources;
mod version;

use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::{ImageError, ProgressStyle};

pub(crate) use control::Paragraph;
#[cfg(test)]
pub(crate) use control::parse as parse_control;
pub(crate) use run::{cannot_run, tool, unpack};
pub(crate) use sources::{Mirror, Suite};
pub(crate) use version::compare as compare_versions;

/// apt set up for one part of the archive.
pub(crate) struct Apt {
    directory: PathBuf,
    progress: ProgressStyle,
}

/// A package file that has been fetched.
#[derive(Clone, Debug)]
pub(crate) struct Fetched {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) file: PathBuf,
}

impl Apt {
    /// Fetches the lists of `suite` into `directory`. What is there already is brought up to date.
    pub(crate) fn update(
        directory: PathBuf,
        suite: Suite,
        mirror: &Mirror,
        progress: ProgressStyle,
    ) -> Result<Apt, ImageError> {
        let apt = Apt { directory, progress };
        apt.configure(&mirror.sources(suite))?;
        let what = format!("fetching the package lists of Debian {suite}");
        let outcome = apt.get(&["update"], None, &what);
        if outcome.is_err()
            && let Some(sources) = mirror.sources_without_guess(suite)
        {
            // Not every mirror has the security archive beside the main one.
            apt.configure(&sources)?;
            apt.get(&["update"], None, &what)?;
        } else {
            outcome?;
        }
        let complete = apt.directory.join(COMPLETE);
        fs::write(&complete, "").map_err(ImageError::cache(&complete))?;
        Ok(apt)
    }

    /// apt with the lists that an earlier update left in `directory`, if it came to an end.
    pub(crate) fn known(directory: PathBuf, progress: ProgressStyle) -> Option<Apt> {
        directory.join(COMPLETE).is_file().then_some(Apt { directory, progress })
    }

    /// When the lists were fetched.
    pub(crate) fn known_at(&self) -> SystemTime {
        let modified = fs::metadata(self.directory.join(COMPLETE)).and_then(|metadata| metadata.modified());
        modified.unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// The names of all packages that start with `prefix`.
    pub(crate) fn names(&self, prefix: &str) -> Result<Vec<String>, ImageError> {
        let names =
            run::output(self.command("apt-cache", None)?.args(["pkgnames", prefix]), "package names")?;
        Ok(names.lines().map(str::to_owned).collect())
    }

    /// What the lists say about all versions of these packages.
    pub(crate) fn show(&self, names: &[String]) -> Result<Vec<Paragraph>, ImageError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let text = run::output(self.command("apt-cache", None)?.arg("show").args(names), &names.join(", "))?;
        Ok(control::parse(&text))
    }

    /// The packages, with their versions, that would have to be installed on an empty system for `names`.
    pub(crate) fn closure(&self, names: &[&str]) -> Result<Vec<(String, String)>, ImageError> {
        let mut command = self.command("apt-get", None)?;
        command
            .args(["install", "--print-uris", "--yes", "--no-install-recommends", "--quiet=2"])
            .args(names);
        let text = run::output(&mut command, &names.join(", "))?;
        Ok(text.lines().filter_map(parse_uri).collect())
    }

    /// Fetches packages in these versions into `target`, and checks them.
    pub(crate) fn download(
        &self,
        packages: &[(String, String)],
        target: &Path,
        what: &str,
    ) -> Result<Vec<Fetched>, ImageError> {
        let wanted: Vec<String> =
            packages.iter().map(|(name, version)| format!("{name}={version}")).collect();
        let mut arguments = vec!["download"];
        arguments.extend(wanted.iter().map(String::as_str));
        self.get(&arguments, Some(target), what)?;
        packages.iter().map(|(name, version)| find_package(target, name, version)).collect()
    }

    fn get(&self, arguments: &[&str], directory: Option<&Path>, what: &str) -> Result<(), ImageError> {
        let task = self.progress.start(what);
        let mut command = self.command("apt-get", directory)?;
        command.args(["--quiet=1", "--option=APT::Status-Fd=1"]).args(arguments);
        run::with_progress(&mut command, what, |percent| task.percent(percent))
    }

    fn command(
        &self,
        tool: &'static str,
        directory: Option<&Path>,
    ) -> Result<std::process::Command, ImageError> {
        let mut command = run::tool(tool);
        command.current_dir(directory.unwrap_or(&self.directory));
        let mut option = std::ffi::OsString::from("--config-file=");
        option.push(self.directory.join(CONFIGURATION));
        command.arg(option);
        Ok(command)
    }

    fn configure(&self, sources: &str) -> Result<(), ImageError> {
        let root = self.directory.display().to_string();
        if root.contains(['"', '\n', '\\']) {
            let source = std::io::Error::other("apt cannot work in a directory of such a name");
            return Err(ImageError::Cache { path: self.directory.clone(), source });
        }
        let files = [
            (CONFIGURATION, configuration(&root)),
            ("sources.d/debian.sources", sources.to_owned()),
            ("status", String::new()),
            ("state/lists/partial/.keep", String::new()),
            ("cache/archives/partial/.keep", String::new()),
        ];
        for (name, contents) in files {
            let path = self.directory.join(name);
            let write = || {
                path.parent().map_or(Ok(()), fs::create_dir_all)?;
                fs::write(&path, contents)
            };
            write().map_err(ImageError::cache(&path))?;
        }
        Ok(())
    }
}

/// `--config-file` is read after the system's own configuration, so this says only what differs.
fn configuration(root: &str) -> String {
    format!(
        r#"Dir::State "{root}/state";
Dir::State::status "{root}/status";
Dir::Cache "{root}/cache";
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "{root}/sources.d";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
APT::Architecture "amd64";
APT::Architectures {{ "amd64"; }};
APT::Sandbox::User "";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
"#
    )
}

/// A line of `--print-uris`: `'address' name_version_architecture.deb size hash`.
fn parse_uri(line: &str) -> Option<(String, String)> {
    let file = line.strip_prefix('\'')?.split_whitespace().nth(1)?;
    let mut parts = file.strip_suffix(".deb")?.split('_');
    Some((parts.next()?.to_owned(), parts.next()?.replace("%3a", ":")))
}

fn find_package(directory: &Path, name: &str, version: &str) -> Result<Fetched, ImageError> {
    let prefix = format!("{name}_{}_", version.replace(':', "%3a"));
    let files = fs::read_dir(directory).map_err(ImageError::cache(directory))?;
    let file = files.flatten().find(|file| file.file_name().to_string_lossy().starts_with(&prefix));
    let file = file.ok_or_else(|| ImageError::Fetch {
        what: format!("{name} {version}"),
        detail: "apt-get download reported success and left no file".to_owned(),
    })?;
    Ok(Fetched { name: name.to_owned(), version: version.to_owned(), file: file.path() })
}

const CONFIGURATION: &str = "apt.conf";
/// Says by its age when the lists were last fetched.
const COMPLETE: &str = "complete";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_and_version_are_read_from_print_uris() {
        let line = "'http://mirror.example/pool/libc6_2.41-12%2bdeb13u5_amd64.deb' libcap2_1%3a2.75-10+b3_amd64.deb 28988 SHA256:aa";
        assert_eq!(parse_uri(line), Some(("libcap2".to_owned(), "1:2.75-10+b3".to_owned())));
        assert_eq!(parse_uri("Reading package lists..."), None);
    }
}
