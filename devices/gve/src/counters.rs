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
    /// Packets that the driver handed over.
    tx_packets,
    /// Of those, packets to be segmented.
    tx_tso_packets,
    /// Largest IPv4 packet handed over, from the IP header on.
    tx_ipv4_max,
    /// Largest IPv6 packet handed over, from the IP header on.
    tx_ipv6_max,
    /// IPv4 packets handed over that are too long for a 16-bit length.
    tx_ipv4_above_64k,
    /// IPv6 packets handed over that are too long for a 16-bit length.
    tx_ipv6_above_64k,
    /// Packets whose checksum the device filled in.
    tx_checksums,
    /// Packet completions.
    tx_completions,
    /// Descriptor completions.
    tx_descriptor_completions,
    /// Packets handed over that never left.
    tx_dropped,
    /// Frames delivered to the driver.
    rx_frames,
    /// Their bytes.
    rx_bytes,
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
