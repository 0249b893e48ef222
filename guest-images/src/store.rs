//! The store: finds what is in the cache, and fetches or builds what is not.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    AGENT, ExtraFile, ImageError, Initramfs, InitramfsOptions, Kernel, KernelName, LOAD, PORT, Package,
    ProgressStyle, STREAM,
    apt::{self, Apt, Fetched, Mirror, Suite, Surroundings},
    cache::{self, Cache, Lock, Uses},
    initramfs, kernel,
    name::DebianVersion,
    packages, tools,
};

/// Where the store is and how it works.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    /// The cache directory. Without it `$XDG_CACHE_HOME/nicvisor`, or `~/.cache/nicvisor`.
    pub cache_dir: Option<PathBuf>,
    /// The address of a Debian archive to use in place of the one that the system's apt uses. Without it
    /// `NICVISOR_MIRROR` may give one.
    pub mirror: Option<String>,
    /// How progress is shown.
    pub progress: ProgressStyle,
    /// Set when the user wants to stop: what is being fetched is left to be continued the next time.
    pub interrupted: Arc<AtomicBool>,
}

/// Kernels and initramfs images, on disk.
#[derive(Debug)]
pub struct Store {
    pub(crate) cache: Cache,
    mirror: Option<String>,
    pub(crate) progress: ProgressStyle,
    interrupted: Arc<AtomicBool>,
    pub(crate) uses: Uses,
    /// The parts of the archive whose lists have been fetched.
    updated: Mutex<Vec<Suite>>,
}

/// A kernel that is in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listing {
    /// The names by which it has been asked for.
    pub names: Vec<String>,
    /// The kernel.
    pub kernel: Kernel,
    /// Bytes on disk.
    pub size: u64,
}

impl Store {
    /// Opens the store, creating its directory if it is not there.
    pub fn open(options: StoreOptions) -> Result<Store, ImageError> {
        let directory = match options.cache_dir {
            Some(directory) => directory,
            None => default_directory()?,
        };
        Ok(Store {
            cache: Cache::open(directory)?,
            mirror: options.mirror,
            progress: options.progress,
            interrupted: options.interrupted,
            uses: Uses::default(),
            updated: Mutex::default(),
        })
    }

    /// The kernel of that name: from the cache, or fetched. A series keeps meaning the kernel that it meant
    /// first, until [`Store::refresh`].
    pub fn kernel(&self, name: &KernelName) -> Result<Kernel, ImageError> {
        match name {
            KernelName::Path(path) => kernel::at_path(path),
            KernelName::Debian(version) => match self.known_kernel(name) {
                Some(kernel) => Ok(kernel),
                None => self.fetch_kernel(name, version, false),
            },
        }
    }

    /// Looks for a newer kernel of that name, and fetches it.
    pub fn refresh(&self, name: &KernelName) -> Result<Kernel, ImageError> {
        match name {
            KernelName::Path(path) => kernel::at_path(path),
            KernelName::Debian(version) => self.fetch_kernel(name, version, true),
        }
    }

    /// An initramfs for that kernel: from the cache, or built. What the options add is kept apart from what all
    /// guests of the kernel have, so that variations take up little room.
    pub fn initramfs(&self, kernel: &Kernel, options: &InitramfsOptions) -> Result<Initramfs, ImageError> {
        let tools = self.tools()?;
        let common = InitramfsOptions::default();
        let base = initramfs_key(kernel, &tools, &common)?;
        let key = initramfs_key(kernel, &tools, options)?;
        if let Some(known) = self.known_initramfs(&key, &base) {
            return Ok(known);
        }
        let lock = self.cache.lock(self.progress)?;
        if let Some(known) = self.known_initramfs(&key, &base) {
            return Ok(known);
        }
        let _task = self.progress.start(&format!("building the initramfs for {}", kernel.release));
        let (bottom, modules) = initramfs::build(kernel, &tools, &common)?;
        let bytes = bottom.to_bytes();
        if self.known_layer(&base).is_none() {
            self.write_initramfs(&lock, &base, &bytes, &bytes, modules)?;
        }
        if key != base {
            let (whole, modules) = initramfs::build(kernel, &tools, options)?;
            let top = whole.on_top_of(&bottom).to_bytes();
            self.write_initramfs(&lock, &key, &top, &[bytes, top.clone()].concat(), modules)?;
            self.prune_initramfs(&lock, &[&base, &key]);
        }
        self.known_initramfs(&key, &base).ok_or_else(|| {
            ImageError::cache(&self.cache.path(INITRAMFS))(std::io::Error::other(
                "the initramfs is gone again",
            ))
        })
    }

