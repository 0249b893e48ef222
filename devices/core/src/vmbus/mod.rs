//! Devices on VMBus, the channel bus of Hyper-V.
//!
//! The parts are those of PCI. A model implements [`VmbusDevice`] on top of [`Device`]; the bus part around it (for
//! PCI, [`crate::pci::Function`]) speaks the bus protocol with the guest: it offers the device, keeps the GPADLs,
//! and turns [`Context::raise`] into an interrupt of the channel with that number. The bus itself belongs to a
//! hypervisor's interface, which the machine reaches it through ([`ChannelBus`]).

mod gpadl;

pub use gpadl::{GpaRange, Gpadl};

use serde::{Deserialize, Serialize};

use crate::{Context, Device, DeviceId};

/// A device model that guests reach through channels.
///
/// Channel 0 is the one that was offered; the others are its sub-channels, in the order in which they were asked
/// for with [`Context::offer_sub_channels`]. Nothing here may panic on what the guest does, but the order of calls
/// is the bus's to keep: no signal without an open channel, no channel opened twice, no close without an open.
/// [`Device::reset`] closes all channels and forgets all GPADLs.
pub trait VmbusDevice: Device {
    /// What the guest is offered; constant for the device's life.
    fn offer(&self) -> Offer;

    /// The guest opens channel number `channel`. Its rings are the device's from now on.
    ///
    /// # Errors
    /// A status for the guest when the device does not want it (Linux include/linux/hyperv.h, struct
    /// vmbus_channel_open_result: anything but zero); the channel is then closed.
    fn open(&mut self, context: &mut Context<'_>, channel: u16, rings: Rings) -> Result<(), u32>;

    /// The guest closes a channel, or goes away with it. The rings must not be touched any more.
    fn close(&mut self, context: &mut Context<'_>, channel: u16);

    /// The guest has put something into the ring to the host, or made room in the other, and says so.
    fn signalled(&mut self, context: &mut Context<'_>, channel: u16);

    /// The guest has shared memory that packets can name by its handle.
    fn gpadl_created(&mut self, context: &mut Context<'_>, gpadl: Gpadl);

    /// The guest takes that memory back. A device that still uses it reports that as the driver's mistake.
    fn gpadl_torn_down(&mut self, context: &mut Context<'_>, handle: u32);

    /// The guest reads memory that is no RAM and nobody else's; `data` comes filled with ones. Returns whether the
    /// address is one of the device's: a PCI function behind the bus has registers, and a configuration window.
    fn read_memory(&mut self, _context: &mut Context<'_>, _address: u64, _data: &mut [u8]) -> bool {
        false
    }

    /// The guest writes such memory.
    fn write_memory(&mut self, _context: &mut Context<'_>, _address: u64, _data: &[u8]) -> bool {
        false
    }

    /// Where the device's doorbells are now: see [`crate::PciDevice::doorbells`].
    fn doorbells(&self) -> Vec<u64> {
        Vec::new()
    }
}

/// What a guest is told of a device (Linux include/linux/hyperv.h, struct vmbus_channel_offer; numbers that the bus
/// hands out are left out).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// What kind of device it is, as the bytes of a `guid_t`.
    pub class: [u8; 16],
    /// Which one it is, as the bytes of a `guid_t`.
    pub instance: [u8; 16],
    /// Channel flags.
    pub flags: u16,
    /// Megabytes of address space that the guest shall set aside.
    pub mmio_megabytes: u16,
    /// What the kind of device defines, up to 120 bytes.
    pub user_defined: Vec<u8>,
}

/// The two rings of an open channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rings {
    /// The memory of both, the one to the host first.
    pub memory: Gpadl,
    /// Where the ring to the guest begins, in bytes.
    pub to_guest_offset: u32,
    /// Virtual processor to interrupt.
    pub target_processor: u32,
    /// What the guest's driver gives the device, up to 120 bytes.
    pub user_data: Vec<u8>,
}

/// The bus, as the machine sees it.
///
/// Every device is called in its own name ([`Context::on_behalf`]), so that the machine can tell what it wants done
/// from what the bus wants.
pub trait ChannelBus {
    /// Puts a device on the bus and offers it, if the guest is connected; otherwise as soon as it is.
    fn insert(&mut self, context: &mut Context<'_>, id: DeviceId, device: Box<dyn VmbusDevice>);

    /// Takes a device off the bus and rescinds its offer. Channels that are open are closed.
    fn remove(&mut self, context: &mut Context<'_>, id: DeviceId) -> Option<Box<dyn VmbusDevice>>;

    /// A device on the bus, to be looked at.
    fn device(&self, id: DeviceId) -> Option<&dyn Device>;

    /// Calls a device on the bus and does what it asks the bus for; nothing when it is not there.
    fn call(
        &mut self,
        context: &mut Context<'_>,
        id: DeviceId,
        call: &mut dyn FnMut(&mut dyn Device, &mut Context<'_>),
    );

    /// See [`VmbusDevice::read_memory`].
    fn read_memory(&mut self, context: &mut Context<'_>, address: u64, data: &mut [u8]) -> bool;

    /// See [`VmbusDevice::write_memory`].
    fn write_memory(&mut self, context: &mut Context<'_>, address: u64, data: &[u8]) -> bool;

    /// Where the doorbells of all devices are now.
    fn doorbells(&self) -> Vec<u64>;
}
