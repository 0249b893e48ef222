//! What a virtio device is to the transport.

use nicvisor_core::{Frame, FrameId, Port, RestoreError, Sizes, Time};
use serde_json::Value;

use crate::Queues;

/// What a device says about itself in configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Virtio device type (virtio 1.2, chapter 5).
    pub device_type: u16,
    /// PCI class code, 24 bits.
    pub class: u32,
}

/// A device behind the transport. Queues are named by their index in [`Self::queue_sizes`].
///
/// The transport calls the device only about queues that are set up, and with queues in reach only while the
/// driver has declared itself ready.
pub trait VirtioDevice: std::fmt::Debug + Send {
    /// What the device is.
    fn kind(&self) -> Kind;

    /// The device type's own feature bits that it offers.
    fn features(&self) -> u64;

    /// The largest size of each queue: powers of two.
    fn queue_sizes(&self) -> Vec<u16>;

    /// The driver reads `data.len()` bytes at `offset` of the device's configuration.
    fn config_read(&self, offset: u64, data: &mut [u8]);

    /// The driver is ready: `features` were agreed on.
    fn activate(&mut self, queues: &mut Queues<'_, '_>, features: u64);

    /// The driver has made buffers available in `queue`.
    fn notify(&mut self, queues: &mut Queues<'_, '_>, queue: u16);

    /// See [`nicvisor_core::Device::receive`].
    fn receive(&mut self, queues: &mut Queues<'_, '_>, port: u16, frame: Frame);

    /// See [`nicvisor_core::Device::host_input`].
    fn host_input(&mut self, _queues: &mut Queues<'_, '_>, _channel: u16, _bytes: &[u8]) {}

    /// See [`nicvisor_core::Device::host_input_queued`].
    fn host_input_queued(&self, _channel: u16) -> usize {
        0
    }

    /// See [`nicvisor_core::Device::set_link`].
    fn set_link(&mut self, _queues: &mut Queues<'_, '_>, _port: u16, _up: bool) {}

    /// See [`nicvisor_core::Device::next_deadline`].
    fn next_deadline(&self) -> Option<Time> {
        None
    }

    /// See [`nicvisor_core::Device::deadline`].
    fn deadline(&mut self, _queues: &mut Queues<'_, '_>) {}

    /// Back to the state before a driver came. Frames inside are settled as dropped.
    fn reset(&mut self, queues: &mut Queues<'_, '_>);

    /// See [`nicvisor_core::Device::ports`].
    fn ports(&self) -> Vec<Port> {
        Vec::new()
    }

    /// See [`nicvisor_core::Device::counters`].
    fn counters(&self) -> Vec<(String, u64)>;

    /// See [`nicvisor_core::Device::handed_sizes`].
    fn handed_sizes(&self, _port: u16) -> Option<&Sizes> {
        None
    }

    /// See [`nicvisor_core::Device::frames_held`].
    fn frames_held(&self) -> Vec<FrameId> {
        Vec::new()
    }

    /// See [`nicvisor_core::Device::save`].
    fn save(&self) -> Value;

    /// See [`nicvisor_core::Device::restore`].
    ///
    /// # Errors
    /// When `state` is not such a state; the device is then unchanged.
    fn restore(&mut self, state: &Value) -> Result<(), RestoreError>;
}