    /// Writes one layer of an initramfs and the description of the whole that it completes.
    fn write_initramfs(
        &self,
        lock: &Lock,
        key: &str,
        layer: &[u8],
        whole: &[u8],
        modules: BTreeMap<String, String>,
    ) -> Result<(), ImageError> {
        let record = InitramfsRecord { sha256: cache::sha256(whole), length: layer.len() as u64, modules };
        let (archive, description) = self.initramfs_paths(key);
        self.cache.write(lock, &archive, layer)?;
        // The description comes last: it says that the archive is complete.
        self.cache.write(lock, &description, &to_json(&record))
    }

    /// The kernels in the store.
    pub fn list(&self) -> Result<Vec<Listing>, ImageError> {
        let mut listings: BTreeMap<PathBuf, Listing> = BTreeMap::new();
        for entry in fs::read_dir(self.cache.path(KERNELS)).into_iter().flatten().flatten() {
            let directory = entry.path();
            if let Some(kernel) = read_kernel(&directory) {
                let size = cache::size_of(&directory);
                listings.insert(directory, Listing { names: Vec::new(), kernel, size });
            }
        }
        for entry in fs::read_dir(self.cache.path(NAMES)).into_iter().flatten().flatten() {
            let Some(name) = read_json::<NameRecord>(&entry.path()) else { continue };
            if let Some(listing) = listings.get_mut(&self.cache.path(KERNELS).join(&name.directory)) {
                listing.names.push(name.name);
                listing.names.sort();
            }
        }
        for listing in listings.values_mut() {
            // The longest name is the most exact.
            let exact = listing.names.iter().max_by_key(|name| name.len()).cloned();
            listing.kernel.name =
                exact.unwrap_or_else(|| format!("debian:{}", packages::upstream(&listing.kernel.version)));
        }
        Ok(listings.into_values().collect())
    }

    fn known_kernel(&self, name: &KernelName) -> Option<Kernel> {
        let directory = self.named_directory(&self.name_path(name))?;
        if !self.uses.hold(&directory) {
            return None;
        }
        let mut kernel = read_kernel(&directory)?;
        kernel.name = name.to_string();
        Some(kernel)
    }

    fn fetch_kernel(
        &self,
        name: &KernelName,
        version: &DebianVersion,
        newer: bool,
    ) -> Result<Kernel, ImageError> {
        let lock = self.cache.lock(self.progress)?;
        if let Some(kernel) = self.known_kernel(name).filter(|_| !newer) {
            return Ok(kernel);
        }
        let (apt, wanted) = self.resolve(version)?;
        let (image, package_version) = &wanted[0];
        let entry = format!("{image}_{}", package_version.replace(':', "%3a"));
        let directory = self.cache.path(KERNELS).join(&entry);
        if read_kernel(&directory).is_none() {
            self.install_kernel(&lock, &apt, &wanted, &directory)?;
        }
        let record = NameRecord { name: name.to_string(), directory: entry };
        self.cache.write(&lock, &self.name_path(name), &to_json(&record))?;
        self.known_kernel(name).ok_or_else(|| ImageError::BadPackage {
            package: image.clone(),
            reason: "it was unpacked, and is not there".to_owned(),
        })
    }

    /// Looks in one part of the archive after the other.
    fn resolve(&self, version: &DebianVersion) -> Result<(Apt, Vec<(String, String)>), ImageError> {
        let mut seen = packages::Seen::default();
        for suite in packages::suites(version) {
            let apt = self.apt(*suite)?;
            if let Some(wanted) = packages::resolve(&apt, version, &mut seen)? {
                return Ok((apt, wanted));
            }
        }
        Err(packages::not_found(version, seen))
    }

