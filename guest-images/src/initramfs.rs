//! The guest's file system.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::{
    AGENT, ImageError, Kernel, LOAD, PORT, STREAM, cache,
    cpio::Archive,
    kmod_index::Index,
    modules::{self, Module, Modules},
};

/// What goes into an initramfs besides the agent, the tools and the modules that every guest has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitramfsOptions {
    /// Names of further modules, which the kernel must have.
    pub modules: Vec<String>,
    /// Module files that take the place of the kernel's own, or that the kernel lacks.
    pub module_files: Vec<PathBuf>,
    /// Further files.
    pub files: Vec<ExtraFile>,
}

/// A file of the host to be put into the guest. A directory is put there with all that is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraFile {
    /// Where it is on the host.
    pub source: PathBuf,
    /// Absolute path in the guest.
    pub target: String,
}

/// A finished initramfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initramfs {
    /// Its cpio archives, not compressed. The kernel unpacks them in this order when they are put one after the
    /// other. What all guests of a kernel have in common is in the first.
    pub layers: Vec<PathBuf>,
    /// The SHA-256 of all of it.
    pub sha256: String,
    /// The modules in it by name, with the SHA-256 of each (of the file as the guest has it).
    pub modules: BTreeMap<String, String>,
}

/// Puts an initramfs together. `tools` is the tree that [`crate::tools`] has laid out.
pub(crate) fn build(
    kernel: &Kernel,
    tools: &Path,
    options: &InitramfsOptions,
) -> Result<(Archive, BTreeMap<String, String>), ImageError> {
    let mut archive = Archive::default();
    add_skeleton(&mut archive);
    add_host_tree(&mut archive, tools, "", &|path, error| ImageError::cache(path)(error))?;
    archive.file("init", 0o755, AGENT.to_vec());
    archive.file("usr/bin/nicvisor-load", 0o755, LOAD.to_vec());
    archive.file("usr/bin/nicvisor-port", 0o755, PORT.to_vec());
    archive.file("usr/bin/nicvisor-stream", 0o755, STREAM.to_vec());
    let modules = select_modules(kernel, options)?;
    add_modules(&mut archive, kernel, &modules)?;
    for file in &options.files {
        add_host_tree(&mut archive, &file.source, &file.target, &unreadable)?;
    }
    let hashes = modules.iter().map(|(name, module)| (name.clone(), cache::sha256(&module.contents)));
    Ok((archive, hashes.collect()))
}

fn select_modules(
    kernel: &Kernel,
    options: &InitramfsOptions,
) -> Result<BTreeMap<String, Module>, ImageError> {
    let modules = Modules::open(kernel)?;
    let replacements = options.module_files.iter().map(|file| {
        let (name, module) = modules.replacement(file, &kernel.release)?;
        if modules.is_builtin(&name) {
            return Err(ImageError::BadModule {
                module: file.display().to_string(),
                reason: format!("this kernel has {name} built in, so it cannot be replaced"),
            });
        }
        Ok((name, module))
    });
    let mut given = BTreeMap::new();
    for (replacement, file) in replacements.zip(&options.module_files) {
        let (name, module) = replacement?;
        if given.insert(name.clone(), module).is_some() {
            return Err(ImageError::BadModule {
                module: file.display().to_string(),
                reason: format!("it is the second file that is to take the place of {name}"),
            });
        }
    }
    modules.collect(&options.modules, MODULES, given)
}

fn add_modules(
    archive: &mut Archive,
    kernel: &Kernel,
    modules: &BTreeMap<String, Module>,
) -> Result<(), ImageError> {
    let root = format!("usr/lib/modules/{}", kernel.release);
    let needs = modules::dependencies(modules);
    let (mut text, mut aliases, mut softdeps) = (String::new(), String::new(), String::new());
    let (mut dependency_index, mut alias_index) = (Index::default(), Index::default());
    for (name, module) in modules {
        let line =
            format!("{}: {}", module.path, needs[module.path.as_str()].join(" ")).trim_end().to_owned();
        dependency_index.insert(name, &line);
        text.push_str(&line);
        text.push('\n');
        for alias in &module.information.aliases {
            aliases.push_str(&format!("alias {alias} {name}\n"));
            alias_index.insert(&modules::normalise(alias), name);
        }
        for softdep in &module.information.softdeps {
            softdeps.push_str(&format!("softdep {name} {softdep}\n"));
        }
        archive.file(&format!("{root}/{}", module.path), 0o644, module.contents.clone());
    }
    let builtin = Modules::open(kernel)?.builtin_list().unwrap_or_default();
    let mut builtin_index = Index::default();
    for line in String::from_utf8_lossy(&builtin).lines() {
        let stem = line.rsplit('/').next().unwrap_or(line).trim_end_matches(".ko");
        builtin_index.insert(&modules::normalise(stem), "");
    }
    for (name, contents) in [
        ("modules.dep", text.into_bytes()),
        ("modules.dep.bin", dependency_index.to_bytes()),
        ("modules.alias", aliases.into_bytes()),
        ("modules.alias.bin", alias_index.to_bytes()),
        ("modules.softdep", softdeps.into_bytes()),
        ("modules.builtin", builtin),
        ("modules.builtin.bin", builtin_index.to_bytes()),
        ("modules.symbols.bin", Index::default().to_bytes()),
        ("modules.builtin.alias.bin", Index::default().to_bytes()),
    ] {
        archive.file(&format!("{root}/{name}"), 0o644, contents);
    }
    Ok(())
}

