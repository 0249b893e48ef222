//! The scenario file, as data. Field docs here are the schema's documentation.

mod expect;
mod interface;
mod machine;
mod network;
mod plug;
mod step;
mod value;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

use crate::schema::rules;
use crate::source::{LoadError, Sources};

pub use expect::{
    CounterExpectation, Expect, ExpectedEnding, ExpectedEndingKind, FramesExpectation, LogExpectation,
    SizeCount, Stage, Table,
};
pub use interface::Settings;
pub use machine::{Guest, NicTable};
pub use network::{Device, DeviceKind, LinkChange, LinkSpec, Namespace};
pub use plug::{PciSlot, Plug, Unplug};
pub use step::{
    CaptureSwitch, CounterWait, EventWait, FaultStep, FrameWait, JsonExpectation, Measure, MeasureSource,
    Signal, SizeMeasure, Statuses, Step, Stop, Stream, Wait,
};
pub use value::Bound;

/// One scenario: one case of a file, all parameters filled in.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Where it was read from.
    #[serde(skip)]
    pub path: PathBuf,
    /// The texts that it was read from, for messages about it.
    #[serde(skip)]
    pub sources: Arc<Sources>,
    /// The kernel of guests that do not name one; not part of the file's body but a column of its matrix.
    #[serde(skip)]
    pub kernel: String,
    /// The parameters that tell this case from the file's other ones, by name.
    #[serde(skip)]
    pub case: BTreeMap<String, String>,
    /// Name in results; the file's name without `.toml` if left out.
    #[serde(default)]
    pub name: String,
    /// What is shown by it, in a sentence.
    pub description: String,
    /// The guest, or two of them, which share links and the virtual clock.
    #[serde(default)]
    #[schemars(schema_with = "machine::one_or_two_guests")]
    pub guest: Vec<Spanned<Guest>>,
    /// NICs in order: those of a guest become its eth0, eth1, ... Each table has `kind` and that kind's options,
    /// the same as on the command line, and `guest` where there are two.
    #[serde(default, rename = "nic")]
    #[schemars(schema_with = "machine::nics")]
    pub nics: Vec<Spanned<NicTable>>,
    /// Links by name. NICs that do not name one are on `lan`.
    #[serde(default, rename = "link")]
    #[schemars(with = "BTreeMap<String, LinkSpec>")]
    pub links: BTreeMap<String, Spanned<LinkSpec>>,
    /// Network namespaces to set up before the first step, by name.
    #[serde(default, rename = "namespace")]
    #[schemars(with = "BTreeMap<String, Namespace>", extend("propertyNames" = { "pattern": rules::NAME }))]
    pub namespaces: BTreeMap<String, Spanned<Namespace>>,
    /// What is done, in order.
    #[serde(default, rename = "step")]
    #[schemars(with = "Vec<Step>")]
    pub steps: Vec<Spanned<Step>>,
    /// What must hold at the end, besides what the steps expect.
    #[serde(default)]
    pub expect: Expect,
    /// Tables of measurements to be shown with the results.
    #[serde(default, rename = "table")]
    #[schemars(with = "Vec<Table>")]
    pub tables: Vec<Spanned<Table>>,
}

impl Scenario {
    /// A mistake at `span` of its files, found by somebody who knows more about what stands there.
    pub fn mistake(
        &self,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> LoadError {
        self.sources.mistake(span, message, help)
    }

    /// The guest that `name` names, counted from 0; the first one without a name.
    pub fn guest_index(&self, name: Option<&str>) -> Option<usize> {
        match name {
            None => Some(0),
            Some(name) => (0..self.guest_count()).find(|index| self.guest_name(*index) == name),
        }
    }

    /// How many guests there are: one where nothing is said.
    pub fn guest_count(&self) -> usize {
        self.guest.len().max(1)
    }

    /// The name of guest number `index`.
    pub fn guest_name(&self, index: usize) -> String {
        self.guest.get(index).and_then(|guest| guest.get_ref().name.as_ref()).map_or_else(
            || if index == 0 { "guest".into() } else { format!("guest{index}") },
            |name| name.get_ref().clone(),
        )
    }

    /// The kernel that guest number `index` runs.
    pub fn guest_kernel(&self, index: usize) -> &str {
        self.guest
            .get(index)
            .and_then(|guest| guest.get_ref().kernel.as_ref())
            .map_or(&self.kernel, |kernel| kernel.get_ref())
    }

    /// The guest that a namespace is in, counted from 0.
    pub fn namespace_guest(&self, namespace: &str) -> usize {
        let guest = self.namespaces.get(namespace).and_then(|namespace| namespace.get_ref().guest.as_ref());
        self.guest_index(guest.map(|name| name.get_ref().as_str())).unwrap_or(0)
    }

    /// Kernel modules that guest number `index` needs besides its NICs' drivers: those that the file names and
    /// those of its namespaces' devices.
    pub fn modules(&self, index: usize) -> Vec<String> {
        let mut modules = self.guest.get(index).map_or(Vec::new(), |guest| guest.get_ref().modules.clone());
        for (name, namespace) in &self.namespaces {
            if self.namespace_guest(name) != index {
                continue;
            }
            for device in &namespace.get_ref().devices {
                let module = device.get_ref().kind.module().to_owned();
                if !modules.contains(&module) {
                    modules.push(module);
                }
            }
        }
        modules
    }
}