    fn install_kernel(
        &self,
        lock: &Lock,
        apt: &Apt,
        wanted: &[(String, String)],
        directory: &Path,
    ) -> Result<(), ImageError> {
        let (image, version) = &wanted[0];
        let (fetched, records) = self.download(apt, wanted, &format!("fetching {image} {version}"))?;
        let _task = self.progress.start(&format!("unpacking {image}"));
        let workspace = self.cache.workspace(lock)?;
        let root = workspace.path().join("kernel");
        for package in &fetched {
            apt::unpack(&package.file, &root)?;
        }
        let mut kernel =
            kernel::in_packages(&root.canonicalize().map_err(ImageError::cache(&root))?, records)?;
        // Paths are kept relative to the entry, so that the cache can be moved.
        kernel.vmlinuz = below(&root, &kernel.vmlinuz);
        kernel.modules = kernel.modules.map(|modules| below(&root, &modules));
        kernel.system_map = kernel.system_map.map(|map| below(&root, &map));
        fs::write(root.join(DESCRIPTION), to_json(&kernel)).map_err(ImageError::cache(&root))?;
        self.cache.publish(lock, &root, directory)?;
        forget(&fetched);
        Ok(())
    }

    /// The directory with the guest's programs: from the cache, or fetched.
    fn tools(&self) -> Result<PathBuf, ImageError> {
        if let Some(tools) = self.known_tools() {
            return Ok(tools);
        }
        let lock = self.cache.lock(self.progress)?;
        if let Some(tools) = self.known_tools() {
            return Ok(tools);
        }
        let apt = self.apt(Suite::Trixie)?;
        let wanted: Vec<_> =
            apt.closure(tools::PACKAGES)?.into_iter().filter(|(name, _)| tools::is_needed(name)).collect();
        let (fetched, records) = self.download(&apt, &wanted, "fetching the guest's tools")?;
        let workspace = self.cache.workspace(&lock)?;
        let mut unpacked = Vec::new();
        for package in &fetched {
            let directory = workspace.path().join("packages").join(&package.name);
            apt::unpack(&package.file, &directory)?;
            unpacked.push(directory);
        }
        let entry = cache::sha256(&to_json(&(tools::layout(), &records)))[..16].to_owned();
        let finished = workspace.path().join("tools");
        let root = finished.join("root");
        fs::create_dir_all(&root).map_err(ImageError::cache(&root))?;
        tools::assemble(&unpacked, &root)?;
        fs::write(finished.join("packages.json"), to_json(&records)).map_err(ImageError::cache(&finished))?;
        self.cache.publish(&lock, &finished, &self.cache.path(TOOLS).join(&entry))?;
        let record = ToolsRecord { format: tools::layout(), directory: entry };
        self.cache.write(&lock, &self.cache.path(TOOLS_RECORD), &to_json(&record))?;
        forget(&fetched);
        self.known_tools().ok_or_else(|| ImageError::BadPackage {
            package: "the guest's tools".to_owned(),
            reason: "they were unpacked, and are not there".to_owned(),
        })
    }

    fn known_tools(&self) -> Option<PathBuf> {
        let record: ToolsRecord = read_json(&self.cache.path(TOOLS_RECORD))?;
        let directory = self.cache.path(TOOLS).join(record.directory);
        let root = directory.join("root");
        (record.format == tools::layout() && self.uses.hold(&directory) && root.is_dir()).then_some(root)
    }

    /// apt with lists that are as new as this process.
    pub(crate) fn apt(&self, suite: Suite) -> Result<Apt, ImageError> {
        let mut updated = self.updated.lock().unwrap_or_else(PoisonError::into_inner);
        if updated.contains(&suite)
            && let Some(apt) = self.known_apt(suite)
        {
            return Ok(apt);
        }
        let mirror = Mirror::detect(self.mirror.as_deref())?;
        let directory = self.cache.path("apt").join(suite.to_string());
        let apt = Apt::update(directory, suite, &mirror, self.surroundings())?;
        updated.push(suite);
        Ok(apt)
    }

