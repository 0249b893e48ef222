//! The devices of a machine: plugging them in, and reaching them from the host's side.

use nicvisor_core::fault::{Fault, FaultError};
use nicvisor_core::pci::{Function, Slot};
use nicvisor_core::{Context, Device, DeviceId, Frame, PciDevice, Time};
use nicvisor_net::network::{LinkId, PortId};

use super::effects::Source;
use super::{Machine, MachineError};

/// What the machine keeps about a device.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) name: String,
    pub(super) ports: Vec<PortId>,
    place: Place,
}

/// Where a device is plugged in.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// On the PCI root bus.
    Pci(Slot),
}

impl Machine {
    /// Puts `device` into the next free slot of the PCI bus and its ports on `link`. `name` is what reports call
    /// it.
    ///
    /// # Errors
    /// When the bus is full or the device describes itself in an impossible way.
    pub fn add_device(
        &mut self,
        name: impl Into<String>,
        device: Box<dyn PciDevice>,
        link: LinkId,
    ) -> Result<DeviceId, MachineError> {
        let name = name.into();
        let Some(slot) = self.root.free_slot() else { return Err(MachineError::NoSlot { name }) };
        let count = device.ports().len();
        let function =
            Function::new(device).map_err(|source| MachineError::Device { name: name.clone(), source })?;
        if self.root.insert(slot, function).is_err() {
            return Err(MachineError::NoSlot { name });
        }
        let id = DeviceId(self.devices.len() as u32);
        let ports = self.add_ports(id, &name, count, link);
        self.slots.insert(slot, id);
        self.devices.insert(id, Attached { name, ports, place: Place::Pci(slot) });
        Ok(id)
    }

    fn add_ports(&mut self, id: DeviceId, name: &str, count: usize, link: LinkId) -> Vec<PortId> {
        let mut network = self.medium.network();
        let name = |index: usize| if count == 1 { name.to_owned() } else { format!("{name}.{index}") };
        let ports: Vec<PortId> =
            (0..count).map(|index| network.add_port(self.station, link, name(index))).collect();
        self.ports.extend(ports.iter().zip(0..).map(|(port, index)| (*port, (id, index))));
        ports
    }

    /// The devices, in the order in which they were added.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> {
        self.devices.keys().copied()
    }

    /// What reports call a device; empty for one that does not exist.
    pub fn device_name(&self, id: DeviceId) -> &str {
        self.devices.get(&id).map_or("", |device| &device.name)
    }

    /// The device that reports call `name`.
    ///
    /// # Errors
    /// When there is none; says which there are.
    pub fn find_device(&self, name: &str) -> Result<DeviceId, FaultError> {
        let names = self.devices.values().map(|device| &*device.name);
        let position = FaultError::find(|| "device".to_owned(), name, names)?;
        Ok(self.devices.keys().copied().nth(position).unwrap_or(DeviceId(0)))
    }

    /// A device, to be looked at.
    pub fn device(&self, id: DeviceId) -> Option<&dyn Device> {
        match self.devices.get(&id)?.place {
            Place::Pci(slot) => Some(self.root.function(slot)?.device()),
        }
    }

    /// The network ports of a device, in the device's order.
    pub fn device_ports(&self, id: DeviceId) -> &[PortId] {
        self.devices.get(&id).map_or(&[], |device| &device.ports)
    }

    /// Where the devices' doorbells are now: see [`PciDevice::doorbells`].
    pub fn doorbells(&self) -> Vec<u64> {
        self.root.functions().flat_map(|(_, function)| function.doorbells()).collect()
    }

    /// The slots of NICs, each with the number that the guest is told: a driver that pairs ports does it by that.
    pub(super) fn numbered_slots(&self) -> Vec<(Slot, u32)> {
        let nics = self.devices.values().filter(|device| !device.ports.is_empty());
        nics.map(|device| match device.place {
            Place::Pci(slot) => (slot, u32::from(slot.device)),
        })
        .collect()
    }

    /// Bytes typed at the serial console.
    pub fn serial_input(&mut self, now: Time, bytes: &[u8]) {
        let mut context = Context::new(now, &self.ram, true, &mut self.effects);
        self.platform.serial_input(&mut context, bytes);
        self.carry_out(Source::Platform, now);
    }

    /// Bytes from the host for channel `channel` of a device.
    pub fn host_input(&mut self, now: Time, id: DeviceId, channel: u16, bytes: &[u8]) {
        self.call(now, id, |function, context| function.host_input(context, channel, bytes));
    }

    /// Plugs or unplugs a network port, and tells its device when that changes the link's state.
    pub fn set_port_link(&mut self, now: Time, port: PortId, up: bool) {
        if self.network().set_port(port, up) {
            self.link_changed(now, port, up);
        }
    }

    /// Tells the device behind `port`, if it is one of this machine's, that its link's state has changed.
    pub fn link_changed(&mut self, now: Time, port: PortId, up: bool) {
        if let Some(&(id, index)) = self.ports.get(&port) {
            self.call(now, id, |function, context| function.set_link(context, index, up));
        }
    }

    /// Injects a fault into a device, or has it do something. [`Device::fault_points`] says what can be named.
    ///
    /// # Errors
    /// When the device has nothing of that name, or cannot do it now.
    pub fn inject(&mut self, now: Time, id: DeviceId, fault: &Fault) -> Result<(), FaultError> {
        let mut result = Err(FaultError::NotNow("the device is gone".to_owned()));
        self.call(now, id, |function, context| result = function.inject(context, fault));
        result
    }

    /// A frame has arrived at a port.
    pub(super) fn hand_over(&mut self, port: PortId, frame: Frame, now: Time) {
        let Some(frame) = self.send_outside(port, frame) else { return };
        let Some(&(id, index)) = self.ports.get(&port) else { return };
        self.activity += 1;
        self.call(now, id, |function, context| function.receive(context, index, frame));
    }

    /// The run is over: devices settle the frames inside, the network those on its links. Afterwards the ledger
    /// must balance. With several machines on one network, the last closes the network.
    pub fn close(&mut self, now: Time) {
        let ids: Vec<DeviceId> = self.devices.keys().copied().collect();
        for id in ids {
            self.call(now, id, Function::reset);
        }
        self.network().close();
    }

    /// Calls the bus part of a device and carries out what it asks for.
    fn call(&mut self, now: Time, id: DeviceId, call: impl FnOnce(&mut Function, &mut Context<'_>)) {
        let Some(device) = self.devices.get(&id) else { return };
        let Place::Pci(slot) = device.place;
        let mut context = Context::new(now, &self.ram, true, &mut self.effects);
        if let Some(function) = self.root.function_mut(slot) {
            call(function, &mut context);
            self.carry_out(Source::Device(id), now);
        }
    }
}
