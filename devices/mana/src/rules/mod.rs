//! What a driver of this device must keep.
//!
//! Rules about the *packets* that a driver hands over, which hold for every NIC, are in `nicvisor_net` and have
//! ids that start with `net-`; they are applied here too.

macro_rules! rules {
    ($($name:ident $severity:ident $id:literal $title:literal $meaning:literal $source:literal;)*) => {
        $(
            #[doc = $title]
            pub const $name: nicvisor_core::Rule = nicvisor_core::Rule {
                id: $id,
                title: $title,
                meaning: $meaning,
                source: $source,
                severity: nicvisor_core::Severity::$severity,
            };
        )*
        /// The rules of this module, in the order of a driver's life.
        pub const RULES: &[nicvisor_core::Rule] = &[$($name),*];
    };
}

pub mod control;
pub mod data;

use nicvisor_core::Rule;

/// All rules of this device.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    control::RULES.iter().chain(data::RULES)
}
