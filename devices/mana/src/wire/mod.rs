//! Layouts and nothing else: what the driver and the device write for each other. All fields are little-endian.

/// Derives what every wire structure here needs and checks its size at compile time.
macro_rules! wire {
    ($(#[$attribute:meta])* $name:ident: $size:literal { $($(#[$field_attribute:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name { $($(#[$field_attribute])* pub $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $size);
    };
}

pub mod gdma_requests;
pub mod hwc;
pub mod mana_requests;
pub mod registers;
mod request_type;
pub mod shared_memory;

pub use request_type::{RequestType, Status};
