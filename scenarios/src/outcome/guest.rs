//! A guest of a scenario, as it was.

use serde::{Deserialize, Serialize};

use crate::lab::EndingKind;
use crate::model::Scenario;

/// A guest, as it was.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GuestOutcome {
    /// Its name.
    pub name: String,
    /// The kernel that was asked for.
    pub kernel: String,
    /// The kernel's exact version.
    pub version: String,
    /// What ran its CPUs, and why that; both empty if it was not started.
    #[serde(default)]
    pub backend: String,
    /// See [`Self::backend`].
    #[serde(default)]
    pub backend_reason: String,
    /// Its CPUs; 0 if it was not started.
    #[serde(default)]
    pub cpus: usize,
    /// Its memory in bytes; 0 if it was not started.
    #[serde(default)]
    pub memory: u64,
    /// Its NICs, as the command line would name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<String>,
    /// The changes of drivers' sources that the scenario asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edits: Vec<String>,
    /// The drivers that were loaded, and modules that take the place of the kernel's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drivers: Vec<Driver>,
    /// How it went down, if it did before the end.
    pub ending: Option<EndingKind>,
    /// What its kernel logged. A file of its own in reports, so not part of the JSON.
    #[serde(skip)]
    pub log: String,
}

/// A module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// Its name.
    pub module: String,
    /// Where it is from.
    pub origin: Origin,
}

/// Where a module is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// It came with the kernel, or is a part of it.
    Kernel,
    /// It was built from the kernel's source with these edits.
    Edits(Vec<String>),
    /// It was given as this file.
    File(String),
}

impl GuestOutcome {
    /// What a scenario says of its guest number `index`.
    pub(crate) fn new(scenario: &Scenario, index: usize) -> GuestOutcome {
        GuestOutcome {
            name: scenario.guest_name(index),
            kernel: scenario.guest_kernel(index).to_owned(),
            nics: nics(scenario, index),
            edits: edits(scenario, index),
            ..GuestOutcome::default()
        }
    }
}

/// A guest's NICs, each with its options.
fn nics(scenario: &Scenario, guest: usize) -> Vec<String> {
    let tables = scenario.nics.iter().map(|nic| nic.get_ref());
    let own = tables.filter(|table| {
        let name = table.get("guest").and_then(|name| name.as_str());
        scenario.guest_index(name) == Some(guest)
    });
    let text = |value: &serde_json::Value| value.as_str().map_or(value.to_string(), str::to_owned);
    own.map(|table| {
        let mut words = vec![table.get("kind").map(text).unwrap_or_default()];
        let options = table.iter().filter(|(key, _)| !["kind", "guest"].contains(&key.as_str()));
        words.extend(options.map(|(key, value)| format!("{key}={}", text(value))));
        words.join(",")
    })
    .collect()
}

fn edits(scenario: &Scenario, guest: usize) -> Vec<String> {
    let guest = scenario.guest.get(guest).map(|guest| guest.get_ref());
    guest.map_or(Vec::new(), |guest| guest.edits.iter().map(|edit| edit.get_ref().clone()).collect())
}
