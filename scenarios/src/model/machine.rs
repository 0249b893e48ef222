//! Guests and their NICs.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use toml::Spanned;

use crate::schema::rules;
use crate::units::{Size, Span};

/// A NIC: `kind`, and that kind's options as on the command line.
pub type NicTable = BTreeMap<String, serde_json::Value>;

/// A machine and the kernel under test.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Guest {
    /// The guest's name in steps, where there are two.
    #[schemars(with = "Option<String>")]
    pub name: Option<Spanned<String>>,
    /// Its kernel, such as `debian:6.12`; that of the matrix or the command line if left out.
    #[serde(default)]
    #[schemars(schema_with = "kernel")]
    pub kernel: Option<Spanned<String>>,
    /// Number of CPUs.
    #[schemars(with = "Option<u32>")]
    pub cpus: Option<Spanned<u32>>,
    /// Memory, such as `1G`.
    #[schemars(with = "Option<Size>")]
    pub memory: Option<Spanned<Size>>,
    /// Appended to the kernel command line.
    #[serde(default)]
    pub append: String,
    /// Modules to load besides the NICs' drivers.
    #[serde(default)]
    pub modules: Vec<String>,
    /// Changes of drivers' sources, by name (`edits/NAME.toml` beside the file) or path: the modules that come of
    /// them take the place of the kernel's own.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub edits: Vec<Spanned<String>>,
    /// The longest that the scenario may take in host time, such as `10m`.
    #[schemars(with = "Option<Span>")]
    pub timeout: Option<Spanned<Span>>,
}

/// `[guest]`, or `[[guest]]` up to twice; two of them have names.
pub(super) fn one_or_two_guests(generator: &mut SchemaGenerator) -> Schema {
    let guest = generator.subschema_for::<Guest>();
    let named = json_schema!({ "allOf": [guest, { "required": ["name"] }] });
    json_schema!({ "anyOf": [
        guest,
        { "type": "array", "items": guest, "maxItems": 1 },
        { "type": "array", "items": named, "minItems": 2, "maxItems": 2 }
    ] })
}

/// The kinds and options of NICs are the program's: it puts them in.
pub(super) fn nics(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "$ref": "#/$defs/Nic" } })
}

fn kernel(_: &mut SchemaGenerator) -> Schema {
    rules::kernel().try_into().expect("it is an object")
}
