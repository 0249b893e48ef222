//! The programs of the guest, from Debian's packages, with the libraries they need.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use crate::{ImageError, elf};

/// Packages whose programs go into the guest.
pub(crate) const PACKAGES: &[&str] =
    &["bash", "busybox-static", "dash", "ethtool", "iperf3", "iproute2", "kmod"];

/// Whether a package of the closure of [`PACKAGES`] is needed: for its programs or for its libraries. The rest
/// (configuration tools, documentation, account management) only matters to a system that is installed.
pub(crate) fn is_needed(package: &str) -> bool {
    PACKAGES.contains(&package) || package.starts_with("lib") || package.starts_with("zlib")
}

/// What is picked and how it is laid out, as a text that changes with it.
pub(crate) fn layout() -> String {
    format!("{LAYOUT} {PACKAGES:?} {PROGRAMS:?} {DATA:?}")
}

/// A tree of files as they will be in the guest, put together from unpacked packages.
struct Files {
    /// Where each path of the guest is on the host.
    sources: BTreeMap<String, PathBuf>,
    chosen: BTreeSet<String>,
}

/// Picks what the guest needs from `packages`, directories with one unpacked package each, and lays it out
/// below `target`.
pub(crate) fn assemble(packages: &[PathBuf], target: &Path) -> Result<(), ImageError> {
    let mut files = Files { sources: BTreeMap::new(), chosen: BTreeSet::new() };
    for package in packages {
        files.add(package, package)?;
    }
    for path in PROGRAMS {
        files.choose(path, "the guest's tools")?;
    }
    let data: Vec<String> = files
        .sources
        .keys()
        .filter(|path| DATA.iter().any(|prefix| path.starts_with(prefix)))
        .cloned()
        .collect();
    files.chosen.extend(data);
    files.copy(target)?;
    link_shell(target)?;
    link_applets(target)
}

impl Files {
    fn add(&mut self, root: &Path, directory: &Path) -> Result<(), ImageError> {
        for entry in fs::read_dir(directory).map_err(ImageError::cache(directory))? {
            let entry = entry.map_err(ImageError::cache(directory))?;
            let path = entry.path();
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_directory {
                self.add(root, &path)?;
            } else if let Ok(relative) = path.strip_prefix(root) {
                self.sources.insert(merged(&relative.display().to_string()), path.clone());
            }
        }
        Ok(())
    }

    /// Takes a file along with what it points to, or what it needs to run.
    fn choose(&mut self, path: &str, user: &str) -> Result<(), ImageError> {
        let missing =
            || ImageError::BadPackage { package: user.to_owned(), reason: format!("{path} is missing") };
        let source = self.sources.get(path).ok_or_else(missing)?.clone();
        if !self.chosen.insert(path.to_owned()) {
            return Ok(());
        }
        if let Ok(target) = fs::read_link(&source) {
            let target = resolve(path, &target.display().to_string());
            return self.choose(&target, path);
        }
        let contents = fs::read(&source).map_err(ImageError::cache(&source))?;
        if !elf::is_x86_64(&contents) {
            return Ok(());
        }
        let needs = elf::needs(&contents).map_err(|error| ImageError::BadPackage {
            package: path.to_owned(),
            reason: format!("a damaged program: {error}"),
        })?;
        if let Some(interpreter) = needs.interpreter {
            self.choose(&merged(&interpreter), path)?;
        }
        for library in needs.libraries {
            let places = LIBRARY_PLACES.map(|place| format!("{place}/{library}"));
            let place = places.iter().find(|place| self.sources.contains_key(*place)).unwrap_or(&places[0]);
            self.choose(place, path)?;
        }
        Ok(())
    }

    fn copy(&self, target: &Path) -> Result<(), ImageError> {
        for path in &self.chosen {
            let (from, to) = (&self.sources[path], target.join(path));
            let copy = || -> io::Result<()> {
                to.parent().map_or(Ok(()), fs::create_dir_all)?;
                match fs::read_link(from) {
                    Ok(link) => symlink(link, &to),
                    Err(_) => fs::copy(from, &to).map(drop),
                }
            };
            copy().map_err(ImageError::cache(&to))?;
        }
        Ok(())
    }
}

/// Busybox has a shell too, but that one runs busybox's applets in place of the programs in `PATH`: `ip` would
/// be another `ip`.
fn link_shell(target: &Path) -> Result<(), ImageError> {
    let shell = target.join("usr/bin/sh");
    symlink("dash", &shell).map_err(ImageError::cache(&shell))
}

