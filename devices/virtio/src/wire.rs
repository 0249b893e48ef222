//! Layouts of the PCI transport (virtio 1.2, section 4.1) and numbers that all devices share.

/// PCI vendor of all virtio devices.
pub(crate) const VENDOR: u16 = 0x1af4;
/// PCI device id of virtio device type 0.
pub(crate) const FIRST_DEVICE: u16 = 0x1040;
/// Subsystem id; carries no meaning since virtio 1.0.
pub(crate) const SUBSYSTEM: u16 = 0x1100;
/// PCI revision of devices without a legacy interface.
pub(crate) const REVISION: u8 = 1;

/// The BAR with the MSI-X table.
pub(crate) const MSIX_BAR: u8 = 1;
/// The BAR with the four register structures.
pub(crate) const REGISTER_BAR: u8 = 4;
/// Size of [`REGISTER_BAR`]: a page for each structure.
pub(crate) const REGISTER_BAR_SIZE: u64 = 0x4000;
/// Common configuration structure in [`REGISTER_BAR`].
pub(crate) const COMMON: u64 = 0x0000;
/// Interrupt status byte.
pub(crate) const INTERRUPT_STATUS: u64 = 0x1000;
/// Device-specific configuration.
pub(crate) const DEVICE_CONFIG: u64 = 0x2000;
/// Notification area.
pub(crate) const NOTIFY: u64 = 0x3000;
/// Length of each structure.
pub(crate) const STRUCTURE_LENGTH: u64 = 0x1000;
/// Bytes between the notification addresses of two queues.
pub(crate) const NOTIFY_MULTIPLIER: u32 = 4;

/// Offsets in the common configuration (4.1.4.3).
pub(crate) mod common {
    pub(crate) const DEVICE_FEATURE_SELECT: u64 = 0x00;
    pub(crate) const DEVICE_FEATURE: u64 = 0x04;
    pub(crate) const DRIVER_FEATURE_SELECT: u64 = 0x08;
    pub(crate) const DRIVER_FEATURE: u64 = 0x0c;
    pub(crate) const CONFIG_VECTOR: u64 = 0x10;
    pub(crate) const QUEUE_COUNT: u64 = 0x12;
    pub(crate) const STATUS: u64 = 0x14;
    pub(crate) const CONFIG_GENERATION: u64 = 0x15;
    pub(crate) const QUEUE_SELECT: u64 = 0x16;
    pub(crate) const QUEUE_SIZE: u64 = 0x18;
    pub(crate) const QUEUE_VECTOR: u64 = 0x1a;
    pub(crate) const QUEUE_ENABLE: u64 = 0x1c;
    pub(crate) const QUEUE_NOTIFY_OFFSET: u64 = 0x1e;
    pub(crate) const QUEUE_DESCRIPTORS: u64 = 0x20;
    pub(crate) const QUEUE_DRIVER: u64 = 0x28;
    pub(crate) const QUEUE_DEVICE: u64 = 0x30;
    pub(crate) const QUEUE_DESCRIPTORS_HIGH: u64 = QUEUE_DESCRIPTORS + 4;
    pub(crate) const QUEUE_DRIVER_HIGH: u64 = QUEUE_DRIVER + 4;
    pub(crate) const QUEUE_DEVICE_HIGH: u64 = QUEUE_DEVICE + 4;
    /// Bytes of the structure.
    pub(crate) const LENGTH: usize = 0x38;
}

/// Device status bits (2.1).
pub(crate) mod status {
    pub(crate) const DRIVER_OK: u8 = 4;
    pub(crate) const FEATURES_OK: u8 = 8;
    pub(crate) const NEEDS_RESET: u8 = 64;
}

/// "No vector" in the vector registers.
pub(crate) const NO_VECTOR: u16 = 0xffff;
/// Interrupt status: a queue has used buffers.
pub(crate) const INTERRUPT_QUEUE: u8 = 1;
/// Interrupt status: the device's configuration or status changed.
pub(crate) const INTERRUPT_CONFIG: u8 = 2;

/// Feature: buffers may be described by a table of their own.
pub(crate) const FEATURE_INDIRECT: u64 = 1 << 28;
/// Feature: the device follows version 1 of the specification.
pub(crate) const FEATURE_VERSION_1: u64 = 1 << 32;

/// The vendor capabilities that tell where the structures are (4.1.4).
pub(crate) fn capabilities() -> Vec<Vec<u8>> {
    let structure = |kind: u8, offset: u64| {
        let mut body = vec![kind, REGISTER_BAR, 0, 0, 0];
        body.extend((offset as u32).to_le_bytes());
        body.extend((STRUCTURE_LENGTH as u32).to_le_bytes());
        body
    };
    let mut notify = structure(2, NOTIFY);
    notify.extend(NOTIFY_MULTIPLIER.to_le_bytes());
    vec![structure(1, COMMON), notify, structure(3, INTERRUPT_STATUS), structure(4, DEVICE_CONFIG)]
}
