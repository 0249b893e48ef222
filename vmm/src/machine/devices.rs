//! The devices of a machine: which there are, where they are, and calling them from the host's side.

use std::borrow::Cow;

use nicvisor_core::fault::FaultError;
use nicvisor_core::pci::Function;
use nicvisor_core::{
    ChannelBus, Context, Device, DeviceId, DropReason, Fate, Frame, PciDevice, Time, VmbusDevice,
};
use nicvisor_net::network::{LinkId, PortId};

use super::effects::Source;
use super::plug::{Place, Pluggable, Unplugged};
use super::{Machine, MachineError};
use crate::acpi::NumberedSlot;

/// What the machine keeps about a device, plugged in or not.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) name: String,
    pub(super) ports: Vec<PortId>,
    pub(super) place: Place,
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
        let ports = self.add_ports(&name, count, link);
        let id = self.attach(name, ports, Place::Pci(slot));
        self.slots.insert(slot, id);
        Ok(id)
    }

    /// Puts a root port in front of a device in a slot of the PCI bus: the guest finds the port there, and the device
    /// on a bus of its own. The port stays when the device is plugged out. To be done before the machine starts.
    /// Returns whether there is such a port now.
    pub fn add_root_port(&mut self, id: DeviceId) -> bool {
        match self.devices.get(&id).map(|device| &device.place) {
            Some(Place::Pci(slot)) => self.root.insert_port(*slot),
            _ => false,
        }
    }

    /// Puts `device` on the bus of the hypervisor's interface and its ports on `link`.
    ///
    /// # Errors
    /// When the machine has no such bus.
    pub fn add_channel_device(
        &mut self,
        now: Time,
        name: impl Into<String>,
        device: Box<dyn VmbusDevice>,
        link: LinkId,
    ) -> Result<DeviceId, MachineError> {
        let name = name.into();
        if self.bus().is_none() {
            return Err(MachineError::NoBus { name });
        }
        let ports = self.add_ports(&name, device.ports().len(), link);
        let id = self.attach(name, ports, Place::Channel);
        self.insert_channel_device(now, id, device);
        Ok(id)
    }

    /// Names a device. Names are never given twice: what is unplugged keeps its own.
    pub(super) fn attach(&mut self, name: String, ports: Vec<PortId>, place: Place) -> DeviceId {
        let id = DeviceId(self.devices.len() as u32);
        self.ports.extend(ports.iter().zip(0..).map(|(port, index)| (*port, (id, index))));
        self.devices.insert(id, Attached { name, ports, place });
        id
    }

    fn add_ports(&mut self, name: &str, count: usize, link: LinkId) -> Vec<PortId> {
        let mut network = self.medium.network();
        let name = |index: usize| if count == 1 { name.to_owned() } else { format!("{name}.{index}") };
        (0..count).map(|index| network.add_port(self.station, link, name(index))).collect()
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

    /// A device, to be looked at, plugged in or not.
    pub fn device(&self, id: DeviceId) -> Option<&dyn Device> {
        match &self.devices.get(&id)?.place {
            Place::Pci(slot) => Some(self.root.function(*slot)?.device()),
            Place::Hypervisor => Some(&*self.hypervisor.as_ref()?.model),
            Place::Channel => self.bus()?.device(id),
            Place::Out(Unplugged { device: Pluggable::Pci(function, _), .. }) => Some(function.device()),
            Place::Out(Unplugged { device: Pluggable::Channel(device), .. }) => Some(&**device),
        }
    }

    /// Whether the device is where the guest can see it.
    pub fn is_plugged_in(&self, id: DeviceId) -> bool {
        self.devices.get(&id).is_some_and(|device| !matches!(device.place, Place::Out(_)))
    }

    /// The network ports of a device, in the device's order.
    pub fn device_ports(&self, id: DeviceId) -> &[PortId] {
        self.devices.get(&id).map_or(&[], |device| &device.ports)
    }

    /// Where the devices' doorbells are now: see [`PciDevice::doorbells`].
    pub fn doorbells(&self) -> Vec<u64> {
        let on_root = self.root.doorbells().into_iter();
        on_root.chain(self.bus().into_iter().flat_map(ChannelBus::doorbells)).collect()
    }

    /// The slots of NICs, each with the number that the guest is told: a driver that pairs ports does it by that.
    pub(super) fn numbered_slots(&self) -> Vec<NumberedSlot> {
        let nics = self.devices.values().filter(|device| !device.ports.is_empty());
        nics.filter_map(|device| match device.place {
            Place::Pci(slot) | Place::Out(Unplugged { device: Pluggable::Pci(_, slot), .. }) => {
                let behind_port = self.root.has_port(slot);
                Some(NumberedSlot { slot, number: slot.device.into(), behind_port })
            }
            Place::Hypervisor | Place::Channel | Place::Out(_) => None,
        })
        .collect()
    }

    /// A frame has arrived at a port.
    pub(super) fn hand_over(&mut self, port: PortId, frame: Frame, now: Time) {
        let Some(frame) = self.send_outside(port, frame) else { return };
        let Some(&(id, index)) = self.ports.get(&port) else { return };
        self.activity += 1;
        let frame_id = frame.id;
        if !self.call(now, id, |device, context| device.receive(context, index, frame)) {
            self.medium.settle(frame_id, &Fate::Dropped(UNPLUGGED));
        }
    }

    /// The run is over: devices settle the frames inside, the network those on its links. Afterwards the ledger
    /// must balance. With several machines on one network, the last closes the network.
    pub fn close(&mut self, now: Time) {
        let ids: Vec<DeviceId> = self.devices.keys().copied().collect();
        for id in ids {
            // Those on the bus are the interface's to reset: it knows what they have open.
            if !matches!(self.devices[&id].place, Place::Channel) {
                self.call(now, id, |device, context| device.reset(context));
            }
        }
        self.network().close();
    }

    /// Calls a device through its bus part and carries out what it asks for. Returns whether it is there.
    pub(super) fn call(
        &mut self,
        now: Time,
        id: DeviceId,
        call: impl FnOnce(&mut dyn Device, &mut Context<'_>),
    ) -> bool {
        let Some(attached) = self.devices.get(&id) else { return false };
        match attached.place {
            Place::Pci(slot) => {
                let mut context = Context::new(now, &self.ram, true, &mut self.effects);
                let Some(function) = self.root.function_mut(slot) else { return false };
                function.call(&mut context, |device, context| call(device, context));
                self.carry_out(Source::Device(id), now);
                true
            }
            Place::Hypervisor => {
                self.call_hypervisor(now, |hypervisor, context| call(hypervisor, context)).is_some()
            }
            Place::Channel => {
                // The bus calls at most once.
                let mut call = Some(call);
                self.call_bus(now, |bus, context| {
                    bus.call(context, id, &mut |device, context| {
                        if let Some(call) = call.take() {
                            call(device, context);
                        }
                    });
                });
                call.is_none()
            }
            Place::Out(_) => false,
        }
    }
}

/// The device behind the port was unplugged while the frame was under way.
pub const UNPLUGGED: DropReason = DropReason(Cow::Borrowed("device unplugged"));
