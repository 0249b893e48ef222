//! The compiler that Debian built a kernel with, and what else a module's build needs.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::wrap::{Libraries, wrap};
use crate::{
    ImageError, Store,
    apt::{self, Suite},
    cache::Lock,
    store,
};

/// Programs that build modules.
#[derive(Clone, Debug)]
pub(super) struct Toolchain {
    /// The directory with the programs; none if those of the host are meant.
    pub(super) programs: Option<PathBuf>,
    /// The libraries that came with them, which Debian's kbuild programs need as well.
    pub(super) libraries: Option<Libraries>,
}

impl Toolchain {
    /// What is installed on this system.
    pub(super) fn host() -> Toolchain {
        Toolchain { programs: None, libraries: None }
    }
}

/// The toolchain with a compiler such as `gcc-12`: from the cache, or fetched.
pub(super) fn ensure(
    store: &Store,
    lock: &Lock,
    suite: Suite,
    compiler: &str,
) -> Result<Toolchain, ImageError> {
    let entry = format!("{suite}-{compiler}-{FORMAT}");
    let place = format!("toolchains/{entry}");
    let target = store.cache.path(super::build::DIRECTORY).join(&place);
    let broken =
        |reason: &str| ImageError::BadPackage { package: compiler.to_owned(), reason: reason.to_owned() };
    if !store.uses.hold(&target) {
        install(store, lock, suite, compiler, &place, &target)?;
    }
    let libraries =
        Libraries::find(&target, &place).ok_or_else(|| broken("comes without a dynamic linker"))?;
    Ok(Toolchain { programs: Some(target.join("usr/bin")), libraries: Some(libraries) })
}

fn install(
    store: &Store,
    lock: &Lock,
    suite: Suite,
    compiler: &str,
    place: &str,
    target: &Path,
) -> Result<(), ImageError> {
    let apt = store.apt(suite)?;
    let roots: Vec<&str> = std::iter::once(compiler).chain(packages(suite).iter().copied()).collect();
    let wanted: Vec<_> = apt.closure(&roots)?.into_iter().filter(|(name, _)| is_needed(name)).collect();
    let (fetched, _) =
        store.download(&apt, &wanted, &format!("fetching {compiler} and what belongs to it"))?;
    let _task = store.progress.start(&format!("unpacking {compiler}"));
    let workspace = store.cache.workspace(lock)?;
    let root = workspace.path().join("toolchain");
    for package in &fetched {
        apt::unpack(&package.file, &root)?;
    }
    let finish = || -> io::Result<()> {
        remove_surplus(&root)?;
        match Libraries::find(&root, place) {
            Some(libraries) => wrap(&root, DEPTH, &libraries),
            None => Ok(()),
        }
    };
    finish().map_err(ImageError::cache(target))?;
    store.cache.publish(lock, &root, target)?;
    store::forget(&fetched);
    Ok(())
}

/// What a build runs besides the compiler. The libraries are those of Debian's kbuild programs.
fn packages(suite: Suite) -> &'static [&'static str] {
    match suite {
        Suite::Bookworm => &["make", "pahole", "libelf1", "libssl3"],
        Suite::Trixie | Suite::TrixieBackports => &["make", "pahole", "libelf1t64", "libssl3t64"],
    }
}

/// Programs compiled for users need libraries that modules never do.
fn is_needed(package: &str) -> bool {
    !USER_LIBRARIES.iter().any(|library| {
        package.strip_prefix(library).is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
    }) && package != "openssl-provider-legacy"
}

/// Link-time optimisation and documentation take up two thirds of the room.
fn remove_surplus(root: &Path) -> io::Result<()> {
    let _ = fs::remove_dir_all(root.join("usr/share"));
    for directory in ["usr/lib/gcc", "usr/libexec/gcc", "usr/bin"] {
        remove_below(&root.join(directory))?;
    }
    Ok(())
}

fn remove_below(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            remove_below(&entry.path())?;
        } else if SURPLUS.iter().any(|surplus| name.contains(surplus)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Directories between the one that holds toolchains and headers, and a toolchain's root.
const DEPTH: usize = 2;

const USER_LIBRARIES: &[&str] = &[
    "libasan",
    "libatomic",
    "libcc1-",
    "libgomp",
    "libgprofng",
    "libhwasan",
    "libitm",
    "liblsan",
    "libquadmath",
    "libtsan",
    "libubsan",
];
const SURPLUS: &[&str] = &["lto1", "lto-dump", "gprof", "gp-", "gcov", "ld.gold"];

/// Changed when something else is unpacked, or in another way.
const FORMAT: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_user_programs_are_left_out() {
        for package in ["libasan8", "libgomp1", "libcc1-0", "libtsan2"] {
            assert!(!is_needed(package), "{package}");
        }
        for package in ["libc6", "gcc-12", "libelf1", "libgmp10", "libctf0", "libgcc-12-dev", "pahole"] {
            assert!(is_needed(package), "{package}");
        }
    }
}