    /// apt with lists of an earlier time, if there are any.
    pub(crate) fn known_apt(&self, suite: Suite) -> Option<Apt> {
        Apt::known(self.cache.path("apt").join(suite.to_string()), self.surroundings())
    }

    fn surroundings(&self) -> Surroundings {
        Surroundings { progress: self.progress, interrupted: Arc::clone(&self.interrupted) }
    }

    /// Fetches packages into a directory that outlives an interruption, so that what is complete is not
    /// fetched again.
    pub(crate) fn download(
        &self,
        apt: &Apt,
        wanted: &[(String, String)],
        what: &str,
    ) -> Result<(Vec<Fetched>, Vec<Package>), ImageError> {
        let target = self.cache.path("apt/packages");
        fs::create_dir_all(&target).map_err(ImageError::cache(&target))?;
        let fetched = apt.download(wanted, &target, what)?;
        let records = fetched.iter().map(|package| {
            let sha256 = cache::sha256_file(&package.file).map_err(ImageError::cache(&package.file))?;
            Ok(Package { name: package.name.clone(), version: package.version.clone(), sha256 })
        });
        let records = records.collect::<Result<_, ImageError>>()?;
        Ok((fetched, records))
    }

    fn known_initramfs(&self, key: &str, base: &str) -> Option<Initramfs> {
        let (bottom, _) = self.known_layer(base)?;
        if key == base {
            let (path, record) = self.known_layer(key)?;
            return Some(Initramfs { layers: vec![path], sha256: record.sha256, modules: record.modules });
        }
        let (top, record) = self.known_layer(key)?;
        Some(Initramfs { layers: vec![bottom, top], sha256: record.sha256, modules: record.modules })
    }

    fn known_layer(&self, key: &str) -> Option<(PathBuf, InitramfsRecord)> {
        let (path, description) = self.initramfs_paths(key);
        let record: InitramfsRecord = read_json(&description)?;
        let complete = fs::metadata(&path).is_ok_and(|metadata| metadata.len() == record.length);
        (complete && self.uses.hold(&path)).then_some((path, record))
    }

    fn initramfs_paths(&self, key: &str) -> (PathBuf, PathBuf) {
        let directory = self.cache.path(INITRAMFS);
        (directory.join(format!("{key}.cpio")), directory.join(format!("{key}.json")))
    }

    /// Removes the images that were not used for longest beyond a number. Each change of a module under test makes
    /// a new one.
    fn prune_initramfs(&self, lock: &Lock, keep: &[&String]) {
        let mut entries = self.cache.entries(INITRAMFS);
        entries.retain(|entry| {
            entry.path.extension().is_some_and(|suffix| suffix == "cpio")
                && !keep.iter().any(|key| entry.path.file_stem().is_some_and(|stem| stem == key.as_str()))
        });
        entries.sort_by_key(|entry| entry.used);
        for entry in entries.iter().take(entries.len().saturating_sub(MOST_INITRAMFS)) {
            // One that cannot be removed only takes up room.
            if self.cache.remove(lock, &entry.path).is_ok_and(|removed| removed) {
                let _ = fs::remove_file(entry.path.with_extension("json"));
            }
        }
    }

    /// The directory of the kernel that the file of a name names.
    pub(crate) fn named_directory(&self, name: &Path) -> Option<PathBuf> {
        let record: NameRecord = read_json(name)?;
        Some(self.cache.path(KERNELS).join(record.directory))
    }

    fn name_path(&self, name: &KernelName) -> PathBuf {
        self.cache.path(NAMES).join(format!("{}.json", name.to_string().replace(':', "-")))
    }
}

#[derive(Serialize, Deserialize)]
struct NameRecord {
    name: String,
    directory: String,
}

#[derive(Serialize, Deserialize)]
struct ToolsRecord {
    format: String,
    directory: String,
}

#[derive(Serialize, Deserialize)]
struct InitramfsRecord {
    sha256: String,
    length: u64,
    modules: BTreeMap<String, String>,
}

