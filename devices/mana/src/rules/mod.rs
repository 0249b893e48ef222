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

use nicvisor_core::{Context, Finding, Rule};

use crate::config::Config;

/// All rules of this device.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    control::RULES.iter().chain(data::RULES)
}

/// Records a breach of `rule`, unless the configuration says that it is not to be reported.
pub fn report(
    config: &Config,
    context: &mut Context<'_>,
    rule: &Rule,
    message: impl Into<String>,
    complete: impl FnOnce(&mut Finding),
) {
    if !config.ignored_rules.contains(rule.id) {
        context.report(rule, message, complete);
    }
}
