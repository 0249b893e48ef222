//! Plugging devices in and out while the machine runs.

use nicvisor_core::pci::{Function, Slot};
use nicvisor_core::{Context, DeviceId, Time, VmbusDevice};
use nicvisor_net::network::PortId;
use thiserror::Error;

use super::Machine;
use super::effects::Source;

/// Where a device is.
#[derive(Debug)]
pub(super) enum Place {
    /// On the PCI root bus.
    Pci(Slot),
    /// It is the hypervisor's interface itself.
    Hypervisor,
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
    pub(super) ports: Vec<PortId>,
}

/// A device with what goes along when it is moved.
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
    /// The hypervisor's interface is not plugged in anywhere.
    #[error("{0} is a part of the machine and cannot be plugged out")]
    Fixed(String),
    /// Only devices on PCI have slots.
    #[error("{0} is not on PCI and has no slot")]
    NoSlot(String),
}

impl Machine {
    /// Makes one port of two devices' ports with the same MAC: see [`nicvisor_net::network::Network::bond`]. Which one
    /// gets the frames is up to the device of the first ([`Context::switch_path`]), which is told when the other comes
    /// and goes.
    pub fn bond(&mut self, now: Time, own: PortId, partner: PortId) {
        self.network().bond(own, partner);
        self.bonds
            .retain(|(first, second)| ![own, partner].iter().any(|port| port == first || port == second));
        self.bonds.push((own, partner));
        let present = self.ports.get(&partner).is_some_and(|(id, _)| self.is_plugged_in(*id));
        self.tell_partners(now, &[partner], present);
    }

    /// See [`super::Input::Unplug`].
    pub(super) fn unplug(&mut self, now: Time, id: DeviceId) -> Result<(), PlugError> {
        let device = self.take_out(now, id)?;
        let all = self.device_ports(id).to_vec();
        let ports = {
            let mut network = self.network();
            all.iter().for_each(|port| network.vacate(*port));
            all.iter().copied().filter(|port| network.set_port(*port, false)).collect()
        };
        self.set_place(id, Place::Out(Unplugged { device, ports }));
        self.tell_partners(now, &all, false);
        Ok(())
    }

    /// See [`super::Input::Plug`].
    pub(super) fn plug(&mut self, now: Time, id: DeviceId, slot: Option<Slot>) -> Result<(), PlugError> {
        let attached = self.devices.get_mut(&id).ok_or(PlugError::Unknown)?;
        let name = attached.name.clone();
        match std::mem::replace(&mut attached.place, Place::Channel) {
            Place::Out(Unplugged { device, ports }) => {
                if let Err((device, error)) = self.put_in(now, id, device, slot, name) {
                    self.set_place(id, Place::Out(Unplugged { device, ports }));
                    return Err(error);
                }
                for port in ports {
                    self.set_port(now, port, true);
                }
                let all = self.device_ports(id).to_vec();
                self.tell_partners(now, &all, true);
                Ok(())
            }
            place => {
                self.set_place(id, place);
                Err(PlugError::PluggedIn(name))
            }
        }
    }

    /// Takes a device from where it is, after a reset.
    pub(super) fn take_out(&mut self, now: Time, id: DeviceId) -> Result<Pluggable, PlugError> {
        let attached = self.devices.get(&id).ok_or(PlugError::Unknown)?;
        let name = attached.name.clone();
        match attached.place {
            Place::Pci(slot) => {
                let mut context = Context::new(now, &self.ram, true, &mut self.effects);
                let function = self.root.remove(&mut context, slot).ok_or(PlugError::PluggedOut(name))?;
                self.slots.remove(&slot);
                self.carry_out(Source::Device(id), now);
                Ok(Pluggable::Pci(Box::new(function), slot))
            }
            Place::Channel => {
                let device = self.call_bus(now, |bus, context| bus.remove(context, id));
                device.flatten().map(Pluggable::Channel).ok_or(PlugError::PluggedOut(name))
            }
            Place::Hypervisor => Err(PlugError::Fixed(name)),
            Place::Out(_) => Err(PlugError::PluggedOut(name)),
        }
    }

    /// Puts a device called `name` where it was, or into another slot; gives it back when that is not possible.
    pub(super) fn put_in(
        &mut self,
        now: Time,
        id: DeviceId,
        device: Pluggable,
        slot: Option<Slot>,
        name: String,
    ) -> Result<(), (Pluggable, PlugError)> {
        match (device, slot) {
            (Pluggable::Pci(function, was), _) => {
                let slot = slot.unwrap_or(was);
                if let Err(function) = self.root.insert(slot, *function) {
                    return Err((Pluggable::Pci(function, was), PlugError::Slot { name, slot }));
                }
                self.slots.insert(slot, id);
                self.set_place(id, Place::Pci(slot));
            }
            (device @ Pluggable::Channel(_), Some(_)) => return Err((device, PlugError::NoSlot(name))),
            (Pluggable::Channel(device), None) => {
                self.set_place(id, Place::Channel);
                self.insert_channel_device(now, id, device);
            }
        }
        Ok(())
    }

    /// Tells the devices whose ports are bonded with one of `ports` that it has come or gone.
    fn tell_partners(&mut self, now: Time, ports: &[PortId], present: bool) {
        let bonds = self.bonds.iter().filter(|(_, partner)| ports.contains(partner));
        let told: Vec<(DeviceId, u16)> = bonds.filter_map(|(own, _)| self.ports.get(own)).copied().collect();
        for (id, index) in told {
            self.call(now, id, |device, context| device.partner_changed(context, index, present));
        }
    }

    pub(super) fn set_place(&mut self, id: DeviceId, place: Place) {
        if let Some(attached) = self.devices.get_mut(&id) {
            attached.place = place;
        }
    }
}
