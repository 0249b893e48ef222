//! The drivers that can be edited, and where the kernel's source has them.

/// A driver's place in the kernel's source.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Driver {
    /// What the kernel calls the module.
    pub(super) name: &'static str,
    /// The directory, from the root of the source.
    pub(super) directory: &'static str,
    /// The name of the driver's one source file, without `.c`, where it has the directory not for itself.
    pub(super) single: Option<&'static str>,
}

impl Driver {
    /// The driver whose module has that name.
    pub(super) fn find(name: &str) -> Option<&'static Driver> {
        let name = crate::modules::normalise(name);
        DRIVERS.iter().find(|driver| driver.name == name)
    }

    /// Whether a file of the kernel's source, named from its root, is part of the driver.
    pub(super) fn owns(&self, path: &str) -> bool {
        let Some(rest) = path.strip_prefix(self.directory).and_then(|rest| rest.strip_prefix('/')) else {
            return false;
        };
        self.single.is_none_or(|single| rest.strip_suffix(".c") == Some(single))
    }
}

/// The names of all drivers that can be edited.
pub fn known() -> impl Iterator<Item = &'static str> {
    DRIVERS.iter().map(|driver| driver.name)
}

/// Whether any driver needs this file of the kernel's source.
pub(super) fn is_wanted(path: &str) -> bool {
    DRIVERS.iter().any(|driver| driver.owns(path))
}

const fn directory(name: &'static str, directory: &'static str) -> Driver {
    Driver { name, directory, single: None }
}

const fn file(name: &'static str, directory: &'static str, single: &'static str) -> Driver {
    Driver { name, directory, single: Some(single) }
}

const DRIVERS: &[Driver] = &[
    directory("gve", "drivers/net/ethernet/google/gve"),
    directory("mana", "drivers/net/ethernet/microsoft/mana"),
    directory("hv_netvsc", "drivers/net/hyperv"),
    directory("hv_vmbus", "drivers/hv"),
    file("pci_hyperv", "drivers/pci/controller", "pci-hyperv"),
    file("virtio_net", "drivers/net", "virtio_net"),
    directory("vxlan", "drivers/net/vxlan"),
    file("geneve", "drivers/net", "geneve"),
    directory("bonding", "drivers/net/bonding"),
    file("net_failover", "drivers/net", "net_failover"),
    file("veth", "drivers/net", "veth"),
    file("macvlan", "drivers/net", "macvlan"),
    file("vrf", "drivers/net", "vrf"),
    file("dummy", "drivers/net", "dummy"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_owns_its_files_and_no_others() {
        let gve = Driver::find("gve").unwrap();
        assert!(gve.owns("drivers/net/ethernet/google/gve/gve_main.c"));
        assert!(!gve.owns("drivers/net/ethernet/google/gve2/gve_main.c"));
        let geneve = Driver::find("geneve").unwrap();
        assert!(geneve.owns("drivers/net/geneve.c"));
        assert!(!geneve.owns("drivers/net/vxlan/geneve.c") && !geneve.owns("drivers/net/Makefile"));
        assert_eq!(Driver::find("pci-hyperv").map(|driver| driver.name), Some("pci_hyperv"));
        assert_eq!(Driver::find("e1000"), None);
    }
}
