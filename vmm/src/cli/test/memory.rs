//! The memory that guests may take.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Memory, as far as it may be used.
pub(super) struct Memory {
    free: Mutex<u64>,
    whole: u64,
    released: Condvar,
}

impl Memory {
    /// Three quarters of what this process could have now.
    pub(super) fn of_host() -> Memory {
        Memory::new(available(Path::new("/")) / 4 * 3)
    }

    fn new(bytes: u64) -> Memory {
        Memory { free: Mutex::new(bytes), whole: bytes, released: Condvar::new() }
    }

    /// Waits until `bytes` are free. Who needs more than there is gets all, alone.
    pub(super) fn hold(&self, bytes: u64) -> Held<'_> {
        let bytes = bytes.min(self.whole);
        let mut free = self.lock();
        while *free < bytes {
            free = self.released.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= bytes;
        Held { memory: self, bytes }
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory that somebody has.
pub(super) struct Held<'a> {
    memory: &'a Memory,
    bytes: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.memory.lock() += self.bytes;
        self.memory.released.notify_all();
    }
}

/// What the host could give, or less where a control group has less: a container's limit is not in /proc/meminfo.
/// `root` is the file system's.
fn available(root: &Path) -> u64 {
    let host = field(&root.join("proc/meminfo"), "MemAvailable:").map(|kibibytes| kibibytes * 1024);
    let groups = control_groups(root).into_iter().filter_map(|group| group.room());
    host.into_iter().chain(groups).min().unwrap_or(USUAL_MEMORY)
}

/// A control group's directory, with the names that its files have in its version of the interface.
struct ControlGroup {
    directory: PathBuf,
    files: &'static Files,
}

/// See cgroup-v2.rst and cgroup-v1/memory.rst in the kernel's Documentation/admin-guide.
struct Files {
    limit: &'static str,
    usage: &'static str,
    /// The field of `memory.stat` with the pages that are given up before anybody is killed.
    cache: &'static str,
}

impl ControlGroup {
    /// Bytes until its limit; `None` if it has none.
    fn room(&self) -> Option<u64> {
        let number = |name| read_to_string(self.directory.join(name)).ok()?.trim().parse::<u64>().ok();
        let limit = number(self.files.limit)?;
        let cache = field(&self.directory.join("memory.stat"), self.files.cache).unwrap_or(0);
        let used = number(self.files.usage).unwrap_or(0).saturating_sub(cache);
        Some(limit.saturating_sub(used))
    }
}

/// The groups that this process is in, and those around them, as far as they can be seen: a container sees its own at
/// the top, whatever its path is outside.
fn control_groups(root: &Path) -> Vec<ControlGroup> {
    let membership = read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut groups = Vec::new();
    for line in membership.lines() {
        // Hierarchy, controllers, path; the second version has one hierarchy, which names no controllers.
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (mount, files) = match controllers.split(',').any(|controller| controller == "memory") {
            true => (root.join("sys/fs/cgroup/memory"), &VERSION_1),
            false if controllers.is_empty() => (root.join("sys/fs/cgroup"), &VERSION_2),
            false => continue,
        };
        let around = Path::new(path.trim_start_matches('/')).ancestors();
        groups.extend(around.map(|group| ControlGroup { directory: mount.join(group), files }));
    }
    groups
}

/// The number behind `name` in a file of lines with a name and a number.
fn field(path: &Path, name: &str) -> Option<u64> {
    let text = read_to_string(path).ok()?;
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next() == Some(name)).then(|| words.next()?.parse().ok())?)
}

const VERSION_1: Files =
    Files { limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes", cache: "total_inactive_file" };
const VERSION_2: Files = Files { limit: "memory.max", usage: "memory.current", cache: "inactive_file" };
const USUAL_MEMORY: u64 = 4 << 30;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn memory_is_never_overcommitted() {
        let memory = Memory::new(10);
        let most = Mutex::new((0, 0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let _held = memory.hold(4);
                    {
                        let mut most = most.lock().unwrap();
                        most.0 += 1;
                        most.1 = most.1.max(most.0);
                    }
                    std::thread::sleep(Duration::from_millis(2));
                    most.lock().unwrap().0 -= 1;
                });
            }
        });
        assert!(most.lock().unwrap().1 <= 2);
        drop(memory.hold(1000));
        assert_eq!(*memory.lock(), 10);
    }

    /// What is available on a host with these files.
    fn available_with(files: &[(&str, &str)]) -> u64 {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        available(root.path())
    }

    const HOST: (&str, &str) = ("proc/meminfo", "MemTotal: 2000 kB\nMemAvailable:    1000 kB\n");

    #[test]
    fn without_limits_the_host_counts() {
        assert_eq!(available_with(&[]), USUAL_MEMORY);
        assert_eq!(available_with(&[HOST]), 1_024_000);
        let unlimited = [HOST, ("proc/self/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/memory.max", "max\n")];
        assert_eq!(available_with(&unlimited), 1_024_000);
    }

    #[test]
    fn the_least_room_of_all_groups_around_counts() {
        let files = [
            HOST,
            ("proc/self/cgroup", "0::/outer/inner\n"),
            ("sys/fs/cgroup/outer/memory.max", "500000\n"),
            ("sys/fs/cgroup/outer/memory.current", "300000\n"),
            ("sys/fs/cgroup/outer/memory.stat", "anon 100000\nactive_file 5\ninactive_file 200000\n"),
            ("sys/fs/cgroup/outer/inner/memory.max", "600000\n"),
        ];
        assert_eq!(available_with(&files), 400_000);
        // A container with a name space of its own is at the top.
        let own = [HOST, ("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/memory.max", "700000\n")];
        assert_eq!(available_with(&own), 700_000);
    }

    #[test]
    fn the_first_version_has_its_own_names_and_a_container_is_at_its_top() {
        let files = [
            HOST,
            ("proc/self/cgroup", "5:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "500000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n"),
            ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 50000\n"),
        ];
        assert_eq!(available_with(&files), 450_000);
        let unlimited = [HOST, files[1], (files[2].0, "9223372036854771712\n")];
        assert_eq!(available_with(&unlimited), 1_024_000);
    }
}
