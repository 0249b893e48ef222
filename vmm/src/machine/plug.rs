//! Plugging devices in and out while the machine runs.

use nicvisor_core::pci::{Function, Slot};
use nicvisor_core::{Context, DeviceId, Time, VmbusDevice};
use nicvisor_net::network::PortId;
use thiserror::Error;

use super::Machine;
use super::devices::bus_of;
use super::effects::Source;

/// Where a device is.
#[derive(Debug)]
pub(super) enum Place {
    /// On the PCI root bus.
    Pci(Slot),
    /// On the bus of the hypervisor's interface.
    Channel,
    /// Unplugged.
    Out(Unplugged),
}

/// A device that is nowhere.
#[derive(Debug)]
pub(super) struct Unplugged {
    pub(super) device: Pluggable,
    /// Its ports that were up, and are to be so again.
    ports: Vec<PortId>,
}

#[derive(Debug)]
pub(super) enum Pluggable {
    /// With the slot that it was in.
    Pci(Box<Function>, Slot),
    Channel(Box<dyn VmbusDevice>),
}

/// Why a device cannot be plugged in or out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlugError {
    /// No such device.
    #[error("there is no such device")]
    Unknown,
    /// It is where it should come.
    #[error("{0} is plugged in already")]
    PluggedIn(String),
    /// It is not there.
    #[error("{0} is not plugged in")]
    PluggedOut(String),
    /// Something else is there, or nothing can be.
    #[error("{name} cannot be put into slot {slot}: it is taken, or does not exist")]
    Slot {
        /// The device.
        name: String,
        /// Where it should go.
        slot: Slot,
    },
    /// Only devices on PCI have slots.
    #[error("{0} is not on PCI and has no slot")]
    NoSlot(String),
}

impl Machine {
    /// Takes a device away from the guest, without asking it. The frames inside are dropped, those for its ports
    /// too from now on; its name and its ports stay.
    ///
    /// # Errors
    /// When it is not there.
    pub(super) fn unplug(&mut self, now: Time, id: DeviceId) -> Result<(), PlugError> {
        let attached = self.devices.get(&id).ok_or(PlugError::Unknown)?;
        let gone = || PlugError::PluggedOut(attached.name.clone());
        let mut context = Context::new(now, &self.ram, true, &mut self.effects);
        let (device, source) = match attached.place {
            Place::Pci(slot) => {
                let function = self.root.remove(&mut context, slot).ok_or_else(gone)?;
                self.slots.remove(&slot);
                (Pluggable::Pci(Box::new(function), slot), Source::Device(id))
            }
            Place::Channel => {
                let bus = bus_of(&mut self.hypervisor);
                let device = bus.and_then(|bus| bus.remove(&mut context, id)).ok_or_else(gone)?;
                (Pluggable::Channel(device), Source::Hypervisor)
            }
            Place::Out(_) => return Err(gone()),
        };
        let ports = attached.ports.iter().copied();
        let ports = ports.filter(|port| self.medium.network().set_port(*port, false)).collect();
        self.set_place(id, Place::Out(Unplugged { device, ports }));
        self.carry_out(source, now);
        Ok(())
    }

    /// Gives a device back to the guest: on PCI in `slot`, or where it was. It comes as after power-on, and without
    /// addresses; a guest finds it when it looks.
    ///
    /// # Errors
    /// When it is there already, or cannot go into that slot; it then stays where it was.
    pub(super) fn plug(&mut self, now: Time, id: DeviceId, slot: Option<Slot>) -> Result<(), PlugError> {
        let attached = self.devices.get_mut(&id).ok_or(PlugError::Unknown)?;
        let name = attached.name.clone();
        match std::mem::replace(&mut attached.place, Place::Channel) {
            Place::Out(Unplugged { device: Pluggable::Pci(function, was), ports }) => {
                let slot = slot.unwrap_or(was);
                if let Err(function) = self.root.insert(slot, *function) {
                    let device = Pluggable::Pci(function, was);
                    return self.refuse(
                        id,
                        Place::Out(Unplugged { device, ports }),
                        PlugError::Slot { name, slot },
                    );
                }
                self.slots.insert(slot, id);
                self.set_place(id, Place::Pci(slot));
                self.raise_ports(now, ports);
            }
            place @ Place::Out(Unplugged { device: Pluggable::Channel(_), .. }) if slot.is_some() => {
                return self.refuse(id, place, PlugError::NoSlot(name));
            }
            Place::Out(Unplugged { device: Pluggable::Channel(device), ports }) => {
                self.insert_channel_device(now, id, device);
                self.raise_ports(now, ports);
            }
            place => return self.refuse(id, place, PlugError::PluggedIn(name)),
        }
        Ok(())
    }

    fn refuse(&mut self, id: DeviceId, place: Place, error: PlugError) -> Result<(), PlugError> {
        self.set_place(id, place);
        Err(error)
    }

    fn raise_ports(&mut self, now: Time, ports: Vec<PortId>) {
        for port in ports {
            self.set_port(now, port, true);
        }
    }

    fn set_place(&mut self, id: DeviceId, place: Place) {
        if let Some(attached) = self.devices.get_mut(&id) {
            attached.place = place;
        }
    }
}