fn default_directory() -> Result<PathBuf, ImageError> {
    let absolute = |variable| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let directory = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    directory.map(|directory| directory.join("nicvisor")).ok_or_else(|| ImageError::Cache {
        path: PathBuf::from("~/.cache/nicvisor"),
        source: std::io::Error::other("neither XDG_CACHE_HOME nor HOME says where to keep the cache"),
    })
}

/// Everything that an initramfs depends on, as one hash.
fn initramfs_key(kernel: &Kernel, tools: &Path, options: &InitramfsOptions) -> Result<String, ImageError> {
    let mut parts = vec![
        INITRAMFS_FORMAT.to_string(),
        cache::sha256(AGENT),
        cache::sha256(LOAD),
        cache::sha256(PORT),
        cache::sha256(STREAM),
        kernel.sha256.clone(),
        kernel.release.clone(),
        format!("{:?}", kernel.modules),
        tools.display().to_string(),
        options.modules.join(" "),
    ];
    for file in &options.module_files {
        parts.push(format!("{} {}", file.display(), hash(file)?));
    }
    for ExtraFile { source, target } in &options.files {
        parts.push(target.clone());
        hash_tree(source, &mut parts)?;
    }
    if kernel.origin == crate::Origin::Build {
        // Modules of a build change under their names.
        for file in kernel.modules.iter().map(|root| root.join("modules.order")) {
            parts.push(hash(&file)?);
            let text = fs::read_to_string(&file).unwrap_or_default();
            for object in text.lines() {
                let module = file.with_file_name(Path::new(object).with_extension("ko"));
                parts.push(format!(
                    "{:?}",
                    fs::metadata(module).and_then(|metadata| metadata.modified()).ok()
                ));
            }
        }
    }
    Ok(cache::sha256(&to_json(&parts))[..32].to_owned())
}

fn hash(file: &Path) -> Result<String, ImageError> {
    cache::sha256_file(file).map_err(|source| ImageError::BadFile { path: file.to_owned(), source })
}

fn hash_tree(path: &Path, parts: &mut Vec<String>) -> Result<(), ImageError> {
    let unreadable = |source| ImageError::BadFile { path: path.to_owned(), source };
    let metadata = fs::symlink_metadata(path).map_err(unreadable)?;
    parts.push(format!("{} {:o}", path.display(), std::os::unix::fs::MetadataExt::mode(&metadata)));
    if metadata.is_symlink() {
        parts.push(fs::read_link(path).map_err(unreadable)?.display().to_string());
    } else if metadata.is_dir() {
        let entries = fs::read_dir(path).map_err(unreadable)?;
        let mut entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        entries.sort();
        return entries.iter().try_for_each(|entry| hash_tree(entry, parts));
    } else {
        parts.push(hash(path)?);
    }
    Ok(())
}

/// Reads the description of a kernel in the cache, with its paths made absolute.
fn read_kernel(directory: &Path) -> Option<Kernel> {
    let mut kernel: Kernel = read_json(&directory.join(DESCRIPTION))?;
    kernel.vmlinuz = directory.join(kernel.vmlinuz);
    kernel.modules = kernel.modules.map(|modules| directory.join(modules));
    kernel.system_map = kernel.system_map.map(|map| directory.join(map));
    kernel::is_intact(&kernel).is_ok_and(|intact| intact).then_some(kernel)
}

fn below(root: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(root).unwrap_or(path).to_owned()
}

/// A description that cannot be read is as good as none: what it describes is made again.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

pub(crate) fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec_pretty(value).expect("plain data with text keys always serialises")
}

/// Packages that have been unpacked only take up room.
pub(crate) fn forget(packages: &[Fetched]) {
    for package in packages {
        let _ = fs::remove_file(&package.file);
    }
}

pub(crate) const KERNELS: &str = "kernels";
pub(crate) const NAMES: &str = "names";
pub(crate) const TOOLS: &str = "tools";
const TOOLS_RECORD: &str = "tools.json";
pub(crate) const INITRAMFS: &str = "initramfs";
const DESCRIPTION: &str = "kernel.json";

/// Changed when the same parts would make another archive.
const INITRAMFS_FORMAT: u32 = 2;

const MOST_INITRAMFS: usize = 64;
