//! The trait of every device model, whatever bus it is on.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::fault::{Fault, FaultError, FaultPoints, FaultStatus};
use crate::{Context, Frame, FrameId, Sizes, Time};

/// A device model, as far as the bus that it is on makes no difference.
///
/// What a guest reaches it through is another trait on top of this one: [`crate::PciDevice`] for registers on
/// PCI, [`crate::VmbusDevice`] for channels. The bus part (for PCI, [`crate::pci::Function`]) also decides what [`Context::raise`] becomes: a PCI
/// function turns it into a message from its MSI-X table.
pub trait Device: std::fmt::Debug + Send {
    /// A frame arrives at the device's port number `port`. Sooner or later the device must
    /// [`Context::settle`] it.
    fn receive(&mut self, context: &mut Context<'_>, port: u16, frame: Frame);

    /// Bytes from the host side for channel `channel` (console input). Devices without one ignore them.
    fn host_input(&mut self, _context: &mut Context<'_>, _channel: u16, _bytes: &[u8]) {}

    /// How many bytes of [`Self::host_input`] the guest has not taken yet. Nothing is lost however many there
    /// are; a host that feeds a large file waits for this to shrink.
    fn host_input_queued(&self, _channel: u16) -> usize {
        0
    }

    /// The link of `port` goes up or down.
    fn set_link(&mut self, _context: &mut Context<'_>, _port: u16, _up: bool) {}

    /// The port that `port` is bonded with has come (`present`) or gone; it gets the frames only after a
    /// [`Context::switch_path`].
    fn partner_changed(&mut self, _context: &mut Context<'_>, _port: u16, _present: bool) {}

    /// When the device next wants [`Self::deadline`] to be called, if nothing else happens before.
    fn next_deadline(&self) -> Option<Time>;

    /// It is now at or after [`Self::next_deadline`].
    fn deadline(&mut self, context: &mut Context<'_>);

    /// Back to power-on state. Frames inside are settled as dropped.
    fn reset(&mut self, context: &mut Context<'_>);

    /// The device's ports, in order; empty for a device that is not a NIC.
    fn ports(&self) -> Vec<Port>;

    /// The device's counters by name, in a stable order, for reports and scenario expectations.
    fn counters(&self) -> Vec<(String, u64)>;

    /// What faults and events can name. Constant for the device's life; a device without any has none.
    fn fault_points(&self) -> FaultPoints {
        FaultPoints::default()
    }

    /// Takes a fault in, or does the event that it names. See [`crate::fault`].
    ///
    /// # Errors
    /// When it names what [`Self::fault_points`] does not, contradicts itself, or is not possible now; the device
    /// is then unchanged.
    fn inject(&mut self, _context: &mut Context<'_>, fault: &Fault) -> Result<(), FaultError> {
        Err(self.fault_points().refusal(fault))
    }

    /// The faults that are in the device, and what each has hit so far.
    fn fault_status(&self) -> Vec<FaultStatus> {
        Vec::new()
    }

    /// The sizes of all packets that the driver has handed to port number `port`, before any segmentation;
    /// `None` from a device that does not count them.
    fn handed_sizes(&self, _port: u16) -> Option<&Sizes> {
        None
    }

    /// The frames inside: those that the device was given and has not settled yet. What is asked while the
    /// machine runs, to tell frames that wait from frames that were lost.
    fn frames_held(&self) -> Vec<FrameId> {
        Vec::new()
    }

    /// The whole state as JSON, to be shown or handed to [`Self::restore`].
    fn save(&self) -> Value;

    /// Takes over a state that [`Self::save`] of a device with the same configuration returned.
    ///
    /// # Errors
    /// When `state` is not such a state; the device is then unchanged.
    fn restore(&mut self, state: &Value) -> Result<(), RestoreError>;
}

/// Names a device of a machine, wherever it is plugged in: a device that moves (an offer that is revoked and
/// comes back in another slot) keeps its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceId(pub u32);

/// A state that does not fit the device.
#[derive(Debug, Error)]
#[error("saved state does not fit the device: {0}")]
pub struct RestoreError(pub String);

/// One network port of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// The port's permanent MAC address.
    pub mac: [u8; 6],
    /// Largest IP packet that the port's link carries, in bytes.
    pub mtu: u16,
}
