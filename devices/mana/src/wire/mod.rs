//! Layouts and nothing else: what the driver and the device write for each other. All fields are little-endian.

/// Derives what every wire structure here needs and checks its size at compile time.
macro_rules! wire {
    ($(#[$attribute:meta])* $name:ident: $size:literal { $($(#[$field_attribute:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name { $($(#[$field_attribute])* pub $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $size);

        impl $name {
            /// Its fields by name; of a longer one the first bytes.
            pub const LAYOUT: &[nicvisor_core::fault::WireField] = &[$(
                nicvisor_core::fault::WireField::little(
                    stringify!($field),
                    std::mem::offset_of!($name, $field),
                    $crate::wire::word(size_of::<$type>()),
                ),
            )*];
        }
    };
}

pub mod completion;
pub mod cqe;
pub mod doorbell;
pub mod eqe;
pub mod gdma_requests;
pub mod hwc;
pub mod layout;
pub mod mana_requests;
pub mod oob;
pub mod registers;
mod request_type;
pub mod shared_memory;
pub mod wqe;

pub use request_type::{RequestType, Status};

/// `GDMA_CQE_OWNER_MASK`, `GDMA_EQE_OWNER_MASK`: the owner bits of completions and events.
pub const OWNER_MASK: u8 = 7;

/// Bytes of the longest word within `size` bytes.
const fn word(size: usize) -> u8 {
    match size {
        0 | 1 => 1,
        2 | 3 => 2,
        4..=7 => 4,
        _ => 8,
    }
}
