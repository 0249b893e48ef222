//! The machine's own state as data.

use std::collections::BTreeMap;

use nicvisor_core::pci::Slot;
use nicvisor_core::{DeviceId, Effects, RestoreError, Time};
use nicvisor_net::network::PortId;
use nicvisor_platform::Platform;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Machine;
use super::plug::{Place, Pluggable, Unplugged};

/// Everything but what the machine was made from; `P` is the platform, borrowed or not.
#[derive(Serialize, Deserialize)]
struct Saved<P> {
    platform: P,
    root: Value,
    hypervisor: Option<Value>,
    places: BTreeMap<u32, SavedPlace>,
    activity: u64,
}

/// Where a device is, and its state where no bus has it.
#[derive(Serialize, Deserialize)]
enum SavedPlace {
    Pci(Slot),
    Hypervisor,
    Channel,
    Out { slot: Option<Slot>, ports: Vec<PortId>, state: Value },
}

impl Machine {
    /// The state of everything that is the machine's own, as JSON: devices, wherever they are, platform, interrupt
    /// controllers. Not in it are RAM, the CPUs ([`crate::accel::Accelerator::save`]), the network, which other
    /// machines may share, and what waits to be taken ([`Self::take_output`] and the like).
    pub fn save(&self) -> Value {
        let saved = Saved {
            platform: &self.platform,
            root: self.root.save(),
            hypervisor: self.hypervisor().map(|hypervisor| hypervisor.save()),
            places: self.devices.iter().map(|(id, device)| (id.0, SavedPlace::of(&device.place))).collect(),
            activity: self.activity,
        };
        serde_json::to_value(saved).unwrap_or(Value::Null)
    }

    /// Takes over a state that [`Self::save`] of a machine with the same configuration and devices returned; devices
    /// are moved to where they were. To be done before RAM and the network are restored, for devices that are moved
    /// may write to the one and put frames on the other. What waits to be taken is dropped.
    ///
    /// # Errors
    /// When `state` is not such a state. Some parts may have changed then.
    pub fn restore(&mut self, state: &Value) -> Result<(), RestoreError> {
        let saved = Saved::<Platform>::deserialize(state).map_err(|error| RestoreError(error.to_string()))?;
        if !self.devices.keys().map(|id| id.0).eq(saved.places.keys().copied()) {
            return Err(RestoreError("the machines have different devices".into()));
        }
        self.move_devices(saved.places)?;
        match (&mut self.hypervisor, &saved.hypervisor) {
            (Some(hypervisor), Some(state)) => hypervisor.model.restore(state)?,
            (None, None) => {}
            _ => return Err(RestoreError("only one of the machines has a hypervisor's interface".into())),
        }
        self.root.restore(&saved.root)?;
        self.platform = saved.platform;
        self.activity = saved.activity;
        self.effects = Effects { wanted: self.effects.wanted, ..Effects::default() };
        self.findings.clear();
        self.events.clear();
        self.output.clear();
        self.leaving.clear();
        self.power = None;
        Ok(())
    }

    /// Brings devices to where they are to be. All that move go out first, so that two can exchange their slots.
    fn move_devices(&mut self, places: BTreeMap<u32, SavedPlace>) -> Result<(), RestoreError> {
        let failed = |error: super::PlugError| RestoreError(error.to_string());
        let mut moving = Vec::new();
        for (id, place) in places {
            let id = DeviceId(id);
            let Some(attached) = self.devices.get_mut(&id) else { continue };
            if place.is_where(&attached.place) {
                continue;
            }
            let device = match std::mem::replace(&mut attached.place, Place::Hypervisor) {
                Place::Out(Unplugged { device, .. }) => device,
                plugged => {
                    attached.place = plugged;
                    self.take_out(Time::ZERO, id).map_err(failed)?
                }
            };
            moving.push((id, device, place));
        }
        for (id, device, place) in moving {
            let name = self.device_name(id).to_owned();
            let slot = match place {
                SavedPlace::Out { slot, ports, state } => {
                    let device = device.in_slot(slot).restored(&state)?;
                    self.set_place(id, Place::Out(Unplugged { device, ports }));
                    continue;
                }
                SavedPlace::Pci(slot) => Some(slot),
                SavedPlace::Channel | SavedPlace::Hypervisor => None,
            };
            self.put_in(Time::ZERO, id, device, slot, name).map_err(|(_, error)| failed(error))?;
        }
        Ok(())
    }
}

impl SavedPlace {
    fn of(place: &Place) -> SavedPlace {
        match place {
            Place::Pci(slot) => SavedPlace::Pci(*slot),
            Place::Hypervisor => SavedPlace::Hypervisor,
            Place::Channel => SavedPlace::Channel,
            Place::Out(Unplugged { device, ports }) => {
                let (slot, state) = match device {
                    Pluggable::Pci(function, slot) => (Some(*slot), function.save()),
                    Pluggable::Channel(device) => (None, device.save()),
                };
                SavedPlace::Out { slot, ports: ports.clone(), state }
            }
        }
    }

    /// Whether nothing has to be done; a device that is nowhere always gets its state.
    fn is_where(&self, place: &Place) -> bool {
        match (self, place) {
            (SavedPlace::Pci(saved), Place::Pci(slot)) => saved == slot,
            (SavedPlace::Hypervisor, Place::Hypervisor) | (SavedPlace::Channel, Place::Channel) => true,
            _ => false,
        }
    }
}

impl Pluggable {
    /// With `slot` as the one that it was in.
    fn in_slot(self, slot: Option<Slot>) -> Pluggable {
        match (self, slot) {
            (Pluggable::Pci(function, _), Some(slot)) => Pluggable::Pci(function, slot),
            (device, _) => device,
        }
    }

    fn restored(mut self, state: &Value) -> Result<Pluggable, RestoreError> {
        match &mut self {
            Pluggable::Pci(function, _) => function.restore(state)?,
            Pluggable::Channel(device) => device.restore(state)?,
        }
        Ok(self)
    }
}
