//! The way in for everything that does not come from the guest.

use nicvisor_core::fault::{Fault, FaultError};
use nicvisor_core::pci::Slot;
use nicvisor_core::{Context, DeviceId, Time};
use nicvisor_net::network::PortId;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::effects::Source;
use super::{Machine, PlugError};

/// Something that comes to a machine from outside: from the host, a scenario, a fuzzer, or the world behind a link.
///
/// A machine has no other input. What it does depends on its configuration, its network (to which
/// [`nicvisor_net::network::Change`] is what this is to the machine), and on these, each at its moment of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Input {
    /// Bytes typed at the serial console.
    Serial(Vec<u8>),
    /// Bytes from the host for a channel of a device (a console port).
    Channel {
        /// The device.
        device: DeviceId,
        /// Its channel.
        channel: u16,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A fault goes into a device, or it has to do something. [`nicvisor_core::Device::fault_points`] says what can
    /// be named.
    Fault {
        /// The device.
        device: DeviceId,
        /// What goes wrong, or happens.
        fault: Box<Fault>,
    },
    /// A port is connected to its link, or pulled out of it; its device notices.
    Port {
        /// The port.
        port: PortId,
        /// Whether it is connected.
        up: bool,
    },
    /// The state of a port has changed on the network, which others share: its device has to be told.
    Link {
        /// The port.
        port: PortId,
        /// Its state now.
        up: bool,
    },
    /// A frame comes through a link that leads out.
    Frame {
        /// The port that stands for the world outside.
        port: PortId,
        /// The frame.
        bytes: Vec<u8>,
    },
    /// A device is taken away from the guest, without asking it. The frames inside are dropped, those for its ports
    /// too from now on; its name and its ports stay.
    Unplug {
        /// The device.
        device: DeviceId,
    },
    /// A device is given back: on PCI in `slot`, or where it was. It comes as after power-on, and without addresses;
    /// a guest finds it when it looks.
    Plug {
        /// The device.
        device: DeviceId,
        /// Where to, on PCI.
        slot: Option<Slot>,
    },
}

/// Why an input was not possible; nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InputError {
    /// The device does not know the fault or cannot do it now.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// The device cannot be plugged in or out.
    #[error(transparent)]
    Plug(#[from] PlugError),
}

impl Machine {
    /// Lets something happen from outside.
    ///
    /// # Errors
    /// When it is not possible; says why.
    pub fn input(&mut self, now: Time, input: Input) -> Result<(), InputError> {
        match input {
            Input::Serial(bytes) => {
                let mut context = Context::new(now, &self.ram, true, &mut self.effects);
                self.platform.serial_input(&mut context, &bytes);
                self.carry_out(Source::Platform, now);
            }
            Input::Channel { device, channel, bytes } => {
                self.call(now, device, |device, context| device.host_input(context, channel, &bytes));
            }
            Input::Fault { device, fault } => {
                let mut result = Err(FaultError::NotNow("the device is not plugged in".to_owned()));
                self.call(now, device, |device, context| result = device.inject(context, &fault));
                result?;
            }
            Input::Port { port, up } => self.set_port(now, port, up),
            Input::Link { port, up } => self.link_changed(now, port, up),
            Input::Frame { port, bytes } => {
                // Whatever rules a stranger breaks are not the guest's to answer for.
                self.medium.inject(port, bytes, now);
            }
            Input::Unplug { device } => self.unplug(now, device)?,
            Input::Plug { device, slot } => self.plug(now, device, slot)?,
        }
        Ok(())
    }

    /// Plugs or unplugs a network port, and tells its device when that changes the link's state.
    pub(super) fn set_port(&mut self, now: Time, port: PortId, up: bool) {
        if self.network().set_port(port, up) {
            self.link_changed(now, port, up);
        }
    }

    /// Tells the device behind `port`, if it is one of this machine's, that its link's state has changed.
    fn link_changed(&mut self, now: Time, port: PortId, up: bool) {
        if let Some(&(id, index)) = self.ports.get(&port) {
            self.call(now, id, |device, context| device.set_link(context, index, up));
        }
    }
}
