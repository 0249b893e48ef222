//! Loading kernel modules with what they depend on.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CString,
    fs,
    path::{Path, PathBuf},
};

use agent_protocol::Failure;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// The modules of the running kernel that are in the image.
pub(crate) struct Modules {
    root: PathBuf,
    /// File of each module and the files it needs, the deepest dependency last, as in `modules.dep`.
    files: BTreeMap<String, (String, Vec<String>)>,
    builtin: BTreeSet<String>,
}

impl Modules {
    /// Reads the list that comes with the image.
    pub(crate) fn open() -> Result<Modules, Failure> {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let root = Path::new("/lib/modules").join(release);
        let dependencies = fs::read_to_string(root.join("modules.dep")).map_err(|error| Failure {
            message: format!("the image has no modules for this kernel: {}: {error}", root.display()),
            errno: error.raw_os_error(),
        })?;
        let builtin = fs::read_to_string(root.join("modules.builtin")).unwrap_or_default();
        Ok(Modules {
            root,
            files: parse_dependencies(&dependencies),
            builtin: builtin.lines().map(module_name).collect(),
        })
    }

    /// Loads a module after the modules it needs. No error if the kernel has it already.
    pub(crate) fn load(&self, name: &str, parameters: &str) -> Result<(), Failure> {
        let name = module_name(name);
        let Some((file, needs)) = self.files.get(&name) else {
            if self.builtin.contains(&name) || Path::new("/sys/module").join(&name).exists() {
                return Ok(());
            }
            return Err(Failure { message: format!("module {name} is not in the image"), errno: None });
        };
        for need in needs.iter().rev() {
            self.insert(need, "")?;
        }
        self.insert(file, parameters)
    }

    fn insert(&self, file: &str, parameters: &str) -> Result<(), Failure> {
        if Path::new("/sys/module").join(module_name(file)).join("initstate").exists() {
            return Ok(());
        }
        let path = self.root.join(file);
        let outcome = CString::new(parameters).map_err(|_| Errno::INVAL).and_then(|parameters| {
            let module = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            rustix::system::finit_module(&module, &parameters, 0)
        });
        match outcome {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(Failure {
                message: format!("cannot load {}: {error}", path.display()),
                errno: Some(error.raw_os_error()),
            }),
        }
    }
}

fn parse_dependencies(text: &str) -> BTreeMap<String, (String, Vec<String>)> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines
        .map(|(file, needs)| {
            let needs = needs.split_ascii_whitespace().map(str::to_owned).collect();
            (module_name(file), (file.to_owned(), needs))
        })
        .collect()
}

/// The name that the kernel gives a module, from its file or from how a user writes it.
fn module_name(file: &str) -> String {
    let file = file.rsplit('/').next().unwrap_or(file);
    let stem = file.split_once(".ko").map_or(file, |(stem, _)| stem);
    stem.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_keep_their_order_and_names_are_the_kernels() {
        let parsed = parse_dependencies(
            "kernel/net/vxlan.ko: kernel/net/udp-tunnel.ko kernel/net/tunnel6.ko\nkernel/drivers/pci-hyperv.ko:\n",
        );
        assert_eq!(parsed["vxlan"].1, ["kernel/net/udp-tunnel.ko", "kernel/net/tunnel6.ko"]);
        assert_eq!(parsed["pci_hyperv"], ("kernel/drivers/pci-hyperv.ko".to_owned(), vec![]));
    }

    #[test]
    fn a_name_is_taken_from_a_path_with_or_without_compression() {
        for file in ["a/b/pci-hyperv.ko.xz", "pci_hyperv.ko", "pci-hyperv", "pci_hyperv"] {
            assert_eq!(module_name(file), "pci_hyperv");
        }
    }
}
