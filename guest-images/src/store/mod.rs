//! The store: finds what is in the cache, and fetches or builds what is not.

mod initramfs;
mod tools;

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    ImageError, Kernel, KernelName, Package, ProgressStyle,
    apt::{self, Apt, Fetched, Mirror, Suite, Surroundings},
    cache::{self, Cache, Lock, Uses},
    kernel,
    name::DebianVersion,
    packages,
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

fn default_directory() -> Result<PathBuf, ImageError> {
    let absolute = |variable| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let directory = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    directory.map(|directory| directory.join("nicvisor")).ok_or_else(|| ImageError::Cache {
        path: PathBuf::from("~/.cache/nicvisor"),
        source: std::io::Error::other("neither XDG_CACHE_HOME nor HOME says where to keep the cache"),
    })
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
pub(crate) const INITRAMFS: &str = "initramfs";
const DESCRIPTION: &str = "kernel.json";
