//! From edits to a module.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::{
    Edit, EditedModule,
    drivers::Driver,
    headers::{self, Headers},
    kbuild::{self, Failure},
    source,
    toolchain::Toolchain,
};
use crate::{
    ImageError, Kernel, Origin, Store,
    apt::Suite,
    cache::{self, Lock},
    modules::Modules,
    packages, store,
};

/// Builds all modules that edits change, one for each driver; edits of one driver are applied in the order given.
///
/// # Errors
/// When an edit is not for this kernel or does not match, when a driver does not build, or when what is needed
/// cannot be fetched.
pub fn build_modules(
    store: &Store,
    kernel: &Kernel,
    edits: &[Edit],
) -> Result<Vec<EditedModule>, ImageError> {
    let mut drivers: Vec<&str> = Vec::new();
    for edit in edits {
        if !drivers.contains(&edit.driver.as_str()) {
            drivers.push(&edit.driver);
        }
    }
    drivers.into_iter().map(|driver| build_module(store, kernel, driver, edits)).collect()
}

/// Builds one driver's module with those of `edits` that are for it; with none, as it is.
///
/// # Errors
/// As [`build_modules`].
pub fn build_module(
    store: &Store,
    kernel: &Kernel,
    driver: &str,
    edits: &[Edit],
) -> Result<EditedModule, ImageError> {
    let driver = Driver::find(driver).ok_or_else(|| ImageError::BadModule {
        module: driver.to_owned(),
        reason: format!(
            "it is not a driver that can be edited; these are: {}",
            super::known_drivers().collect::<Vec<_>>().join(", ")
        ),
    })?;
    let edits: Vec<&Edit> = edits.iter().filter(|edit| edit.driver == driver.name).collect();
    check(kernel, driver, &edits)?;
    let job = Job { store, kernel, driver, edits };
    let target = store.cache.path("modules").join(job.key()?);
    if let Some(known) = known(store, &target) {
        return Ok(known);
    }
    let lock = store.cache.lock(store.progress)?;
    match known(store, &target) {
        Some(known) => Ok(known),
        None => job.build(&lock, &target),
    }
}

/// What can be told without a source.
fn check(kernel: &Kernel, driver: &Driver, edits: &[&Edit]) -> Result<(), ImageError> {
    if kernel.origin == Origin::File {
        return Err(ImageError::BadKernel {
            path: kernel.vmlinuz.clone(),
            reason: "drivers of a kernel file cannot be edited: name a Debian kernel, or the directory of a kernel build".into(),
        });
    }
    let version = upstream(kernel);
    for edit in edits {
        if !edit.is_for(version) {
            let kernels = edit.kernels().collect::<Vec<_>>().join(", ");
            return Err(edit.wrong(format!("it is for kernel {kernels}, and this one is {version}")));
        }
    }
    if Modules::open(kernel)?.is_builtin(driver.name) {
        return Err(ImageError::BadModule {
            module: driver.name.to_owned(),
            reason: format!("kernel {} has it built in, so it cannot be replaced", kernel.release),
        });
    }
    Ok(())
}

/// A module of an earlier time. Its path is that of today, should the cache have been moved.
fn known(store: &Store, target: &Path) -> Option<EditedModule> {
    if !store.uses.hold(target) {
        return None;
    }
    let mut module: EditedModule = store::read_json(&target.join(DESCRIPTION))?;
    module.path = target.join(module.path.file_name()?);
    module.path.is_file().then_some(module)
}

/// One module to be built.
struct Job<'a> {
    store: &'a Store,
    kernel: &'a Kernel,
    driver: &'static Driver,
    edits: Vec<&'a Edit>,
}

