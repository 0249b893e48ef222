//! A kernel's headers and kbuild programs from Debian's packages.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    toolchain::{self, Toolchain},
    wrap::wrap,
};
use crate::{
    ImageError, Kernel, Store,
    apt::{self, Apt, Suite},
    cache::Lock,
    store,
};

/// What modules of one kernel are built against.
#[derive(Debug)]
pub(super) struct Headers {
    /// The directory for `make -C`.
    pub(super) build: PathBuf,
    /// The directory whose `include` has most headers.
    pub(super) common: PathBuf,
    /// What builds.
    pub(super) toolchain: Toolchain,
}

/// The headers of a kernel from Debian, and the compiler that it was built with: from the cache, or fetched.
pub(super) fn ensure(
    store: &Store,
    lock: &Lock,
    apt: impl FnOnce() -> Result<Apt, ImageError>,
    kernel: &Kernel,
    compilers: Suite,
) -> Result<Headers, ImageError> {
    let entry = format!("{}_{}_{FORMAT}", kernel.release, kernel.version.replace(':', "%3a"));
    let target = store.cache.path(super::build::DIRECTORY).join("headers").join(entry);
    if !store.uses.hold(&target) {
        install(store, lock, &apt()?, kernel, compilers, &target)?;
    }
    let build = target.join("usr/src").join(format!("linux-headers-{}", kernel.release));
    let compiler = compiler(&build)?;
    let common = common(&target.join("usr/src")).ok_or_else(|| broken(kernel, "have no common part"))?;
    Ok(Headers { toolchain: toolchain::ensure(store, lock, compilers, &compiler)?, build, common })
}

fn install(
    store: &Store,
    lock: &Lock,
    apt: &Apt,
    kernel: &Kernel,
    compilers: Suite,
    target: &Path,
) -> Result<(), ImageError> {
    let wanted = packages(apt, kernel)?;
    let what = format!("fetching the headers of {}", kernel.release);
    let (fetched, _) = store.download(apt, &wanted, &what)?;
    let workspace = store.cache.workspace(lock)?;
    let root = workspace.path().join("headers");
    for package in &fetched {
        apt::unpack(&package.file, &root)?;
    }
    let sources = root.join("usr/src");
    let build = sources.join(format!("linux-headers-{}", kernel.release));
    let toolchain = toolchain::ensure(store, lock, compilers, &compiler(&build)?)?;
    let finish = || -> io::Result<()> {
        relocate(&build)?;
        // The packages for one kernel have what the next one's have as well.
        let _ = fs::remove_dir_all(root.join("usr/share"));
        match &toolchain.libraries {
            Some(libraries) => wrap(&root, DEPTH, libraries),
            None => Ok(()),
        }
    };
    finish().map_err(ImageError::cache(target))?;
    store.cache.publish(lock, &root, target)?;
    store::forget(&fetched);
    Ok(())
}

/// The headers' package, and its dependencies of the same source: the common headers and the kbuild programs.
fn packages(apt: &Apt, kernel: &Kernel) -> Result<Vec<(String, String)>, ImageError> {
    let name = format!("linux-headers-{}", kernel.release);
    let is_ours = |paragraph: &&apt::Paragraph| paragraph.get("Version") == Some(&kernel.version);
    let known = apt.show(std::slice::from_ref(&name))?;
    let headers = known.iter().find(is_ours).ok_or_else(|| ImageError::NotOnMirror {
        what: format!("headers of this kernel ({name} {})", kernel.version),
        hint: "; its drivers cannot be edited".into(),
    })?;
    let dependencies = headers.get("Depends").unwrap_or_default().split([',', '|']);
    let names = dependencies.filter_map(|dependency| dependency.split_whitespace().next());
    let names = names.filter(|name| name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-"));
    let mut packages = vec![(name.clone(), kernel.version.clone())];
    packages.extend(names.map(|name| (name.to_owned(), kernel.version.clone())));
    Ok(packages)
}

/// Debian's Makefile names the common headers by where they are installed.
fn relocate(build: &Path) -> io::Result<()> {
    let makefile = build.join("Makefile");
    let text = fs::read_to_string(&makefile)?;
    let common = text.lines().find_map(|line| {
        line.trim().strip_prefix("include /usr/src/").and_then(|rest| rest.strip_suffix("/Makefile"))
    });
    let common = common.ok_or_else(|| io::Error::other("the headers' Makefile is not as Debian's are"))?;
    fs::write(
        &makefile,
        format!(
            "KBUILD_OUTPUT := $(abspath $(dir $(lastword $(MAKEFILE_LIST))))\n\
             include $(KBUILD_OUTPUT)/../{common}/Makefile\n"
        ),
    )
}

/// The compiler's name is in a line such as `CC = ... $(CROSS_COMPILE)gcc-12`.
fn compiler(build: &Path) -> Result<String, ImageError> {
    let path = build.join(".kernelvariables");
    let text = fs::read_to_string(&path).map_err(ImageError::cache(&path))?;
    let line = text.lines().find(|line| line.starts_with("CC "));
    let digits = line.and_then(|line| line.rsplit_once("gcc-")).map(|(_, version)| version.trim());
    let version = digits.filter(|version| version.parse::<u32>().is_ok());
    version
        .map(|version| format!("gcc-{version}"))
        .ok_or_else(|| ImageError::cache(&path)(io::Error::other("it does not name the compiler")))
}

fn common(sources: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(sources).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.into_iter().find(|path| path.to_string_lossy().ends_with("-common"))
}

fn broken(kernel: &Kernel, reason: &str) -> ImageError {
    ImageError::BadPackage { package: format!("linux-headers-{}", kernel.release), reason: reason.to_owned() }
}

/// Directories between the one that holds toolchains and headers, and the headers' root.
const DEPTH: usize = 2;

/// Changed when something else is unpacked, or in another way.
const FORMAT: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_and_the_common_headers_are_read_from_debians_files() {
        let directory = tempfile::tempdir().unwrap();
        let build = directory.path();
        fs::write(
            build.join(".kernelvariables"),
            "override ARCH = x86\nCCACHE = ccache\nCC = $(if $(X),$(CCACHE)) $(CROSS_COMPILE)gcc-14\n",
        )
        .unwrap();
        assert_eq!(compiler(build).unwrap(), "gcc-14");
        fs::write(build.join(".kernelvariables"), "CC = clang\n").unwrap();
        assert!(compiler(build).is_err());
        fs::write(build.join("Makefile"), "include /usr/src/linux-headers-7.3.4+deb13-common/Makefile\n")
            .unwrap();
        relocate(build).unwrap();
        let text = fs::read_to_string(build.join("Makefile")).unwrap();
        assert!(text.contains("/../linux-headers-7.3.4+deb13-common/Makefile") && !text.contains("/usr/src"));
        assert!(relocate(build).is_err());
    }
}