/// What every Unix program expects to find.
fn add_skeleton(archive: &mut Archive) {
    for (directory, mode) in DIRECTORIES {
        archive.directory(directory, *mode);
    }
    for directory in ["bin", "sbin", "lib", "lib64"] {
        archive.symlink(directory, &format!("usr/{directory}"));
    }
    archive.symlink("var/run", "/run");
    archive.symlink("etc/mtab", "/proc/self/mounts");
    for (path, contents) in FILES {
        archive.file(path, 0o644, contents.as_bytes().to_vec());
    }
    // The kernel opens the console for init before anything is mounted.
    archive.character_device("dev/console", 0o600, 5, 1);
    archive.character_device("dev/null", 0o666, 1, 3);
}

/// Adds a file, a link or a whole directory of the host.
fn add_host_tree(
    archive: &mut Archive,
    source: &Path,
    target: &str,
    error: &dyn Fn(&Path, io::Error) -> ImageError,
) -> Result<(), ImageError> {
    let failed = |reason| error(source, reason);
    let metadata = fs::symlink_metadata(source).map_err(failed)?;
    if metadata.is_symlink() {
        let link = fs::read_link(source).map_err(failed)?;
        archive.symlink(target, &link.display().to_string());
    } else if metadata.is_dir() {
        if !target.is_empty() && !archive.contains(target) {
            archive.directory(target, 0o755);
        }
        for entry in fs::read_dir(source).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let target = format!("{target}/{}", entry.file_name().to_string_lossy());
            add_host_tree(archive, &entry.path(), &target, error)?;
        }
    } else {
        // Only whether it can be run matters: other bits depend on who built the cache.
        let mode = if metadata.permissions().mode() & 0o100 != 0 { 0o755 } else { 0o644 };
        archive.file(target, mode, fs::read(source).map_err(failed)?);
    }
    Ok(())
}

fn unreadable(path: &Path, source: io::Error) -> ImageError {
    ImageError::BadFile { path: path.to_owned(), source }
}

const DIRECTORIES: &[(&str, u32)] = &[
    ("dev", 0o755),
    ("etc", 0o755),
    ("etc/modprobe.d", 0o755),
    ("mnt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("usr/bin", 0o755),
    ("usr/lib", 0o755),
    ("usr/lib64", 0o755),
    ("usr/sbin", 0o755),
    ("var", 0o755),
    ("var/log", 0o755),
    ("var/tmp", 0o1777),
];

const FILES: &[(&str, &str)] = &[
    ("etc/passwd", "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"),
    ("etc/group", "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n"),
    ("etc/hosts", "127.0.0.1 localhost nicvisor\n::1 localhost nicvisor\n"),
    ("etc/hostname", "nicvisor\n"),
    ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
    ("etc/resolv.conf", ""),
    ("etc/profile", "PS1='\\h:\\w\\$ '\n"),
    ("etc/os-release", "NAME=nicvisor\nID=nicvisor\nPRETTY_NAME=\"nicvisor guest\"\n"),
];

/// Modules of every guest, as far as the kernel has them as modules: the drivers under test, what carries the
/// agent, and what network tests set up between them.
const MODULES: &[&str] = &[
    // Drivers
    "gve",
    "mana",
    "hv_netvsc",
    "hv_vmbus",
    "pci_hyperv",
    "pci_hyperv_intf",
    "virtio_pci",
    "virtio_console",
    "virtio_net",
    "virtio_rng",
    // Links
    "bonding",
    "bridge",
    "dummy",
    "geneve",
    "ifb",
    "ip6_gre",
    "ip_gre",
    "ipvlan",
    "macvlan",
    "net_failover",
    "failover",
    "sit",
    "ip6_tunnel",
    "ipip",
    "tun",
    "veth",
    "vrf",
    "vxlan",
    "8021q",
    // Queueing, filters and actions
    "sch_fq",
    "sch_fq_codel",
    "sch_htb",
    "sch_ingress",
    "sch_mqprio",
    "sch_netem",
    "sch_tbf",
    "cls_bpf",
    "cls_flower",
    "cls_matchall",
    "cls_u32",
    "act_gact",
    "act_mirred",
    "act_skbedit",
    // Protocols and their diagnosis
    "tcp_bbr",
    "tcp_cubic",
    "tcp_dctcp",
    "tcp_diag",
    "udp_diag",
    "inet_diag",
    "tls",
    "af_packet",
    "packet_diag",
    "netlink_diag",
    "unix_diag",
    "fou",
    "fou6",
    "pktgen",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_of_the_skeleton_survives_what_is_put_below_it() {
        let mut archive = Archive::default();
        add_skeleton(&mut archive);
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("usr/bin")).unwrap();
        fs::write(directory.path().join("usr/bin/tool"), "x").unwrap();
        add_host_tree(&mut archive, directory.path(), "", &unreadable).unwrap();
        assert!(archive.contains("usr/bin/tool") && archive.contains("dev/console"));
        let before = archive.to_bytes();
        assert_eq!(before, archive.to_bytes());
    }

    #[test]
    fn an_extra_file_that_is_not_there_is_the_users_mistake() {
        let mut archive = Archive::default();
        let missing = Path::new("/nonexistent/file");
        let error = add_host_tree(&mut archive, missing, "/file", &unreadable).unwrap_err();
        assert!(!error.is_environment() && error.to_string().contains("/nonexistent/file"), "{error}");
    }
}
