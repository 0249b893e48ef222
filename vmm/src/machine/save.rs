//! The machine's own state as data.

use nicvisor_core::{DeviceId, RestoreError};
use nicvisor_platform::Platform;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Machine;

#[derive(Serialize, Deserialize)]
struct SavedMachine {
    platform: Platform,
    root: Value,
    hypervisor: Option<Value>,
    unplugged: Vec<DeviceId>,
    activity: u64,
}

impl Machine {
    /// The state of everything that is the machine's own, as JSON. Not in it are RAM, the CPUs
    /// ([`crate::accel::Accelerator::save`]) and the network, which other machines may share.
    pub fn save(&self) -> Value {
        let saved = SavedRef {
            platform: &self.platform,
            root: self.root.save(),
            hypervisor: self.hypervisor.as_ref().map(|hypervisor| hypervisor.save()),
            unplugged: self.unplugged(),
            activity: self.activity,
        };
        serde_json::to_value(saved).unwrap_or(Value::Null)
    }

    /// Takes over a state that [`Self::save`] of a machine with the same configuration and devices returned.
    ///
    /// # Errors
    /// When `state` is not such a state, or other devices are plugged in. Some parts may have changed then.
    pub fn restore(&mut self, state: &Value) -> Result<(), RestoreError> {
        let saved = SavedMachine::deserialize(state).map_err(|error| RestoreError(error.to_string()))?;
        if saved.unplugged != self.unplugged() {
            return Err(RestoreError("other devices are plugged in".into()));
        }
        match (&mut self.hypervisor, &saved.hypervisor) {
            (Some(hypervisor), Some(state)) => hypervisor.restore(state)?,
            (None, None) => {}
            _ => return Err(RestoreError("only one of the machines has a hypervisor's interface".into())),
        }
        self.root.restore(&saved.root)?;
        self.platform = saved.platform;
        self.activity = saved.activity;
        Ok(())
    }

    fn unplugged(&self) -> Vec<DeviceId> {
        self.devices().filter(|id| !self.is_plugged_in(*id)).collect()
    }
}

/// [`SavedMachine`], borrowed.
#[derive(Serialize)]
struct SavedRef<'a> {
    platform: &'a Platform,
    root: Value,
    hypervisor: Option<Value>,
    unplugged: Vec<DeviceId>,
    activity: u64,
}