impl Job<'_> {
    /// All that decides what comes out.
    fn key(&self) -> Result<String, ImageError> {
        let kernel = self.kernel;
        let mut parts =
            vec![FORMAT.to_string(), kernel.release.clone(), kernel.version.clone(), self.driver.name.into()];
        parts.extend(self.edits.iter().map(|edit| edit.sha256().to_owned()));
        if kernel.origin == Origin::Build {
            parts.push(kernel.sha256.clone());
            let source = source_of_tree(kernel)?;
            for (name, path) in files(&source, self.driver)? {
                let hash =
                    cache::sha256_file(&path).map_err(|source| ImageError::BadFile { path, source })?;
                parts.push(format!("{name} {hash}"));
            }
        }
        Ok(cache::sha256(&store::to_json(&parts))[..32].to_owned())
    }

    fn build(&self, lock: &Lock, target: &Path) -> Result<EditedModule, ImageError> {
        let (source, headers) = self.materials(lock)?;
        let workspace = self.store.cache.workspace(lock)?;
        let directory = workspace.path().join("build");
        self.lay_out(&source, &headers, &directory)?;
        let edits: Vec<String> = self.edits.iter().map(|edit| edit.name.clone()).collect();
        let what = if edits.is_empty() { "no edits".to_owned() } else { edits.join(" and ") };
        let _task = self.store.progress.start(&format!("building {} with {what}", self.driver.name));
        let failed = |failure| match failure {
            Failure::Environment(error) => error,
            Failure::Said(said) => ImageError::Build {
                driver: self.driver.name.to_owned(),
                version: upstream(self.kernel).to_owned(),
                edits: what.clone(),
                complaints: kbuild::excerpt(&said, &directory, self.driver.directory),
            },
        };
        kbuild::make(&headers, &directory, self.driver.directory).map_err(failed)?;
        let built = find_module(&directory, self.driver.name).ok_or_else(|| {
            failed(Failure::Said(format!("its Makefile makes no module {}", self.driver.name)))
        })?;
        kbuild::strip(&headers, &built).map_err(failed)?;
        let finished = workspace.path().join("finished");
        let file = built.file_name().unwrap_or_default();
        fs::create_dir(&finished).map_err(ImageError::cache(&finished))?;
        fs::copy(&built, finished.join(file)).map_err(ImageError::cache(target))?;
        let module = EditedModule {
            driver: self.driver.name.to_owned(),
            path: target.join(file),
            sha256: cache::sha256_file(&built).map_err(ImageError::cache(&built))?,
            release: self.kernel.release.clone(),
            edits,
        };
        fs::write(finished.join(DESCRIPTION), store::to_json(&module)).map_err(ImageError::cache(target))?;
        self.store.cache.publish(lock, &finished, target)?;
        self.store.uses.hold(target);
        Ok(module)
    }

    /// The source, and what to build it with.
    fn materials(&self, lock: &Lock) -> Result<(PathBuf, Headers), ImageError> {
        let kernel = self.kernel;
        if kernel.origin == Origin::Build {
            let source = source_of_tree(kernel)?;
            let build = kernel.modules.clone().unwrap_or_else(|| source.clone());
            let headers = Headers { build, common: source.clone(), toolchain: Toolchain::host() };
            return Ok((source, headers));
        }
        let suite = packages::suite_of(&kernel.version);
        let compilers = if suite == Suite::TrixieBackports { Suite::Trixie } else { suite };
        let apt = || self.store.apt(suite);
        let headers = headers::ensure(self.store, lock, apt, kernel, compilers)?;
        let series: Vec<&str> = upstream(kernel).split('.').take(2).collect();
        let package = format!("linux-source-{}", series.join("."));
        let source = source::ensure(self.store, lock, apt, &package, &kernel.version)?;
        Ok((source, headers))
    }

    /// Makes a directory with the driver's source as edited.
    fn lay_out(&self, source: &Path, headers: &Headers, directory: &Path) -> Result<(), ImageError> {
        fs::create_dir(directory).map_err(ImageError::cache(directory))?;
        for (name, path) in files(source, self.driver)? {
            let target = directory.join(name);
            fs::create_dir_all(target.parent().unwrap_or(directory)).map_err(ImageError::cache(&target))?;
            fs::copy(&path, &target).map_err(ImageError::cache(&target))?;
        }
        if let Some(single) = self.driver.single {
            let makefile = directory.join("Makefile");
            fs::write(&makefile, format!("obj-m := {single}.o\n")).map_err(ImageError::cache(&makefile))?;
        }
        let mut changed = BTreeMap::new();
        for edit in &self.edits {
            edit.apply(upstream(self.kernel), &mut changed, |file| self.original(directory, headers, file))?;
        }
        for (file, text) in changed {
            let target = directory.join(file);
            fs::create_dir_all(target.parent().unwrap_or(directory)).map_err(ImageError::cache(&target))?;
            fs::write(&target, text).map_err(ImageError::cache(&target))?;
        }
        Ok(())
    }

    /// A file as it was before any edit.
    fn original(&self, directory: &Path, headers: &Headers, file: &str) -> Result<String, String> {
        let place =
            if file.starts_with("include/") { headers.common.join(file) } else { directory.join(file) };
        fs::read_to_string(place)
            .map_err(|_| format!("{} of kernel {} has no such file", self.driver.name, upstream(self.kernel)))
    }
}

/// The files of a driver below the root of a source: their names from the driver's directory, and where they are.
fn files(source: &Path, driver: &Driver) -> Result<Vec<(String, PathBuf)>, ImageError> {
    let mut found = Vec::new();
    let root = source.join(driver.directory);
    let mut directories = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        let unreadable = |source| ImageError::BadFile { path: directory.clone(), source };
        for entry in fs::read_dir(&directory).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(unreadable)?);
            let name = path.strip_prefix(&root).unwrap_or(&path).to_string_lossy().into_owned();
            if kind.is_dir() && driver.single.is_none() {
                directories.push(path);
            } else if kind.is_file()
                && driver.owns(&format!("{}/{name}", driver.directory))
                && is_source(&name)
            {
                found.push((name, path));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// A tree that has been built has the results beside the source.
fn is_source(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    !file.starts_with('.')
        && [".c", ".h", "Makefile", "Kbuild", "Kconfig", ".S"].iter().any(|end| file.ends_with(end))
        && !file.ends_with(".mod.c")
}

/// A build outside of its source has a link to it.
fn source_of_tree(kernel: &Kernel) -> Result<PathBuf, ImageError> {
    let tree = kernel.modules.clone().ok_or_else(|| ImageError::BadKernel {
        path: kernel.name.clone().into(),
        reason: "its modules are not built, so none of them can be edited: run make modules there".into(),
    })?;
    Ok([tree.join("source"), tree.clone()]
        .into_iter()
        .find(|path| path.join("drivers").is_dir())
        .unwrap_or(tree))
}

fn find_module(directory: &Path, name: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path());
    entries.into_iter().find(|path| {
        path.extension().is_some_and(|suffix| suffix == "ko")
            && path.file_stem().is_some_and(|stem| crate::modules::normalise(&stem.to_string_lossy()) == name)
    })
}

/// `6.12.117` of Debian's `6.12.117-1~deb12u1`, or of a release such as `6.12.117-dirty` or `7.3.0+`.
fn upstream(kernel: &Kernel) -> &str {
    let end = kernel.version.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    &kernel.version[..end.unwrap_or(kernel.version.len())]
}

/// Below the cache's root: sources, headers and toolchains.
pub(super) const DIRECTORY: &str = "build";
const DESCRIPTION: &str = "module.json";

/// Changed when the same edits would make another module.
const FORMAT: u32 = 1;
