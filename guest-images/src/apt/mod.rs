//! apt with a configuration of our own.
//!
//! The system's apt is only read: which mirror it uses, how it reaches it (proxies), which keys it trusts. Lists
//! and packages go to directories of ours, so no privileges are needed and nothing of the system changes. apt
//! checks the archive's signature, and through it the hash of every list and package.

mod control;
mod fetch;
mod proxy;
mod run;
mod sources;
mod version;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use crate::{ImageError, ProgressStyle};
use fetch::{Fetcher, Remote, Stop};
use proxy::Route;

pub(crate) use control::Paragraph;
#[cfg(test)]
pub(crate) use control::parse as parse_control;
pub(crate) use run::{cannot_run, tool, unpack};
pub(crate) use sources::{Mirror, Suite};
pub(crate) use version::compare as compare_versions;

/// apt set up for one part of the archive.
pub(crate) struct Apt {
    directory: PathBuf,
    surroundings: Surroundings,
}

/// What apt is used in: how progress is shown, and whether the user wants to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    pub(crate) progress: ProgressStyle,
    pub(crate) interrupted: Arc<AtomicBool>,
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
        surroundings: Surroundings,
    ) -> Result<Apt, ImageError> {
        let apt = Apt { directory, surroundings };
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
    pub(crate) fn known(directory: PathBuf, surroundings: Surroundings) -> Option<Apt> {
        directory.join(COMPLETE).is_file().then_some(Apt { directory, surroundings })
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

    /// Fetches packages in these versions into `target`, and checks them. What an interrupted fetch left there is
    /// continued.
    pub(crate) fn download(
        &self,
        packages: &[(String, String)],
        target: &Path,
        what: &str,
    ) -> Result<Vec<Fetched>, ImageError> {
        let wanted: Vec<String> =
            packages.iter().map(|(name, version)| format!("{name}={version}")).collect();
        let mut command = self.command("apt-get", Some(target))?;
        command.args(["download", "--print-uris", "--quiet=2"]).args(&wanted);
        let addresses = run::output(&mut command, what)?;
        // apt itself fetches what comes by other ways than plain HTTP, or not at all by that.
        if !self.fetch(&addresses, target, what)? {
            let mut arguments = vec!["download"];
            arguments.extend(wanted.iter().map(String::as_str));
            self.get(&arguments, Some(target), what)?;
        }
        packages.iter().map(|(name, version)| find_package(target, name, version)).collect()
    }

    /// Fetches what `--print-uris` printed over HTTP, as far as that goes: whether all is there.
    fn fetch(&self, addresses: &str, target: &Path, what: &str) -> Result<bool, ImageError> {
        let lines = addresses.lines().filter(|line| line.starts_with('\''));
        let Some(remotes) = lines.map(parse_remote).collect::<Option<Vec<Remote>>>() else {
            return Ok(false);
        };
        let task = self.surroundings.progress.start(what);
        let total: u64 = remotes.iter().map(|remote| remote.size).sum();
        let mut before = 0;
        let mut fetchers: BTreeMap<&str, Fetcher> = BTreeMap::new();
        for remote in &remotes {
            let mut arrived = |bytes| task.percent(100.0 * (before + bytes) as f64 / total.max(1) as f64);
            let host = host(&remote.address);
            if !fetchers.contains_key(host) {
                match self.fetcher(host) {
                    Ok(fetcher) => _ = fetchers.insert(host, fetcher),
                    Err(reason) => {
                        tracing::debug!("{reason}; apt is asked for {what}");
                        return Ok(false);
                    }
                }
            }
            let fetched = fetchers[host].fetch(remote, target, &mut arrived);
            match fetched {
                Ok(_) => before += remote.size,
                Err(Stop::Unreachable(reason)) => {
                    tracing::debug!("{reason}; now apt tries {what}");
                    return Ok(false);
                }
                Err(Stop::Interrupted) => return Err(ImageError::Interrupted { what: run::wanted(what) }),
                Err(Stop::Unwritable(error)) => return Err(ImageError::cache(target)(error)),
            }
        }
        Ok(true)
    }

    /// What fetches from `host` the way that apt would go.
    fn fetcher(&self, host: &str) -> Result<Fetcher, String> {
        let mut command = self.command("apt-config", None).map_err(|error| error.to_string())?;
        let dump = run::output(command.args(["dump", "Acquire::http"]), "apt's configuration");
        let proxy = Route::of(&dump.map_err(|error| error.to_string())?, host).proxy()?;
        Ok(Fetcher::new(proxy, Arc::clone(&self.surroundings.interrupted)))
    }

    fn get(&self, arguments: &[&str], directory: Option<&Path>, what: &str) -> Result<(), ImageError> {
        let task = self.surroundings.progress.start(what);
        let mut command = self.command("apt-get", directory)?;
        command.args(["--quiet=1", "--option=APT::Status-Fd=1"]).args(arguments);
        let done = run::with_progress(&mut command, what, |percent| task.percent(percent));
        // On a terminal Ctrl-C has ended apt as well.
        let interrupted = done.is_err() && self.surroundings.interrupted.load(Ordering::Relaxed);
        if interrupted { Err(ImageError::Interrupted { what: run::wanted(what) }) } else { done }
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
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "";
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

/// The same, as a file to be fetched; `None` if it is not for plain HTTP, or has no SHA-256.
fn parse_remote(line: &str) -> Option<Remote> {
    let (address, rest) = line.strip_prefix('\'')?.split_once("' ")?;
    let mut words = rest.split_whitespace();
    let (name, size, hash) = (words.next()?, words.next()?, words.next()?);
    let is_file = !name.contains('/') && name.ends_with(".deb");
    (address.starts_with("http://") && is_file).then_some(Remote {
        address: address.to_owned(),
        name: name.to_owned(),
        size: size.parse().ok()?,
        sha256: hash.strip_prefix("SHA256:")?.to_owned(),
    })
}

/// The host of an HTTP address.
fn host(address: &str) -> &str {
    let rest = address.strip_prefix("http://").unwrap_or_default();
    rest.split(['/', ':']).next().unwrap_or_default()
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

    #[test]
    fn what_is_fetched_over_http_is_read_from_print_uris() {
        let line = |address: &str, hash: &str| {
            parse_remote(&format!(
                "'{address}/libcap2_2.75_amd64.deb' libcap2_1%3a2.75_amd64.deb 28988 {hash}"
            ))
        };
        let remote = line("http://mirror.example/pool", "SHA256:aa").unwrap();
        assert_eq!((remote.size, remote.sha256.as_str()), (28_988, "aa"));
        assert_eq!(remote.name, "libcap2_1%3a2.75_amd64.deb");
        assert_eq!(host(&remote.address), "mirror.example");
        assert_eq!(remote.address, "http://mirror.example/pool/libcap2_2.75_amd64.deb");
        for other in ["file:/srv/mirror", "https://mirror.example", "mirror+http://mirror.example"] {
            assert_eq!(line(other, "SHA256:aa"), None, "{other} is for apt");
        }
        assert_eq!(line("http://mirror.example", "MD5Sum:aa"), None);
    }
}
