//! What the device counted since power-on.

use serde::{Deserialize, Serialize};

macro_rules! counters {
    ($($(#[$attribute:meta])* $name:ident,)*) => {
        /// All counters.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub(crate) struct Counters { $($(#[$attribute])* pub(crate) $name: u64,)* }

        impl Counters {
            /// The counters by name.
            pub(crate) fn list(&self) -> Vec<(String, u64)> {
                vec![$((stringify!($name).to_owned(), self.$name)),*]
            }
        }
    };
}

counters! {
    /// Frames put on the link.
    tx_frames,
    /// Their bytes.
    tx_bytes,
    /// Packets whose checksum the device filled in.
    tx_checksums,
    /// Packet completions.
    tx_completions,
    /// Packets that took the miss path.
    tx_misses,
    /// Descriptor completions.
    tx_descriptor_completions,
    /// Packets handed over that never left.
    tx_dropped,
    /// Frames delivered to the driver.
    rx_frames,
    /// Their bytes, as they were delivered.
    rx_bytes,
    /// Frames that were delivered with one before them.
    rx_coalesced,
    /// Receive completions.
    rx_completions,
    /// Frames delivered with a checksum found wrong.
    rx_bad_checksum,
    /// Frames dropped as the NIC's memory was full.
    rx_dropped_no_buffer,
    /// Frames dropped as too long.
    rx_dropped_too_long,
    /// Frames dropped for any other reason.
    rx_dropped_other,
    /// Most bytes ever held in the NIC's memory.
    rx_memory_max,
    /// Interrupts of notification blocks.
    interrupts,
    /// Interrupts of the management vector.
    management_interrupts,
    /// Resets by the driver or the bus.
    resets,
}
