//! Guests, NICs, links, and devices on top of interfaces.

use nicvisor_core::Duration;
use serde_json::Value;

use super::unplaced;
use crate::model::{Device, DeviceKind, Guest, LinkChange, LinkSpec, Namespace, NicTable};
use crate::units::{BitRate, Share, Size, Span};

impl Guest {
    /// A guest of that name.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Guest {
        Guest { name: Some(unplaced(name)), ..Guest::default() }
    }

    /// Gives it a kernel of its own, such as `debian:6.12`.
    #[must_use]
    pub fn kernel(self, name: impl Into<String>) -> Guest {
        Guest { kernel: Some(unplaced(name)), ..self }
    }

    /// Sets the number of CPUs.
    #[must_use]
    pub fn cpus(self, number: u32) -> Guest {
        Guest { cpus: Some(unplaced(number)), ..self }
    }

    /// Sets the memory, in bytes.
    #[must_use]
    pub fn memory(self, bytes: u64) -> Guest {
        Guest { memory: Some(unplaced(Size(bytes))), ..self }
    }

    /// Appends to the kernel's command line.
    #[must_use]
    pub fn append(self, arguments: impl Into<String>) -> Guest {
        Guest { append: arguments.into(), ..self }
    }

    /// Loads a module besides the NICs' drivers.
    #[must_use]
    pub fn module(mut self, name: impl Into<String>) -> Guest {
        self.modules.push(name.into());
        self
    }

    /// Changes a driver's source by an edit, named by its path.
    #[must_use]
    pub fn edit(mut self, path: impl Into<String>) -> Guest {
        self.edits.push(unplaced(path));
        self
    }

    /// Limits the time that the scenario may take on the host's clock.
    #[must_use]
    pub fn timeout(self, time: Duration) -> Guest {
        Guest { timeout: Some(unplaced(Span(time))), ..self }
    }
}

/// A NIC: its kind and that kind's options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    table: NicTable,
}

impl Nic {
    /// A NIC of that kind: `gve`, `mana`, `virtio`.
    pub fn new(kind: impl Into<String>) -> Nic {
        Nic { table: NicTable::from([("kind".to_owned(), Value::String(kind.into()))]) }
    }

    /// Sets an option, as `--nic KIND,NAME=VALUE` does.
    #[must_use]
    pub fn option(mut self, name: impl Into<String>, value: impl Into<Value>) -> Nic {
        self.table.insert(name.into(), value.into());
        self
    }

    /// Puts it into that guest, where there are two.
    #[must_use]
    pub fn in_guest(self, guest: impl Into<String>) -> Nic {
        self.option("guest", guest.into())
    }
}

impl From<Nic> for NicTable {
    fn from(nic: Nic) -> NicTable {
        nic.table
    }
}

impl LinkSpec {
    /// Sets the time from the end of sending to arrival.
    #[must_use]
    pub fn delay(self, time: Duration) -> LinkSpec {
        LinkSpec { delay: Some(Span(time)), ..self }
    }

    /// Sets the bits a second of each port.
    #[must_use]
    pub fn bandwidth(self, bits_per_second: u64) -> LinkSpec {
        LinkSpec { bandwidth: Some(BitRate(bits_per_second)), ..self }
    }

    /// Sets how many frames of a million are lost.
    #[must_use]
    pub fn loss(self, per_million: u32) -> LinkSpec {
        LinkSpec { loss: Some(Share(per_million)), ..self }
    }

    /// Sets how many frames of a million arrive twice.
    #[must_use]
    pub fn duplicate(self, per_million: u32) -> LinkSpec {
        LinkSpec { duplicate: Some(Share(per_million)), ..self }
    }

    /// Sets how many frames of a million are held back, and for how long.
    #[must_use]
    pub fn reorder(self, per_million: u32, delay: Duration) -> LinkSpec {
        LinkSpec { reorder: Some(Share(per_million)), reorder_delay: Some(Span(delay)), ..self }
    }

    /// Sets the largest IP packet that the link carries.
    #[must_use]
    pub fn mtu(self, bytes: u32) -> LinkSpec {
        LinkSpec { mtu: Some(bytes), ..self }
    }

    /// Sets how many bytes may be under way to one port.
    #[must_use]
    pub fn queue(self, bytes: u64) -> LinkSpec {
        LinkSpec { queue: Some(Size(bytes)), ..self }
    }

    /// Sets what decides which frames are lost, doubled and held back.
    #[must_use]
    pub fn seed(self, seed: u64) -> LinkSpec {
        LinkSpec { seed: Some(seed), ..self }
    }
}

impl LinkChange {
    /// Plugs or unplugs one NIC's port, such as `gve0`.
    #[must_use]
    pub fn port(name: impl Into<String>, up: bool) -> LinkChange {
        LinkChange { port: Some(unplaced(name)), up: Some(up), ..LinkChange::default() }
    }

    /// Takes a whole link up or down.
    #[must_use]
    pub fn link(name: impl Into<String>, up: bool) -> LinkChange {
        LinkChange { name: Some(unplaced(name)), up: Some(up), ..LinkChange::default() }
    }

    /// Changes a link's settings.
    #[must_use]
    pub fn settings(name: impl Into<String>, set: LinkSpec) -> LinkChange {
        LinkChange { name: Some(unplaced(name)), set, ..LinkChange::default() }
    }
}

impl Namespace {
    /// A namespace with that interface in it.
    #[must_use]
    pub fn of(interface: impl Into<String>) -> Namespace {
        Namespace { interface: Some(unplaced(interface)), ..Namespace::default() }
    }

    /// Puts it into that guest, where there are two.
    #[must_use]
    pub fn in_guest(self, guest: impl Into<String>) -> Namespace {
        Namespace { guest: Some(unplaced(guest)), ..self }
    }

    /// Adds a device on top of the interface.
    #[must_use]
    pub fn device(mut self, device: Device) -> Namespace {
        self.devices.push(unplaced(device));
        self
    }
}

impl Device {
    /// A device of that kind, with its name in the guest and its VLAN or network id.
    #[must_use]
    pub fn new(kind: DeviceKind, name: impl Into<String>, id: u32) -> Device {
        Device {
            name: unplaced(name),
            kind,
            id,
            remote: None,
            local: None,
            port: None,
            options: String::new(),
            addresses: Vec::new(),
            mtu: None,
            gso_max_size: None,
            gso_ipv4_max_size: None,
            gro_max_size: None,
            gro_ipv4_max_size: None,
            features: std::collections::BTreeMap::new(),
        }
    }

    /// Sets the tunnel's other end.
    #[must_use]
    pub fn remote(self, address: impl Into<String>) -> Device {
        Device { remote: Some(unplaced(address)), ..self }
    }

    /// Sets the tunnel's own end.
    #[must_use]
    pub fn local(self, address: impl Into<String>) -> Device {
        Device { local: Some(unplaced(address)), ..self }
    }

    /// Sets the tunnel's UDP port.
    #[must_use]
    pub fn port(self, port: u16) -> Device {
        Device { port: Some(port), ..self }
    }

    /// Sets further words for `ip link add`.
    #[must_use]
    pub fn options(self, words: impl Into<String>) -> Device {
        Device { options: words.into(), ..self }
    }
}