/// Links busybox's applets into place, except where the guest has the real program.
fn link_applets(target: &Path) -> Result<(), ImageError> {
    let broken = |reason: String| ImageError::BadPackage { package: "busybox-static".to_owned(), reason };
    let program = target.join(BUSYBOX);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).map_err(ImageError::cache(&program))?;
    let output = Command::new(&program).arg("--list-full").output();
    let output = output.map_err(|error| broken(format!("cannot ask it for its applets: {error}")))?;
    for applet in String::from_utf8_lossy(&output.stdout).lines() {
        let applet = merged(applet);
        let name = applet.rsplit('/').next().unwrap_or(&applet);
        let present =
            PROGRAM_PLACES.iter().any(|place| target.join(place).join(name).symlink_metadata().is_ok());
        if applet.starts_with("usr/") && !present {
            let link = target.join(&applet);
            let create = || {
                link.parent().map_or(Ok(()), fs::create_dir_all)?;
                symlink(format!("/{BUSYBOX}"), &link)
            };
            create().map_err(ImageError::cache(&link))?;
        }
    }
    Ok(())
}

/// Older packages have files in `/bin` and `/lib`; in the guest these are links into `/usr`.
fn merged(path: &str) -> String {
    let path = path.trim_start_matches('/');
    let top = path.split('/').next().unwrap_or_default();
    if ["bin", "sbin", "lib", "lib64"].contains(&top) { format!("usr/{path}") } else { path.to_owned() }
}

/// The path that a symbolic link at `path` leads to.
fn resolve(path: &str, target: &str) -> String {
    if target.starts_with('/') {
        return merged(target);
    }
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    merged(&parts.join("/"))
}

/// Changed when the same files would be laid out in another way.
const LAYOUT: u32 = 1;

const BUSYBOX: &str = "usr/bin/busybox";

const PROGRAMS: &[&str] = &[
    BUSYBOX,
    "usr/bin/bash",
    "usr/bin/dash",
    "usr/bin/ip",
    "usr/bin/ss",
    "usr/bin/kmod",
    "usr/bin/iperf3",
    "usr/bin/lsmod",
    "usr/sbin/ethtool",
    "usr/sbin/tc",
    "usr/sbin/bridge",
    "usr/sbin/devlink",
    "usr/sbin/insmod",
    "usr/sbin/modinfo",
    "usr/sbin/modprobe",
    "usr/sbin/rmmod",
    // The C library loads it when a thread is cancelled, and no program says that it needs it.
    "usr/lib/x86_64-linux-gnu/libgcc_s.so.1",
];

/// Tables that iproute2's programs read.
const DATA: &[&str] = &["usr/share/iproute2/", "etc/iproute2/", "usr/lib/tc/"];

const LIBRARY_PLACES: [&str; 3] = ["usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib"];

const PROGRAM_PLACES: [&str; 2] = ["usr/bin", "usr/sbin"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_within_the_tree() {
        assert_eq!(resolve("usr/sbin/modprobe", "../bin/kmod"), "usr/bin/kmod");
        assert_eq!(
            resolve("usr/lib64/ld.so", "/lib/x86_64-linux-gnu/ld.so"),
            "usr/lib/x86_64-linux-gnu/ld.so"
        );
        assert_eq!(resolve("usr/lib/a.so", "a.so.1"), "usr/lib/a.so.1");
        assert_eq!(resolve("usr/lib/a", "../../../../x"), "x");
    }

    #[test]
    fn programs_are_taken_with_links_and_without_what_is_missing() {
        let directory = tempfile::tempdir().unwrap();
        let package = directory.path().join("package");
        fs::create_dir_all(package.join("bin")).unwrap();
        fs::write(package.join("bin/tool"), "#!/bin/sh\n").unwrap();
        symlink("tool", package.join("bin/alias")).unwrap();
        symlink("gone", package.join("bin/dangling")).unwrap();
        let mut files = Files { sources: BTreeMap::new(), chosen: BTreeSet::new() };
        files.add(&package, &package).unwrap();
        files.choose("usr/bin/alias", "test").unwrap();
        assert!(files.chosen.contains("usr/bin/tool"));
        let error = files.choose("usr/bin/dangling", "test").unwrap_err();
        assert!(error.to_string().contains("usr/bin/gone is missing"), "{error}");
    }
}
